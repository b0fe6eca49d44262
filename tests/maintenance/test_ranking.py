"""Maintenance does what pays off first: the scores of steps, the order of a run, and what earlier runs teach."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.config.maintenance import RankPolicy
from ducklake_orch.maintenance.ranking import Ranking
from ducklake_orch.maintenance.results import MaintenancePlan, PlannedStep
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.command_line import run
from tests.support.worn_lakes import rows, small_files

MERGING = {"expire": {"enabled": False}, "merge": {"min_files": 2}}


def order(plan: MaintenancePlan) -> list[tuple[str, str | None]]:
    return [(step.operation, step.table) for step in plan.operations if step.action == "run"]


@catalogs(quick=[SQLITE])
def test_steps_that_save_most_for_what_they_cost_come_first(lake: DuckLake) -> None:
    small_files(lake, "few", files=2)
    small_files(lake, "many", files=12)
    lake.write(rows(0, 100), "deleted", mode="append")
    lake.delete("deleted", "k < 30")
    plan = lake.plan_maintenance({**MERGING, "rank": {"open_bytes": "1 MiB"}}, operations=["rewrite", "merge"])
    assert order(plan) == [("merge", "main.many"), ("rewrite", "main.deleted"), ("merge", "main.few")]
    for step in plan.operations:
        if step.action == "run":
            assert step.benefit == pytest.approx(step.reads * step.saves)
            assert step.score == pytest.approx(step.benefit / step.cost)
            assert step.cost == 2 * (step.bytes or 0) + step.files_in * 2**20 + 16 * 2**20
    assert [step.saves for step in plan.operations if step.operation == "merge" and step.action == "run"] == [
        11 * 2**20,
        2**20,
    ]


@on_sqlite
def test_tables_that_are_read_more_come_first(lake: DuckLake) -> None:
    for name in ("a", "b", "c"):
        small_files(lake, name, files=4)
    policy = {**MERGING, "overrides": {"b": {"rank": {"reads": 50}}, "c": {"rank": {"reads": 2}}}}
    plan = lake.plan_maintenance(policy, operations=["merge"])
    assert order(plan) == [("merge", "main.b"), ("merge", "main.c"), ("merge", "main.a")]
    assert [step.reads for step in plan.operations] == [50, 2, pytest.approx(1, abs=0.01)]


def test_a_table_counts_as_read_less_the_longer_it_is_not_written() -> None:
    now = datetime(2026, 1, 15, tzinfo=UTC)
    ages = {"new": timedelta(0), "week": timedelta(days=7), "fortnight": timedelta(days=14)}
    ranking = Ranking(now, {name: now - age for name, age in ages.items()}, 2**20, {})
    steps = [PlannedStep("merge", name, None, "run", "", files_in=4, saves=2**20) for name in ages]
    scored = [ranking.scored(step, RankPolicy()) for step in steps]
    assert [step.reads for step in scored] == [1, 0.5, 0.25]
    assert [step.benefit for step in scored] == [2**20, 2**19, 2**18]
    assert {step.seconds for step in scored} == {(4 * 4 + 16) * 2**20 / 2**20}
    assert [step.table for step in ranking.ranked(scored[::-1])] == list(ages)


@on_sqlite
def test_what_three_runs_did_not_get_to_comes_first(lake: DuckLake) -> None:
    policy: dict[str, Any] = {**MERGING, "budget_bytes": 1, "overrides": {"busy": {"rank": {"reads": 1000}}}}
    small_files(lake, "quiet", files=3)
    small_files(lake, "other", files=1)
    done = []
    for _ in range(5):
        small_files(lake, "busy", files=3)
        plan = lake.plan_maintenance(policy, operations=["merge"])
        if plan.operations[0].table == "main.quiet":
            assert "the last 3 runs did not get to it" in plan.operations[0].reason
        report = lake.maintain(plan)
        done.append([step.table for step in report.operations if step.status == "done"])
        lake.maintain(operations=["flush"])  # runs of other operations and tables do not count
        lake.maintain(operations=["merge"], tables=["other"])
    assert done == [["main.busy"], ["main.busy"], ["main.busy"], ["main.quiet"], ["main.busy"]]


def test_what_waited_gets_a_fifth_of_the_cost() -> None:
    names = [f"{kind}{number}" for kind in ("busy", "late") for number in range(20)]
    steps = [
        PlannedStep("merge", name, None, "run", "", cost=100, score=float(name.startswith("busy"))) for name in names
    ]
    waited = {f"merge late{number}": 3 + number for number in range(20)}
    ranked = Ranking(datetime.now(UTC), {}, None, waited).ranked(steps)
    assert sorted(str(step.table) for step in ranked) == sorted(names)
    first = [str(step.table) for step in ranked[:10]]
    assert first[0] == "late19"  # the longest
    assert sum(name.startswith("late") for name in first) == 2
    assert [str(step.table) for step in ranked if str(step.table).startswith("late")][:4] == [
        f"late{number}" for number in (19, 18, 17, 16)
    ]


@on_sqlite
def test_the_limit_of_files_goes_to_the_tables_that_pay_off_first(lake: DuckLake) -> None:
    for name in ("a", "b"):
        small_files(lake, name, files=6)
    policy = MaintenancePolicy(merge={"max_files_per_run": 6}, overrides={"b": {"rank": {"reads": 9}}})
    plan = lake.plan_maintenance(policy, operations=["merge"])
    assert [(step.action, step.table) for step in plan.operations] == [("run", "main.b"), ("skip", "main.a")]


@catalogs(quick=[SQLITE])
def test_runs_record_what_was_predicted_and_what_came_out(lake: DuckLake) -> None:
    small_files(lake, "t", files=6)
    assert lake.maintenance_runs() == []
    first = lake.plan_maintenance(operations=["merge"])
    assert [step.seconds for step in first.operations] == [None]
    lake.maintain(first).raise_for_error()
    small_files(lake, "t", files=6)
    second = lake.plan_maintenance(operations=["merge"])
    assert second.operations[0].seconds is not None
    report = lake.maintain(second).raise_for_error()
    latest, before = lake.maintenance_runs()
    assert before.summary["predicted"] == {
        "cost": first.operations[0].cost,
        "benefit": pytest.approx(first.operations[0].benefit),
        "seconds": None,
    }
    assert latest.summary["predicted"]["seconds"] == pytest.approx(second.operations[0].seconds)
    assert latest.summary["outcome"]["seconds"] == pytest.approx(report.operations[0].duration_s)
    assert (latest.run_id, latest.status, latest.summary["left"]) == (report.run_id, "ok", [])
    assert lake.maintenance_runs(1) == [latest]


@on_sqlite
def test_the_command_line_shows_the_arithmetic(lake: DuckLake) -> None:
    small_files(lake, "t", files=6)
    catalog = f"sqlite:///{lake.config.catalog.path}"  # type: ignore[union-attr]
    answer = run("maintain", "--explain", "--catalog", catalog, "--storage", str(lake.config.data_path))
    assert "saves a read" in answer.out
    assert "20.0 MiB" in answer.out  # five opens of 4 MiB
    assert "score = saves a read x reads a day / costs" in answer.out
    assert len(lake.table("t").files()) == 6
