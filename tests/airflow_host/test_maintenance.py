"""Maintenance operators, the maintenance task group and the maintenance DAG."""

import signal
import threading
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from ducklake_orch import SQLiteCatalog
from ducklake_orch.airflow import (
    DuckLakeCleanupOperator,
    DuckLakeExpireOperator,
    DuckLakeFlushOperator,
    DuckLakeHealthOperator,
    DuckLakeHook,
    DuckLakeLayoutOperator,
    DuckLakeMaintenanceOperator,
    DuckLakeMergeFilesOperator,
    DuckLakeOrphansOperator,
    DuckLakeRewriteOperator,
    build_maintenance_dag,
    maintenance_task_group,
)
from ducklake_orch.airflow.maintenance_operators import SingleOperationOperator
from ducklake_orch.airflow.task_run import failures
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.engine.locks import FileQueue
from ducklake_orch.errors import LakeLockedError, MaintenanceRunningError
from tests.support.airflow_connections import Connect
from tests.support.airflow_runs import result, run, states
from tests.support.airflow_tasks import execute
from tests.support.fault_points import once_at

OPERATIONS = ["flush", "rewrite", "merge", "layout", "expire", "cleanup", "orphans"]


@pytest.fixture
def small_files(conn_id: str) -> DuckLakeHook:
    hook = DuckLakeHook()
    for number in range(6):
        hook.write(pa.table({"n": [number] * 10}), "sales.orders", mode="append")
        hook.write(pa.table({"n": [number] * 10}), "other", mode="append")
    return hook


def files(hook: DuckLakeHook) -> dict[str, int]:
    return {table.table: table.file_count for table in hook.lake().tables()}


def test_the_operator_plans_without_writing_then_runs_every_operation(small_files: DuckLakeHook) -> None:
    planned = execute(DuckLakeMaintenanceOperator(task_id="plan", plan_only=True))
    assert (planned["schema_version"], planned["dry_run"]) == (1, True)
    assert [step["operation"] for step in planned["operations"] if step["action"] == "run"] == ["merge", "merge"]
    assert files(small_files) == {"orders": 6, "other": 6}
    done = execute(DuckLakeMaintenanceOperator(task_id="run"))
    assert (done["status"], done["totals"]["done"]) == ("ok", 2)
    assert "paths" not in done["operations"][0]
    assert files(small_files) == {"orders": 1, "other": 1}


def test_the_tasks_policy_overrides_the_lakes_policy(small_files: DuckLakeHook) -> None:
    policy = {"merge": {"min_files": "{{ params.least }}"}, "expire": {"enabled": False}}
    with DAG("policies", params={"least": 7}) as dag:
        DuckLakeMaintenanceOperator(task_id="run", policy=policy, tables=["sales.*"])
    assert result(run(dag), "run")["totals"]["done"] == 0
    assert files(small_files) == {"orders": 6, "other": 6}


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        (DuckLakeFlushOperator, {"min_rows": 2, "min_age": "1h"}),
        (DuckLakeRewriteOperator, {"delete_threshold": 0.5}),
        (DuckLakeMergeFilesOperator, {"min_files": 3, "target_file_size": "1 MiB", "max_files_per_run": 40}),
        (DuckLakeLayoutOperator, {"cluster_by": ["id"], "max_depth": 2.5, "max_bytes": "1 GiB"}),
        (DuckLakeExpireOperator, {"older_than": "3 days", "retain_last": 2, "keep": ["release*"]}),
        (DuckLakeCleanupOperator, {"older_than": "3 days"}),
        (DuckLakeOrphansOperator, {"action": "report", "older_than": "3 days"}),
    ],
)
def test_each_operation_has_an_operator(
    small_files: DuckLakeHook, operator: type[SingleOperationOperator], settings: dict[str, Any]
) -> None:
    task = operator(task_id="maintain", tables=["sales.*"], **settings)
    part = getattr(task._policy(MaintenancePolicy()), operator.operation)
    assert part == type(part)(**settings)
    done = execute(task)
    assert {step["operation"] for step in done["operations"]} <= {operator.operation}
    assert files(small_files)["other"] == 6
    assert files(small_files)["orders"] == (1 if operator is DuckLakeMergeFilesOperator else 6)


def test_one_policy_plans_runs_and_grades_the_maintenance_dag(small_files: DuckLakeHook) -> None:
    policy = {"health": {"snapshot_count": [0, 1]}}
    dag = build_maintenance_dag("graded", policy=policy)
    assert all(vars(dag.get_task(f"maintenance.{name}"))["policy"] == policy for name in ("plan", "merge", "health"))
    assert execute(DuckLakeHealthOperator(task_id="health"))["grade"] == "ok"
    assert execute(DuckLakeHealthOperator(task_id="health", policy=policy))["grade"] == "bad"


def test_settings_left_out_come_from_the_lakes_policy(connect: Connect, conn_id: str) -> None:
    lake_policy = MaintenancePolicy(expire={"older_than": "30 days", "retain_last": 5})
    policy = DuckLakeExpireOperator(task_id="maintain", retain_last=3)._policy(lake_policy)
    assert (policy.expire.older_than.days, policy.expire.retain_last) == (30, 3)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (DuckLakeExpireOperator(task_id="maintain", older_than="10 minutes"), "younger than 1 h"),
        (DuckLakeExpireOperator(task_id="maintain", older_than="7 days, 0:00:00"), "is not a duration"),
        (DuckLakeMaintenanceOperator(task_id="maintain", operations=["vacuum"]), "vacuum"),
        (DuckLakeMaintenanceOperator(task_id="maintain", policy={"mrge": {}}), "Did you mean `merge`?"),
        (DuckLakeMaintenanceOperator(task_id="maintain", tables=["nowhere"]), "nowhere"),
        (DuckLakeHealthOperator(task_id="maintain", fail_at="worse"), "is not a grade"),
    ],
)
def test_invalid_arguments_fail_without_a_retry(
    small_files: DuckLakeHook, operator: DuckLakeMaintenanceOperator, message: str
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        execute(operator)
    assert message in str(refused.value)
    assert str(refused.value).splitlines()[-1] in {
        f"ducklake-orch explain {code}" for code in ("config", "maintenance-floor", "object-not-found")
    }
    assert "ducklake-orch explain" not in str(refused.value.__cause__)


def test_an_error_that_airflow_retries_ends_with_the_command_that_explains_it() -> None:
    with pytest.raises(LakeLockedError) as raised, failures("It failed"):
        raise LakeLockedError("The queue was not free.")
    assert str(raised.value) == "The queue was not free.\nducklake-orch explain lake-locked"


def test_a_task_that_sigterm_stops_does_not_succeed(small_files: DuckLakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    once_at(monkeypatch, "files.written", lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit, match="SIGTERM ended task `maintain`"):
        execute(DuckLakeMaintenanceOperator(task_id="maintain"))
    assert sorted(files(small_files).values()) == [1, 6]
    execute(DuckLakeMaintenanceOperator(task_id="maintain"))
    assert files(small_files) == {"orders": 1, "other": 1}


def test_a_concurrent_maintenance_run_raises_a_retriable_error(small_files: DuckLakeHook) -> None:
    catalog = small_files.lake().config.catalog
    assert isinstance(catalog, SQLiteCatalog)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with FileQueue(catalog.path, name="maintenance").hold("another run", 10):
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    try:
        with pytest.raises(MaintenanceRunningError):
            execute(DuckLakeMaintenanceOperator(task_id="run"))
    finally:
        done.set()
        holder.join()


def test_the_health_operator_reports_the_grade_and_each_table(small_files: DuckLakeHook) -> None:
    report = execute(DuckLakeHealthOperator(task_id="health"))
    assert (report["schema_version"], report["grade"]) == (1, "ok")
    assert [table["table"] for table in report["tables"]] == ["main.other", "sales.orders"]


def test_the_task_group_plans_runs_and_checks_health(small_files: DuckLakeHook) -> None:
    with DAG("group_of_maintenance") as dag:
        maintenance_task_group("upkeep", tables=["sales.*"], retries=1)
    done = run(dag)
    names = [f"upkeep.{step}" for step in ["plan", *OPERATIONS, "health", "all_succeeded"]]
    assert states(done) == dict.fromkeys(names, "success")
    assert files(small_files) == {"orders": 1, "other": 6}


def test_the_maintenance_dag_succeeds_on_an_empty_lake(conn_id: str) -> None:
    dag = build_maintenance_dag("maintenance_of_nothing", operations=["expire", "flush"], fail_at="bad")
    tasks = [task.task_id.partition(".")[2] for task in dag.topological_sort()]
    assert tasks == ["plan", "flush", "expire", "health", "all_succeeded"]
    assert dag.max_active_runs == 1
    assert set(states(run(dag)).values()) == {"success"}
