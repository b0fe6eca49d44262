"""Publications: a task group whose tasks write several tables that become visible together, after their checks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.definitions.taskgroup import MappedTaskGroup

from ducklake_orch.airflow.execute_operator import DuckLakeExecuteOperator
from ducklake_orch.airflow.hook import DEFAULT_CONN_ID
from ducklake_orch.airflow.publish_operator import DiscardOperator, DuckLakePublishOperator
from ducklake_orch.airflow.write_operator import TableWriter
from ducklake_orch.errors import ConfigError

Task = BaseOperator | MappedOperator
# The arguments by which Airflow's own SQL operators, sensors and transfers name a connection.
_CONNECTIONS = ("conn_id", "source_conn_id", "destination_conn_id", "sql_conn_id")


@contextmanager
def publication_task_group(
    group_id: str = "publication",
    *,
    ducklake_conn_id: str = DEFAULT_CONN_ID,
    on_failure: Literal["keep", "discard"] = "keep",
    stage_ttl: str = "7 days",
    **publish_arguments: Any,
) -> Iterator[TaskGroup]:
    """Begin a task group whose writes become visible together, in one snapshot, once all its tasks have succeeded.

    Tasks of the group that write to the lake stage their rows. Its other tasks are checks: Airflow's SQL operators on
    the connection read what is staged, and other tasks read it by the references that they are given, or by
    `DuckLakeHook(stage=…)`. Its last task, `publish`, publishes what is staged. If a task fails, nothing becomes
    visible: mend it, and clear it with its downstream tasks.

    The events of the tables' assets come from `publish`, so that their consumers start when the rows are visible.

    Args:
        group_id: The name of the group.
        ducklake_conn_id: The connection to the lake.
        on_failure: Whether a run that failed keeps its stage, for inspection and for cleared tasks, or discards it.
        stage_ttl: How long the stage of a run is kept.
        **publish_arguments: Further arguments of the task `publish`.

    Examples:
        >>> with publication_task_group("shop"):
        ...     check = SQLColumnCheckOperator(
        ...         task_id="check", conn_id="ducklake_default", table="sales.orders",
        ...         column_mapping={"price": {"min": {"geq_to": 0}}})
        ...     orders() >> check
        ...     customers()
    """
    if on_failure not in ("keep", "discard"):
        raise ConfigError(f"`on_failure` = {on_failure!r} is unknown.", remedy='Give "keep" or "discard".')
    with TaskGroup(group_id) as group:
        yield group
        tasks: list[Task] = list(group.iter_tasks())  # type: ignore[arg-type]
        stage = f"{{{{ dag.dag_id }}}}/{group.group_id} {{{{ run_id }}}}"
        if any(isinstance(parent, MappedTaskGroup) for parent in _parents(group)):  # each copy of it is published alone
            stage += " [{{ ti.map_index }}]"
        writers = [
            task
            for task in tasks
            if _is(task, TableWriter) and _conn_id(task) == ducklake_conn_id and _argument(task, "stage") is None
        ]
        outlets = [outlet for task in writers for outlet in task.outlets]
        for task in tasks:
            if task in writers:
                if not _argument(task, "do_xcom_push", True):
                    raise ConfigError(
                        f"Task `{task.task_id}` has `do_xcom_push=False`, but `publish` needs what it returns.",
                        remedy="Leave the argument out.",
                    )
                _set(task, stage=stage, stage_ttl=stage_ttl, outlets=[])
            else:
                _read_stage(task, stage, ducklake_conn_id)
        publish = DuckLakePublishOperator(
            task_id="publish",
            stage=stage,
            ducklake_conn_id=ducklake_conn_id,
            writers=[task.task_id for task in writers],
            outlets=list(dict.fromkeys(outlets)),
            **{"trigger_rule": TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS} | publish_arguments,
        )
        # Not only of the last ones: one that runs whatever happened before it must not hide a failed check.
        publish.set_upstream(tasks)
        if on_failure == "discard":
            discard = DiscardOperator(task_id="discard", stage=stage, ducklake_conn_id=ducklake_conn_id)
            discard.as_teardown()
            discard.set_upstream(publish)


def _read_stage(task: Task, stage: str, ducklake_conn_id: str) -> None:
    """Make a task that uses the connection read from the stage; refuse one that cannot."""
    if _is(task, DuckLakeExecuteOperator):
        raise ConfigError(
            f"Task `{task.task_id}` runs SQL in the lake itself, which no publication can hold back.",
            remedy="Write with `@task.ducklake` or DuckLakeWriteOperator, and read with SQLExecuteQueryOperator.",
        )
    uses = [name for name in _CONNECTIONS if _argument(task, name) == ducklake_conn_id]
    if uses == ["conn_id"] and "hook_params" in task.template_fields:
        _set(task, hook_params={"stage": stage} | (_argument(task, "hook_params") or {}))
    elif uses:
        raise ConfigError(
            f"Task `{task.task_id}` uses the lake itself, because it cannot be given the stage of the publication.",
            remedy="Put it outside of the group, or use SQLExecuteQueryOperator or a check of common.sql.",
        )


def _parents(group: TaskGroup) -> Iterator[TaskGroup]:
    while (parent := group.parent_group) is not None:
        yield parent
        group = parent


def _is(task: Task, kind: type) -> bool:
    return isinstance(task, kind) or (isinstance(task, MappedOperator) and issubclass(task.operator_class, kind))


def _conn_id(task: Task) -> Any:
    return _argument(task, "ducklake_conn_id", DEFAULT_CONN_ID)


def _argument(task: Task, name: str, default: Any = None) -> Any:
    return task.partial_kwargs.get(name, default) if isinstance(task, MappedOperator) else getattr(task, name, default)


def _set(task: Task, **arguments: Any) -> None:
    if isinstance(task, MappedOperator):
        task.partial_kwargs |= arguments
    else:
        for name, value in arguments.items():
            setattr(task, name, value)
