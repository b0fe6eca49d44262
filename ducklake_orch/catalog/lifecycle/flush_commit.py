"""Commit flushed rows and deletions: remove them from the catalog and add their files, unless they have changed.

The files begin with the snapshots in which their rows began, so every snapshot reads the same rows as before.
"""

from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import (
    file_states,
    insert_delete_files,
    read_table_statistics,
    widen_table_statistics,
)
from ducklake_orch.catalog.lifecycle.compaction_commit import is_laid_out_differently, state_of, table_now
from ducklake_orch.catalog.lifecycle.inlined_slice import FlushedFile, RowRange
from ducklake_orch.catalog.lifecycle.partial_files import add_placed_files, recount
from ducklake_orch.catalog.metadata import (
    NOW,
    MetadataTransaction,
    NewDeleteFile,
    TableDef,
    Token,
    commit_metadata,
    format_tokens,
    table_exists,
)
from ducklake_orch.catalog.parquet import FileLife
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import StalePlanError, TableDroppedError


@dataclass(frozen=True)
class FlushedSlice:
    """The rows and deletions that one commit moves out of the catalog.

    Attributes:
        ranges: The inlined rows to remove.
        files: The files that hold them.
        kept: How many row versions stay in the catalog.
        lives: Files with inlined deletions, in the state in which they were read.
        deletes: Their new delete files.
    """

    ranges: tuple[RowRange, ...]
    files: tuple[FlushedFile, ...]
    kept: int
    lives: tuple[FileLife, ...]
    deletes: tuple[NewDeleteFile, ...]

    @property
    def row_count(self) -> int:
        """How many row versions are removed from the catalog."""
        return sum(row_range.count for row_range in self.ranges)

    @property
    def deletion_count(self) -> int:
        """How many inlined deletions are removed from the catalog."""
        return sum(len({position for position, _ in life.deleted}) for life in self.lives)

    @property
    def changes_anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.row_count or self.deletes)


def commit_flushed(session: Session, write: Write, table: TableDef, flushed: FlushedSlice) -> int:
    """Commit a slice as one snapshot and return its id.

    Raises:
        StalePlanError: When rows or files of the slice have changed since it was planned.
    """
    # All files that a flush writes are committed, so `write.kept` stays None: after COMMIT, none of them is deleted.
    return commit_metadata(session, write, lambda transaction: _commit(transaction, write, table, flushed))


def _commit(transaction: MetadataTransaction, write: Write, table: TableDef, flushed: FlushedSlice) -> int:
    current = _judge(transaction, table, flushed)
    snapshot = transaction.latest.snapshot_id + 1
    first, count = transaction.latest.next_file_id, len(flushed.files)
    deletes = list(flushed.deletes)
    for number, flushed_file in enumerate(flushed.files):
        if flushed_file.deletes is not None:
            data_file = replace(flushed_file.deletes.data_file, data_file_id=first + number)
            deletes.append(replace(flushed_file.deletes, data_file=data_file))
    # Delete the rows before inserting the snapshot. Another engine locks such rows first and inserts its snapshot next:
    # in the opposite order, the two transactions would wait for each other.
    for rows in flushed.ranges:
        if rows.count:
            transaction.change(rows.table, f"DELETE FROM {{}} WHERE {rows.condition}")
    _add_snapshot(transaction, write, table, snapshot, count + len(deletes), deleting=bool(flushed.deletes))
    recount(transaction, table.table_id, [file.placed.file for file in flushed.files])
    ready = add_placed_files(transaction, current, [file.placed for file in flushed.files], first)
    if ready.count:
        # The engine does not count every NULL of inlined rows, such as those inside a MAP.
        if (statistics := read_table_statistics(transaction, table.table_id)) is not None:
            widen_table_statistics(transaction, current, statistics, ready.summary)
    insert_delete_files(transaction, table, deletes, first + count)
    return snapshot


def _judge(transaction: MetadataTransaction, table: TableDef, flushed: FlushedSlice) -> TableDef:
    """Refuse the commit if rows or files have changed since they were read; return the table as it is now."""
    metadata, current = transaction.metadata, table_now(transaction, table)
    if current is None:
        raise TableDroppedError(f"The table `{table}` was dropped during the flush.")
    # The files are partitioned by the keys of the plan, and engines prune by the current keys only.
    if is_laid_out_differently(current, table):
        raise _stale(table, "the columns or partition keys")
    for rows in flushed.ranges:
        # Row versions only begin in later snapshots, and an end is never cleared: equal counts mean equal rows.
        counted = "SELECT count(*), count(end_snapshot) FROM"
        exists = table_exists(metadata, rows.table)
        now = metadata.rows(f"{counted} {metadata.table_sql(rows.table)} WHERE {rows.condition}") if exists else []
        if now != [(rows.count, rows.dead)]:
            raise _stale(table, "the inlined rows")
    states = file_states(transaction, table, [life.file for life in flushed.lives]) if flushed.lives else {}
    if any(states.get(life.file.data_file_id) != state_of(life) for life in flushed.lives):
        raise _stale(table, "files with inlined deletions")
    return current


def _stale(table: TableDef, what: str) -> StalePlanError:
    return StalePlanError(
        f"Another writer changed {what} of `{table}` during the flush.",
        remedy="Run the flush again: planned again, it can succeed.",
    )


def _add_snapshot(
    transaction: MetadataTransaction, write: Write, table: TableDef, snapshot: int, numbered: int, *, deleting: bool
) -> None:
    latest, info = transaction.latest, write.info
    row = {"snapshot_id": snapshot, "snapshot_time": NOW, "schema_version": latest.schema_version}
    # Readers detect outdated statistics by the next file id, so it advances even if no file was added.
    row |= {"next_catalog_id": latest.next_catalog_id, "next_file_id": latest.next_file_id + max(numbered, 1)}
    transaction.insert_row("ducklake_snapshot", row)
    # `merge_adjacent` makes concurrent deletes and rewrites conflict on the files that get a delete file.
    kinds = ["inline_flush", "merge_adjacent"] if deleting else ["inline_flush"]
    row = {"snapshot_id": snapshot, "changes_made": format_tokens(Token(kind, table.table_id) for kind in kinds)}
    row |= {"author": info.author, "commit_message": info.message, "commit_extra_info": write.extra}
    transaction.insert_row("ducklake_snapshot_changes", row)
