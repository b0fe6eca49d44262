"""Compact bins of files in Spark's tasks, one task per bin; the driver commits the result."""

from collections.abc import Sequence
from typing import Any

from ducklake_orch.catalog.lifecycle import BinJob, Compacted
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_errors import translated_errors
from ducklake_orch.spark.storage_access import check_reachable
from ducklake_orch.spark.task_cleanup import cleaned_up_on_failure, remove_other_attempts
from ducklake_orch.spark.task_engine import writing_spec
from ducklake_orch.spark.task_values import RESULT_SCHEMA, unpacked


class SparkCompactor:
    """Runs compaction in Spark's tasks.

    Args:
        config: The lake.
        spark: The session.
    """

    def __init__(self, config: LakeConfig, spark: Any) -> None:
        check_reachable(config)
        self._config = config
        self._spark = spark

    def write(self, jobs: Sequence[BinJob], write_id: str) -> list[Compacted]:
        """Write the new files of the bins."""
        folder = jobs[0].table.folder
        results = self._run(jobs, write_id, folder)
        written = {path for result in results for path in result.paths}
        remove_other_attempts(self._spark, write_id, lambda: remove_written(self._config, folder, write_id, written))
        return results

    def _run(self, jobs: Sequence[BinJob], write_id: str, folder: str) -> list[Compacted]:
        spec = writing_spec(self._config, jobs[0].table)
        work = ship_function("ducklake_orch.spark.compact_task:compact", spec, tuple(jobs), write_id)
        with (
            translated_errors(self._config, f"Compacting files of `{jobs[0].table}` in Spark"),
            cleaned_up_on_failure(self._spark, write_id, lambda: remove_written(self._config, folder, write_id)),
        ):
            rows = self._spark.range(0, len(jobs), 1, len(jobs)).mapInArrow(work, RESULT_SCHEMA).collect()
        return [compacted for row in rows for compacted in unpacked(bytes(row[0]))]
