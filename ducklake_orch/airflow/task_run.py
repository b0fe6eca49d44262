"""The running task: the idempotency keys of its attempts, the commit messages of its snapshots, and its retries."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from airflow.providers.common.compat.sdk import AirflowFailException

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.host_partitions.metadata_keys import bounded_key
from ducklake_orch.results import CommitInfo

# How many times an attempt has written to each table in this process.
_writes: Counter[tuple[str, str]] = Counter()
# Conflicts and locks pass within seconds. Airflow's default delay is five minutes.
_SOON = timedelta(seconds=15)


@dataclass(frozen=True)
class Work:
    """A task of a run.

    Attributes:
        dag_id: The DAG of the task.
        run_id: The run.
        task_id: The task.
        map_index: The index of a mapped task; -1 if it is not mapped.
        attempt: An id that distinguishes this attempt from others.
        try_number: The number of the attempt.
        url: The page of the task in Airflow's interface, if it is known.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    attempt: str
    try_number: int
    url: str | None = None

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Self:
        """Return the task of a context."""
        ti = context["ti"]
        index = getattr(ti, "map_index", -1)
        return cls(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if index is None else index,
            attempt=f"{getattr(ti, 'id', '')}/{ti.try_number}",
            try_number=ti.try_number,
            url=getattr(ti, "log_url", None),
        )

    @classmethod
    def running(cls) -> Self | None:
        """Return the task that runs in this process; None outside tasks."""
        from airflow.sdk import get_current_context

        try:
            return cls.of(get_current_context())
        except RuntimeError:
            return None

    def idempotency_key(self, table: str) -> str:
        """Return the key of this attempt's next write to a table. Every attempt has the same keys in the same order."""
        _writes[self.attempt, table] += 1
        ordinal = _writes[self.attempt, table]
        identity = (self.dag_id, self.run_id, self.task_id, self.map_index, table, ordinal)
        return bounded_key(f"airflow:{self.dag_id[:80]}:{self.task_id[:80]}", *identity)

    def commit_info(self, what: str, partitions: list[str] | None = None) -> CommitInfo:
        """Return the commit message and extra of a snapshot that the task writes."""
        about: dict[str, Any] = {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "task_id": self.task_id,
            "map_index": self.map_index,
            "try_number": self.try_number,
        }
        if self.url:
            about["url"] = self.url
        if partitions:
            about |= {"partitions": partitions[:100], "partition_count": len(partitions)}
        return CommitInfo(author="airflow", message=f"{what}, run {self.run_id}", extra={"airflow": about})


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn errors that are not retryable into one that Airflow does not retry.

    Args:
        what: The failed work, for the message.
    """
    failure: AirflowFailException | None = None
    try:
        yield
    except DuckLakeOrchError as error:
        if error.retryable:
            error.with_explain()
            raise
        failure = AirflowFailException(f"{what}: {error}\n{error.explain}")
        failure.__cause__ = error
    if failure is not None:
        raise failure


def retry_policy() -> Any:
    """Return the policy that retries transient errors soon and fails at once for terminal ones.

    Pass it as `retry_policy=` to custom tasks; ducklake-orch's operators have it. It applies within their `retries`.
    Before Airflow 3.3 there are no such policies, and the function returns None.
    """
    try:
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        return None
    transient, terminal = "ducklake_orch.errors.TransientError", "ducklake_orch.errors.TerminalError"
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(exception=transient, action=RetryAction.RETRY, retry_delay=_SOON, reason="transient error"),
            RetryRule(exception=terminal, action=RetryAction.FAIL, reason="terminal error"),
        ]
    )
