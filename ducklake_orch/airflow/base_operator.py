"""The base class of ducklake-orch's operators."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from airflow.sdk import BaseOperator

from ducklake_orch.airflow.hook import DEFAULT_CONN_ID, DuckLakeHook
from ducklake_orch.airflow.task_run import failures, retry_policy
from ducklake_orch.airflow.task_spark import TaskSpark
from ducklake_orch.config.arguments import refuse_unknown


def _known_to(operator: type) -> set[str]:
    """Return the arguments of an operator and of its base classes."""
    known = {
        name
        for base in operator.__mro__
        for name in inspect.signature(vars(base).get("__init__", object.__init__)).parameters
    }
    return known - {"self", "args", "kwargs"}


def _with_retry_policy(arguments: dict[str, Any]) -> dict[str, Any]:
    policy = retry_policy()
    if policy is None or "retry_policy" in (arguments.get("default_args") or {}):
        return arguments
    return {"retry_policy": policy} | arguments


class LakeOperator(BaseOperator):
    """Works in a lake. Transient errors are retried soon, within the task's `retries`; terminal errors fail at once.

    Args:
        ducklake_conn_id: The connection to the lake.
        **kwargs: Arguments of every operator.
    """

    template_fields: tuple[str, ...] = ("ducklake_conn_id",)
    ui_color = "#fff4bd"

    def __init__(self, *, ducklake_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        given = (name for name in kwargs if not name.startswith("_"))  # names with `_` are internal to Airflow
        refuse_unknown(f"{type(self).__name__} of task `{kwargs.get('task_id')}`", given, _known_to(type(self)))
        super().__init__(**_with_retry_policy(kwargs))
        self.ducklake_conn_id = ducklake_conn_id
        self._at_work = self._ended = False
        self._spark: TaskSpark | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Return the operator to expand over several values."""
        return super().partial(**_with_retry_policy(kwargs))

    @cached_property
    def hook(self) -> DuckLakeHook:
        """The hook of the connection."""
        return DuckLakeHook(ducklake_conn_id=self.ducklake_conn_id)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Run the work of the task in a `with` block: terminal errors fail the task, and the work can be killed.

        Args:
            what: The beginning of the message if it fails.
        """
        self._at_work = True
        try:
            with failures(what):
                yield
        except Exception:
            if self._ended:  # the error comes from the Spark job that `on_kill` cancelled
                raise SystemExit(self._termination_message) from None
            raise
        finally:
            self._at_work = False

    def on_kill(self) -> None:
        """End the task: roll back its open transaction, cancel its Spark jobs and remove its files."""
        if self._at_work:
            self._ended = True
            # An exception here would not end a call that waits for a Spark job: while unwinding, the call asks Spark
            # once more, and Spark answers after the job only. Cancelling the job makes the call fail by itself.
            if self._spark is not None and self._spark.cancel():
                return
            # Airflow only calls `on_kill` and would let the task continue.
            raise SystemExit(self._termination_message)

    @property
    def _termination_message(self) -> str:
        return f"task `{self.task_id}` was terminated"

    def is_mapped_copy(self) -> bool:
        """Return whether this is the copy of a mapped operator for one task. The DAG does not see what a copy sets."""
        return bool(getattr(self, "_BaseOperator__from_mapped", False))
