"""Find the rows that a delete, update, merge or replacement changes, as positions in data files.

The state of the table is planned at one snapshot without holding a lock. A file that loses all of its rows is retired,
one that loses many is rewritten, and any other gets a delete file.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.search.fairness import Turns as Turns
    from ducklake_orch.catalog.search.fairness import session_of as session_of
    from ducklake_orch.catalog.search.row_plan import RowPlan as RowPlan
    from ducklake_orch.catalog.search.row_plan import arrow_copy as arrow_copy
    from ducklake_orch.catalog.search.row_plan import arrow_copy_sql as arrow_copy_sql
    from ducklake_orch.catalog.search.row_plan import inlined_sql as inlined_sql
    from ducklake_orch.catalog.search.row_plan import plan_rows as plan_rows
    from ducklake_orch.catalog.search.row_plan import planning as planning
    from ducklake_orch.catalog.search.row_positions import DuckDBFinder as DuckDBFinder
    from ducklake_orch.catalog.search.row_positions import Finder as Finder
    from ducklake_orch.catalog.search.row_positions import Hits as Hits
    from ducklake_orch.catalog.search.row_positions import StoredHits as StoredHits
    from ducklake_orch.catalog.search.row_positions import placed_sql as placed_sql
    from ducklake_orch.catalog.search.row_search import Losses as Losses
    from ducklake_orch.catalog.search.row_search import RowSearch as RowSearch
    from ducklake_orch.catalog.search.row_search import union_sql as union_sql
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "fairness": ["Turns", "session_of"],
            "row_plan": ["RowPlan", "inlined_sql", "plan_rows", "planning", "arrow_copy", "arrow_copy_sql"],
            "row_positions": ["DuckDBFinder", "Finder", "Hits", "StoredHits", "placed_sql"],
            "row_search": ["Losses", "RowSearch", "union_sql"],
        },
    )
