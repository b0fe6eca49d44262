"""What runs in an executor when a DataFrame is written: its batches go through DuckDB into final files.

A task gives back one row: what it wrote, or why the data cannot be written, pickled. It never removes a file: the
driver knows which attempts won, and removes what the others left.
"""

import os
import pickle
import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ducklake_orch.catalog.metadata import NewFile, TableDef
from ducklake_orch.catalog.writing import RowsInside, Source, few_at_most, write_files
from ducklake_orch.errors import DuckLakeOrchError, StorageError, TerminalError
from ducklake_orch.spark.executor import EngineSpec, open_engine

RESULT = "result"
_ROWS = "__ducklake_orch_source"


@dataclass(frozen=True)
class WriteTask:
    """What every task of a write gets.

    Attributes:
        engine: How to open DuckDB.
        table: What the files are written for.
        write_id: Part of their names.
        names: The names of the data's columns, which the batches do not have.
        values: The SQL of each column of the data whose Arrow form is not what DuckDB is to see, by name.
        where: What each row has to match, if anything.
        outside: What becomes of rows that do not: `error` or `drop`.
        few: Up to how many rows are given back instead of written.
        sign: A file of the driver's that the executor has to see, where both might have a folder of that name.
    """

    engine: EngineSpec
    table: TableDef
    write_id: str
    names: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    outside: str = "error"
    few: int = 0
    sign: str | None = None


@dataclass(frozen=True)
class TaskResult:
    """What a task did.

    Attributes:
        files: What it wrote.
        outside: How many of its rows do not match; then it wrote nothing that counts.
        example: One of them.
        error: Why it could not write, if no other attempt could either.
        attempt: How many attempts at this task came before.
        wrote_empty: Whether it left a file without rows behind.
        few: Its rows as an Arrow stream, when they are few.
    """

    files: tuple[NewFile, ...] = ()
    outside: int = 0
    example: Any = None
    error: DuckLakeOrchError | None = None
    attempt: int = 0
    wrote_empty: bool = False
    few: bytes | None = None


def write(task: WriteTask, batches: Iterator[Any]) -> Iterator[Any]:
    """Write a partition of a DataFrame; gives one row for it, none for one that is empty."""
    import pyarrow as pa

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    result = _written(task, first, batches)
    packed = zlib.compress(pickle.dumps(result))
    yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], [RESULT])


def unpack(packed: bytes) -> TaskResult:
    """Return what a task gave back."""
    result: TaskResult = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own task
    return result


def _written(task: WriteTask, first: Any, batches: Iterator[Any]) -> TaskResult:
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    mark = context.taskAttemptId() if context else os.getpid()
    try:
        _check_sight(task)
        # Attempts at the same task may run at once: each has names of its own.
        result = _write(task, f"{task.write_id}-{mark}", first, batches)
    except TerminalError as error:
        # The data are at fault, or the set-up: another attempt would only find the same.
        result = TaskResult(error=error)
    return replace(result, attempt=attempt)


def _check_sight(task: WriteTask) -> None:
    if task.sign is not None and not os.path.exists(task.sign):
        raise StorageError(
            f"The executor on {socket.gethostname()} does not see the lake's files in {task.table.data_path}.",
            remedy="Mount that folder on all machines of the cluster, or give the lake a bucket as its storage.",
        )


def _write(task: WriteTask, name: str, first: Any, batches: Iterator[Any]) -> TaskResult:
    import pyarrow as pa

    schema = pa.schema([kind.with_name(name) for kind, name in zip(first.schema, task.names, strict=True)])
    named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain([first], batches))
    is_few, rows = few_at_most(task.few, pa.RecordBatchReader.from_batches(schema, named))
    if is_few:
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_stream(sink, schema) as stream:
                stream.write_table(rows.read_all())
            return TaskResult(few=sink.getvalue().to_pybytes())
    source = Source(rows, task.values)
    reader = source.reader()
    checked = None
    if task.where is not None and task.outside == "error":
        checked = RowsInside(reader, source, task.table, task.where)
        reader = checked.stream()
    only = task.where if task.outside == "drop" else None
    with open_engine(task.engine) as con:
        con.register(_ROWS, reader)
        try:
            files = write_files(con, task.table, source.relation(_ROWS, task.table), name, only=only)
        except Exception:
            if checked and checked.outside:
                return TaskResult(outside=checked.outside, example=checked.example)
            if isinstance(source.failure, DuckLakeOrchError):
                raise source.failure from None
            raise
    return TaskResult(tuple(files), wrote_empty=only is not None and not files)
