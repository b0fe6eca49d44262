"""Check that a table can be read at an earlier snapshot."""

from ducklake_orch.catalog.metadata import Metadata, TableDef, live
from ducklake_orch.engine.missing_snapshots import Retained, missing_snapshot, retained_sql
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ObjectNotFoundError, TableDroppedError


def check_existed(metadata: Metadata, table: TableDef, wanted: int) -> None:
    """Check that a table existed at a snapshot.

    Raises:
        SnapshotNotFoundError: When the snapshot does not exist.
        HistoryExpiredError: When the snapshot has expired.
        ObjectNotFoundError: When the table did not exist.
        TableDroppedError: When the name belonged to another table.
    """
    snapshots, tables = metadata.table_sql("ducklake_snapshot"), metadata.table_sql("ducklake_table")
    if not metadata.rows(f"SELECT 1 FROM {snapshots} WHERE snapshot_id = {wanted}"):
        raise missing_snapshot(wanted, Retained(*metadata.rows(retained_sql(snapshots))[0]))
    if metadata.rows(f"SELECT 1 FROM {tables} WHERE table_id = {table.table_id} AND {live(wanted)}"):
        return
    if metadata.find_table(TableName(table.schema, table.name), wanted) is not None:
        raise TableDroppedError(
            f"The table `{table}` of snapshot {wanted} was dropped, and another table now has its name.",
            remedy=f"Read the rows with lake.read(…, snapshot={wanted}) and write them to a table.",
        )
    raise ObjectNotFoundError(
        f"The table `{table}` did not exist at snapshot {wanted}.", remedy="Roll back to a later snapshot, or drop it."
    )
