"""Executor side of row changes: runs the queries that the driver would otherwise run itself."""

import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef
from ducklake_orch.catalog.writing import write_files, write_known_rows
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DuckLakeOrchError, TerminalError
from ducklake_orch.spark.task_engine import EngineSpec, open_engine

RESULT = "result"
_ROWS = "__ducklake_orch_rows"


@dataclass(frozen=True)
class Queries:
    """The work of all tasks.

    Attributes:
        engine: How to open DuckDB.
        tables: The tables that queries read besides their files: name, query, and whether each query reads most of the
            table.
        parts: The queries of each task, packed.
    """

    engine: EngineSpec
    tables: tuple[tuple[str, str, bool], ...]
    parts: tuple[bytes, ...]


@dataclass(frozen=True)
class WriteTask:
    """The target of the rows of queries.

    Attributes:
        table: The target table.
        write_id: Part of the file names.
        known: Whether the rows come from the lake and have row ids.
    """

    table: TableDef
    write_id: str
    known: bool


def packed(queries: list[str]) -> bytes:
    """Return queries, compressed: queries for many files are alike, and every task receives all of them."""
    return zlib.compress(pickle.dumps(queries))


def write(work: Queries, task: WriteTask, numbers: Iterator[Any]) -> Iterator[Any]:
    """Write the rows of queries into files; yield one row for each task."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    # Concurrent attempts at the same task need different file names.
    name = f"{task.write_id}-{context.taskAttemptId() if context else os.getpid()}"
    writes = write_known_rows if task.known else write_files
    with _opened(work) as con:
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            queries: list[str] = pickle.loads(zlib.decompress(work.parts[number]))  # noqa: S301 - from the driver
            made: list[NewFile] | DuckLakeOrchError
            try:
                made = writes(con, task.table, _source(con, queries), name)
            except TerminalError as error:
                made = error  # another attempt would fail in the same way
            yield pa.RecordBatch.from_arrays([pa.array([zlib.compress(pickle.dumps(made))], pa.binary())], [RESULT])


def _source(con: duckdb.DuckDBPyConnection, queries: list[str]) -> str:
    """Return the FROM clause that reads the rows of queries.

    The queries run one after the other into a table that spills to disk: a single query would need memory for all at
    once.
    """
    union = f"({' UNION ALL BY NAME '.join(queries)})"
    if len(queries) == 1:
        return union
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_ROWS} AS FROM {union} LIMIT 0")
    for query in queries:
        con.execute(f"INSERT INTO {_ROWS} BY NAME {query}")
    return _ROWS


def unpack(packed: bytes) -> list[NewFile] | DuckLakeOrchError:
    """Return the files that a task wrote, or the error for data that cannot be written."""
    made: list[NewFile] | DuckLakeOrchError = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own task
    return made


@contextmanager
def _opened(work: Queries) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(work.engine) as con:
        for name, query, whole in work.tables:
            con.execute(f"CREATE TEMP {'TABLE' if whole else 'VIEW'} {identifier(name)} AS {query}")
        yield con
