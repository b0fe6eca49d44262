"""The Python data source `ducklake`: the classes that Spark calls, which pass each call to `data_source_steps`.

Spark pickles the class and sends it to workers, where ducklake-orch need not be installed: the class carries it along.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.spark.ship_code import ship_function

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.datasource import WriterCommitMessage as Message
    from pyspark.sql.types import StructType

_STEPS = "ducklake_orch.spark.data_source_steps:"
_STREAMS = "ducklake_orch.spark.stream_source:"
Offset = dict[str, Any]


def data_source(config: LakeConfig, source_name: str) -> "type[DataSource]":
    """Return the data source of a lake.

    Args:
        config: The lake.
        source_name: The source's name in Spark.
    """
    from pyspark.sql.datasource import DataSource

    # What needs the lake's configuration, with the secrets of the catalog. Spark sends the source to executors, too,
    # after it has asked for a reader or a writer in a process of its own; these then have nothing left to show.
    steps: dict[str, Callable[[Any], Any]] = {
        step.partition(":")[2]: ship_function(step, config)
        for step in (
            *(_STEPS + name for name in ("schema_of", "plan_read", "plan_write")),
            *(_STREAMS + name for name in ("schema_of_stream", "open_stream")),
        )
    }
    reader_of, writer_of, stream_reader_of = _reader_class(), _writer_class(), _stream_reader_class()

    def last(step: str) -> Callable[[Any], Any]:
        """Return a step after which this process needs no other."""
        found = steps[step]
        steps.clear()
        return found

    class DuckLakeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> "StructType":
            options = dict(self.options)
            is_stream = any(option in _OF_STREAMS for option in options)
            return cast("StructType", steps["schema_of_stream" if is_stream else "schema_of"](options))

        def reader(self, schema: "StructType") -> "DataSourceReader":
            return reader_of(*last("plan_read")((dict(self.options), schema.names)))

        def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
            return writer_of(schema, *last("plan_write")((dict(self.options), schema, overwrite)))

        def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
            return stream_reader_of(last("open_stream"), dict(self.options), schema)

    return DuckLakeSource


# The options that only streams have, as Spark gives them.
_OF_STREAMS = ("start", "changes", "onupdate", "maxsnapshotsperbatch", "maxrowsperbatch", "name", "schemaevolution")

# Classes defined inside a function are pickled whole; a module's class would have to be installed in the worker.


def _reader_class() -> "Callable[..., DataSourceReader]":
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    read_partition = ship_function(f"{_STEPS}read_partition")

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
            return {}  # tasks only read, and get no secret of the catalog

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
            # Spark knows no limit of snapshots. What counts is that there is a limit: the stream itself knows which.
            return ReadMaxRows(self.stream.request.max_rows or 1) if self.stream.is_limited else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            self.stream.stop_at_latest()

    return LimitedStreamReader


def _writer_class() -> "Callable[..., DataSourceArrowWriter]":
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    steps = ("write_partition", "finish_write", "abandon_write")
    write_partition, finish_write, abandon_write = (ship_function(_STEPS + step) for step in steps)

    class TaskMessage(WriterCommitMessage):
        def __init__(self, results: list[bytes]) -> None:
            self.results = results

    class Writer(DataSourceArrowWriter):
        def __init__(self, schema: "StructType", planned: bytes, task: bytes | None) -> None:
            self.schema, self.planned, self.task = schema, planned, task

        def write(self, iterator: Iterator[Any]) -> "Message":
            return TaskMessage(list(write_partition((self.task, iterator))))  # type: ignore[arg-type]

        def commit(self, messages: "list[Message | None]") -> None:
            results = [result for message in messages if isinstance(message, TaskMessage) for result in message.results]
            finish_write((self.planned, self.schema, results))  # type: ignore[arg-type]

        def abort(self, messages: "list[Message | None]") -> None:
            abandon_write((self.planned, all(message is not None for message in messages)))  # type: ignore[arg-type]

    return Writer
