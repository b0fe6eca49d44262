"""Flush a table: move inlined rows, and inlined deletions of rows in files, from the catalog into files.

Rows keep their ids and the snapshots in which they began and ended, so all snapshots and the change feed stay the same.
Rows move slice by slice. A slice is read and written first, so that its commit holds the queue only briefly.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import duckdb

from ducklake_orch.catalog.commit import leased
from ducklake_orch.catalog.lifecycle.file_history import file_lives
from ducklake_orch.catalog.lifecycle.flush_commit import FlushedSlice, commit_flushed
from ducklake_orch.catalog.lifecycle.inlined_slice import InlinedSlice, read_slice, write_slice
from ducklake_orch.catalog.metadata import (
    Metadata,
    NewDeleteFile,
    TableDef,
    TableHistory,
    deletions_table,
    inexact_columns,
    table_exists,
)
from ducklake_orch.catalog.parquet import FileLife
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.writing import write_delete_file
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_read_only
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.retry import by_plan, retrying
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import removing_failed
from ducklake_orch.results import CommitInfo

_ROWS_IN_ONE_SLICE, _FILES_IN_ONE_SLICE = 50_000, 200


@dataclass(frozen=True)
class Flushed:
    """The result of flushing a table.

    Attributes:
        rows: Row versions that left the catalog, including those that no snapshot sees any more.
        deletions: Inlined deletions that left the catalog.
        files: Data files that were added.
        kept: Row versions that stay in the catalog because a file could not hold their values exactly.
        snapshot_id: The last snapshot that the flush committed; None if it committed none.
        stopped: Why the flush ended early; None if it did not.
    """

    rows: int = 0
    deletions: int = 0
    files: int = 0
    kept: int = 0
    snapshot_id: int | None = None
    stopped: str | None = None

    def plus(self, done: FlushedSlice, snapshot: int | None) -> "Flushed":
        """Add the result of a slice and its snapshot."""
        return replace(
            self,
            rows=self.rows + done.row_count,
            deletions=self.deletions + done.deletion_count,
            files=self.files + len(done.files),
            kept=self.kept + done.kept,
            snapshot_id=self.snapshot_id if snapshot is None else snapshot,
        )


@dataclass(frozen=True)
class _Position:
    """How far the flush has come: inlined rows by schema version and row id, deletions by data file id."""

    version: int = -1
    row_id: int = -1
    file_id: int = -1


@dataclass(frozen=True)
class _Slice:
    """The rows and deletions that one commit moves.

    Attributes:
        snapshot: The snapshot that the slice is planned on.
        rows: Inlined rows, by inlined table.
        lives: Files with inlined deletions.
        end: Where the next slice begins.
    """

    snapshot: int
    table: TableDef
    rows: tuple[InlinedSlice, ...]
    lives: tuple[FileLife, ...]
    end: _Position

    @property
    def is_last(self) -> bool:
        """Whether nothing can be left after this slice."""
        return sum(len(part) for part in self.rows) < _ROWS_IN_ONE_SLICE and len(self.lives) < _FILES_IN_ONE_SLICE


def flush_inlined(
    config: LakeConfig, name: TableName, *, commit: CommitInfo, stopping: Callable[[], str | None] = lambda: None
) -> Flushed:
    """Move inlined rows and deletions of a table into files: those that exist when the flush begins.

    Args:
        config: The lake.
        name: The table.
        commit: Author, message and extra info of the snapshots.
        stopping: Returns the reason not to begin another slice, or None to go on.
    """
    refuse_read_only(config, f"flushing `{name}`")
    until: int | None = None
    position, total = _Position(), Flushed()
    while True:
        part, done, snapshot = _flush_slice(config, name, commit, until, position)
        if done is None:
            return total
        total, position = total.plus(done, snapshot), part.end
        until = part.snapshot if until is None else until
        if part.is_last:
            return total
        if (why := stopping()) is not None:
            return replace(total, stopped=why)


def _flush_slice(
    config: LakeConfig, name: TableName, commit: CommitInfo, until: int | None, start: _Position
) -> tuple[_Slice, FlushedSlice | None, int | None]:
    """Flush the next slice; return it with its result and snapshot, which are None if nothing was left to flush."""
    purpose = f"flushing `{name}`"

    def attempt(_: int) -> tuple[_Slice, FlushedSlice | None, int | None]:
        write = Write(purpose, commit)
        with planning(config, f"Planning {purpose}") as metadata:
            part = _plan(metadata, name, until, start)
        if not (part.rows or part.lives):
            return part, None, None
        with leased(config, write, part.snapshot):
            return part, *_move(config, write, part)

    return retrying(config.retry, purpose, attempt, attempts_for=by_plan)


def _plan(metadata: Metadata, name: TableName, until: int | None, start: _Position) -> _Slice:
    """Plan the next slice and read its rows.

    Args:
        metadata: The metadata tables.
        name: The table.
        until: Flush rows and deletions of snapshots up to this one; by default up to the latest.
        start: Where the slice begins.
    """
    latest = metadata.latest().snapshot_id
    table = metadata.table(name, latest)
    history, end, remaining = TableHistory(metadata, table), start, _ROWS_IN_ONE_SLICE
    until = latest if until is None else until
    rows: list[InlinedSlice] = []
    for inlined_table in sorted(table.inlined, key=lambda inlined_table: inlined_table.schema_version):
        if (
            not remaining
            or inlined_table.schema_version < start.version
            or not table_exists(metadata, inlined_table.name)
        ):
            continue
        if inexact_columns(history.columns(inlined_table.schema_version)):
            continue
        after = start.row_id if inlined_table.schema_version == start.version else -1
        if (part := read_slice(history, inlined_table, after, until, remaining)) is not None:
            rows.append(part)
            remaining = max(remaining - len(part), 0)
            end = replace(end, version=inlined_table.schema_version, row_id=part.range.last)
    lives = tuple(_with_inlined_deletions(history, until, start.file_id).values()) if remaining else ()
    if lives:
        end = replace(end, file_id=max(life.file.data_file_id for life in lives))
    return _Slice(latest, table, tuple(rows), lives, end)


def _with_inlined_deletions(history: TableHistory, until: int, after: int) -> dict[int, FileLife]:
    """Return live files with inlined deletions, ordered by id.

    Deletions of retired files are not moved: a delete file without an end would count them twice.
    """
    metadata = history.metadata
    if (name := deletions_table(metadata, history.table)) is None:
        return {}
    live = f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')} WHERE end_snapshot IS NULL"
    rows = metadata.rows(
        f"SELECT DISTINCT file_id FROM {metadata.table_sql(name)}"
        f" WHERE file_id > {after} AND begin_snapshot <= {until} AND file_id IN ({live})"
        f" ORDER BY file_id LIMIT {_FILES_IN_ONE_SLICE}"
    )
    return file_lives(history, [int(row[0]) for row in rows]) if rows else {}


def _move(config: LakeConfig, write: Write, part: _Slice) -> tuple[FlushedSlice, int | None]:
    """Write the files of a slice, and commit them."""
    with removing_failed(config, write, part.table.folder):
        written = _written(config, write, part)
        fault_point("files.written")
        snapshot = None
        if written.changes_anything:
            with open_session(config, entering=False) as session:
                snapshot = commit_flushed(session, write, part.table, written)
    return written, snapshot


def _written(config: LakeConfig, write: Write, part: _Slice) -> FlushedSlice:
    with working_connection(config, write.purpose) as con:
        slices = [write_slice(con, part.table, rows, write.write_id) for rows in part.rows]
        deletes = [_delete_file(con, part.table, life, write) for life in part.lives]
        return FlushedSlice(
            ranges=tuple(written_slice.range for written_slice in slices),
            files=tuple(file for written_slice in slices for file in written_slice.files),
            kept=sum(len(written_slice.range.kept) for written_slice in slices),
            lives=part.lives,
            deletes=tuple(deletes),
        )


def _delete_file(con: duckdb.DuckDBPyConnection, table: TableDef, life: FileLife, write: Write) -> NewDeleteFile:
    file = replace(life.file, inlined_deletes=len({position for position, _ in life.deleted}))
    return write_delete_file(con, table, write.write_id, file, life.deleted)
