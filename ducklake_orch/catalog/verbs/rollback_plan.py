"""Plan a rollback: which files of a table stay, which rows come back from an earlier snapshot, and which are retired.

A file that has the same rows at both snapshots stays. Rows of any other file that was live at the target snapshot are
copied with their row ids. Registering the old file a second time is not safe: expiry of one catalog row would delete
the file under the other. Clearing `end_snapshot` would falsify the history.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    DataFile,
    MappedName,
    Metadata,
    SnapshotRow,
    TableDef,
    TableHistory,
    deletions_table,
    inlined_versions,
)
from ducklake_orch.catalog.parquet import read_vectors
from ducklake_orch.catalog.scan import LiveFiles, inlined_positions, name_mappings
from ducklake_orch.catalog.search import arrow_copy, arrow_copy_sql, check_existed
from ducklake_orch.engine.quoting import TableName

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FilesAt:
    """Files of a table, to be read as of a snapshot.

    Attributes:
        deleted: Positions that inlined deletions delete, by data file id.
    """

    snapshot: int
    files: tuple[DataFile, ...]
    deleted: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class RollbackPlan:
    """The plan of a rollback.

    Attributes:
        latest: The snapshot that the rollback is planned on.
        table: The table at that snapshot.
        restored: The files of the target snapshot whose rows are copied.
        retired: The files to retire.
        kept: The files that stay.
        inlined_restored: Inlined rows that were live at the target snapshot and have ended since, as Arrow tables.
        inlined_retired: Inlined rows added since the target snapshot, by inlined table.
        mappings: Column names of files that have a `mapping_id`, by that id.
    """

    latest: SnapshotRow
    table: TableDef
    restored: FilesAt
    retired: FilesAt
    kept: tuple[DataFile, ...]
    inlined_restored: "tuple[pa.Table, ...]"
    inlined_retired: "Mapping[str, pa.Table]"
    mappings: Mapping[int, tuple[MappedName, ...]]
    layouts: Mapping[int, tuple[ColumnDef, ...]]


def plan_rollback(metadata: Metadata, name: TableName, to_snapshot: int) -> RollbackPlan:
    """Plan a rollback.

    Raises:
        SnapshotNotFoundError: When the target snapshot does not exist.
        HistoryExpiredError: When the target snapshot has expired.
        ObjectNotFoundError: When the table does not exist, or did not exist at the target snapshot.
        TableDroppedError: When the name belonged to another table at the target snapshot.
    """
    latest = metadata.latest()
    table = metadata.table(name, latest.snapshot_id)
    check_existed(metadata, table, to_snapshot)
    history, deletions = TableHistory(metadata, table), deletions_table(metadata, table)
    states = [LiveFiles(history, at, deletions) for at in (to_snapshot, latest.snapshot_id)]
    target, current = ({file.data_file_id: file for file, _ in state.fetch()} for state in states)
    kept = tuple(file for key, file in current.items() if key in target and _same(target[key], file, to_snapshot))
    kept_ids = {file.data_file_id for file in kept}
    restored, retired = (
        read_vectors(metadata.con, [file for key, file in files.items() if key not in kept_ids])
        for files in (target, current)
    )
    inlined_restored, inlined_retired = _inlined(history, to_snapshot)
    return RollbackPlan(
        latest=latest,
        table=table,
        restored=FilesAt(to_snapshot, restored, inlined_positions(states[0], restored)),
        retired=FilesAt(latest.snapshot_id, retired, inlined_positions(states[1], retired)),
        kept=kept,
        inlined_restored=tuple(inlined_restored.values()),
        inlined_retired=inlined_retired,
        mappings=name_mappings(
            metadata, {file.mapping_id for file in (*restored, *retired) if file.mapping_id is not None}
        ),
        layouts=history.layouts,
    )


def _same(target: DataFile, current: DataFile, at: int) -> bool:
    """Return whether a file has the same rows at both snapshots; comparing deletions is enough, as none is undone."""
    return (
        [delete.delete_file_id for delete in target.deletes] == [delete.delete_file_id for delete in current.deletes]
        and target.inlined_deletes == current.inlined_deletes
        and not any(delete.later for delete in target.deletes)
        and (current.partial_max is None or current.partial_max <= at)
    )


def _inlined(history: TableHistory, at: int) -> "tuple[dict[str, pa.Table], dict[str, pa.Table]]":
    """Return the inlined rows that have ended since a snapshot and those added since, each by inlined table."""
    ended = f"begin_snapshot <= {at} AND end_snapshot > {at}"
    added = f"begin_snapshot > {at} AND end_snapshot IS NULL"
    columns = history.table.columns
    values = ", ".join(map(arrow_copy_sql, columns))
    tables_of: list[dict[str, pa.Table]] = []
    for condition in (ended, added):
        queries = inlined_versions(history, columns, condition)
        tables = {query.table: f"SELECT {values}, {query.row_id} FROM ({query.sql})" for query in queries}
        read = {name: arrow_copy(history.metadata.con, sql) for name, sql in tables.items()}
        tables_of.append({name: rows for name, rows in read.items() if len(rows)})
    return tables_of[0], tables_of[1]
