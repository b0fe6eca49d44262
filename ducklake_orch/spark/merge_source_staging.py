"""Copy the rows of a Spark DataFrame into a temporary DuckDB table, where they are matched with the lake's rows.

If the plan proves that the number of rows is small, they are collected. Otherwise Spark's tasks write them into a
folder of the lake's storage, from which they are read once and deleted, so that they never occupy the driver's Java
memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef, duckdb_type
from ducklake_orch.catalog.parquet import parquet_sql
from ducklake_orch.catalog.search import planning, union_sql
from ducklake_orch.catalog.verbs import Job
from ducklake_orch.catalog.writing import columns_of, stand_in
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName, file_literals, folded, identifier
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.spark.native_writer import expects_few_bytes, proves_few_rows
from ducklake_orch.spark.spark_errors import translated_errors
from ducklake_orch.spark.spark_rows import SparkRows, column_types, values_of
from ducklake_orch.spark.types import duckdb_columns, variant_names

_SOURCE = "__ducklake_orch_arriving"


class StagedSpool:
    """The rows of staged files.

    Args:
        columns: The columns of the data and their types in DuckDB.
        files: The files.
    """

    def __init__(self, columns: list[tuple[str, str]], files: Sequence[NewFile]) -> None:
        self._columns = columns
        self._files = files

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""
        return column_types(self._columns)

    def relation(self, name: str, table: TableDef) -> str:
        """Return the FROM clause that reads the spooled rows."""
        untyped = {folded(column) for column, kind in self._columns if kind == "NULL"}
        typed = [
            f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in table.columns
            if folded(column.name) in untyped
        ]
        return f"(SELECT * REPLACE ({', '.join(typed)}) FROM {name})" if typed else name

    def spool(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Create a temporary table of the rows."""
        plain = file_literals(file.path for file in self._files if not file.encryption_key)
        queries = [f"FROM {parquet_sql(file.path, file.encryption_key)}" for file in self._files if file.encryption_key]
        queries += [f"FROM read_parquet([{plain}], hive_partitioning = false)"] if plain else []
        self._create(con, name, f"FROM {union_sql(queries)}" if queries else "WHERE false", {})

    def _create(self, con: duckdb.DuckDBPyConnection, name: str, source: str, values: Mapping[str, str]) -> None:
        columns = []
        for column, kind in self._columns:
            value = values.get(column, identifier(column)) if source.startswith("FROM") else "NULL"
            columns.append(f"{'NULL' if kind == 'NULL' else f'CAST({value} AS {kind})'} AS {identifier(column)}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {', '.join(columns)} {source}")


class SparkSpool(StagedSpool):
    """The rows of a Spark DataFrame, which is evaluated once.

    Args:
        config: The lake.
        frame: The DataFrame, classic or Connect.
        table: The table that the rows are for.
    """

    def __init__(self, config: LakeConfig, frame: Any, table: TableName) -> None:
        super().__init__(duckdb_columns(frame.schema), ())
        self._config = config
        self._frame = frame
        self._table = table

    def spool(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Create a temporary table of the rows."""
        if hasattr(self._frame, "_jdf") and not variant_names(self._frame.schema) and self._is_few():
            con.register(_SOURCE, self._collected())
            try:
                self._create(con, name, f"FROM {_SOURCE}", values_of(self._frame.schema))
            finally:
                con.unregister(_SOURCE)
            return
        if all(kind == "NULL" for _, kind in self._columns):  # no Parquet file can hold such rows
            self._create(con, name, f"FROM range({self._counted()})", {})
            return
        with self._staged() as self._files:
            super().spool(con, name)

    def _is_few(self) -> bool:
        with translated_errors(self._config, f"Planning the data for `{self._table}` in Spark"):
            return proves_few_rows(self._frame) and expects_few_bytes(self._frame)

    def _collected(self) -> Any:
        return self._run(lambda: self._frame.toArrow())

    def _counted(self) -> int:
        return int(self._run(lambda: self._frame.count()))

    def _run(self, compute: Callable[[], Any]) -> Any:
        with translated_errors(self._config, f"Computing the data for `{self._table}` in Spark"):
            return compute()

    @contextmanager
    def _staged(self) -> Iterator[Sequence[NewFile]]:
        """Write the rows into files and yield these, for a block."""
        job = staging_job(self._config, self._columns, self._table)
        try:
            rows = SparkRows(self._frame, distribution="none")
            yield rows.write(job).files
        finally:
            remove_written(self._config, job.table.folder, job.write_id)


def staging_job(config: LakeConfig, columns: list[tuple[str, str]], table: TableName) -> Job:
    """Return the job that stages rows for a merge, in files of a stand-in table.

    Args:
        config: The lake.
        columns: The columns of the data and their types in DuckDB.
        table: The table that the rows are for.
    """
    with planning(config, f"Finding the staging folder for `{table}`") as metadata:
        root, encrypted, mark = metadata.data_path(), metadata.encrypted(), metadata.lake_mark()
    # A file cannot store a column without a type, which holds only NULLs.
    typed = [(name, "BOOLEAN" if kind == "NULL" else kind) for name, kind in columns]
    stored = columns_of(column_types(typed), count(1))
    staged = stand_in(table, root, stored, encrypted=encrypted, lake_mark=mark)
    return Job(config, staged, uuid4().hex, None, "error", 0, partial(working_connection, config))
