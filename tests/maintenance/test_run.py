"""A run does what its plan shows, loses nothing, and leaves a lake that is whole."""

import json
import logging
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ConfigError, MaintenanceRunningError, ReadOnlyError, StatementError
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.step_context import Done, Work
from tests.support.backends import CROSS, LOCAL, MYSQL, POSTGRES, SQLITE, Backend, catalogs, in_every_run, on_sqlite
from tests.support.fault_points import dies_at
from tests.support.lakes import MakeLake
from tests.support.worn_lakes import (
    ALL_OF_IT,
    KEEPING,
    TABLES,
    contents,
    history,
    metadata,
    row_ids,
    rows,
    small_files,
    statuses,
    whole,
    worn,
    worn_at_random,
)

on_object_stores = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(backend, id=str(backend), marks=() if in_every_run(backend) else pytest.mark.full)
        for backend in CROSS
        if backend.storage is not LOCAL
    ],
    indirect=True,
)
FIGURES = ("files_in", "files_out", "bytes", "rows", "snapshots")

EAGER = ALL_OF_IT.model_copy(
    update={
        "rewrite": ALL_OF_IT.rewrite.model_copy(update={"delete_threshold": 0.05}),
        "merge": ALL_OF_IT.merge.model_copy(update={"min_files": 2}),
    }
)


def figures(step: PlannedStep) -> dict[str, Any]:
    return {name: getattr(step, name) for name in FIGURES if getattr(step, name) is not None}


# --- what it does ----------------------------------------------------------------------------------------------------


@catalogs()
def test_the_plan_is_what_the_run_reports_and_nothing_is_lost(backend: Backend, lake: DuckLake) -> None:
    worn(lake)
    wanted, past = contents(lake, TABLES), history(lake, TABLES)
    options = lake.options()
    plan = lake.plan_maintenance(KEEPING)
    report = lake.maintain(plan).raise_for_error()
    assert report.status == "ok"
    for planned, done in zip(plan.operations, report.operations, strict=True):
        assert (done.operation, done.table) == (planned.operation, planned.table)
        assert done.status == ("done" if planned.action == "run" else "skipped")
        assert {name: figures(done)[name] for name in figures(planned)} == figures(planned), str(done)
    assert contents(lake, TABLES) == wanted
    assert history(lake, TABLES).items() >= past.items()  # time travel, too
    whole(lake)
    # What is left: snapshots and the files that only they need.
    second = lake.maintain(ALL_OF_IT).raise_for_error()
    assert {name for (name, _), status in statuses(second).items() if status == "done"} >= {"expire"}
    assert contents(lake, TABLES) == wanted
    assert len(lake.snapshots()) == 1
    whole(lake)
    lake.maintain(ALL_OF_IT).raise_for_error()  # which cleans up after the one before
    third = lake.maintain(ALL_OF_IT).raise_for_error()
    assert third.totals["files_in"] == third.totals["snapshots"] == 0
    assert lake.options() == options


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in (1, 2, 3))])
@catalogs()
def test_of_any_lake_the_plan_changes_nothing_and_says_what_the_run_does(lake: DuckLake, seed: int) -> None:
    worn_at_random(lake, seed)
    tables = [name for name in ("p", "q", "gone") if lake.exists(name)]
    wanted = contents(lake, tables)
    for _ in range(3):  # what is given up by one run is deleted by the next
        stray = Path(lake.table("p").files()[0].path).parent / f"{uuid4()}.parquet"
        stray.write_bytes(b"nobody knows me")
        before = metadata(lake)
        plan = lake.plan_maintenance(EAGER)
        assert metadata(lake) == before
        report = lake.maintain(plan).raise_for_error()
        for planned, done in zip(plan.operations, report.operations, strict=True):
            assert {name: figures(done)[name] for name in figures(planned)} == figures(planned), str(done)
            assert sorted(done.paths) == sorted(planned.paths), str(done)
        assert contents(lake, tables) == wanted
        assert not stray.exists()
    whole(lake)


@on_object_stores
def test_all_six_operations_on_every_object_store(lake: DuckLake) -> None:
    worn(lake)
    wanted = contents(lake, TABLES)
    stray = lake.table("t").files()[0].path.rpartition("/")[0] + "/stray.parquet"
    with lake.connect() as con:
        con.execute(f"COPY (SELECT 1) TO {literal(stray)}")
    first = lake.maintain(ALL_OF_IT).raise_for_error()
    assert {step.operation for step in first.operations if step.status == "done"} >= {"rewrite", "merge", "expire"}
    assert [list(step.paths) for step in first.operations if step.operation == "orphans"] == [[stray]]
    second = lake.maintain(ALL_OF_IT).raise_for_error()
    assert statuses(second)["cleanup", None] == "done"
    assert contents(lake, TABLES) == wanted
    whole(lake)


@catalogs(sql_writes=True)
def test_no_step_takes_what_another_one_has_just_made(lake: DuckLake) -> None:
    small_files(lake, "t")
    lake.delete("t", "k < 5")
    lake.write(rows(1000, 3), "t", mode="append", inline="auto")
    lake.execute("UPDATE t SET v = 'new' WHERE k = 30").raise_for_error()
    wanted, past = contents(lake), history(lake)
    ids = row_ids(lake)
    plan = lake.plan_maintenance(KEEPING)
    report = lake.maintain(plan).raise_for_error()
    for planned, done in zip(plan.operations, report.operations, strict=True):
        assert {name: figures(done)[name] for name in figures(planned)} == figures(planned), str(done)
    assert contents(lake) == wanted
    assert history(lake).items() >= past.items()
    assert row_ids(lake) == ids
    whole(lake)


@pytest.mark.parametrize("backend", [pytest.param(Backend(MYSQL, LOCAL), id="mysql")], indirect=True)
def test_what_the_engine_inlined_on_mysql_is_flushed_too(lake: DuckLake) -> None:
    lake.create_table("t", {"k": "BIGINT", "v": "VARCHAR", "d": "DECIMAL(9, 2)", "at": "TIMESTAMP"})
    some = "(1, 'it''s é', 1.50, TIMESTAMP '2026-01-02 03:04:05'), (2, 'NULL', NULL, NULL)"
    lake.execute(f"INSERT INTO t VALUES {some}").raise_for_error()
    wanted, past, ids = contents(lake), history(lake), row_ids(lake)
    plan = lake.plan_maintenance(operations=["flush"])
    report = lake.maintain(plan).raise_for_error()
    assert [figures(operation) for operation in report.operations] == [
        figures(operation) for operation in plan.operations
    ]
    assert (report.totals["rows"], len(lake.table("t").files())) == (2, 1)
    assert (contents(lake), row_ids(lake)) == (wanted, ids)
    assert history(lake).items() >= past.items()
    assert {row["change_type"] for row in lake.changes("t").to_pylist()} == {"insert"}
    assert lake.plan_maintenance(operations=["flush"]).totals["steps"] == 0
    whole(lake)


@on_sqlite
def test_every_operation_tells_before_and_after(lake: DuckLake) -> None:
    worn(lake)
    report = lake.maintain(KEEPING)
    steps = {(step.operation, step.table): step for step in report.operations}
    merge = steps["merge", "main.t"]
    assert (merge.before["files"], merge.after["files"]) == (5, 1)
    assert merge.before["rows"] == merge.after["rows"] == 100
    assert merge.duration_s > 0
    assert merge.snapshot_id is not None
    rewrite = steps["rewrite", "main.d"]
    assert (rewrite.before["deleted_rows"], rewrite.after["deleted_rows"]) == (25, 0)
    dumped = json.loads(json.dumps(report.to_dict()))
    keys = {"status", "before", "after", "duration_s", "error"}
    assert all(keys <= set(step) for step in dumped["operations"])
    assert "| merge | main.t | done |" in report.to_markdown()
    assert "merge main.t: done: 5 files into 1" in str(report)
    told_by = {snapshot.snapshot_id: snapshot.extra for snapshot in lake.snapshots() if snapshot.extra}[
        merge.snapshot_id
    ]
    assert (
        told_by["maintenance"] | {"run_id": report.run_id, "operation": "merge", "table": "main.t"}
        == told_by["maintenance"]
    )


@on_sqlite
def test_a_dry_run_changes_nothing(lake: DuckLake) -> None:
    worn(lake)
    before = metadata(lake)
    report = lake.maintain(ALL_OF_IT, dry_run=True)
    assert metadata(lake) == before
    assert {step.status for step in report.operations} == {"planned", "skipped"}


@on_sqlite
def test_a_table_with_auto_compact_off_is_left_alone(lake: DuckLake) -> None:
    worn(lake)
    lake.set_option("auto_compact", False, table="t")
    report = lake.maintain(KEEPING, tables=["t"])
    assert {status for (_, table), status in statuses(report).items() if table == "main.t"} == {"skipped"}
    assert len(lake.table("t").files()) == 5


@on_sqlite
def test_orphans_are_only_reported_unless_the_policy_says_delete(lake: DuckLake) -> None:
    worn(lake)
    stray = Path(lake.table("t").files()[0].path).with_name("stray.parquet")
    stray.write_bytes(b"not known")
    told = {"orphans": {"older_than": 0}, "force": True}
    report = lake.maintain(MaintenancePolicy(**told), operations=["orphans"])
    assert [list(step.paths) for step in report.operations] == [[str(stray)]]
    assert stray.exists()
    assert report.totals["bytes_freed"] == 0
    told["orphans"] = {"older_than": 0, "action": "delete", "unknown": "delete"}
    report = lake.maintain(MaintenancePolicy(**told), operations=["orphans"])
    assert report.totals["bytes_freed"] == len(b"not known")
    assert not stray.exists()


# --- what can go wrong -----------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE, POSTGRES], sql_writes=True)
def test_a_table_that_breaks_the_engine_is_reported_and_the_others_are_done(lake: DuckLake) -> None:
    data = rows(0, 2).append_column("region", [["a b", "a b"]])
    for _ in range(5):
        lake.write(data, "broken", mode="append", partition_by=["region"])
    small_files(lake, "t")
    scatter(lake, "broken")
    extension = MaintenancePolicy(merge={"engine": "extension"})
    report = lake.maintain(extension)  # which answers with an INTERNAL error that spoils the whole connection
    assert (report.status, report.totals["failed"]) == ("error", 1)
    told = statuses(report)
    assert (told["merge", "main.broken"], told["merge", "main.t"]) == ("failed", "done")
    with pytest.raises(StatementError, match="INTERNAL Error") as caught:
        report.raise_for_error()
    assert "Stack Trace" not in caught.value.message
    assert json.dumps(report.to_dict())
    # This package's own merge takes files from any folder.
    assert statuses(lake.maintain().raise_for_error())["merge", "main.broken"] == "done"
    assert lake.table("broken").count() == 10
    whole(lake)


def scatter(lake: DuckLake, table: str) -> None:
    """Move a file to another folder of the same partition, as other engines name it."""
    path = Path(lake.table(table).files()[0].path)
    other = path.parent.with_name("region=a b") / path.name
    other.parent.mkdir()
    path.rename(other)
    with lake.connect_metadata(read_only=False) as con:
        moved = f"replace(path, 'region=a%20b', 'region=a b') WHERE path LIKE '%{path.name}'"
        con.execute(f"UPDATE ducklake_data_file SET path = {moved}")


@on_sqlite
def test_the_run_can_end_at_the_first_failure(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    worn(lake)

    def breaking(work: Work) -> Done:
        raise StatementError("it broke")

    monkeypatch.setattr("ducklake_orch.maintenance.run_plan.run_step", breaking)
    report = lake.maintain(KEEPING.model_copy(update={"on_error": "stop"}))
    told = [step.status for step in report.operations if step.status != "skipped"]
    assert told == ["failed"] + ["stopped"] * (len(told) - 1)


@on_sqlite
def test_a_table_that_is_dropped_meanwhile_is_no_failure(lake: DuckLake) -> None:
    worn(lake)
    plan = lake.plan_maintenance(KEEPING)
    lake.drop_table("t")
    lake.drop_table("d")
    report = lake.maintain(plan).raise_for_error()
    dropped = [step for step in report.operations if "was dropped" in step.reason]
    assert {step.status for step in dropped} == {"skipped"}
    assert {step.operation for step in dropped} >= {"rewrite", "merge"}
    whole(lake)


@catalogs()
def test_a_second_runner_is_told_who_the_first_one_is(lake: DuckLake) -> None:
    worn(lake)
    seen: list[MaintenanceRunningError] = []

    def meanwhile(step: PlannedStep) -> None:
        def second() -> None:
            try:
                lake.maintain(KEEPING)
            except MaintenanceRunningError as error:
                seen.append(error)

        if not seen:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    lake.maintain(KEEPING, progress=meanwhile).raise_for_error()
    assert f"process {os.getpid()} on" in seen[0].message
    assert "since 20" in seen[0].message
    lake.maintain(KEEPING).raise_for_error()  # the lock is free again


@on_sqlite
def test_the_lock_of_a_dead_runner_is_free(lake: DuckLake) -> None:
    worn(lake)

    def dies(_: PlannedStep) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        lake.maintain(KEEPING, progress=dies)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    lake.maintain(KEEPING).raise_for_error()
    whole(lake)


@pytest.mark.parametrize("point", ["files.written", "commit.before", "commit.after", "files.deleted", "statement.3"])
@catalogs(quick=[SQLITE])
def test_whoever_is_killed_anywhere_loses_nothing_and_the_next_run_finishes(make_lake: MakeLake, point: str) -> None:
    lake = make_lake()
    worn(lake)
    wanted = contents(lake, TABLES)
    dies_at(point, lambda: make_lake().maintain(ALL_OF_IT))
    assert contents(lake, TABLES) == wanted
    for _ in range(2):
        lake.maintain(ALL_OF_IT).raise_for_error()
    assert contents(lake, TABLES) == wanted
    assert len(lake.snapshots()) == 1
    whole(lake)


# --- bad input -------------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_lake_to_read_is_refused_and_so_is_a_selection_beside_a_plan(make_lake: MakeLake) -> None:
    lake = make_lake()
    worn(lake)
    with pytest.raises(ReadOnlyError):
        make_lake(read_only=True).maintain()
    with pytest.raises(ConfigError, match="cannot be combined with a plan"):
        lake.maintain(lake.plan_maintenance(), operations=["merge"])


@on_sqlite
def test_force_is_loud(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    worn(lake)
    with caplog.at_level(logging.WARNING, "ducklake_orch"):
        report = lake.maintain(ALL_OF_IT)
    assert any("`force`" in message for message in caplog.messages)
    assert sum("`force`" in warning for warning in report.warnings) == 3


@on_sqlite
def test_a_run_has_limits_of_its_own(lake: DuckLake) -> None:
    worn(lake)
    policy = KEEPING.model_copy(update={"memory_limit": "300000000B", "threads": 1})
    lake.maintain(policy).raise_for_error()
    whole(lake)


@on_sqlite
def test_the_lake_s_own_policy_is_used_by_default(make_lake: MakeLake) -> None:
    lake = make_lake(maintenance={"merge": {"min_files": 2}})
    small_files(lake, "t", files=2)
    assert statuses(lake.maintain(operations=["merge"]))["merge", "main.t"] == "done"


@catalogs()
def test_the_plan_of_another_lake_is_refused(make_lake: MakeLake) -> None:
    one, other = make_lake("one"), make_lake("other")
    for lake in (one, other):
        small_files(lake, "t", files=6)
    plan = one.plan_maintenance(KEEPING)
    before = metadata(other)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match="another lake"):
            other.maintain(plan, dry_run=dry_run)
    assert metadata(other) == before
    assert statuses(one.maintain(plan))["merge", "main.t"] == "done"


@on_sqlite
def test_so_is_the_plan_of_the_lake_that_a_catalog_was_copied_from(lake: DuckLake, tmp_path: Path) -> None:
    small_files(lake, "t", files=6)
    assert lake.config.catalog.type == "sqlite"
    shutil.copy(lake.config.catalog.path, tmp_path / "copy.sqlite")
    copy = DuckLake.from_url("copy", catalog=f"sqlite:///{tmp_path}/copy.sqlite", storage=lake.config.storage)
    for duck_lake in (lake, copy):  # the same number of a snapshot, but not the same snapshot
        duck_lake.write(rows(200, 3), "t", mode="append")
    with pytest.raises(ConfigError, match="another lake"):
        copy.maintain(lake.plan_maintenance(KEEPING))
