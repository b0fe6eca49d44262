"""What runs in an executor when rows of files are changed: the same queries that this process would run."""

import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.model import NewFile, TableDef
from ducklake_orch.catalog.writer import write_known_rows
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DuckLakeOrchError, TerminalError
from ducklake_orch.spark.executor import EngineSpec, open_engine

RESULT = "result"


@dataclass(frozen=True)
class Queries:
    """The work of all tasks.

    Attributes:
        engine: How to open DuckDB.
        tables: What queries read besides their files: name, query, and whether most of it is read each time.
        parts: The queries of each task.
    """

    engine: EngineSpec
    tables: tuple[tuple[str, str, bool], ...]
    parts: tuple[tuple[str, ...], ...]


def select(work: Queries, numbers: Iterator[Any]) -> Iterator[Any]:
    """Return the rows of queries; all of their columns are integers."""
    with _opened(work) as con:
        for number in _of(numbers):
            for query in work.parts[number]:
                integers = f"SELECT COLUMNS(*)::BIGINT FROM ({query})"
                yield from con.execute(integers).to_arrow_reader(100_000)


def write(work: Queries, table: TableDef, write_id: str, numbers: Iterator[Any]) -> Iterator[Any]:
    """Write the rows of queries into files of a table; gives one row for each task."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    # Attempts at the same task may run at once: each has names of its own.
    name = f"{write_id}-{context.taskAttemptId() if context else os.getpid()}"
    with _opened(work) as con:
        for number in _of(numbers):
            made: list[NewFile] | DuckLakeOrchError
            try:
                made = write_known_rows(con, table, f"({' UNION ALL BY NAME '.join(work.parts[number])})", name)
            except TerminalError as error:
                made = error  # another attempt would only find the same
            packed = zlib.compress(pickle.dumps(made))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], [RESULT])


def unpack(packed: bytes) -> list[NewFile] | DuckLakeOrchError:
    """Return what a task wrote, or why the data cannot be written."""
    made: list[NewFile] | DuckLakeOrchError = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own task
    return made


def _of(numbers: Iterator[Any]) -> Iterator[int]:
    for batch in numbers:
        yield from batch.column(0).to_pylist()


@contextmanager
def _opened(work: Queries) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(work.engine) as con:
        for name, query, whole in work.tables:
            con.execute(f"CREATE TEMP {'TABLE' if whole else 'VIEW'} {identifier(name)} AS {query}")
        yield con
