"""The Python data source `ducklake`: the classes that Spark calls, which pass each call to `data_source_steps`.

Spark pickles the class and sends it to workers, where ducklake-orch need not be installed: the class carries it along.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.spark.ship_code import ship_function

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
    from pyspark.sql.datasource import WriterCommitMessage as Message
    from pyspark.sql.types import StructType

_STEPS = "ducklake_orch.spark.data_source_steps:"


def data_source(config: LakeConfig, source_name: str) -> "type[DataSource]":
    """Return the data source of a lake.

    Args:
        config: The lake.
        source_name: The source's name in Spark.
    """
    from pyspark.sql.datasource import DataSource

    schema_of, plan_read, plan_write = (
        ship_function(_STEPS + step, config) for step in ("schema_of", "plan_read", "plan_write")
    )
    reader_of, writer_of = _reader_class(), _writer_class()

    class DuckLakeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> "StructType":
            return schema_of(dict(self.options))  # type: ignore[return-value,arg-type]

        def reader(self, schema: "StructType") -> "DataSourceReader":
            return reader_of(*plan_read((dict(self.options), schema.names)))  # type: ignore[arg-type]

        def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
            return writer_of(schema, *plan_write((dict(self.options), schema, overwrite)))  # type: ignore[arg-type]

    return DuckLakeSource


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
