"""Executor side of reads with DuckDB: yields the live rows of files as Arrow batches."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, MappedName, position_name, row_id_name
from ducklake_orch.catalog.parquet import (
    FileColumn,
    StoredColumn,
    footers_of,
    placed_rows_sql,
    rows_sql,
    stored_columns,
)
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import FileNotUsableError
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import task_numbers, unpacked
from ducklake_orch.spark.types import exported
from ducklake_orch.spark.variants import arrow_batch

ROWS_AT_ONCE = 16_384
Layouts = Mapping[int, tuple[ColumnDef, ...]]
_MISSING = re.compile(r"No files found|Cannot open file|No such file|HTTP\D{0,40}404|BlobNotFound|NoSuchKey")


@dataclass(frozen=True)
class ReadJob:
    """The facts that all tasks of a read need.

    Attributes:
        table: The table's name.
        snapshot: The snapshot.
        columns: The columns to return.
        needed: The columns to read, which the condition may need as well.
        where: The condition in DuckDB's SQL, if there is one.
        mappings: Column names in files, by mapping id.
        layouts: The columns that the table has had, by the first snapshot that has them, if the files are encrypted.
        remedy: What to do when a file does not exist any more.
        row_id: The name of a first column with the row ids, if one is wanted.
    """

    table: str
    snapshot: int
    columns: tuple[ColumnDef, ...]
    needed: tuple[ColumnDef, ...]
    where: str | None
    mappings: Mapping[int, tuple[MappedName, ...]]
    layouts: Mapping[int, tuple[ColumnDef, ...]]
    remedy: str
    row_id: str | None = None

    @property
    def select(self) -> str:
        """The columns as Arrow passes them to Spark."""
        names = ((column, identifier(column.name)) for column in self.columns)
        return ", ".join(f"{exported(column, name)} AS {name}" for column, name in names)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the columns to return that are variants."""
        return tuple(column.name for column in self.columns if column.type == "variant")

    @property
    def condition(self) -> str:
        """The WHERE clause, if there is a condition."""
        return f" WHERE (\n{self.where}\n)" if self.where is not None else ""

    def stored(self, file: DataFile, found: tuple[FileColumn, ...]) -> tuple[StoredColumn, ...]:
        """Return how a file stores the needed columns."""
        names = None if file.mapping_id is None else self.mappings[file.mapping_id]
        return stored_columns(self.needed, found, names, file.path)


@dataclass(frozen=True)
class Piece:
    """The files that one task reads, with the positions in them that the catalog lists as deleted."""

    files: tuple[DataFile, ...]
    inlined_deletes: Mapping[int, tuple[int, ...]]


def read_pieces(spec: EngineSpec, job: ReadJob, pieces: Sequence[bytes], numbers: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows of this task's pieces.

    Args:
        spec: How to reach the storage.
        job: The read.
        pieces: All pieces.
        numbers: Batches with the numbers of this task's pieces.
    """
    for number in task_numbers(numbers):
        piece: Piece = unpacked(pieces[number])
        with open_engine(spec) as con:
            for file in piece.files:
                where = f"table `{job.table}` at snapshot {job.snapshot}"
                with translated_missing_file(spec, where, file.path, job.remedy):
                    deleted = piece.inlined_deletes.get(file.data_file_id, ())
                    sql = _rows_sql(job, file, stored_in(con, job.layouts, file), deleted)
                    for batch in con.execute(sql).to_arrow_reader(ROWS_AT_ONCE):
                        yield arrow_batch(batch, job.variants)


@contextmanager
def translated_missing_file(spec: EngineSpec, where: str, path: str, remedy: str) -> Iterator[None]:
    """Raise a ducklake-orch error if a file that a block reads does not exist any more.

    Raises:
        FileNotUsableError: When a file does not exist.
    """
    try:
        yield
    except duckdb.IOException as error:
        if not _MISSING.search(str(error)):
            raise
        failure = FileNotUsableError(f"{path} of {where} no longer exists: {spec.scrubber(str(error))}", remedy=remedy)
        raise failure from None


def stored_in(con: duckdb.DuckDBPyConnection, layouts: Layouts, file: DataFile) -> tuple[FileColumn, ...]:
    """Return the columns of a file."""
    return footers_of(con, [file], layouts)[file.path]


def _rows_sql(job: ReadJob, file: DataFile, found: tuple[FileColumn, ...], deleted: Sequence[int]) -> str:
    stored = job.stored(file, found)
    if job.row_id is None:
        return f"SELECT {job.select} FROM ({rows_sql(file, found, stored, job.snapshot, deleted)}){job.condition}"
    rows, row_id = placed_rows_sql(file, found, stored, job.snapshot, deleted), row_id_name(job.needed)
    return f"SELECT {row_id} AS {identifier(job.row_id)}, {job.select} FROM ({rows}){job.condition}"


def positions_sql(job: ReadJob, file: DataFile, found: tuple[FileColumn, ...], deleted: Sequence[int]) -> str:
    """Return the query for the positions of a file's matching rows."""
    rows = placed_rows_sql(file, found, job.stored(file, found), job.snapshot, deleted)
    return f"SELECT {position_name(job.needed)} AS pos FROM ({rows}){job.condition}"
