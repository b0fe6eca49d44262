"""Change several tables in one snapshot: verbs run in a private draft, and what they did is committed at once.

`Draft` is a catalog of the transaction's own, with the tables that it uses as they were when it began. `publish` folds
everything that was done to each table into one change and commits all changes together.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.transactions.earlier_rows import restore
    from ducklake_orch.catalog.transactions.publishing import LakeDraft, remove_unpublished
    from ducklake_orch.catalog.transactions.sql_draft import draft_sql
    from ducklake_orch.catalog.transactions.stage_draft import StageDraft, refusing_ended
    from ducklake_orch.catalog.transactions.stage_end import (
        discard_past_stages,
        discard_stage,
        past_stages,
        publish_stage,
    )
    from ducklake_orch.catalog.transactions.stage_rows import (
        create_stage,
        find_stage,
        find_stages,
        refuse_ended,
        tables_in_use,
    )
    from ducklake_orch.catalog.transactions.stored_stage import StoredStage, scoped_key
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
