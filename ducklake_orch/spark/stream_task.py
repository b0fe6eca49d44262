"""Executor side of a stream: reads one part of a batch, and yields its rows as Arrow batches."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.parquet import FileLife, Span, changes_sql, events_sql, inserts_sql, short
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import StreamStoppedError
from ducklake_orch.spark.feed_task import FeedJob, versions_in
from ducklake_orch.spark.read_task import ROWS_AT_ONCE, translated_missing_file
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import unpacked
from ducklake_orch.spark.types import exported

_EVENTS, _COMMITS, _INLINED = "stream_events", "stream_commits", "stream_inlined"
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
            return f"SELECT {', '.join(values)} FROM ({changes}) c WHERE kind IN ({kinds})"
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
        queries = _separately(con, part) if part.only_inserts else _together(con, part)
        for query in queries:
            for batch in con.execute(query).to_arrow_reader(ROWS_AT_ONCE):
                yield _as_expected(batch, part.schema)


def _separately(con: duckdb.DuckDBPyConnection, part: StreamPart) -> Iterator[str]:
    """Yield a query for each file."""
    for life in part.files:
        with _reading(part, life):
            yield part.output(f"({part.events(versions_in(con, part.job, life))})")
    if part.inlined is not None:
        yield part.output(_INLINED)


def _together(con: duckdb.DuckDBPyConnection, part: StreamPart) -> Iterator[str]:
    """Yield one query for the events of all files: a row that left one file may have come into another."""
    sources = [f"FROM {_INLINED}"] if part.inlined is not None else []
    for n, life in enumerate(part.files):
        with _reading(part, life):
            con.execute(f"CREATE TEMP TABLE {_EVENTS}_{n} AS {part.events(versions_in(con, part.job, life))}")
        sources.append(f"FROM {_EVENTS}_{n}")
    if not sources:
        return
    con.execute(f"CREATE TEMP TABLE {_EVENTS} AS {' UNION ALL BY NAME '.join(sources)}")
    if part.on_update == "error" and not part.changes:
        _refuse_changes(con, part)
    yield part.output(_EVENTS)


def _refuse_changes(con: duckdb.DuckDBPyConnection, part: StreamPart) -> None:
    """Refuse rows that left, where the snapshot did not record that it deletes rows."""
    changes = changes_sql(_EVENTS, part.job.span.columns)
    found = con.execute(f"SELECT min(snapshot) FROM ({changes}) WHERE kind <> 'insert'").fetchone()
    if found and found[0] is not None:
        raise StreamStoppedError(
            f"Snapshot {found[0]} updated or deleted rows of `{part.job.table}`.", remedy="Set `on_update`."
        )


def _reading(part: StreamPart, life: FileLife) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(
        translated_missing_file(part.engine, f"table `{part.job.table}`", life.file.path, part.job.remedy)
    )
    return stack


def _as_expected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types that Spark expects, which differ in the names of nested fields only."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
