"""Runs that are repeated, or whose stage is gone: each output is published once, and never without the others."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.transactions import stage_rows
from ducklake_orch.engine import fault_points
from tests.dagster_host.whole_run_job import after_checks, whole_run

JOBS = [whole_run, after_checks]


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = {"LAKE_CATALOG": f"sqlite:///{tmp_path / 'lake.sqlite'}", "LAKE_FILES": str(tmp_path / "files")}
    for name, value in {**names, "FLAGS": str(tmp_path / "flags")}.items():
        monkeypatch.setenv(name, value)
    for folder in ("flags", "home"):
        (tmp_path / folder).mkdir()
    return tmp_path / "flags"


@pytest.fixture
def stored(tmp_path: Path, flags: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        yield instance


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.from_url(
        "lake", catalog=f"sqlite:///{tmp_path / 'lake.sqlite'}", storage=str(tmp_path / "files"), create_if_missing=True
    )


def run(
    job: Callable[[], dg.JobDefinition],
    instance: dg.DagsterInstance,
    parent: str | None = None,
    steps: list[str] | None = None,
) -> tuple[str, bool]:
    """Run a job, or repeat a run: from failure if no steps are given."""
    again = None
    if parent is not None:
        again = dg.ReexecutionOptions(parent, steps) if steps else dg.ReexecutionOptions.from_failure(parent, instance)
    with dg.execute_job(dg.reconstructable(job), instance=instance, reexecution_options=again) as result:
        return result.run_id, result.success


def visible(lake: DuckLake) -> dict[str, list[int]]:
    names = ("events", "orders", "totals")
    return {name: sorted(lake.read(name).column("n").to_pylist()) for name in names if lake.exists(name)}


@pytest.mark.parametrize("job", JOBS)
def test_a_run_that_fails_after_it_has_published_does_not_append_again(
    job: Callable[[], dg.JobDefinition], lake: DuckLake, stored: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        raise dg.Failure("The process ended.")

    monkeypatch.setitem(fault_points.actions, "stage.published", lose)
    first, succeeded = run(job, stored)
    assert not succeeded
    assert visible(lake) == {"events": [1], "orders": [1], "totals": [1]}
    monkeypatch.delitem(fault_points.actions, "stage.published")
    assert run(job, stored, first)[1]
    assert visible(lake) == {"events": [1], "orders": [1], "totals": [1]}


@pytest.mark.parametrize("job", JOBS)
def test_a_run_that_is_repeated_from_the_start_publishes_its_own_rows_only(
    job: Callable[[], dg.JobDefinition], flags: Path, lake: DuckLake, stored: dg.DagsterInstance
) -> None:
    (flags / "fails").touch()
    first, _ = run(job, stored)
    (flags / "fails").unlink()
    (flags / "second").touch()
    steps = ["events", "orders", "totals", *(["published"] if job is after_checks else [])]
    assert run(job, stored, first, steps)[1]
    assert visible(lake) == {"events": [2], "orders": [2], "totals": [2]}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("gone", ["discarded", "expired"])
def test_a_run_whose_stage_is_gone_does_not_publish_the_rest(
    job: Callable[[], dg.JobDefinition],
    gone: str,
    flags: Path,
    lake: DuckLake,
    stored: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (flags / "fails").touch()
    first, _ = run(job, stored)
    (flags / "fails").unlink()
    if gone == "discarded":
        lake.stage(lake.stages()[0].name, create=False).discard()
    else:
        now = stage_rows._now
        monkeypatch.setattr(stage_rows, "_now", lambda metadata: now(metadata) + timedelta(days=8))
    assert not run(job, stored, first)[1]
    assert visible(lake) == {}
    assert run(job, stored)[1]
    assert visible(lake) == {"events": [1], "orders": [1], "totals": [1]}


def test_a_run_is_whole_with_outputs_that_are_empty_or_none(
    flags: Path, lake: DuckLake, stored: dg.DagsterInstance
) -> None:
    for name in ("no events", "no orders"):
        (flags / name).touch()
    assert run(whole_run, stored)[1]
    assert visible(lake) == {"events": [], "totals": [1]}


def test_chosen_steps_of_a_failed_run_are_published_when_the_rest_is_there(
    flags: Path, lake: DuckLake, stored: dg.DagsterInstance
) -> None:
    (flags / "fails").touch()
    first, _ = run(whole_run, stored)
    (flags / "second").touch()
    second, succeeded = run(whole_run, stored, first, ["orders"])
    assert (succeeded, visible(lake)) == (True, {})
    (flags / "fails").unlink()
    assert run(whole_run, stored, second, ["totals"])[1]
    assert visible(lake) == {"events": [1], "orders": [2], "totals": [2]}


def test_chosen_steps_of_a_published_run_are_published_by_themselves(
    flags: Path, lake: DuckLake, stored: dg.DagsterInstance
) -> None:
    first, _ = run(whole_run, stored)
    (flags / "second").touch()
    assert run(whole_run, stored, first, ["orders"])[1]
    assert visible(lake) == {"events": [1], "orders": [2], "totals": [1]}
