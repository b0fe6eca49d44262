"""What users do to rows: write, merge, delete, update and roll back. One module per verb of the `DuckLake` facade.

A verb plans at one snapshot, writes its files, commits them, and plans again if a concurrent commit conflicts with it.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.verbs.alter import AlterRequest, alter_table
    from ducklake_orch.catalog.verbs.delete import DeleteRequest, delete_rows
    from ducklake_orch.catalog.verbs.merge import merge_rows
    from ducklake_orch.catalog.verbs.merge_request import KeyedRequest, request_for
    from ducklake_orch.catalog.verbs.merge_source import ArrowSpool, Spool
    from ducklake_orch.catalog.verbs.rollback import RollbackRequest, roll_back
    from ducklake_orch.catalog.verbs.row_id_change import DELETED, ROW_ID, ChangeByRowIdRequest, change_by_row_id
    from ducklake_orch.catalog.verbs.row_source import ArrowRows, Job, Rows, Written
    from ducklake_orch.catalog.verbs.stream_batch import StreamBatch
    from ducklake_orch.catalog.verbs.table_writer import WritePlan
    from ducklake_orch.catalog.verbs.update import UpdateRequest, update_rows
    from ducklake_orch.catalog.verbs.write import PlannedWrite, write_table
    from ducklake_orch.catalog.verbs.write_request import MODES, WriteRequest
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
