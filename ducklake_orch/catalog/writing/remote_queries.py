"""Queries over the files of a table that somebody else may run, in the tasks of a Spark job say.

A query is about one file. What it reads besides are temporary tables of this process: lent to whoever runs it, as files
in a folder of the lake's storage that go when it is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, NewFile, TableDef, duckdb_type
from ducklake_orch.catalog.parquet import parquet_sql, read_columns, renamed, stored_columns, value_sql
from ducklake_orch.catalog.writing.file_writer import write_files
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.engine.stored_files import remove_written

# Below the lake's root; whatever a killed process leaves there is named by `fsck`, and removed as an orphan.
FOLDER = "ducklake_orch_staged/"


@dataclass(frozen=True)
class FileQuery:
    """A query over the rows of a file."""

    file: DataFile
    sql: str


@dataclass(frozen=True)
class Lent:
    """A temporary table that queries read.

    Attributes:
        name: Its name.
        columns: Its columns.
        order: What its rows are put in order by, so that a query finds those of its file.
        whole: Whether a query reads most of it, whatever its file.
    """

    name: str
    columns: tuple[ColumnDef, ...]
    order: str
    whole: bool = False


class Workers(Protocol):
    """Who runs queries elsewhere.

    Attributes:
        engine: Its name.
    """

    engine: str

    def are_worth(self, files: Sequence[DataFile]) -> bool:
        """Whether there is so much to read in files that it is done elsewhere."""

    def select(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        columns: tuple[ColumnDef, ...],
    ) -> AbstractContextManager[str]:
        """Give the query for the rows of queries, for a block."""

    def write(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        write_id: str,
        *,
        beside: Sequence[NewFile] = (),
    ) -> list[NewFile]:
        """Write the rows of queries, which have ids, into files of a table.

        Args:
            con: What the queries would run in here.
            table: The table.
            queries: The queries.
            lent: What they read besides their files.
            write_id: Becomes part of the files' names; of others that have it, none stays.
            beside: But these.
        """


def integers(*names: str) -> tuple[ColumnDef, ...]:
    """Return columns of positions, ids and the like."""
    return tuple(ColumnDef(number, name, "int64", nullable=True) for number, name in enumerate(names, 1))


def staged_table(table: TableDef, columns: tuple[ColumnDef, ...]) -> TableDef:
    """Return what files are written for that belong to no table, beside those of one."""
    root = table.data_path
    return TableDef(-1, "", -1, table.schema, table.name, f"{root}{FOLDER}", root, columns, lake_mark=table.lake_mark)


@contextmanager
def staged(
    config: LakeConfig, con: duckdb.DuckDBPyConnection, table: TableDef, lent: Sequence[Lent]
) -> Iterator[Mapping[Lent, str]]:
    """Put temporary tables where others can read them, for a block; return the query for the rows of each."""
    write_id = uuid4().hex
    try:
        yield {one: _staged(con, table, one, write_id) for one in lent}
    finally:
        remove_written(config, staged_table(table, ()).folder, write_id)


def _staged(con: duckdb.DuckDBPyConnection, table: TableDef, lent: Lent, write_id: str) -> str:
    place = replace(staged_table(table, lent.columns), options=table.options)
    rows = f"(FROM {lent.name} ORDER BY {lent.order})"
    return staged_sql(con, lent.columns, write_files(con, place, rows, write_id))


def staged_sql(con: duckdb.DuckDBPyConnection, columns: tuple[ColumnDef, ...], files: Sequence[NewFile]) -> str:
    """Return the query for the rows of files that were staged."""
    if not files:
        values = (f"CAST(NULL AS {duckdb_type(one)}) AS {identifier(one.name)}" for one in columns)
        return f"SELECT {', '.join(values)} WHERE false"
    found = read_columns(con, [file.path for file in files])
    parts = []
    for path in found:
        stored = stored_columns(columns, found[path], None, path)
        values = (f"{value_sql(one)} AS {identifier(one.column.name)}" for one in stored)
        parts.append(f"SELECT {', '.join(values)} FROM {parquet_sql(path)} AS {renamed(found[path])}")
    return " UNION ALL ".join(parts)
