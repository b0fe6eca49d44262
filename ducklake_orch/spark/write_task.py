"""Executor side of DataFrame writes: DuckDB writes a task's batches into the final files.

A task returns one pickled row: its files, or the reason why the data cannot be written. The driver knows which attempts
succeeded and deletes the files of the others; a task deletes its files only if the write ended while it was running.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef
from ducklake_orch.catalog.writing import RowsInside, Source, inline_limit, outside_queries, write_files
from ducklake_orch.errors import DuckLakeOrchError, StorageError, TerminalError
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import result_row
from ducklake_orch.spark.variants import spooled

_ROWS = "__ducklake_orch_source"


@dataclass(frozen=True)
class WriteTask:
    """The facts that every task of a write gets.

    Attributes:
        engine: How to open DuckDB.
        table: The target table.
        write_id: Part of the file names.
        names: The names of the data's columns, which the batches lack.
        values: The SQL that converts columns whose Arrow form differs from DuckDB's type, by name.
        variants: The names of the columns that are variants.
        where: The condition that each row must match, if there is one.
        outside: What happens to rows that do not match: `error` or `drop`.
        few: The most rows that a task returns instead of writing a file.
        marker: The driver's marker file, which exists until the write ends. The executor must see it to prove that both
            share the folder.
    """

    engine: EngineSpec
    table: TableDef
    write_id: str
    names: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    where: str | None = None
    outside: str = "error"
    few: int = 0
    marker: str | None = None


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    Attributes:
        files: The files that it wrote.
        outside: The number of its rows that do not match; its files are then not used.
        example: One of the rows that do not match.
        error: The reason why it could not write, if no other attempt could either.
        attempt: The number of earlier attempts at this task.
        wrote_empty: Whether it left a file without rows behind.
        few: Its rows as an Arrow stream, if there are few.
    """

    files: tuple[NewFile, ...] = ()
    outside: int = 0
    example: Any = None
    error: DuckLakeOrchError | None = None
    attempt: int = 0
    wrote_empty: bool = False
    few: bytes | None = None


def write(task: WriteTask, batches: Iterator[Any]) -> Iterator[Any]:
    """Write a partition of a DataFrame; yield one row for it, none if it is empty."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    yield result_row(_written(task, first, batches))


def _written(task: WriteTask, first: Any, batches: Iterator[Any]) -> TaskResult:
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    attempt_id = context.taskAttemptId() if context else os.getpid()
    try:
        _check_marker(task)
        # Concurrent attempts at the same task need different file names.
        result = _write(task, f"{task.write_id}-{attempt_id}", first, batches)
        _check_unended(task, result)
    except TerminalError as error:
        # The data or the set-up are wrong: another attempt would fail in the same way.
        result = TaskResult(error=error)
    return replace(result, attempt=attempt)


def _check_marker(task: WriteTask) -> None:
    if task.marker is not None and not os.path.exists(task.marker):
        raise StorageError(
            f"The executor on {socket.gethostname()} does not see the lake's files in {task.table.data_path}.",
            remedy="Mount that folder on all machines of the cluster, or give the lake a bucket as its storage.",
        )


def _check_unended(task: WriteTask, result: TaskResult) -> None:
    """Delete the files of a task if its write has ended: the driver removes the marker, then cleans up."""
    if task.marker is not None and not os.path.exists(task.marker):
        for file in result.files:
            Path(file.path).unlink(missing_ok=True)
        raise StorageError(f"The write {task.write_id} ended before its task on {socket.gethostname()} did.")


def _write(task: WriteTask, name: str, first: Any, batches: Iterator[Any]) -> TaskResult:
    import pyarrow as pa

    schema = pa.schema([kind.with_name(name) for kind, name in zip(first.schema, task.names, strict=True)])
    named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain([first], batches))
    is_few, rows = inline_limit(task.few, pa.RecordBatchReader.from_batches(schema, named))
    if is_few:
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_stream(sink, schema) as stream:
                stream.write_table(rows.read_all())
            return TaskResult(few=sink.getvalue().to_pybytes())
    source = Source(rows, task.values)
    reader = source.reader()
    checked = None
    if task.where is not None and task.outside == "error" and not task.variants:
        checked = RowsInside(reader, source, task.table, task.where)
        reader = checked.stream()
    only = task.where if task.outside == "drop" else None
    with open_engine(task.engine) as con:
        try:
            relation = source.relation(_arriving(con, task, reader), task.table)
            if task.where is not None and task.outside == "error" and task.variants:
                count, example = _outside(con, relation, task)
                if count:
                    return TaskResult(outside=count, example=example)
            files = write_files(con, task.table, relation, name, only=only)
        except Exception:
            if checked and checked.outside:
                return TaskResult(outside=checked.outside, example=checked.example)
            if isinstance(source.failure, DuckLakeOrchError):
                raise source.failure from None
            raise
    return TaskResult(tuple(files), wrote_empty=only is not None and not files)


def _arriving(con: duckdb.DuckDBPyConnection, task: WriteTask, reader: Any) -> str:
    """Return the FROM item that reads the rows with the types of DuckDB."""
    if not task.variants:
        con.register(_ROWS, reader)
        return _ROWS
    folder = con.execute("SELECT current_setting('temp_directory')").fetchone()
    return spooled(reader, task.variants, str(folder and folder[0]))


def _outside(con: duckdb.DuckDBPyConnection, relation: str, task: WriteTask) -> tuple[int, Any]:
    """Return how many rows do not match the condition, and one of them; `RowsInside` cannot read variants."""
    count, example = outside_queries(con, relation, task.table, str(task.where))
    ((outside,),) = con.execute(count).fetchall()
    return int(outside), con.execute(example).fetchone() if outside else None
