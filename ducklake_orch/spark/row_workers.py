"""Queries over the files of a table, run by Spark's tasks: each task has some of the files, and what was lent to it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from ducklake_orch.catalog.model import DataFile, NewFile, TableDef
from ducklake_orch.catalog.workers import FileQuery, Lent, staged
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.spark.carry import carried
from ducklake_orch.spark.executor import writing_spec
from ducklake_orch.spark.finder import MUCH
from ducklake_orch.spark.row_task import RESULT, Queries, unpack
from ducklake_orch.spark.rows import check_reachable, failure_of, is_sparks
from ducklake_orch.spark.running import swept_if_it_fails, wait_for_others

if TYPE_CHECKING:
    import pyarrow as pa

# What a task reads, as long as one file is not more.
_BYTES = 128 * 1024 * 1024


class SparkWorkers:
    """Has Spark's tasks run queries over files.

    Args:
        config: The lake.
        spark: The session.
        forced: Whether they do so however little there is to read.
    """

    engine = "spark"

    def __init__(self, config: LakeConfig, spark: Any, *, forced: bool) -> None:
        self._config = config
        self._spark = spark
        self._forced = forced

    def are_worth(self, files: Sequence[DataFile]) -> bool:
        """Whether there is so much to read in files that tasks do it."""
        return bool(files) and (self._forced or sum(file.file_size for file in files) >= MUCH)

    def select(
        self, con: duckdb.DuckDBPyConnection, table: TableDef, queries: Sequence[FileQuery], lent: Sequence[Lent]
    ) -> "pa.Table":
        """Return the rows of queries whose columns are integers."""
        with staged(self._config, con, table, lent) as tables:
            work = self._queries(table, queries, tables)
            names = con.execute(f"DESCRIBE {queries[0].sql}").fetchall()
            run = carried("ducklake_orch.spark.row_task:select", work)
            frame = self._tasks(work).mapInArrow(run, ", ".join(f"`{name[0]}` bigint" for name in names))
            return self._told(f"Looking for rows of `{table}`", frame.toArrow)

    def write(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        queries: Sequence[FileQuery],
        lent: Sequence[Lent],
        write_id: str,
    ) -> list[NewFile]:
        """Write the rows of queries, which have ids, into files of a table."""

        def sweep(keep: frozenset[str] = frozenset()) -> int:
            return remove_written(self._config, table.folder, write_id, keep)

        with staged(self._config, con, table, lent) as tables:
            work = self._queries(table, queries, tables)
            run = carried("ducklake_orch.spark.row_task:write", work, table, write_id)
            frame = self._tasks(work).mapInArrow(run, f"{RESULT} binary")
            with swept_if_it_fails(self._spark, write_id, sweep):
                rows = self._told(f"Writing rows of `{table}`", frame.collect)
            results = [unpack(bytes(row[0])) for row in rows]
        # Another attempt at the same task has files of its own.
        wait_for_others(self._spark, write_id)
        failed = next((one for one in results if isinstance(one, DuckLakeOrchError)), None)
        files = [] if failed else [file for one in results if isinstance(one, list) for file in one]
        sweep(frozenset(file.path for file in files))
        if failed:
            raise failed
        return files

    def _queries(self, table: TableDef, queries: Sequence[FileQuery], tables: Mapping[Lent, str]) -> Queries:
        """Return the work of all tasks: each has as many files as are worth one."""
        check_reachable(self._config)
        parts: list[list[str]] = []
        size = 0
        for one in queries:
            if not parts or size + one.file.file_size > _BYTES:
                parts.append([])
                size = 0
            parts[-1].append(one.sql)
            size += one.file.file_size
        return Queries(
            writing_spec(self._config, table),
            tuple((one.name, sql, one.whole) for one, sql in tables.items()),
            tuple(tuple(part) for part in parts),
        )

    def _tasks(self, work: Queries) -> Any:
        return self._spark.range(0, len(work.parts), 1, len(work.parts))

    def _told(self, doing: str, run: Any) -> Any:
        failure: DuckLakeOrchError
        try:
            return run()
        except Exception as error:
            if not is_sparks(error):
                raise
            failure = failure_of(error, self._config, f"{doing} in Spark")
        raise failure
