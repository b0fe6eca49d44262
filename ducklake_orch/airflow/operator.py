"""What all operators of this package have in common."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from airflow.sdk import BaseOperator

from ducklake_orch.airflow.failures import failures, retry_policy
from ducklake_orch.airflow.hook import DEFAULT_CONN_ID, DuckLakeHook
from ducklake_orch.airflow.spark import TaskSpark
from ducklake_orch.config.arguments import refuse_unknown


def _known_to(operator: type) -> set[str]:
    """Return the arguments of an operator and of all that it is made of."""
    known = {
        name
        for one in operator.__mro__
        for name in inspect.signature(vars(one).get("__init__", object.__init__)).parameters
    }
    return known - {"self", "args", "kwargs"}


class LakeOperator(BaseOperator):
    """Works in a lake. What can succeed later is tried again soon, within its `retries`; what cannot fails at once.

    Args:
        ducklake_conn_id: The connection to the lake.
        **kwargs: Arguments of every operator.
    """

    template_fields: tuple[str, ...] = ("ducklake_conn_id",)
    ui_color = "#fff4bd"

    def __init__(self, *, ducklake_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        given = (name for name in kwargs if not name.startswith("_"))  # others are Airflow's own
        refuse_unknown(f"{type(self).__name__} of task `{kwargs.get('task_id')}`", given, _known_to(type(self)))
        policy = retry_policy()
        if policy is not None and "retry_policy" not in (kwargs.get("default_args") or {}):
            kwargs = {"retry_policy": policy} | kwargs
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self._at_work = self._ended = False
        self._spark: TaskSpark | None = None

    @cached_property
    def hook(self) -> DuckLakeHook:
        """The hook of the connection."""
        return DuckLakeHook(ducklake_conn_id=self.ducklake_conn_id)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Do the work of the task: errors that no other attempt mends end it, and it can be killed.

        Args:
            what: What has failed, should it fail.
        """
        self._at_work = True
        try:
            with failures(what):
                yield
        except Exception:
            if self._ended:  # it is the job of Spark's that was cancelled for it
                raise SystemExit(self._asked_to_end) from None
            raise
        finally:
            self._at_work = False

    def on_kill(self) -> None:
        """End the task: what it has not committed is rolled back, its Spark jobs are cancelled, its files removed."""
        if self._at_work:
            self._ended = True
            # A call that waits for a job would not end with an exception: on its way out it speaks to Spark once more,
            # which answers after the job. So the job goes, and the call fails by itself.
            if self._spark is not None and self._spark.cancel():
                return
            # Airflow only calls this, and would let the task go on.
            raise SystemExit(self._asked_to_end)

    @property
    def _asked_to_end(self) -> str:
        return f"task `{self.task_id}` was asked to end"

    def is_mapped_copy(self) -> bool:
        """Whether this is made for one of many mapped tasks: the DAG does not know what it adds."""
        return bool(getattr(self, "_BaseOperator__from_mapped", False))
