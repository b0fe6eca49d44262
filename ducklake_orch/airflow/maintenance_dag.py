"""Maintenance of a lake as a task group in any DAG, or as its own DAG."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, TaskGroup, chain

from ducklake_orch.airflow.hook import DEFAULT_CONN_ID
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

    Args:
        group_id: The name of the group.
        ducklake_conn_id: The connection to the lake.
        policy: Fields of the maintenance policy; by default the policy in the lake's configuration.
        operations: The operations; they run in the order of `OPERATIONS`.
        schemas: Only tables in these schemas, by name or pattern.
        tables: Only these tables, by name or pattern.
        engine: The engine of merges and rewrites: `duckdb`, `spark` or `auto`.
        fail_at: The grade from which on the last task fails: `warn` or `bad`.
        pool: The pool of the tasks, which must exist.
        **task_arguments: Further arguments of each task, such as `retries`.
    """
    common: dict[str, Any] = {"ducklake_conn_id": ducklake_conn_id, "max_active_tis_per_dag": 1, **task_arguments}
    if pool is not None:
        common["pool"] = pool
    chosen: dict[str, Any] = {"policy": policy, "schemas": schemas, "tables": tables, "engine": engine}
    ordered = [operation for operation in OPERATIONS if operation in operations] + [
        operation for operation in operations if operation not in OPERATIONS
    ]
    with TaskGroup(group_id) as group:
        plan = DuckLakeMaintenanceOperator(task_id="plan", plan_only=True, operations=ordered, **chosen, **common)
        steps = [DuckLakeMaintenanceOperator(task_id=name, operations=[name], **chosen, **common) for name in ordered]
        health = DuckLakeHealthOperator(task_id="health", fail_at=fail_at, **common)
        chain(plan, *steps, health)
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
    own: dict[str, Any] = {
        "schedule": schedule,
        "start_date": datetime(2024, 1, 1),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["ducklake"],
        "doc_md": __doc__,
        **(dag_arguments or {}),
    }
    with DAG(dag_id, **own) as dag:
        maintenance_task_group(ducklake_conn_id=ducklake_conn_id, **group_arguments)
    return dag
