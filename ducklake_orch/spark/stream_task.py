"""Executor side of a stream: reads one part of a batch, and yields its rows as Arrow batches."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.feed import rows_changed
from ducklake_orch.catalog.metadata import ROW_ID_FIELD, DataFile
from ducklake_orch.catalog.parquet import (
    FileColumn,
    FileLife,
    Span,
    changes_sql,
    events_sql,
    has_own,
    inserts_sql,
    short,
)
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.spark.feed_task import FeedJob, versions_in
from ducklake_orch.spark.read_task import ROWS_AT_ONCE, stored_in, translated_missing_file
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import unpacked
from ducklake_orch.spark.types import exported
from ducklake_orch.spark.variants import arrow_batch

_EVENTS, _COMMITS, _INLINED = "stream_events", "stream_commits", "stream_inlined"
# A file that a compaction wrote or removed has events of its snapshot, which changed no rows.
_OF_COMMITS = f"SEMI JOIN {_COMMITS} s ON s.snapshot_id = c.snapshot"
# The kinds of changes that a stream of rows delivers, by `on_update`.
_DELIVERED = {"error": ("insert",), "ignore": ("insert",), "changes": ("insert", "update_postimage")}


@dataclass(frozen=True)
class Rows:
    """The rows of a table at a snapshot, in a range of row ids.

    Attributes:
        at: The snapshot.
        low: The first row id; rows without an id come with the first ones.
        high: The row id after the last one; None for all.
    """

    at: int
    low: int
    high: int | None

    def may_be_in(self, file: DataFile, found: Sequence[FileColumn]) -> bool:
        """Return whether a file that has these columns may have such rows."""
        first = file.row_id_start
        if first is None or has_own(found, ROW_ID_FIELD):
            return True
        return first + file.record_count > self.low and (self.high is None or first < self.high)

    def sql(self, versions: str, span: Span) -> str:
        """Return the query that turns row versions into events, in the form of `events_sql`."""
        values = "".join(f", {exported(column, short(column))} AS {short(column)}" for column in span.columns)
        within = f"coalesce(row_id >= {self.low}, {self.low == 0})"
        if self.high is not None:
            within += f" AND coalesce(row_id < {self.high}, true)"
        return (
            f"SELECT true AS came, CAST({self.at} AS BIGINT) AS snapshot, row_id, '' AS same{values} FROM ({versions})"
            f" WHERE began <= {self.at} AND coalesce(ended > {self.at}, true) AND {within}"
        )


@dataclass(frozen=True)
class StreamPart:
    """A part of a batch that one task reads.

    Attributes:
        engine: How to reach the storage.
        job: The table, its columns and the snapshots.
        files: The files that may hold rows of the part.
        inlined: The events of inlined rows, if there are any.
        commits: The snapshots, in the form of `commits_table`.
        rows: The rows of a snapshot to deliver instead of changes.
        only_inserts: Whether nothing has to be matched, because rows were only added.
        changes: Whether to deliver the change feed.
        on_update: What to do with updates and deletions otherwise.
        schema: The columns that Spark expects.
    """

    engine: EngineSpec
    job: FeedJob
    files: tuple[FileLife, ...]
    inlined: pa.Table | None
    commits: pa.Table
    rows: Rows | None
    only_inserts: bool
    changes: bool
    on_update: str
    schema: pa.Schema

    def events(self, versions: str) -> str:
        """Return the query for the events of a file."""
        if self.rows is not None:
            return self.rows.sql(versions, self.job.span)
        return events_sql(versions, self.job.span, exported)

    def output(self, events: str) -> str:
        """Return the query for the rows that Spark gets."""
        columns = self.job.span.columns
        values = [f"c.{short(column)} AS {identifier(column.name)}" for column in columns]
        changes = (inserts_sql if self.only_inserts else changes_sql)(events, columns)
        if not self.changes:
            kinds = ", ".join(f"'{kind}'" for kind in _DELIVERED[self.on_update])
            return f"SELECT {', '.join(values)} FROM ({changes}) c {_OF_COMMITS} WHERE kind IN ({kinds})"
        own = "s.snapshot_id, s.snapshot_time, c.row_id AS rowid, c.kind AS change_type, s.author, s.idempotency_key"
        return (
            f"SELECT {', '.join([own, *values])} FROM ({changes}) c JOIN {_COMMITS} s ON s.snapshot_id = c.snapshot"
            " ORDER BY c.snapshot, c.row_id, c.came"
        )


def read_part(packed_part: bytes | None) -> Iterator[Any]:
    """Yield the rows of a part."""
    if packed_part is None:
        return
    part: StreamPart = unpacked(packed_part)
    with open_engine(part.engine) as con:
        con.register(_COMMITS, part.commits)
        if part.inlined is not None:
            con.register(_INLINED, part.inlined)
        batches = _separately(con, part) if part.only_inserts else _together(con, part)
        variants = [column.name for column in part.job.span.columns if column.type == "variant"]
        for batch in batches:
            yield _as_expected(arrow_batch(batch, variants), part.schema)


def _separately(con: duckdb.DuckDBPyConnection, part: StreamPart) -> Iterator[pa.RecordBatch]:
    """Read one file after the other."""
    for life in part.files:
        with _translated(part, life):
            found = stored_in(con, part.job.layouts, life.file)
            if part.rows is not None and not part.rows.may_be_in(life.file, found):
                continue
            events = part.events(versions_in(part.job, life, found))
            yield from con.execute(part.output(f"({events})")).to_arrow_reader(ROWS_AT_ONCE)
    if part.inlined is not None:
        yield from con.execute(part.output(_INLINED)).to_arrow_reader(ROWS_AT_ONCE)


def _together(con: duckdb.DuckDBPyConnection, part: StreamPart) -> Iterator[pa.RecordBatch]:
    """Match the events of all files: a row that left one file may have come into another."""
    sources = [f"FROM {_INLINED}"] if part.inlined is not None else []
    for n, life in enumerate(part.files):
        with _translated(part, life):
            events = part.events(versions_in(part.job, life, stored_in(con, part.job.layouts, life.file)))
            con.execute(f"CREATE TEMP TABLE {_EVENTS}_{n} AS {events}")
        sources.append(f"FROM {_EVENTS}_{n}")
    if not sources:
        return
    con.execute(f"CREATE TEMP TABLE {_EVENTS} AS {' UNION ALL BY NAME '.join(sources)}")
    if part.on_update == "error" and not part.changes:
        _refuse_changes(con, part)
    yield from con.execute(part.output(_EVENTS)).to_arrow_reader(ROWS_AT_ONCE)


def _refuse_changes(con: duckdb.DuckDBPyConnection, part: StreamPart) -> None:
    """Refuse rows that left, where the snapshot did not record that it deletes rows."""
    found = con.execute(
        f"SELECT min(c.snapshot) FROM ({changes_sql(_EVENTS, part.job.span.columns)}) c {_OF_COMMITS}"
        " WHERE kind <> 'insert'"
    ).fetchone()
    if found and found[0] is not None:
        raise rows_changed(found[0], part.job.table)


def _translated(part: StreamPart, life: FileLife) -> AbstractContextManager[None]:
    return translated_missing_file(part.engine, f"table `{part.job.table}`", life.file.path, part.job.remedy)


def _as_expected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types that Spark expects, which differ in the names of nested fields only."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
