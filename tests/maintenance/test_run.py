"""A maintenance run does what its plan shows, loses no rows, and leaves a lake in which fsck finds nothing."""

import contextlib
import json
import logging
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.search import planning
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.locks import PostgresQueue
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import (
    CatalogUnreachableError,
    ConfigError,
    MaintenanceRunningError,
    ReadOnlyError,
    StatementError,
)
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.run_log import latest_runs
from ducklake_orch.maintenance.step_context import Done, Work
from tests.servers.postgres import PostgresServer
from tests.support.backends import CROSS, LOCAL, MYSQL, POSTGRES, SQLITE, Backend, catalogs, in_every_run, on_sqlite
from tests.support.fault_points import dies_at, lose_the_answer, once_at
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


# --- operations ------------------------------------------------------------------------------------------------------


@catalogs()
def test_a_run_does_what_its_plan_shows_and_loses_no_rows(backend: Backend, lake: DuckLake) -> None:
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
    assert history(lake, TABLES).items() >= past.items()  # time travel returns the same rows
    whole(lake)
    # The first run keeps the snapshots, so there are snapshots to expire and files to delete.
    second = lake.maintain(ALL_OF_IT).raise_for_error()
    assert {name for (name, _), status in statuses(second).items() if status == "done"} >= {"expire"}
    assert contents(lake, TABLES) == wanted
    assert len(lake.snapshots()) == 1
    whole(lake)
    lake.maintain(ALL_OF_IT).raise_for_error()  # deletes the files that the previous run scheduled
    third = lake.maintain(ALL_OF_IT).raise_for_error()
    assert third.totals["files_in"] == third.totals["snapshots"] == 0
    assert lake.options() == options


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
@catalogs()
def test_a_plan_of_a_random_lake_changes_nothing_and_equals_the_run(lake: DuckLake, seed: int) -> None:
    worn_at_random(lake, seed)
    tables = [name for name in ("p", "q", "gone") if lake.exists(name)]
    wanted = contents(lake, tables)
    for _ in range(3):  # the next run deletes the files that a run schedules
        stray = Path(lake.table("p").files()[0].path).parent / f"{uuid4()}.parquet"
        stray.write_bytes(b"an orphan")
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
def test_all_operations_on_every_object_store(lake: DuckLake) -> None:
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
def test_steps_of_one_run_keep_each_others_results(lake: DuckLake) -> None:
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
def test_rows_that_the_engine_inlined_on_mysql_are_flushed(lake: DuckLake) -> None:
    lake.create_table("t", {"k": "BIGINT", "v": "VARCHAR", "d": "DECIMAL(9, 2)", "at": "TIMESTAMP"})
    values = "(1, 'it''s é', 1.50, TIMESTAMP '2026-01-02 03:04:05'), (2, 'NULL', NULL, NULL)"
    with lake.connect() as con:
        con.execute(f"INSERT INTO t VALUES {values}")
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
def test_every_operation_reports_figures_before_and_after(lake: DuckLake) -> None:
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
    extra = {snapshot.snapshot_id: snapshot.extra for snapshot in lake.snapshots()}[merge.snapshot_id]
    assert extra["maintenance"].items() >= {"run_id": report.run_id, "operation": "merge", "table": "main.t"}.items()


@on_sqlite
def test_a_dry_run_changes_nothing(lake: DuckLake) -> None:
    worn(lake)
    before = metadata(lake)
    report = lake.maintain(ALL_OF_IT, dry_run=True)
    assert metadata(lake) == before
    assert {step.status for step in report.operations} == {"planned", "skipped"}


@on_sqlite
def test_a_table_with_auto_compact_off_is_skipped(lake: DuckLake) -> None:
    worn(lake)
    lake.set_option("auto_compact", False, table="t")
    report = lake.maintain(KEEPING, tables=["t"])
    assert {status for (_, table), status in statuses(report).items() if table == "main.t"} == {"skipped"}
    assert len(lake.table("t").files()) == 5


@on_sqlite
def test_orphans_are_deleted_only_if_the_policy_says_so(lake: DuckLake) -> None:
    worn(lake)
    stray = Path(lake.table("t").files()[0].path).with_name("stray.parquet")
    stray.write_bytes(b"not known")
    policy = {"orphans": {"older_than": 0}, "force": True}
    report = lake.maintain(MaintenancePolicy(**policy), operations=["orphans"])
    assert [list(step.paths) for step in report.operations] == [[str(stray)]]
    assert stray.exists()
    assert report.totals["bytes_freed"] == 0
    policy["orphans"] = {"older_than": 0, "action": "delete", "unknown": "delete"}
    report = lake.maintain(MaintenancePolicy(**policy), operations=["orphans"])
    assert report.totals["bytes_freed"] == len(b"not known")
    assert not stray.exists()


# --- failures --------------------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE, POSTGRES], sql_writes=True)
def test_a_failure_in_one_table_is_reported_and_the_others_are_maintained(lake: DuckLake) -> None:
    data = rows(0, 2).append_column("region", [["a b", "a b"]])
    for _ in range(5):
        lake.write(data, "broken", mode="append", partition_by=["region"])
    small_files(lake, "t")
    scatter(lake, "broken")
    extension = MaintenancePolicy(merge={"engine": "extension"})
    report = lake.maintain(extension)  # the engine raises an INTERNAL error, which invalidates the connection
    assert (report.status, report.totals["failed"]) == ("error", 1)
    status_of = statuses(report)
    assert (status_of["merge", "main.broken"], status_of["merge", "main.t"]) == ("failed", "done")
    with pytest.raises(StatementError, match="INTERNAL Error") as caught:
        report.raise_for_error()
    assert "Stack Trace" not in caught.value.message
    assert json.dumps(report.to_dict())
    # The native merge accepts files in any folder.
    assert statuses(lake.maintain().raise_for_error())["merge", "main.broken"] == "done"
    assert lake.table("broken").count() == 10
    whole(lake)


def scatter(lake: DuckLake, table: str) -> None:
    """Move a file to another folder of the same partition, with the name that moved engines give it."""
    path = Path(lake.table(table).files()[0].path)
    moved = path.parent.with_name("region=a b") / path.name
    moved.parent.mkdir()
    path.rename(moved)
    with lake.connect_metadata(read_only=False) as con:
        statement = f"replace(path, 'region=a%20b', 'region=a b') WHERE path LIKE '%{path.name}'"
        con.execute(f"UPDATE ducklake_data_file SET path = {statement}")


@on_sqlite
def test_on_error_stop_ends_the_run_at_the_first_failure(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    worn(lake)

    def breaking(work: Work) -> Done:
        raise StatementError("it broke")

    monkeypatch.setattr("ducklake_orch.maintenance.run_plan.run_step", breaking)
    report = lake.maintain(KEEPING.model_copy(update={"on_error": "stop"}))
    not_skipped = [step.status for step in report.operations if step.status != "skipped"]
    assert not_skipped == ["failed"] + ["stopped"] * (len(not_skipped) - 1)


@on_sqlite
def test_a_table_dropped_after_the_plan_is_skipped(lake: DuckLake) -> None:
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
def test_a_concurrent_run_is_refused_and_the_error_names_the_first(lake: DuckLake) -> None:
    worn(lake)
    refusals: list[MaintenanceRunningError] = []

    def run_concurrently(step: PlannedStep) -> None:
        def second_run() -> None:
            try:
                lake.maintain(KEEPING)
            except MaintenanceRunningError as error:
                refusals.append(error)

        if not refusals:
            thread = threading.Thread(target=second_run)
            thread.start()
            thread.join()

    lake.maintain(KEEPING, progress=run_concurrently).raise_for_error()
    assert f"process {os.getpid()} on" in refusals[0].message
    assert "since 20" in refusals[0].message
    lake.maintain(KEEPING).raise_for_error()  # the lock is free again


@catalogs(quick=[POSTGRES])
def test_a_run_is_recorded_once_if_the_answer_to_its_record_is_lost(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ensure_exists()
    once_at(monkeypatch, "commit.after", lose_the_answer)
    lake.maintain(KEEPING, operations=["expire"]).raise_for_error()
    with planning(lake.config, "Reading the runs", reads=True) as metadata:
        assert [run.status for run in latest_runs(metadata, 10)] == ["ok"]


def test_a_server_that_ends_connections_while_a_run_begins_is_unreachable(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_database("ended_lock")
    url, storage = postgres.url("ended_lock"), {"type": "local", "path": tmp_path}
    lake = DuckLake.from_url("lake", catalog=url, storage=storage, create_if_missing=True)
    lake.ensure_exists()
    holder = PostgresQueue.holder

    def holder_after_the_end(self: PostgresQueue, cursor: duckdb.DuckDBPyConnection) -> str | None:
        with postgres.connect() as con:
            con.execute("ALTER DATABASE ended_lock WITH ALLOW_CONNECTIONS false")
        postgres.terminate_backends("ended_lock")
        return holder(self, cursor)

    monkeypatch.setattr(PostgresQueue, "holder", holder_after_the_end)
    key = PostgresQueue(duckdb.connect(), dialect_of(lake.config), name="maintenance").key
    with contextlib.closing(postgres.connect("ended_lock")) as con:
        con.execute(f"SELECT pg_advisory_lock({key})")
        with pytest.raises(CatalogUnreachableError, match=r"^Taking the maintenance lock failed"):
            lake.maintain(KEEPING)


@on_sqlite
def test_the_lock_of_a_killed_run_is_free(lake: DuckLake) -> None:
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
def test_a_killed_run_loses_no_rows_and_the_next_run_completes_it(make_lake: MakeLake, point: str) -> None:
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


# --- arguments and policies ------------------------------------------------------------------------------------------


@on_sqlite
def test_a_read_only_lake_and_a_selection_with_a_plan_are_refused(make_lake: MakeLake) -> None:
    lake = make_lake()
    worn(lake)
    with pytest.raises(ReadOnlyError):
        make_lake(read_only=True).maintain()
    with pytest.raises(ConfigError, match="cannot be combined with a plan"):
        lake.maintain(lake.plan_maintenance(), operations=["merge"])


@on_sqlite
def test_force_is_logged_and_reported(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    worn(lake)
    with caplog.at_level(logging.WARNING, "ducklake_orch"):
        report = lake.maintain(ALL_OF_IT)
    assert any("`force`" in message for message in caplog.messages)
    assert sum("`force`" in warning for warning in report.warnings) == 3


@on_sqlite
def test_a_run_applies_the_limits_of_its_policy(lake: DuckLake) -> None:
    worn(lake)
    policy = KEEPING.model_copy(update={"memory_limit": "300000000B", "threads": 1})
    lake.maintain(policy).raise_for_error()
    whole(lake)


@on_sqlite
def test_the_policy_of_the_lake_is_the_default(make_lake: MakeLake) -> None:
    lake = make_lake(maintenance={"merge": {"min_files": 2}})
    small_files(lake, "t", files=2)
    assert statuses(lake.maintain(operations=["merge"]))["merge", "main.t"] == "done"


@catalogs()
def test_the_plan_of_another_lake_is_refused(make_lake: MakeLake) -> None:
    planned, other = make_lake("one"), make_lake("other")
    for lake in (planned, other):
        small_files(lake, "t", files=6)
    plan = planned.plan_maintenance(KEEPING)
    before = metadata(other)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match="another lake"):
            other.maintain(plan, dry_run=dry_run)
    assert metadata(other) == before
    assert statuses(planned.maintain(plan))["merge", "main.t"] == "done"


@on_sqlite
def test_the_plan_of_a_copied_catalog_is_refused(lake: DuckLake, tmp_path: Path) -> None:
    small_files(lake, "t", files=6)
    assert lake.config.catalog.type == "sqlite"
    shutil.copy(lake.config.catalog.path, tmp_path / "copy.sqlite")
    copy = DuckLake.from_url("copy", catalog=f"sqlite:///{tmp_path}/copy.sqlite", storage=lake.config.storage)
    for duck_lake in (lake, copy):  # both get the same snapshot id for different snapshots
        duck_lake.write(rows(200, 3), "t", mode="append")
    with pytest.raises(ConfigError, match="another lake"):
        copy.maintain(lake.plan_maintenance(KEEPING))
