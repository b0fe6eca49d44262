"""Which task is at work: what its snapshots say of it, and which attempts are one piece of work."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ducklake_orch.results import CommitInfo
from ducklake_orch.slices.vocabulary import bounded_key

# How often an attempt has written to a table in this process.
_writes: Counter[tuple[str, str]] = Counter()


@dataclass(frozen=True)
class Work:
    """A task of a run.

    Attributes:
        dag_id: Its DAG.
        run_id: The run.
        task_id: The task.
        map_index: Which of the mapped tasks; -1 of one that is not mapped.
        attempt: What tells this attempt from others.
        try_number: Which try it is.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    attempt: str
    try_number: int

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
        )

    @classmethod
    def running(cls) -> Self | None:
        """Return the task that runs in this process; None outside of tasks."""
        from airflow.sdk import get_current_context

        try:
            return cls.of(get_current_context())
        except RuntimeError:
            return None

    def idempotency_key(self, table: str) -> str:
        """Return the key of this attempt's next write to a table; other attempts have the same ones, in their order."""
        _writes[self.attempt, table] += 1
        ordinal = _writes[self.attempt, table]
        whole = (self.dag_id, self.run_id, self.task_id, self.map_index, table, ordinal)
        return bounded_key(f"airflow:{self.dag_id[:80]}:{self.task_id[:80]}", *whole)

    def commit_info(self, what: str, partitions: list[str] | None = None) -> CommitInfo:
        """Return what a snapshot says about the task that made it."""
        about: dict[str, Any] = {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "task_id": self.task_id,
            "map_index": self.map_index,
            "try_number": self.try_number,
        }
        if partitions:
            about |= {"partitions": partitions[:100], "partition_count": len(partitions)}
        return CommitInfo(author="airflow", message=f"{what}, run {self.run_id}", extra={"airflow": about})
