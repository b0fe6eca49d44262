"""A run stops cleanly at a signal or at its budget; a second signal rolls back the current step."""

import os
import signal
import time
from typing import Any

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.lifecycle import flush
from ducklake_orch.catalog.lifecycle.compaction import DuckDBCompactor
from ducklake_orch.catalog.lifecycle.flush_commit import commit_flushed
from ducklake_orch.maintenance import run_limits, run_step
from ducklake_orch.maintenance.results import PlannedStep, StepReport
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.stored_tables import files_of
from tests.support.worn_lakes import ALL_OF_IT, KEEPING, TABLES, contents, rows, small_files, statuses, whole, worn


@on_sqlite
def test_a_signal_ends_the_run_after_the_current_step(lake: DuckLake) -> None:
    worn(lake)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def interrupt(step: PlannedStep) -> None:
        if not isinstance(step, StepReport) and step.operation == "merge":
            os.kill(os.getpid(), signal.SIGTERM)

    report = lake.maintain(KEEPING, progress=interrupt)
    assert report.status == "stopped"
    steps = {(step.operation, step.table): step for step in report.operations}
    assert steps["merge", "main.t"].status == "done"
    assert steps["rewrite", "main.d"].status == "stopped"
    assert "SIGTERM" in steps["rewrite", "main.d"].reason
    assert report.signal == "SIGTERM"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    again = lake.maintain(KEEPING)
    assert statuses(again)["rewrite", "main.d"] == "done"
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
    report = lake.maintain(KEEPING, tables=["i"])
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
    assert statuses(lake.maintain(KEEPING))["rewrite", "main.d"] == "done"


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


@on_sqlite
def test_sigterm_rolls_back_a_step_that_takes_too_long(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    worn(lake)
    wanted = contents(lake, TABLES)
    real = DuckDBCompactor.write

    def slow(self: DuckDBCompactor, jobs: Any, write_id: str) -> Any:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(30)
        return real(self, jobs, write_id)

    monkeypatch.setattr(run_limits, "_GRACE_S", 0.5)
    monkeypatch.setattr(DuckDBCompactor, "write", slow)
    began = time.monotonic()
    report = lake.maintain(KEEPING, operations=["merge"])
    assert time.monotonic() - began < 10
    monkeypatch.undo()
    assert [(step.reason, step.status) for step in report.operations if step.table == "main.t"] == [
        ("interrupted and rolled back", "stopped")
    ]
    assert report.signal == "SIGTERM"
    assert contents(lake, TABLES) == wanted
    assert statuses(lake.maintain(KEEPING))["merge", "main.t"] == "done"
    whole(lake)


@catalogs(quick=[SQLITE])
def test_expiry_and_cleanup_stop_between_slices_and_go_on_in_the_next_run(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_step, "_SNAPSHOTS_AT_ONCE", 3)
    monkeypatch.setattr(run_step, "_FILES_AT_ONCE", 2)
    for number in range(8):
        lake.write(rows(number, 1), "t", mode="overwrite")
    last = max(snapshot.snapshot_id for snapshot in lake.snapshots())

    def stopped_in(operation: str, module: Any, work: str) -> StepReport:
        real = getattr(module, work)

        def interrupted(*given: Any, **named: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(module, work, interrupted)
            (step,) = lake.maintain(ALL_OF_IT, operations=[operation]).operations
        assert step.status == "stopped"
        assert "SIGTERM" in step.reason
        return step

    assert stopped_in("expire", run_step, "expire").snapshots == 3
    assert len(lake.snapshots()) == last + 1 - 3
    lake.maintain(ALL_OF_IT, operations=["expire"]).raise_for_error()
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()] == [last]
    assert stopped_in("cleanup", run_step, "clean_up").files_in == 2
    assert len(files_of(lake)) == 8 - 2
    lake.maintain(ALL_OF_IT, operations=["cleanup"]).raise_for_error()
    assert len(files_of(lake)) == 1
    whole(lake)
