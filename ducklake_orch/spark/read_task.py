"""What runs in an executor when DuckDB reads files for a DataFrame: their live rows, as Arrow batches."""

import pickle
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, MappedName, position_name
from ducklake_orch.catalog.parquet import (
    FileColumn,
    StoredColumn,
    encrypted_columns,
    placed_rows_sql,
    read_columns,
    rows_sql,
    stored_columns,
)
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import FileNotUsableError
from ducklake_orch.spark.executor import EngineSpec, open_engine
from ducklake_orch.spark.types import exported

ROWS_AT_ONCE = 16_384
_GONE = re.compile(r"No files found|Cannot open file|No such file|HTTP\D{0,40}404|BlobNotFound|NoSuchKey")


@dataclass(frozen=True)
class ReadJob:
    """What all tasks of a read have to know.

    Attributes:
        table: Its name.
        snapshot: The snapshot.
        columns: What is to be returned.
        needed: What has to be read for it.
        where: The condition in DuckDB's SQL, if there is one.
        mappings: Names of columns in files, by the id of the mapping.
        schemas: The columns of files whose footers are encrypted, by the version of the schema.
        remedy: What to do when a file is gone.
    """

    table: str
    snapshot: int
    columns: tuple[ColumnDef, ...]
    needed: tuple[ColumnDef, ...]
    where: str | None
    mappings: Mapping[int, tuple[MappedName, ...]]
    schemas: Mapping[int, tuple[ColumnDef, ...]]
    remedy: str

    @property
    def select(self) -> str:
        """The columns as Arrow hands them to Spark."""
        return ", ".join(f"{exported(one, identifier(one.name))} AS {identifier(one.name)}" for one in self.columns)

    @property
    def condition(self) -> str:
        """What stands behind FROM, if there is a condition."""
        return f" WHERE (\n{self.where}\n)" if self.where is not None else ""

    def stored(self, file: DataFile, found: tuple[FileColumn, ...]) -> tuple[StoredColumn, ...]:
        """Return where a file has the columns that are needed."""
        names = None if file.mapping_id is None else self.mappings[file.mapping_id]
        return stored_columns(self.needed, found, names, file.path)


@dataclass(frozen=True)
class Piece:
    """Files that one task reads, with the positions in them that the catalog itself names as deleted."""

    files: tuple[DataFile, ...]
    inlined_deletes: Mapping[int, tuple[int, ...]]

    def packed(self) -> bytes:
        """Return it in the form that travels."""
        return zlib.compress(pickle.dumps(self), 1)


def read_pieces(spec: EngineSpec, job: ReadJob, pieces: Sequence[bytes], numbers: Iterator[Any]) -> Iterator[Any]:
    """Return the rows of the pieces that this task was given.

    Args:
        spec: How to reach the storage.
        job: What is to be read.
        pieces: All pieces.
        numbers: Batches with the numbers of those that are meant.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            piece: Piece = pickle.loads(zlib.decompress(pieces[number]))  # noqa: S301 - our own, from the driver
            with open_engine(spec) as con:
                for file in piece.files:
                    where = f"table `{job.table}` at snapshot {job.snapshot}"
                    with unless_gone(spec, where, file.path, job.remedy):
                        gone = piece.inlined_deletes.get(file.data_file_id, ())
                        sql = _rows_sql(job, file, stored_in(con, job, file), gone)
                        yield from con.execute(sql).to_arrow_reader(ROWS_AT_ONCE)


@contextmanager
def unless_gone(spec: EngineSpec, where: str, path: str, remedy: str) -> Iterator[None]:
    """Say it in our words when a file is gone that a block reads.

    Raises:
        FileNotUsableError: Then.
    """
    try:
        yield
    except duckdb.IOException as error:
        if not _GONE.search(str(error)):
            raise
        failure = FileNotUsableError(f"{path} of {where} is gone: {spec.scrubber(str(error))}", remedy=remedy)
        raise failure from None


def stored_in(con: duckdb.DuckDBPyConnection, job: ReadJob, file: DataFile) -> tuple[FileColumn, ...]:
    """Return what columns a file has."""
    if file.encryption_key:
        return encrypted_columns(con, file, job.schemas[file.schema_version])
    (found,) = read_columns(con, [file.path]).values()
    return found


def _rows_sql(job: ReadJob, file: DataFile, found: tuple[FileColumn, ...], gone: Sequence[int]) -> str:
    rows = rows_sql(file, found, job.stored(file, found), job.snapshot, gone)
    return f"SELECT {job.select} FROM ({rows}){job.condition}"


def places_sql(job: ReadJob, file: DataFile, found: tuple[FileColumn, ...], gone: Sequence[int]) -> str:
    """Return the query for the positions of the rows of a file that meet the condition."""
    rows = placed_rows_sql(file, found, job.stored(file, found), job.snapshot, gone)
    return f"SELECT {position_name(job.needed)} AS pos FROM ({rows}){job.condition}"
