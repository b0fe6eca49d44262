"""Commit flushed rows and deletions: if they are still as they were, they leave the catalog for their files.

The files begin with the snapshots that their rows came with, so every snapshot reads in them what it read before.
"""

from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import file_states, place_deletes, widen_table_statistics
from ducklake_orch.catalog.lifecycle.compaction_commit import is_laid_out_differently, state_of
from ducklake_orch.catalog.lifecycle.inlined_slice import FlushedFile, RowRange
from ducklake_orch.catalog.lifecycle.partial_files import add_placed_files, recount
from ducklake_orch.catalog.metadata import (
    NOW,
    MetadataTransaction,
    NewDeleteFile,
    TableDef,
    Token,
    format_tokens,
    is_there,
)
from ducklake_orch.catalog.parquet import FileLife
from ducklake_orch.engine.commit import Write, commit_through
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import StalePlanError, TableDroppedError


@dataclass(frozen=True)
class FlushedSlice:
    """What is moved out of the catalog at once.

    Attributes:
        ranges: The inlined rows that go.
        files: The files that hold them.
        kept: How many row versions stay in the catalog.
        lives: Files of which deletions are inlined, as they were.
        deletes: Their new delete files.
    """

    ranges: tuple[RowRange, ...]
    files: tuple[FlushedFile, ...]
    kept: int
    lives: tuple[FileLife, ...]
    deletes: tuple[NewDeleteFile, ...]

    @property
    def row_count(self) -> int:
        """How many row versions go."""
        return sum(one.count for one in self.ranges)

    @property
    def deletion_count(self) -> int:
        """How many inlined deletions go."""
        return sum(len({position for position, _ in life.deleted}) for life in self.lives)

    @property
    def paths(self) -> frozenset[str]:
        """The files that were written."""
        deletes = [*self.deletes, *(one.deletes for one in self.files if one.deletes)]
        return frozenset([*(one.placed.file.path for one in self.files), *(one.path for one in deletes)])

    @property
    def changes_anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.row_count or self.deletes)


def commit_flushed(session: Session, write: Write, table: TableDef, flushed: FlushedSlice) -> int:
    """Commit a slice as one snapshot, and return it.

    Raises:
        StalePlanError: When its rows or files have changed since it was planned.
    """
    with session.instance.one_thread():
        snapshot = commit_through(
            MetadataTransaction,
            session,
            write,
            lambda transaction: _commit(transaction, write, table, flushed),
            settle=False,
        )
    write.kept = flushed.paths
    # Found by its mark where the answer to its COMMIT was lost.
    return snapshot if write.after is None else write.after


def _commit(transaction: MetadataTransaction, write: Write, table: TableDef, flushed: FlushedSlice) -> int:
    current = _judge(transaction, table, flushed)
    snapshot = transaction.latest.snapshot_id + 1
    first, count = transaction.latest.next_file_id, len(flushed.files)
    deletes = list(flushed.deletes)
    for number, one in enumerate(flushed.files):
        if one.deletes is not None:
            data_file = replace(one.deletes.data_file, data_file_id=first + number)
            deletes.append(replace(one.deletes, data_file=data_file))
    # Before the snapshot: another engine that has locked such rows inserts its own snapshot next, and each of the two
    # would wait for the other.
    for rows in flushed.ranges:
        if rows.count:
            transaction.change(rows.place, f"DELETE FROM {{}} WHERE {rows.condition}")
    _add_snapshot(transaction, write, table, snapshot, count + len(deletes), deleting=bool(flushed.deletes))
    recount(transaction, table.table_id, [one.placed.file for one in flushed.files])
    ready = add_placed_files(transaction, current, [one.placed for one in flushed.files], first)
    if ready.count:
        # Of inlined rows the engine counts not every NULL, such as those inside a MAP.
        known = {key for one in flushed.files for key in one.placed.file.stats}
        widen_table_statistics(transaction, current, {key: ready.summary[key] for key in known & ready.summary.keys()})
    place_deletes(transaction, table, deletes, first + count)
    return snapshot


def _judge(transaction: MetadataTransaction, table: TableDef, flushed: FlushedSlice) -> TableDef:
    """Compare what is moved with what is there now; return the table as it is now."""
    metadata, name = transaction.metadata, TableName(table.schema, table.name)
    current = metadata.find_table(name, transaction.latest.snapshot_id)
    if current is None or current.table_id != table.table_id:
        raise TableDroppedError(f"The table `{table}` was dropped while it was flushed.")
    # The files are laid out for the partition keys of the plan, and engines look for rows by the keys of today only.
    if flushed.files and is_laid_out_differently(current, table):
        raise _stale(table, "the columns or partition keys")
    for rows in flushed.ranges:
        # Versions only come with later snapshots, and an end is never taken back: equal counts mean equal rows.
        counted = "SELECT count(*), count(end_snapshot) FROM"
        there = is_there(metadata, rows.place)
        now = metadata.rows(f"{counted} {metadata.table_sql(rows.place)} WHERE {rows.condition}") if there else []
        if now != [(rows.count, rows.dead)]:
            raise _stale(table, "its inlined rows")
    states = file_states(transaction, table, [one.file for one in flushed.lives]) if flushed.lives else {}
    if any(states.get(one.file.data_file_id) != state_of(one) for one in flushed.lives):
        raise _stale(table, "files with inlined deletions")
    return current


def _stale(table: TableDef, what: str) -> StalePlanError:
    return StalePlanError(
        f"Another writer changed {what} while `{table}` was flushed.", remedy="The same work, planned anew, can pass."
    )


def _add_snapshot(
    transaction: MetadataTransaction, write: Write, table: TableDef, snapshot: int, numbered: int, *, deleting: bool
) -> None:
    latest, info = transaction.latest, write.info
    row = {"snapshot_id": snapshot, "snapshot_time": NOW, "schema_version": latest.schema_version}
    # Readers know by the next file id that their statistics are out of date: it moves in any case.
    row |= {"next_catalog_id": latest.next_catalog_id, "next_file_id": latest.next_file_id + max(numbered, 1)}
    transaction.insert_row("ducklake_snapshot", row)
    # The second one stops engines that are just deleting, or rewriting, rows of files that have got a delete file.
    kinds = ["inline_flush", "merge_adjacent"] if deleting else ["inline_flush"]
    row = {"snapshot_id": snapshot, "changes_made": format_tokens(Token(one, table.table_id) for one in kinds)}
    row |= {"author": info.author, "commit_message": info.message, "commit_extra_info": write.extra}
    transaction.insert_row("ducklake_snapshot_changes", row)
