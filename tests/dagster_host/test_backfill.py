"""Backfills of concurrent runs with the multiprocess executor: steps are killed and re-executed."""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ducklake_orch import DuckLake
from tests.dagster_host import jobs
from tests.support.backends import POSTGRES, SQLITE, CatalogKind
from tests.support.lakes import Servers, catalog_fields

JOBS = {"killed_daily": jobs.killed_daily_job, "by_spark": jobs.by_spark_job}
# Each step is a process; the fork server has imported its modules already.
_FORKS = {"forkserver": {"preload_modules": ["ducklake_orch.dagster", "tests.dagster_host.jobs"]}}
RUN_CONFIG: dict[str, Any] = {"execution": {"config": {"multiprocess": {"start_method": _FORKS}}}}


def run_partition(home: str, job: str, key: str, lake: dict[str, str], after: str | None = None) -> tuple[str, bool]:
    """Run a job for a partition, or re-execute a failed run; return the run id and whether it succeeded."""
    os.environ.update(lake)
    with dg.DagsterInstance.from_config(home) as instance:
        again = dg.ReexecutionOptions.from_failure(after, instance) if after is not None else None
        options: dict[str, Any] = {"run_config": RUN_CONFIG, "tags": {"dagster/partition": key}}
        with dg.execute_job(dg.reconstructable(JOBS[job]), instance, reexecution_options=again, **options) as result:
            return result.run_id, result.success


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("catalog", "arrow", "spark", "concurrent_runs"),
    [
        (SQLITE, 8, 0, 4),
        pytest.param(SQLITE, 60, 6, 8, marks=pytest.mark.full),
        pytest.param(POSTGRES, 60, 6, 8, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_each_partition_is_there_once_after_concurrent_runs_and_kills(
    catalog: CatalogKind, arrow: int, spark: int, concurrent_runs: int, servers: Servers, tmp_path: Path
) -> None:
    (home := tmp_path / "home").mkdir()
    (home / "dagster.yaml").touch()
    fields = catalog_fields(catalog, servers, tmp_path, "lake")
    url = fields.get("url") or f"sqlite:///{fields['path']}"
    keys = jobs.DAYS.get_partition_keys()
    killed = keys[1:arrow:6]
    environment = {
        "LAKE_CATALOG": url,
        "LAKE_FILES": f"{tmp_path}/files",
        "KILL_WHILE_WRITING": ",".join(killed[::2]),
        "KILL_AFTER_COMMIT": ",".join(killed[1::2]),
        "KILLED_MARK": str(tmp_path / "killed"),
    }
    lake = DuckLake.from_url("lake", catalog=url, storage=environment["LAKE_FILES"], create_if_missing=True)
    lake.ensure_exists()
    wanted = {"killed_daily": keys[:arrow], "by_spark": keys[:spark]}
    work = [(job, key) for job, partition_keys in wanted.items() for key in partition_keys]
    with dg.DagsterInstance.from_config(str(home)), ProcessPoolExecutor(concurrent_runs, get_context("spawn")) as pool:
        running = [pool.submit(run_partition, str(home), job, key, environment) for job, key in work]
        done = dict(zip(work, (future.result() for future in running), strict=True))
        failed = [item for item, (_, success) in done.items() if not success]
        assert failed == [("killed_daily", key) for key in killed]
        # In workers, too: the fork server keeps the environment in which it started.
        reruns = [pool.submit(run_partition, str(home), *item, environment, done[item][0]) for item in failed]
        assert all(future.result()[1] for future in reruns)
    for table, partition_keys in wanted.items():
        found = lake.read(table).to_pylist() if partition_keys else []
        assert Counter((str(row["day"]), row["n"]) for row in found) == {
            (key, n): 1 for key in partition_keys for n in range(100)
        }
    written = [snapshot.extra["dagster"] for snapshot in lake.snapshots() if snapshot.author == "dagster"]
    # A partition is replaced again after its process was killed between the commit and the end of the step.
    again = dict.fromkeys((("killed_daily", key) for key in killed[1::2]), 2)
    assert Counter((commit["asset"], *commit["partitions"]) for commit in written) == dict.fromkeys(work, 1) | again
    assert not lake.fsck().findings
