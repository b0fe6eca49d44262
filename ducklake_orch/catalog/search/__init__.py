"""Find the rows that a delete, update, merge or replacement changes, as positions in data files.

The state of the table is planned at one snapshot without holding a lock. A file that loses all of its rows is retired,
one that loses many is rewritten, and any other gets a delete file.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.search.past_table import check_existed
    from ducklake_orch.catalog.search.row_change_attempts import RowChangeAttempts, session_of
    from ducklake_orch.catalog.search.row_plan import (
        RowPlan,
        arrow_copy,
        arrow_copy_sql,
        inlined_sql,
        plan_rows,
        planning,
    )
    from ducklake_orch.catalog.search.row_positions import (
        DuckDBFinder,
        Finder,
        MatchedPositions,
        StoredPositions,
        placed_sql,
    )
    from ducklake_orch.catalog.search.row_search import Losses, RowSearch, union_sql
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
