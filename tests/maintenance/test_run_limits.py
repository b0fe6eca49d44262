"""A run stops cleanly at a signal or at its budget; a second signal rolls back the current step."""

import os
import signal
from typing import Any

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.lifecycle import flush
from ducklake_orch.catalog.lifecycle.flush_commit import commit_flushed
from ducklake_orch.maintenance.results import PlannedStep, StepReport
from tests.support.backends import on_sqlite
from tests.support.worn_lakes import ALL_OF_IT, KEEPING, TABLES, contents, small_files, statuses, whole, worn


@on_sqlite
def test_a_signal_ends_the_run_after_the_current_step(lake: DuckLake) -> None:
    worn(lake)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def interrupt(step: PlannedStep) -> None:
        if not isinstance(step, StepReport) and step.operation == "rewrite":
            os.kill(os.getpid(), signal.SIGTERM)

    report = lake.maintain(KEEPING, progress=interrupt)
    assert report.status == "stopped"
    steps = {(step.operation, step.table): step for step in report.operations}
    assert steps["rewrite", "main.d"].status == "done"
    assert steps["merge", "main.t"].status == "stopped"
    assert "SIGTERM" in steps["merge", "main.t"].reason
    assert report.signal == "SIGTERM"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    again = lake.maintain(KEEPING)
    assert statuses(again)["merge", "main.t"] == "done"
    whole(lake)


@on_sqlite
def test_a_second_signal_rolls_back_the_current_step(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    worn(lake)
    wanted = contents(lake, TABLES)

    def interrupted(*given: Any) -> int:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        return commit_flushed(*given)

    monkeypatch.setattr(flush, "commit_flushed", interrupted)
    report = lake.maintain(KEEPING, tables=["i", "t"])
    monkeypatch.undo()
    steps = {(step.operation, step.table): step for step in report.operations}
    assert steps["flush", "main.i"].reason == "interrupted and rolled back"
    assert report.totals["done"] == 0
    assert contents(lake, TABLES) == wanted
    assert lake.table("i").files() == []
    lake.maintain(KEEPING).raise_for_error()
    whole(lake)


@on_sqlite
@pytest.mark.parametrize("budget", [{"budget_s": 1e-9}, {"budget_bytes": 1}])
def test_a_run_stops_at_its_budget(lake: DuckLake, budget: dict[str, float]) -> None:
    worn(lake)
    report = lake.maintain(KEEPING.model_copy(update=budget))
    assert report.status == "stopped"
    assert {step.reason for step in report.operations if step.status == "stopped"} == {
        f"`{name}` = {value:g} is spent" for name, value in budget.items()
    }
    assert statuses(lake.maintain(KEEPING))["merge", "main.t"] == "done"


@on_sqlite
def test_max_files_per_run_serves_every_table_in_turn(lake: DuckLake) -> None:
    for name in ("a", "b", "c"):
        small_files(lake, name, files=12)
    policy = MaintenancePolicy(merge={"max_files_per_run": 6}, expire={"enabled": False})
    merged_tables = []
    for _ in range(3):
        plan = lake.plan_maintenance(policy, operations=["merge"])
        reasons = {step.table: step.reason for step in plan.operations if step.action == "skip"}
        assert len(reasons) == 2
        assert all("`max_files_per_run` = 6" in reason for reason in reasons.values()), reasons
        report = lake.maintain(plan).raise_for_error()
        merged_tables += [str(step.table) for step in report.operations if step.status == "done"]
    assert sorted(merged_tables) == ["main.a", "main.b", "main.c"]
    # A table that the last run did not reach comes before those that it maintained.
    lake.maintain(MaintenancePolicy(), operations=["merge"], tables=["a", "b"]).raise_for_error()
    small_files(lake, "a", files=6)
    assert lake.plan_maintenance(policy, operations=["merge"]).operations[0].table == "main.c"


@on_sqlite
def test_expiry_and_cleanup_run_after_tables_spent_the_budget(lake: DuckLake) -> None:
    worn(lake)
    report = lake.maintain(ALL_OF_IT.model_copy(update={"budget_s": 1e-9}))
    steps = statuses(report)
    assert {steps["rewrite", "main.d"], steps["merge", "main.t"]} == {"stopped"}
    assert steps["expire", None] == "done"
    assert len(lake.snapshots()) == 1
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    assert statuses(lake.maintain(ALL_OF_IT.model_copy(update={"budget_bytes": 1})))["cleanup", None] == "done"
    whole(lake)
