"""Run queries over the files of a table in Spark's tasks; each task gets some files and a copy of the lent tables."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, NewFile, TableDef
from ducklake_orch.catalog.writing import FileQuery, Lent, staged, staged_sql, staged_table
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.spark.row_finder import MIN_BYTES_FOR_SPARK
from ducklake_orch.spark.row_task import Queries, WriteTask
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_errors import translated_errors
from ducklake_orch.spark.storage_access import check_reachable, is_reachable
from ducklake_orch.spark.task_cleanup import cleaned_up_on_failure, remove_other_attempts
from ducklake_orch.spark.task_engine import writing_spec
from ducklake_orch.spark.task_values import RESULT_SCHEMA, packed, unpacked

# The bytes that a task reads, unless one file is larger.
_BYTES_PER_TASK = 128 * 1024 * 1024


class SparkWorkers:
    """Runs queries over files in Spark's tasks.

    Args:
        config: The lake.
        spark: The session.
        forced: Whether tasks run the queries however little there is to read.
    """

    engine = "spark"

    def __init__(self, config: LakeConfig, spark: Any, *, forced: bool) -> None:
        self._config = config
        self._spark = spark
        self._forced = forced

    def are_worth(self, files: Sequence[DataFile]) -> bool:
        """Whether the files are large enough for tasks, and whether tasks can read them."""
        if not files or self._config.on_connect is not None or self._config.extensions:
            return False  # tasks do not have the SQL that these add
        if self._forced:
            check_reachable(self._config)
            return True
        return sum(file.file_size for file in files) >= MIN_BYTES_FOR_SPARK and is_reachable(self._config, self._spark)

    @contextmanager
    def select(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        columns: tuple[ColumnDef, ...],
    ) -> Iterator[str]:
        """Yield the query for the rows of queries, for a block."""
        target, write_id = staged_table(table, columns), uuid4().hex
        try:
            task = WriteTask(target, write_id, known=False)
            yield staged_sql(con, columns, self._written(con, table, queries, lent, task))
        finally:
            remove_written(self._config, target.folder, write_id)

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
        """Write the rows of queries, which have row ids, into files of a table."""
        return self._written(con, table, queries, lent, WriteTask(table, write_id, known=True), kept)

    def _written(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        task: WriteTask,
        kept: Sequence[NewFile] = (),
    ) -> list[NewFile]:
        def remove_others(written: Sequence[NewFile] = ()) -> int:
            keep = frozenset(file.path for file in [*kept, *written])
            return remove_written(self._config, task.table.folder, task.write_id, keep)

        with staged(self._config, con, table, lent) as tables:
            work = self._queries(table, queries, tables)
            frame = self._spark.range(0, len(work.parts), 1, len(work.parts))
            run = ship_function("ducklake_orch.spark.row_task:write", work, task)
            with (
                translated_errors(self._config, f"Changing rows of `{table}` in Spark"),
                cleaned_up_on_failure(self._spark, task.write_id, remove_others),
            ):
                rows = frame.mapInArrow(run, RESULT_SCHEMA).collect()
        results = [unpacked(bytes(row[0])) for row in rows]
        failed = next((result for result in results if isinstance(result, DuckLakeOrchError)), None)
        files = [] if failed else [file for result in results if isinstance(result, list) for file in result]
        remove_other_attempts(self._spark, task.write_id, lambda: remove_others(files))
        if failed:
            raise failed
        return files

    def _queries(self, table: TableDef, queries: Sequence[FileQuery], tables: Mapping[Lent, str]) -> Queries:
        """Return the work of all tasks, each with as many files as justify a task."""
        parts: list[list[str]] = []
        size = 0
        for query in queries:
            if not parts or size + query.file.file_size > _BYTES_PER_TASK:
                parts.append([])
                size = 0
            parts[-1].append(query.sql)
            size += query.file.file_size
        return Queries(
            writing_spec(self._config, table),
            tuple((lent.name, sql, lent.whole) for lent, sql in tables.items()),
            tuple(packed(part) for part in parts),
        )
