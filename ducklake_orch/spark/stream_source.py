"""A table as a stream of Spark's Python data source: where each batch ends, and which parts its tasks read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ducklake_orch.catalog.feed import (
    LIMITS,
    Commit,
    FeedRequest,
    FollowedTable,
    Position,
    StreamRequest,
    batch_start,
    commits_table,
    find_range,
    plan_range,
    read_start,
    refuse_own_names,
)
from ducklake_orch.catalog.metadata import Metadata, TableDef, TableHistory, inlined_versions, live
from ducklake_orch.catalog.parquet import FileLife, Span, inlined_versions_sql
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.engine.retry import retrying
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.data_source import register_source
from ducklake_orch.spark.feed_frame import feed_job, inlined_events
from ducklake_orch.spark.feed_task import FeedJob
from ducklake_orch.spark.native_reader import RETENTION
from ducklake_orch.spark.read_frame import grouped_for_tasks
from ducklake_orch.spark.storage_access import refuse_local_secret
from ducklake_orch.spark.stream_task import Rows, StreamPart
from ducklake_orch.spark.task_engine import engine_spec
from ducklake_orch.spark.task_values import packed
from ducklake_orch.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
# Spark's names of the options of a stream, and their names in `StreamRequest`.
STREAM_OPTIONS = {
    "table": "table",
    "start": "start",
    "changes": "changes",
    "onUpdate": "on_update",
    "maxSnapshotsPerBatch": "max_snapshots",
    "maxFilesPerBatch": "max_files",
    "maxRowsPerBatch": "max_rows",
    "name": "name",
    "schemaEvolution": "schema_evolution",
}
# Snapshots that delete rows are matched in this many tasks at most.
_MOST_TASKS = 16


def stream_request(options: Mapping[str, str]) -> StreamRequest:
    """Read the options of a stream."""
    names = {spark_name.lower(): name for spark_name, name in STREAM_OPTIONS.items()}
    for option in options:
        if option.lower() not in names:
            raise ConfigError(
                f"A stream of `ducklake` has no option `{option}`.", remedy=nearest(option, STREAM_OPTIONS)
            )
    given: dict[str, Any] = {names[option.lower()]: value for option, value in options.items()}
    if "table" not in given:
        raise ConfigError("A stream of `ducklake` needs the option `table`.", remedy='Add `.option("table", "…")`.')
    given["table"] = table_name(given["table"])
    if "start" in given:
        given["start"] = read_start(given["start"])
    if "changes" in given:
        given["changes"] = _truth(given["changes"])
    for name in LIMITS:
        if name in given:
            given[name] = _number(name, given[name])
    return StreamRequest(**given)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"The option `changes` = {text!r} is neither true nor false.")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"`{name}_per_batch` = {text!r} is not a positive number.")
    return int(text)


def stream_schema(followed: FollowedTable) -> "StructType":
    """Return the columns of a stream."""
    from pyspark.sql import types

    columns = spark_schema(iter(followed.table.columns))
    if not followed.request.changes:
        return columns
    refuse_own_names(followed.table, followed.table.columns)
    text = types.StringType()
    own = [
        ("snapshot_id", types.LongType()),
        ("snapshot_time", types.TimestampType()),
        *(("rowid", types.LongType()), ("change_type", text), ("author", text), ("idempotency_key", text)),
    ]
    return types.StructType([*(types.StructField(name, kind) for name, kind in own), *columns])


def read_stream(spark: "SparkSession", config: LakeConfig, request: StreamRequest) -> "DataFrame":
    """Return the DataFrame of a stream."""
    source = f"ducklake {config.name}"
    register_source(spark, config, source)
    reader = spark.readStream.format(source)
    for option, attribute in STREAM_OPTIONS.items():
        value = getattr(request, attribute)
        if value is not None:
            reader = reader.option(option, _option(value))
    return reader.load()


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def schema_of_stream(config: LakeConfig, options: Mapping[str, str]) -> "StructType":
    """Return the columns of the stream that options describe."""
    return stream_schema(FollowedTable(config, stream_request(options)))


def open_stream(config: LakeConfig, given: "tuple[Mapping[str, str], StructType]") -> "TableStream":
    """Open the stream that options describe, for a query that expects some columns."""
    options, schema = given
    return TableStream(config, stream_request(options), schema)


class TableStream:
    """The stream of a table, in the process that plans its batches.

    Args:
        config: The lake.
        request: The arguments of the stream.
        schema: The columns that the query expects.
    """

    def __init__(self, config: LakeConfig, request: StreamRequest, schema: "StructType") -> None:
        self.config = config
        self.request = request
        self._followed = FollowedTable(config, request)
        expected = stream_schema(self._followed)
        if [(field.name, field.dataType) for field in expected] != [(field.name, field.dataType) for field in schema]:
            raise ConfigError(
                f"`{self._followed.table}` has other columns than the stream's DataFrame, which has"
                f" {', '.join(schema.names)}.",
                remedy="Make the DataFrame anew, right before the query starts, and without a schema of your own.",
            )
        self._schema = schema
        self._planned: Position | None = None

    def newest(self) -> dict[str, Any]:
        """Return the newest offset, for versions of Spark that know no limits and do not say where the batch begins."""
        if self.request.is_limited:
            raise ConfigError("This version of Spark knows no limits for batches.", remedy="Use Spark 4.2 or later.")
        if self._planned is None:
            return self._retrying(self._followed.latest).offset
        return self.next(self._planned.offset, limited=False)

    def first(self) -> dict[str, Any]:
        """Return the offset at which the stream starts."""
        self._planned = self._retrying(self._followed.first)
        self._followed.renew_lease(self._planned)
        return self._planned.offset

    def stop_at_latest(self) -> None:
        """Deliver nothing that is committed from now on."""
        self._retrying(self._followed.stop_at_latest)

    def next(self, start: Mapping[str, Any], limited: bool) -> dict[str, Any]:
        """Return the offset at which the next batch ends."""
        position = Position.of(start)
        return self._retrying(lambda: self._followed.next(position, limited=limited)).offset

    def parts(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[bytes]:
        """Return the parts of a batch, each for one task."""
        high = Position.of(end)
        low = batch_start(Position.of(start), high)
        self._followed.check(low)
        self._planned = high
        if low == high:
            return []
        return [packed(part) for part in self._retrying(lambda: self._parts(low, high))]

    def _retrying(self, work: Callable[[], T]) -> T:
        return retrying(self.config.retry, f"following `{self.request.table}`", lambda _: work())

    def _parts(self, low: Position, high: Position) -> list[StreamPart]:
        parts: list[StreamPart] = []
        with self._followed.reading() as metadata:
            table = self._followed.current(metadata)
            refuse_local_secret(self.config)
            if low.row is not None:
                self._followed.refuse_expired(metadata, low)
                parts += self._rows(metadata, table, low, high.row if high.snapshot == low.snapshot else None)
            if high.snapshot > low.snapshot:
                parts += self._changes(metadata, table, low.snapshot + 1, high.snapshot)
        return parts

    def _changes(self, metadata: Metadata, table: TableDef, first: int, last: int) -> Iterator[StreamPart]:
        found = find_range(metadata, FeedRequest(self.request.table, first, last), last, table)
        # Tasks share the work: changes of two snapshots never belong together.
        for feed_range in [found] if found.only_inserts else found.divided(_MOST_TASKS):
            plan = plan_range(metadata, feed_range)
            part = self._part(feed_job(plan), inlined_events(metadata, plan), commits_table(feed_range.commits))
            if feed_range.only_inserts:
                yield from _by_files(part, plan.files)
            elif plan.files or part.inlined is not None:
                yield replace(part, only_inserts=False, files=plan.files)

    def _part(self, job: FeedJob, inlined: pa.Table | None, commits: pa.Table) -> StreamPart:
        return StreamPart(
            engine=engine_spec(self.config),
            job=job,
            files=(),
            inlined=inlined,
            commits=commits,
            rows=None,
            only_inserts=True,
            changes=self.request.changes,
            on_update=self.request.on_update,
            schema=_arrow_schema(self._schema),
        )

    def _rows(self, metadata: Metadata, table: TableDef, low: Position, high: int | None) -> Iterator[StreamPart]:
        """Return the parts of a batch of rows that the table has at a snapshot."""
        at = low.snapshot
        rows = Rows(at, low.row or 0, high)
        scan = plan_scan(metadata, table, at)
        span = Span(at, at, table.columns, ())
        found = inlined_versions(TableHistory(metadata, table), table.columns, live(at))
        queries = [f"({rows.sql(inlined_versions_sql(one, table.columns), span)})" for one in found]
        inlined = metadata.con.execute(" UNION ALL ".join(queries)).to_arrow_table() if queries else None
        job = FeedJob(str(table), span, scan.mappings, scan.layouts, RETENTION)
        commit = Commit(at, metadata.snapshot_time(at) or 0, None, None)
        part = replace(self._part(job, inlined, commits_table([commit])), rows=rows)
        lives = [
            FileLife(file, deleted=tuple((position, 0) for position in scan.inlined_deletes.get(file.data_file_id, ())))
            for file in scan.files
        ]
        yield from _by_files(part, lives)


def _by_files(part: StreamPart, files: Sequence[FileLife]) -> Iterator[StreamPart]:
    """Split a part whose files can be read separately."""
    if part.inlined is not None and part.inlined.num_rows:
        yield part
    for group in grouped_for_tasks(files, lambda life: life.file):
        yield replace(part, files=tuple(group), inlined=None)


def _arrow_schema(schema: "StructType") -> pa.Schema:
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.2 renamed an argument.
    zoned = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {"timestamp_utc": True}
    return to_arrow_schema(schema, **zoned)
