"""The maintenance DAG: which tasks run after a failure, and whether the run shows it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, TriggerRule

from ducklake_orch.airflow import DuckLakeHook, build_maintenance_dag, maintenance_task_group
from ducklake_orch.airflow.maintenance_notes import NOTES, RUN_BOOK
from ducklake_orch.config.maintenance import OPERATIONS
from ducklake_orch.errors import CatalogUnreachableError
from tests.support.airflow_runs import result, run
from tests.support.fault_points import once_at

# Airflow would wait for minutes before a retry.
AT_ONCE: dict[str, Any] = {"retry_delay": timedelta(0), "retry_exponential_backoff": False}


@pytest.fixture
def small_files(conn_id: str) -> DuckLakeHook:
    hook = DuckLakeHook()
    for number in range(6):
        hook.write(pa.table({"n": [number] * 10}), "t", mode="append")
    return hook


def outcome(dag_run: Any) -> dict[str, str]:
    """Return the state of each task and of the run."""
    instances = dag_run.get_task_instances()
    return {ti.task_id.partition(".")[2]: str(ti.state) for ti in instances} | {"run": str(dag_run.state)}


def tries(dag_run: Any, task_id: str) -> int:
    return int(dag_run.get_task_instance(task_id).try_number)


def test_a_failed_operation_stops_no_other_and_fails_the_run(small_files: DuckLakeHook) -> None:
    Path(small_files.lake().table("t").files()[0].path).unlink()
    done = run(build_maintenance_dag("failing_merge", retries=0))
    expected = dict.fromkeys(["plan", *OPERATIONS, "health"], "success")
    assert outcome(done) == expected | {"merge": "failed", "all_succeeded": "upstream_failed", "run": "failed"}
    assert result(done, "maintenance.health")["operation"] == "health"


def test_a_failed_plan_starts_no_operation_and_health_still_runs(small_files: DuckLakeHook) -> None:
    done = run(build_maintenance_dag("failing_plan", tables=["nowhere"], **AT_ONCE))
    stopped = dict.fromkeys([*OPERATIONS, "all_succeeded"], "upstream_failed")
    assert outcome(done) == stopped | {"plan": "failed", "health": "success", "run": "failed"}
    assert tries(done, "maintenance.plan") == 1  # retries do not help a wrong setting


def test_a_failed_health_task_fails_the_run(small_files: DuckLakeHook) -> None:
    done = run(build_maintenance_dag("failing_health", operations=["merge"], fail_at="misspelt"))
    ended = {"plan": "success", "merge": "success", "health": "failed", "all_succeeded": "upstream_failed"}
    assert outcome(done) == ended | {"run": "failed"}


def test_an_operation_that_lost_the_catalog_is_retried_and_the_run_succeeds(
    small_files: DuckLakeHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> None:
        raise CatalogUnreachableError("the catalog does not answer")

    once_at(monkeypatch, "files.written", unreachable)
    done = run(build_maintenance_dag("retried_merge", **AT_ONCE))
    assert set(outcome(done).values()) == {"success"}
    assert (tries(done, "maintenance.merge"), tries(done, "maintenance.rewrite")) == (2, 1)
    assert small_files.lake().tables()[0].file_count == 1


def test_tasks_are_retried_with_growing_delays_by_default() -> None:
    dag = build_maintenance_dag("default_retries")
    for name in ["plan", *OPERATIONS, "health"]:
        task = dag.get_task(f"maintenance.{name}")
        assert (task.retries, task.retry_delay, task.max_retry_delay) == (
            3,
            timedelta(minutes=1),
            timedelta(minutes=30),
        )
        assert task.retry_exponential_backoff
        assert getattr(task, "retry_policy", None) is None


def test_arguments_of_tasks_and_of_the_dag_override_the_retries() -> None:
    dag = build_maintenance_dag("own_retries", retries=1, doc_md="mine", execution_timeout=timedelta(hours=2))
    health = dag.get_task("maintenance.health")
    assert (health.retries, health.doc_md, health.execution_timeout) == (1, "mine", timedelta(hours=2))
    with DAG("of_a_team", default_args={"retries": 7}) as dag:
        maintenance_task_group()
    task = dag.get_task("maintenance.merge")
    assert (task.retries, task.retry_delay) == (7, timedelta(minutes=1))


def test_a_task_after_the_group_waits_for_its_success(small_files: DuckLakeHook) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("followed_group") as dag:
        maintenance_task_group(operations=["merge"], tables=["nowhere"]) >> EmptyOperator(task_id="after.group")
    assert outcome(run(dag))["group"] == "upstream_failed"


def test_the_notes_for_the_person_on_call_cover_every_task() -> None:
    dag = build_maintenance_dag("with_notes", operations=["expire", "merge"], ducklake_conn_id="sales")
    assert dag.doc_md is not None
    assert dag.description == "Maintains the lake of sales: merge, expire, then its health"
    for task in dag.tasks:
        name = task.task_id.partition(".")[2]
        assert f"| `{name}` | {NOTES[name].does} |" in dag.doc_md
        assert task.doc_md == str(NOTES[name])
    assert "`flush`" not in dag.doc_md
    assert "Tries of each task: 4." in dag.doc_md
    assert RUN_BOOK in dag.doc_md
    assert (Path(__file__).parents[2] / RUN_BOOK).exists()


def test_only_the_plan_takes_a_trigger_rule_of_the_tasks(conn_id: str) -> None:
    with DAG("own_rule") as dag:
        maintenance_task_group(trigger_rule=TriggerRule.NONE_FAILED)
    rules = {task.task_id.partition(".")[2]: TriggerRule(task.trigger_rule).value for task in dag.tasks}
    assert (rules["plan"], rules["flush"], rules["health"]) == ("none_failed", "all_done_min_one_success", "all_done")
