"""Executor side of row changes: runs the queries that the driver would otherwise run itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import TableDef
from ducklake_orch.catalog.writing import write_files, write_known_rows
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import TerminalError
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import result_row, task_numbers, unpacked

_ROWS = "__ducklake_orch_rows"


@dataclass(frozen=True)
class Queries:
    """The work of all tasks.

    Attributes:
        engine: How to open DuckDB.
        tables: The tables that queries read besides their files: name, query, and whether each query reads most of the
            table.
        parts: The queries of each task, packed, because every task receives all of them.
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


def write(work: Queries, task: WriteTask, numbers: Iterator[Any]) -> Iterator[Any]:
    """Write the rows of queries into files; yield a row for each task: its files, or why it cannot write the data."""
    from pyspark import TaskContext

    context = TaskContext.get()
    # Concurrent attempts at the same task need different file names.
    name = f"{task.write_id}-{context.taskAttemptId() if context else os.getpid()}"
    writes = write_known_rows if task.known else write_files
    with _opened(work) as con:
        for number in task_numbers(numbers):
            queries: list[str] = unpacked(work.parts[number])
            try:
                yield result_row(writes(con, task.table, _source(con, queries), name))
            except TerminalError as error:
                yield result_row(error)  # another attempt would fail in the same way


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


@contextmanager
def _opened(work: Queries) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(work.engine) as con:
        for name, query, whole in work.tables:
            con.execute(f"CREATE TEMP {'TABLE' if whole else 'VIEW'} {identifier(name)} AS {query}")
        yield con
