"""What users do to rows: write, merge, delete, update and roll back. One module per verb of the `DuckLake` facade.

A verb plans at one snapshot, writes its files, commits them, and plans again if a concurrent commit conflicts with it.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.verbs.delete import DeleteRequest as DeleteRequest
    from ducklake_orch.catalog.verbs.delete import delete_rows as delete_rows
    from ducklake_orch.catalog.verbs.merge import MergeRequest as MergeRequest
    from ducklake_orch.catalog.verbs.merge import merge_rows as merge_rows
    from ducklake_orch.catalog.verbs.merge_source import ArrowSpool as ArrowSpool
    from ducklake_orch.catalog.verbs.merge_source import Spool as Spool
    from ducklake_orch.catalog.verbs.rollback import RollbackRequest as RollbackRequest
    from ducklake_orch.catalog.verbs.rollback import roll_back as roll_back
    from ducklake_orch.catalog.verbs.row_source import ArrowRows as ArrowRows
    from ducklake_orch.catalog.verbs.row_source import Job as Job
    from ducklake_orch.catalog.verbs.row_source import Rows as Rows
    from ducklake_orch.catalog.verbs.row_source import Written as Written
    from ducklake_orch.catalog.verbs.update import UpdateRequest as UpdateRequest
    from ducklake_orch.catalog.verbs.update import update_rows as update_rows
    from ducklake_orch.catalog.verbs.write import PlannedWrite as PlannedWrite
    from ducklake_orch.catalog.verbs.write import write_table as write_table
    from ducklake_orch.catalog.verbs.write_request import WriteRequest as WriteRequest
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "delete": ["DeleteRequest", "delete_rows"],
            "merge": ["MergeRequest", "merge_rows"],
            "merge_source": ["ArrowSpool", "Spool"],
            "rollback": ["RollbackRequest", "roll_back"],
            "row_source": ["ArrowRows", "Job", "Rows", "Written"],
            "update": ["UpdateRequest", "update_rows"],
            "write": ["PlannedWrite", "write_table"],
            "write_request": ["WriteRequest"],
        },
    )
