"""The running task: the idempotency keys that its attempts share, and the commit messages of its snapshots."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ducklake_orch.host_partitions.metadata_keys import bounded_key
from ducklake_orch.results import CommitInfo

# How many times an attempt has written to each table in this process.
_writes: Counter[tuple[str, str]] = Counter()


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
        whole = (self.dag_id, self.run_id, self.task_id, self.map_index, table, ordinal)
        return bounded_key(f"airflow:{self.dag_id[:80]}:{self.task_id[:80]}", *whole)

    def commit_info(self, what: str, partitions: list[str] | None = None) -> CommitInfo:
        """Return the commit message and extra of a snapshot that the task writes."""
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
