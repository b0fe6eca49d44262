"""Rows to change are looked for by Spark's tasks where there is much to read, in this process where there is little."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ducklake_orch.catalog.hits import DuckDBFinder, Finder, Hits
from ducklake_orch.catalog.model import DataFile
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.carry import carried
from ducklake_orch.spark.executor import engine_spec
from ducklake_orch.spark.failures import in_our_words
from ducklake_orch.spark.reach import are_reached
from ducklake_orch.spark.read import read_job
from ducklake_orch.spark.running import swept_if_it_fails

if TYPE_CHECKING:
    import pyarrow as pa

# Of less, DuckDB in this process has found the rows before a job of Spark's has begun.
MUCH = 1024 * 1024 * 1024
_FOUND = "__ducklake_orch_found"


def finder_of(config: LakeConfig, spark: Any, engine: str) -> Finder:
    """Return what looks for rows.

    Args:
        config: The lake.
        spark: The session to use, if there is one.
        engine: `duckdb`, `spark`, or `auto`: by how much there is to read.
    """
    if engine == "spark" and spark is None:
        raise ConfigError('`engine="spark"` needs a session.', remedy="Give it as `spark`.")
    return DuckDBFinder() if spark is None or engine == "duckdb" else SparkFinder(config, spark, engine)


class SparkFinder:
    """Has Spark's tasks read the files; what comes back are positions, and no row does.

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

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: Hits) -> None:
        """Have files searched, and put the positions that are hit into the table."""
        if not files:
            return
        if not (self._forced or self._is_worth(files)):
            DuckDBFinder().find(plan, files, hits)
            return
        self.engine = "spark"
        job, pieces = read_job(self._config, replace(plan, columns=()), files)
        spec = engine_spec(self._config)
        find = carried("ducklake_orch.spark.read_task:find_rows", spec, job, pieces)
        frame = self._spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(find, "file bigint, pos bigint")
        hits.con.register(_FOUND, self._told(plan, frame))
        try:
            hits.con.execute(f"INSERT INTO {hits.TABLE} FROM {_FOUND}")
        finally:
            hits.con.unregister(_FOUND)

    def _is_worth(self, files: Sequence[DataFile]) -> bool:
        return sum(file.file_size for file in files) >= MUCH and are_reached(self._config, self._spark)

    def _told(self, plan: ScanPlan, frame: Any) -> "pa.Table":
        """Run the job; what it leaves behind when it fails is cancelled, and it has written nothing."""
        with (
            in_our_words(self._config, f"Looking for rows of `{plan.table}` in Spark"),
            swept_if_it_fails(self._spark, uuid4().hex, lambda: 0),
        ):
            return frame.toArrow()
