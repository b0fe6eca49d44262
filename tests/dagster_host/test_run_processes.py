"""Runs in separate processes: killed, re-executed, and writing concurrently."""

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
from tests.support.backends import POSTGRES, SQLITE
from tests.support.lakes import Servers, catalog_fields

PARTITION = "dagster/partition"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (folder := tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    catalog, files = f"sqlite:///{tmp_path / 'lake.sqlite'}", str(tmp_path / "files")
    monkeypatch.setenv("LAKE_CATALOG", catalog)
    monkeypatch.setenv("LAKE_FILES", files)
    monkeypatch.setenv("KILLED_MARK", str(tmp_path / "killed"))
    return DuckLake.from_url("lake", catalog=catalog, storage=files, create_if_missing=True)


def test_a_step_killed_after_its_commit_appends_no_row_twice(lake: DuckLake, home: Path) -> None:
    job = dg.reconstructable(jobs.events_job)
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        with dg.execute_job(job, instance=instance) as first:
            assert not first.success
        assert lake.table("events").count() == 2  # committed, but not recorded by Dagster
        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance=instance, reexecution_options=again) as second:
            assert second.success
        assert lake.table("events").count() == 2
        # A re-execution of a step that succeeded takes effect.
        chosen = dg.ReexecutionOptions(parent_run_id=second.run_id, step_selection=["events"])
        with dg.execute_job(job, instance=instance, reexecution_options=chosen) as third:
            assert third.success
    assert lake.table("events").count() == 4
    assert lake.read("counted").to_pylist() == [{"rows": 2}]


def run_partition(home: str, key: str, lake: dict[str, str]) -> bool:
    """Materialize a partition in a worker process, as one run of a backfill."""
    os.environ.update(lake)
    in_process: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    with dg.DagsterInstance.from_config(home) as instance:
        job = dg.reconstructable(jobs.daily_job)
        with dg.execute_job(job, instance=instance, run_config=in_process, tags={PARTITION: key}) as result:
            return result.success


def test_four_concurrent_workers_backfill_a_table(servers: Servers, tmp_path: Path, home: Path) -> None:
    (home / "dagster.yaml").touch()
    lakes: list[dict[str, str]] = []
    for kind in (SQLITE, POSTGRES):
        catalog = catalog_fields(kind, servers, tmp_path, "lake")
        url = catalog.get("url") or f"sqlite:///{catalog['path']}"
        lakes.append({"LAKE_CATALOG": url, "LAKE_FILES": f"{tmp_path}/{kind.name}"})
        DuckLake.from_url("lake", catalog=url, storage=lakes[-1]["LAKE_FILES"], create_if_missing=True).tables()
    keys = jobs.DAYS.get_partition_keys()[:4]
    with dg.DagsterInstance.from_config(str(home)), ProcessPoolExecutor(4, get_context("spawn")) as pool:
        runs = [pool.submit(run_partition, str(home), key, lake) for key in keys for lake in lakes]
        assert all(run.result() for run in runs)
    for fields in lakes:
        lake = DuckLake.from_url("lake", catalog=fields["LAKE_CATALOG"], storage=fields["LAKE_FILES"])
        found = Counter(str(day) for day in lake.read("daily")["day"].to_pylist())
        assert found == dict.fromkeys(keys, 100)
        assert len(lake.table("daily").history()) == len(keys)
        assert not lake.fsck().findings
