"""Build the result that the caller of a write gets: what the write did, or that it replayed an earlier commit."""

import logging
from collections import defaultdict
from collections.abc import Sequence

from ducklake_orch.catalog.commit import idempotency
from ducklake_orch.catalog.commit.table_change import Committed
from ducklake_orch.catalog.metadata import Metadata, NewFile, TableDef
from ducklake_orch.catalog.parquet import key_name, partition_keys
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.results import PartitionWritten, WriteResult

log = logging.getLogger("ducklake_orch")


def find_replay(metadata: Metadata, table: TableDef, key: str | None, latest: int) -> Committed | None:
    """Return the commit that already has the idempotency key, if any.

    This check saves the work of writing files; the commit checks the key again.
    """
    if key is None or not idempotency.has_keys(metadata):
        return None
    if (snapshot := idempotency.find_key(metadata, table.table_id, key)) is None:
        return None
    undone = idempotency.undone_by(metadata, table.table_id, snapshot)
    return Committed(snapshot, latest, replayed=True, undone_by=undone)


def write_result(write: Write, table: TableDef, mode: str, files: Sequence[NewFile], done: Committed) -> WriteResult:
    """Return the result for the caller of a write, without the duration, which the caller of this function adds."""
    if done.replayed:
        later = f"; snapshot {done.undone_by} has removed rows since" if done.undone_by else ""
        log.warning("%s was already committed as snapshot %d%s", write.purpose, done.snapshot_id, later)
    written = files if done.files_added else []
    return WriteResult(
        table=str(table),
        mode=mode,
        snapshot_id=done.snapshot_id,
        previous_snapshot_id=done.previous_snapshot_id,
        rows_written=sum(file.record_count for file in written),
        rows_removed=done.rows_removed,
        files_added=done.files_added,
        files_removed=done.files_removed,
        bytes_written=sum(file.file_size for file in written),
        partitions=partitions_written(table, written),
        replayed=done.replayed,
    )


def partitions_written(table: TableDef, files: Sequence[NewFile]) -> list[PartitionWritten]:
    """Return what was written to each partition; an empty list if the table has no partition keys."""
    names = [key_name(key.field.transform, key.column.name) for key in partition_keys(table)]
    by_values: dict[tuple[str | None, ...], list[NewFile]] = defaultdict(list)
    for file in files:
        by_values[file.partition_values].append(file)
    return [
        PartitionWritten(
            dict(zip(names, values, strict=True)),
            sum(file.record_count for file in group),
            len(group),
            sum(file.file_size for file in group),
        )
        for values, group in by_values.items()
        if names
    ]
