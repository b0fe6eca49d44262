"""Find the rows to change, in Spark's tasks for large reads and in this process for small ones."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, TableDef
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.search import DuckDBFinder, Finder, MatchedPositions, StoredPositions
from ducklake_orch.catalog.writing import Loss, staged_table, write_delete_files
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.read_frame import grouped_for_tasks, read_job
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_errors import translated_errors
from ducklake_orch.spark.storage_access import is_reachable
from ducklake_orch.spark.task_cleanup import cleaned_up_on_failure, remove_other_attempts
from ducklake_orch.spark.task_engine import engine_spec
from ducklake_orch.spark.task_values import RESULT_SCHEMA, packed, unpacked

# Below this size, DuckDB in this process finds the rows before a Spark job has started.
MIN_BYTES_FOR_SPARK = 1024 * 1024 * 1024


def finder_of(config: LakeConfig, spark: Any, engine: str) -> Finder:
    """Return the finder of rows.

    Args:
        config: The lake.
        spark: The session to use, if there is one.
        engine: `duckdb`, `spark`, or `auto`, which chooses by the bytes to read.
    """
    if engine == "spark" and spark is None:
        raise ConfigError('`engine="spark"` needs a session.', remedy="Pass it as `spark`.")
    return DuckDBFinder() if spark is None or engine == "duckdb" else SparkFinder(config, spark, engine)


class SparkFinder:
    """Searches files in Spark's tasks, which write the positions of matching rows and return only counts and paths.

    Args:
        config: The lake.
        spark: The session.
        engine: `spark`, or `auto`.
    """

    def __init__(self, config: LakeConfig, spark: Any, engine: str) -> None:
        self.engine = "spark" if engine == "spark" else "duckdb"
        self._config = config
        self._spark = spark
        self._forced = engine == "spark"
        self._staged: list[tuple[str, str]] = []

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Search the files, and add the positions of matching rows to `hits`."""
        if not files:
            return
        if not (self._forced or self._is_worth(files)):
            DuckDBFinder().find(plan, files, hits)
            return
        self.engine = "spark"
        job, pieces = read_job(self._config, replace(plan, columns=()), files)
        write_id = uuid4().hex
        folder = staged_table(plan.table, ()).folder
        self._staged.append((folder, write_id))
        if "://" not in folder:
            os.makedirs(folder, exist_ok=True)
        spec, prefix = engine_spec(self._config), f"{folder}{plan.table.file_prefix(write_id)}-"
        find = ship_function("ducklake_orch.spark.delete_task:find_rows", spec, job, pieces, prefix)
        found = self._run_tasks(f"Finding rows of `{plan.table}`", find, len(pieces), folder, write_id)
        for matches in found:
            hits.add_stored({file_id: StoredPositions(path, count) for file_id, (path, count) in matches.items()})

    def write_deletes(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        write_id: str,
        losses: Sequence[Loss],
        hits: MatchedPositions,
    ) -> list[NewDeleteFile]:
        """Write the delete files of the positions that tasks have found, in tasks."""
        stored = [loss for loss in losses if hits.are_stored(loss.file)]
        local = [loss for loss in losses if not hits.are_stored(loss.file)]
        written = write_delete_files(con, table, write_id, local)
        if stored:
            # Other attempts at the same task leave their own files. The id of this job follows the lake's mark in file
            # names.
            name = f"{table.file_prefix(write_id)}-{uuid4().hex}".removeprefix("ducklake-")
            unmarked = replace(table, lake_mark="")
            parts = [packed(group) for group in grouped_for_tasks(stored, lambda loss: loss.file)]
            spec = engine_spec(self._config)
            work = ship_function("ducklake_orch.spark.delete_task:write_deletes", spec, unmarked, name, parts)
            found = self._run_tasks(f"Writing deletions of `{table}`", work, len(parts), table.folder, name)
            made = [file for part in found for file in part]
            paths = {file.path for file in made}
            remove_other_attempts(self._spark, name, lambda: remove_written(self._config, table.folder, name, paths))
            written += made
        by_file = {file.data_file.data_file_id: file for file in written}
        return [by_file[loss.file.data_file_id] for loss in losses]

    def release(self) -> None:
        """Delete the files of positions from the storage."""
        for folder, write_id in self._staged:
            remove_written(self._config, folder, write_id)
        self._staged.clear()

    def _is_worth(self, files: Sequence[DataFile]) -> bool:
        return sum(file.file_size for file in files) >= MIN_BYTES_FOR_SPARK and is_reachable(self._config, self._spark)

    def _run_tasks(self, doing: str, work: Any, tasks: int, folder: str, write_id: str) -> list[Any]:
        """Run a job and return the results of its tasks; if it fails, delete its files."""
        with (
            translated_errors(self._config, f"{doing} in Spark"),
            cleaned_up_on_failure(self._spark, write_id, lambda: remove_written(self._config, folder, write_id)),
        ):
            rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(work, RESULT_SCHEMA).collect()
        return [unpacked(bytes(row[0])) for row in rows]
