"""The rows of a write, and whether they become files or inlined rows.

This process writes Arrow data, executors write Spark data.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef
from ducklake_orch.catalog.search import DuckDBFinder, Finder
from ducklake_orch.catalog.writing import (
    InlinableRows,
    RowsInside,
    Workers,
    inlinable_rows,
    inline_limit,
    source_of,
    write_files,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.errors import DuckLakeOrchError

_ROWS = "__ducklake_orch_source"


@dataclass(frozen=True)
class Job:
    """The data files to write.

    Attributes:
        config: The lake.
        table: The table that they are written for.
        write_id: Part of the file names.
        where: A predicate that each row has to match; None for no predicate.
        outside: How to treat rows that do not match: `error` or `drop`.
        few: Maximum number of rows that may be inlined instead of written to files.
        working: Opens an engine that reaches the storage.
    """

    config: LakeConfig
    table: TableDef
    write_id: str
    where: str | None
    outside: str
    few: int
    working: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]


@dataclass(frozen=True)
class Written:
    """What the rows were written as: data files, or inlined rows."""

    files: list[NewFile]
    few: InlinableRows | None = None

    @property
    def as_files(self) -> list[NewFile]:
        """The data files; for inlined rows, the files that they would have been."""
        return list(self.few.as_files) if self.few else self.files


class Rows(Protocol):
    """Rows to write.

    Attributes:
        repeatable: Whether the rows can be written again by a second attempt.
        is_small: Whether the rows are in memory and quick to write.
        in_memory: The rows as a pyarrow.Table, if they are small and it is all that there is to know of them.
        engine: The engine that writes the files.
        comments: Comments of columns, by column name.
    """

    repeatable: bool
    is_small: bool
    in_memory: Any
    engine: str
    comments: Mapping[str, str]

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""

    def write(self, job: Job) -> Written:
        """Write the rows; the caller removes the files of a failed attempt."""

    def searching(self, config: LakeConfig) -> tuple[Finder, Workers | None]:
        """Return the finder of the rows to replace, and the workers, if any, that write the rest of their files."""


class ArrowRows:
    """Rows that this process reads as a stream of Arrow batches.

    Args:
        data: Any object that offers an Arrow stream.
        values: SQL expressions, by name, for the columns whose types Arrow cannot represent.
    """

    engine = "duckdb"

    def __init__(self, data: Any, values: Mapping[str, str] | None = None) -> None:
        self.comments: Mapping[str, str] = {}
        self._source = source_of(data, values)
        self.repeatable = self._source.repeatable
        self.is_small = self._source.is_small
        self.types = self._source.types
        self.in_memory = None if values else self._source.in_memory

    def searching(self, config: LakeConfig) -> tuple[Finder, Workers | None]:
        """Return the finder of the rows to replace: this process, without workers."""
        return DuckDBFinder(), None

    def write(self, job: Job) -> Written:
        """Write the rows in this process."""
        source, table = self._source, job.table
        is_few, reader = inline_limit(job.few, source.reader())
        checked = None
        if job.where is not None and job.outside == "error":
            checked = RowsInside(reader, source, table, job.where)
            reader = checked.stream()
        only = job.where if job.outside == "drop" else None
        failure: DuckLakeOrchError
        with job.working() as con:
            con.register(_ROWS, reader)
            try:
                rows = source.relation(_ROWS, table)
                if is_few:
                    return Written([], inlinable_rows(con, dialect_of(job.config), table, rows, only))
                return Written(write_files(con, table, rows, job.write_id, only=only))
            except duckdb.Error as error:
                failure = classify(error, job.config, f"Writing files of `{table}` failed")
        cause = checked.failure if checked and checked.failure else source.failure
        if isinstance(cause, DuckLakeOrchError):
            raise cause
        raise failure from cause
