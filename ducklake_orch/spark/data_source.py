"""The Python data source `ducklake`: the classes that Spark calls, which pass each call to `data_source_steps`.

Spark pickles the class and sends it to workers, where ducklake-orch need not be installed: the class carries it along.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.errors import UnsupportedStatementError
from ducklake_orch.spark.kept_config import KeptConfig, keep
from ducklake_orch.spark.ship_code import ship_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        InputPartition,
    )
    from pyspark.sql.datasource import WriterCommitMessage as Message
    from pyspark.sql.types import StructType

_STEPS = "ducklake_orch.spark.data_source_steps:"
_STREAMS = "ducklake_orch.spark.stream_source:"
_SINK = "ducklake_orch.spark.stream_sink:"
Offset = dict[str, Any]
Step = Callable[[Any], Any]


def register_source(spark: "SparkSession", config: LakeConfig, name: str) -> None:
    """Register the data source of a lake.

    Args:
        spark: The session, classic or Connect.
        config: The lake.
        name: The source's name in Spark.
    """
    if not hasattr(spark, "_jsparkSession"):
        spark.dataSource.register(data_source(config, name))
        return
    hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration()
    is_local = str(hadoop.get("fs.defaultFS", "file:///")).startswith("file:")
    source = data_source(keep(config), name, has_local_paths=is_local)
    # Spark refuses a name that is new in this session but known in the active one.
    sessions: Any = spark._jvm.SparkSession  # type: ignore[union-attr]
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(source)
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def data_source(
    kept: KeptConfig | LakeConfig, source_name: str, *, has_local_paths: bool = False
) -> "type[DataSource]":
    """Return the data source of a lake.

    Args:
        kept: The lake, or where the driver keeps it.
        source_name: The source's name in Spark.
        has_local_paths: Whether paths without a scheme are, for Spark, paths of the driver's machine.
    """
    from pyspark.sql.datasource import DataSource

    # What runs on the driver, with the lake's configuration.
    steps: dict[str, Step] = {
        step.partition(":")[2]: ship_function("ducklake_orch.spark.kept_config:with_config", step, kept)
        for step in (
            *(_STEPS + name for name in ("schema_of", "plan_read", "plan_write", "finish_write", "abandon_write")),
            *(_STREAMS + name for name in ("schema_of_stream", "open_stream")),
            *(_SINK + name for name in ("plan_batch", "finish_batch", "abandon_batch")),
        )
    }
    reader_of, writer_of = _reader_class(), _writer_class()
    stream_reader_of, stream_writer_of = _stream_reader_class(), _stream_writer_class()

    class DuckLakeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> "StructType":
            options = dict(self.options)
            is_stream = any(option in _OF_STREAMS for option in options)
            return cast("StructType", steps["schema_of_stream" if is_stream else "schema_of"](options))

        def reader(self, schema: "StructType") -> "DataSourceReader":
            return reader_of(*steps["plan_read"]((dict(self.options), schema.names)))

        def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
            return writer_of(steps, schema, *steps["plan_write"]((dict(self.options), schema, overwrite)))

        def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
            return stream_reader_of(steps["open_stream"], dict(self.options), schema)

        def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
            options = dict(self.options)
            if not has_local_paths and not options.get("checkpointlocation", "").startswith("file:"):
                options.pop("checkpointlocation", None)
            return stream_writer_of(steps, (options, schema, overwrite))

    return DuckLakeSource


# The options that only streams have, as Spark gives them.
_OF_STREAMS = ("start", "changes", "onupdate", "maxsnapshotsperbatch", "maxrowsperbatch", "name", "schemaevolution")

# Classes defined inside a function are pickled whole; a module's class would have to be installed in the worker.


def _reader_class() -> "Callable[..., DataSourceReader]":
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    read_partition = ship_function(f"{_STEPS}read_partition")

    # It has no `pushFilters`: for a query without filters, Spark reuses the plan of an earlier query of the same
    # DataFrame, with the filters of that query.
    class Reader(DataSourceReader):
        def __init__(self, count: int, job: bytes) -> None:
            self.count, self.job = count, job

        def partitions(self) -> "Sequence[InputPartition]":
            return [InputPartition(number) for number in range(self.count)]

        def read(self, partition: "InputPartition") -> Iterator[Any]:
            return read_partition((partition.value, self.job))  # type: ignore[arg-type]

    return Reader


def _stream_reader_class() -> "Callable[..., DataSourceStreamReader]":
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    read_part = ship_function("ducklake_orch.spark.stream_task:read_part")

    class StreamReader(DataSourceStreamReader):
        def __init__(self, open_stream: Callable[[Any], Any], options: dict[str, str], schema: "StructType") -> None:
            self._open, self._given, self._opened = open_stream, (options, schema), None

        def __getstate__(self) -> dict[str, Any]:
            return {}  # tasks only read

        @property
        def stream(self) -> Any:
            if self._opened is None:
                self._opened = self._open(self._given)
            return self._opened

        def initialOffset(self) -> Offset:
            return cast("Offset", self.stream.first())

        def latestOffset(self) -> Offset:  # type: ignore[override]
            return cast("Offset", self.stream.newest())

        def partitions(self, start: Offset, end: Offset) -> "Sequence[InputPartition]":
            return [InputPartition(part) for part in self.stream.parts(start, end)]

        def read(self, partition: "InputPartition") -> Iterator[Any]:
            return read_part(partition.value)

    return _with_limits(StreamReader)


def _with_limits(reader: Any) -> "Callable[..., DataSourceStreamReader]":
    """Return the reader with limits for batches and `Trigger.AvailableNow`, if this version of Spark has them (4.2)."""
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:
        return cast("Callable[..., DataSourceStreamReader]", reader)

    class LimitedStreamReader(reader, SupportsTriggerAvailableNow):  # type: ignore[misc]
        def latestOffset(self, start: Offset, limit: Any) -> Offset:
            return cast("Offset", self.stream.next(start, not isinstance(limit, ReadAllAvailable)))

        def getDefaultReadLimit(self) -> Any:
            # Spark knows no limit of snapshots or files. What counts is that there is a limit: the stream knows which.
            request = self.stream.request
            return ReadMaxRows(request.max_rows or 1) if request.is_limited else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            self.stream.stop_at_latest()

    return LimitedStreamReader


def _writer_class() -> "Callable[..., DataSourceArrowWriter]":
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    write_partition = ship_function(f"{_STEPS}write_partition")

    class TaskMessage(WriterCommitMessage):
        def __init__(self, results: list[bytes]) -> None:
            self.results = results

    class Writer(DataSourceArrowWriter):
        def __init__(self, steps: Mapping[str, Step], schema: "StructType", planned: bytes, task: bytes | None) -> None:
            self.steps, self.schema, self.planned, self.task = steps, schema, planned, task

        def write(self, iterator: Iterator[Any]) -> "Message":
            return TaskMessage(list(write_partition((self.task, iterator))))  # type: ignore[arg-type]

        def commit(self, messages: "list[Message | None]") -> None:
            results = [result for message in messages if isinstance(message, TaskMessage) for result in message.results]
            self.steps["finish_write"]((self.planned, self.schema, results))

        def abort(self, messages: "list[Message | None]") -> None:
            self.steps["abandon_write"]((self.planned, all(message is not None for message in messages)))

    return Writer


def _stream_writer_class() -> "Callable[..., DataSourceStreamWriter]":
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    except ImportError:
        return _no_stream_writer

    write_partition = ship_function(f"{_STEPS}write_partition")

    class PartOfBatch(WriterCommitMessage):
        def __init__(self, planned: bytes, results: list[bytes]) -> None:
            self.planned, self.results = planned, results

    class StreamWriter(DataSourceStreamArrowWriter):
        """Spark makes a writer for the tasks of each batch and pickles it, and another one to commit the batch."""

        def __init__(self, steps: Mapping[str, Step], given: tuple[Any, ...]) -> None:
            self.steps, self.given = steps, given
            self.planned: tuple[bytes, bytes] | None = None

        def __getstate__(self) -> dict[str, Any]:
            if self.planned is None:
                self.planned = self.steps["plan_batch"](self.given)
            return {"planned": self.planned}

        def write(self, iterator: Iterator[Any]) -> "Message":
            planned, task = cast("tuple[bytes, bytes]", self.planned)
            return PartOfBatch(planned, list(write_partition((task, iterator))))  # type: ignore[arg-type]

        def commit(self, messages: "list[Message | None]", batchId: int) -> None:
            # There is at least one part: Spark runs a task for an empty batch, too.
            parts = [cast("PartOfBatch", message) for message in messages]
            results = [result for part in parts for result in part.results]
            self.steps["finish_batch"]((*self.given, parts[0].planned, batchId, results))

        def abort(self, messages: "list[Message | None]", batchId: int) -> None:
            planned = next((part.planned for part in messages if isinstance(part, PartOfBatch)), None)
            all_written = all(message is not None for message in messages)
            # If all was written, the commit has begun. If no task has succeeded, the lease of the batch ends by itself.
            if planned is not None and not all_written:
                self.steps["abandon_batch"]((*self.given, planned))

    return StreamWriter


def _no_stream_writer(*_: Any) -> "DataSourceStreamWriter":
    raise UnsupportedStatementError(
        "`writeStream.format` needs Spark 4.1 or later.", remedy="Use `foreachBatch(lake.stream_writer(…))`."
    )
