"""Retention periods come from the policy, then the options of the lake, then defaults; ages use the server's clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.metadata import catalog_clock
from ducklake_orch.errors import ClockError
from ducklake_orch.maintenance.results import MaintenancePlan, PlannedStep
from tests.support.backends import DUCKDB, LOCAL, MYSQL, POSTGRES, SQLITE, Backend, catalogs

DAYS = timedelta(days=1)
on_files = pytest.mark.parametrize(
    "backend", [pytest.param(Backend(kind, LOCAL), id=kind.name) for kind in (SQLITE, DUCKDB)], indirect=True
)
on_servers = pytest.mark.parametrize(
    "backend", [pytest.param(Backend(kind, LOCAL), id=kind.name) for kind in (POSTGRES, MYSQL)], indirect=True
)


def write(lake: DuckLake, times: int = 3) -> None:
    for number in range(times):
        lake.write(pa.table({"a": pa.array([number], pa.int64())}), "t", mode="overwrite")


def backdate(lake: DuckLake, age: timedelta) -> None:
    """Set the age of all snapshots except the latest."""
    with lake.connect_metadata(read_only=False) as con:
        ((latest,),) = con.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()
        time = (datetime.now(UTC) - age).isoformat(" ")
        con.execute(f"UPDATE ducklake_snapshot SET snapshot_time = '{time}' WHERE snapshot_id < {latest}")


def step(plan: MaintenancePlan, operation: str) -> PlannedStep:
    return next(planned_step for planned_step in plan.operations if planned_step.operation == operation)


def option(lake: DuckLake, name: str, value: str) -> None:
    lake.execute(f"CALL lake.set_option('{name}', '{value}')").raise_for_error()


@catalogs(quick=[SQLITE])
def test_an_override_keeps_the_history_of_its_table(lake: DuckLake) -> None:
    write(lake)
    lake.write(pa.table({"a": [1]}), "other", mode="append")
    backdate(lake, 20 * DAYS)

    def policy(of_table: str) -> dict[str, Any]:
        return {"expire": {"retain_last": 1}, "overrides": {"t": {"expire": {"older_than": of_table}}}}

    planned = step(lake.plan_maintenance(policy("30 days")), "expire")
    assert planned.reason.endswith("; tables with a longer history need 3 more")
    lake.maintain(policy("30 days"), operations=["expire"]).raise_for_error()
    assert [lake.read("t", snapshot=at)["a"].to_pylist() for at in (1, 2, 3)] == [[0], [1], [2]]
    lake.maintain(policy("10 days"), operations=["expire"]).raise_for_error()
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()] == [4]  # `t` has not changed in that time


@catalogs()
def test_the_retention_option_of_the_lake_applies_unless_the_policy_sets_one(lake: DuckLake) -> None:
    write(lake)
    backdate(lake, 20 * DAYS)
    keep_last = {"retain_last": 1}
    by_default = step(lake.plan_maintenance({"expire": keep_last}), "expire")
    assert by_default.snapshots == len(lake.snapshots()) - 1
    option(lake, "expire_older_than", "365 days")
    report = lake.maintain({"expire": keep_last}, operations=["expire"]).raise_for_error()
    assert report.operations[0].status == "skipped"
    assert len(lake.snapshots()) > 3
    assert lake.execute("SELECT a FROM t AT (VERSION => 1)").rows == [{"a": 0}]
    assert "7 days (the default)" in by_default.reason
    assert "365 days (the lake's option `expire_older_than`)" in report.operations[0].reason
    report = lake.maintain({"expire": keep_last | {"older_than": "10 days"}}, operations=["expire"]).raise_for_error()
    assert "10 days (the policy)" in report.operations[0].reason
    assert len(lake.snapshots()) == 1


@catalogs(quick=[SQLITE], sql_writes=True)  # MySQL cannot set an option twice
def test_files_are_kept_for_the_period_in_the_lakes_options(lake: DuckLake) -> None:
    write(lake)
    policy = {"expire": {"older_than": 0, "retain_last": 1}, "force": True}
    lake.maintain(policy, operations=["expire"]).raise_for_error()
    assert step(lake.plan_maintenance({"cleanup": {"older_than": 0}, "force": True}), "cleanup").files_in == 2
    option(lake, "delete_older_than", "1 week")
    plan = lake.plan_maintenance({})
    for operation in ("cleanup", "orphans"):
        assert "7 days (the lake's option `delete_older_than`)" in step(plan, operation).reason
    option(lake, "delete_older_than", "10 minutes")
    plan = lake.plan_maintenance({})
    assert "1 h (the lake's option" in step(plan, "cleanup").reason
    assert "below the floor of `cleanup`" in plan.warnings[0]


@catalogs(quick=[SQLITE])
def test_a_table_is_rewritten_from_the_delete_threshold_of_its_option(lake: DuckLake) -> None:
    lake.write(pa.table({"a": pa.array(range(100), pa.int64())}), "t", mode="append")
    lake.delete("t", "a < 30")
    option(lake, "rewrite_delete_threshold", "0.5")
    assert step(lake.plan_maintenance({}), "rewrite").action == "skip"
    assert step(lake.plan_maintenance({"rewrite": {"delete_threshold": 0.2}}), "rewrite").action == "run"


class ShiftedClock(datetime):
    """The wrong clock of a host."""

    off = timedelta(0)

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + cls.off


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> type[ShiftedClock]:
    monkeypatch.setattr(catalog_clock, "datetime", ShiftedClock)
    monkeypatch.setattr(ShiftedClock, "off", timedelta(0))
    return ShiftedClock


@on_servers
def test_ages_use_the_clock_of_the_server(lake: DuckLake, shifted: type[ShiftedClock]) -> None:
    write(lake)
    backdate(lake, 5 * DAYS)
    for off, words in ((timedelta(hours=23), "ahead of"), (timedelta(hours=-23), "behind")):
        shifted.off = off
        plan = lake.plan_maintenance({"expire": {"retain_last": 1}})
        assert abs(plan.planned_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert any(f"23.0 h {words}" in warning for warning in plan.warnings)
        assert step(plan, "expire").action == "skip"
    shifted.off = 3 * DAYS
    with pytest.raises(ClockError, match="ahead of that"):
        lake.plan_maintenance({})
    plan = lake.plan_maintenance({"expire": {"retain_last": 1}, "force": True})
    assert step(plan, "expire").action == "skip"
    assert list(lake.plan_maintenance({}, operations=["merge"]).warnings) == []


@on_files
def test_a_clock_behind_the_newest_snapshot_is_detected(lake: DuckLake, shifted: type[ShiftedClock]) -> None:
    write(lake)
    shifted.off = timedelta(hours=-2)
    assert "2.0 h behind the newest snapshot" in lake.plan_maintenance({}).warnings[0]
    shifted.off = -3 * DAYS
    with pytest.raises(ClockError, match="behind"):
        lake.maintain(MaintenancePolicy())
    lake.plan_maintenance({"force": True})
    shifted.off = 300 * DAYS  # an age that a lake without recent writes also has
    assert list(lake.plan_maintenance({}).warnings) == []
