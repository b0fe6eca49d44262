"""Maintenance of a lake as a task group in any DAG, or as its own DAG."""

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup, TriggerRule, chain

from ducklake_orch.airflow.hook import DEFAULT_CONN_ID
from ducklake_orch.airflow.maintenance_notes import NOTES, dag_note
from ducklake_orch.airflow.maintenance_operators import DuckLakeHealthOperator, DuckLakeMaintenanceOperator
from ducklake_orch.config.maintenance import OPERATIONS


def maintenance_task_group(
    group_id: str = "maintenance",
    *,
    ducklake_conn_id: str = DEFAULT_CONN_ID,
    policy: Mapping[str, Any] | None = None,
    operations: Sequence[str] = OPERATIONS,
    schemas: Sequence[str] | None = None,
    tables: Sequence[str] | None = None,
    engine: str | None = None,
    fail_at: str | None = None,
    pool: str | None = None,
    **task_arguments: Any,
) -> TaskGroup:
    """Return the tasks that maintain a lake: a plan, the operations in sequence, and the lake's health.

    A failed operation does not stop the others, and `health` always runs. If the plan fails, no operation starts,
    because each would fail for the same reason. The last task, `all_succeeded`, fails the run if any task failed.

    Args:
        group_id: The name of the group.
        ducklake_conn_id: The connection to the lake.
        policy: Fields that override the policy in the lake's configuration, in these tasks only.
        operations: The operations; they run in the order of `OPERATIONS`.
        schemas: Only tables in these schemas, by name or pattern.
        tables: Only these tables, by name or pattern.
        engine: The engine of merges and rewrites: `duckdb`, `spark` or `auto`.
        fail_at: The grade from which on `health` fails: `warn` or `bad`.
        pool: The pool of the tasks, which must exist.
        **task_arguments: Further arguments of each task, such as `retries` and `execution_timeout`. By default, a task
            is retried three times within 15 minutes. These arguments and the DAG's `default_args` override that.
    """
    common: dict[str, Any] = {"ducklake_conn_id": ducklake_conn_id, "max_active_tis_per_dag": 1, **task_arguments}
    if pool is not None:
        common["pool"] = pool
    chosen: dict[str, Any] = {"policy": policy, "schemas": schemas, "tables": tables, "engine": engine}
    ordered = _ordered(operations)
    with TaskGroup(group_id) as group:
        outer = group.dag.default_args
        common = {name: value for name, value in _RETRIES.items() if name not in outer} | common
        plan = _step("plan", plan_only=True, operations=ordered, **chosen, **common)
        # An operation runs after the previous one, failed or not, but not if the plan failed.
        after_plan = {**common, "trigger_rule": TriggerRule.ALL_DONE_MIN_ONE_SUCCESS}
        steps = [_step(name, operations=[name], **chosen, **after_plan) for name in ordered]
        at_the_end = {"doc_md": str(NOTES["health"]), **common, "trigger_rule": TriggerRule.ALL_DONE}
        health = DuckLakeHealthOperator(task_id="health", fail_at=fail_at, policy=policy, **at_the_end)
        # Airflow takes the state of a run from its last tasks, and `health` can succeed after a failed operation.
        note = str(NOTES["all_succeeded"])
        last = EmptyOperator(task_id="all_succeeded", doc_md=note, trigger_rule=TriggerRule.ALL_SUCCESS)
        chain(plan, *steps, health)
        plan.set_downstream(steps[1:])
        last.set_upstream([plan, *steps, health])
    return group


def build_maintenance_dag(
    dag_id: str = "ducklake_maintenance",
    *,
    schedule: Any = "0 3 * * *",
    ducklake_conn_id: str = DEFAULT_CONN_ID,
    dag_arguments: Mapping[str, Any] | None = None,
    **group_arguments: Any,
) -> DAG:
    """Return a DAG that maintains a lake, one run at a time.

    Args:
        dag_id: The name of the DAG.
        schedule: The schedule of the DAG.
        ducklake_conn_id: The connection to the lake.
        dag_arguments: Further arguments of the DAG.
        **group_arguments: Arguments of `maintenance_task_group`.
    """
    operations = _ordered(group_arguments.get("operations", OPERATIONS))
    own: dict[str, Any] = {
        "schedule": schedule,
        "start_date": datetime(2024, 1, 1),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["ducklake"],
        "description": f"Maintains the lake of {ducklake_conn_id}: {', '.join(operations)}, then its health",
        **(dag_arguments or {}),
    }
    with DAG(dag_id, **own) as dag:
        group = maintenance_task_group(ducklake_conn_id=ducklake_conn_id, **group_arguments)
    if dag.doc_md is None:
        retries = dag.get_task(group.child_id("plan")).retries
        dag.doc_md = dag_note(ducklake_conn_id, operations, 1 + (retries or 0))
    return dag


def _step(name: str, **arguments: Any) -> DuckLakeMaintenanceOperator:
    note = NOTES.get(name)  # a misspelt operation has none; its task fails with a message that names it
    return DuckLakeMaintenanceOperator(task_id=name, **{"doc_md": str(note) if note else None} | arguments)


def _ordered(operations: Sequence[str]) -> list[str]:
    known = [operation for operation in OPERATIONS if operation in operations]
    return known + [operation for operation in operations if operation not in OPERATIONS]


def _retries() -> dict[str, Any]:
    parameters = inspect.signature(BaseOperator.__init__).parameters
    # A factor since Airflow 3.2, a switch before.
    backoff = type(parameters["retry_exponential_backoff"].default)(2)
    delays = {"retry_delay": timedelta(minutes=1), "max_retry_delay": timedelta(minutes=30)}
    # Another maintenance run or an outage lasts for minutes, so the operators' short delays would use up all retries.
    policy = {"retry_policy": None} if "retry_policy" in parameters else {}
    return {"retries": 3, "retry_exponential_backoff": backoff, **delays, **policy}


# The retries of each task, unless others are given.
_RETRIES = _retries()
