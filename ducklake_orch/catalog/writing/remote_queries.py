"""Describe queries over a table's files that remote workers can run, for example the tasks of a Spark job.

Each query reads one data file. It may also read temporary tables of this process. These are staged for the workers as
files in a folder of the lake's storage, which are deleted when the work is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, NewFile, TableDef, duckdb_type, unnumbered
from ducklake_orch.catalog.parquet import data_sql, footers_of, stored_columns, value_sql
from ducklake_orch.catalog.writing.file_writer import write_files
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.stored_files import remove_written

# The folder of staged files, below the root of the lake's files. `fsck` reports files that a killed process left there,
# and maintenance removes them as orphans.
_FOLDER = "ducklake_orch_staged/"


@dataclass(frozen=True)
class FileQuery:
    """A query over the rows of one data file."""

    file: DataFile
    sql: str


@dataclass(frozen=True)
class Lent:
    """A temporary table that queries read in addition to their data files.

    Attributes:
        name: The table's name.
        columns: The table's columns.
        order: The ORDER BY of the staged rows, so that a query quickly finds those of its data file.
        whole: Whether every query reads most of the table.
    """

    name: str
    columns: tuple[ColumnDef, ...]
    order: str
    whole: bool = False


class Workers(Protocol):
    """Runs queries in remote workers.

    Attributes:
        engine: The name of the engine that runs the workers.
    """

    engine: str

    def are_worth(self, files: Sequence[DataFile]) -> bool:
        """Return whether the files are so large that remote workers should read them."""

    def select(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        columns: tuple[ColumnDef, ...],
    ) -> AbstractContextManager[str]:
        """Run queries and yield the query for their result rows, which is valid for the duration of a block."""

    def write(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        write_id: str,
        *,
        kept: Sequence[NewFile] = (),
    ) -> list[NewFile]:
        """Write the rows of queries, which have row ids, into files of a table.

        Args:
            con: The connection in which the queries would run locally.
            table: The table.
            queries: The queries.
            lent: The temporary tables that the queries read.
            write_id: The write's id, which becomes part of the files' names. Other files with this id are deleted.
            kept: Files with this write id that are not deleted.
        """


def integers(*names: str) -> tuple[ColumnDef, ...]:
    """Return integer columns, for positions, ids and the like."""
    return tuple(ColumnDef(number, name, "int64", nullable=True) for number, name in enumerate(names, 1))


def staged_table(table: TableDef, columns: tuple[ColumnDef, ...]) -> TableDef:
    """Return a stand-in table for staged files, which belong to no table; it shares the storage of `table`."""
    name = TableName(table.schema, table.name)
    return stand_in(name, table.data_path, columns, encrypted=table.encrypted, lake_mark=table.lake_mark)


def stand_in(
    name: TableName, root: str, columns: tuple[ColumnDef, ...], *, encrypted: bool, lake_mark: str
) -> TableDef:
    """Return a stand-in table for staged files below the root of a lake's files."""
    own = (-1, "", -1, *name, f"{root}{_FOLDER}", root, columns)
    return TableDef(*own, encrypted=encrypted, lake_mark=lake_mark)


@contextmanager
def staged(
    config: LakeConfig, con: duckdb.DuckDBPyConnection, table: TableDef, lent: Sequence[Lent]
) -> Iterator[Mapping[Lent, str]]:
    """Stage temporary tables in the lake's storage for the duration of a block; yield the query for each one's rows."""
    write_id = uuid4().hex
    try:
        yield {lent_table: _staged(con, table, lent_table, write_id) for lent_table in lent}
    finally:
        remove_written(config, staged_table(table, ()).folder, write_id)


def _staged(con: duckdb.DuckDBPyConnection, table: TableDef, lent: Lent, write_id: str) -> str:
    stand_in = replace(staged_table(table, lent.columns), options=table.options)
    rows = f"(FROM {lent.name} ORDER BY {lent.order})"
    return staged_sql(con, lent.columns, write_files(con, stand_in, rows, write_id))


def staged_sql(con: duckdb.DuckDBPyConnection, columns: tuple[ColumnDef, ...], files: Sequence[NewFile]) -> str:
    """Return the query for the rows of staged files."""
    if not files:
        values = (f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}" for column in columns)
        return f"SELECT {', '.join(values)} WHERE false"
    written = [unnumbered(file) for file in files]
    footers = footers_of(con, written, {-1: columns})
    parts = []
    for file in written:
        stored = stored_columns(columns, footers[file.path], None, file.path)
        values = (f"{value_sql(column)} AS {identifier(column.column.name)}" for column in stored)
        parts.append(f"SELECT {', '.join(values)} FROM {data_sql(file, footers[file.path])}")
    return " UNION ALL ".join(parts)
