"""A step on its way: what it needs to know, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.results import CommitInfo

AUTHOR = "ducklake-orch"


@dataclass(frozen=True)
class Work:
    """A step that is to be done.

    Attributes:
        config: The lake, with the limits of the run.
        policy: What holds for its table.
        planned_at: Ages count from there: nothing younger is taken than what the plan has shown.
        run_id: The run that it belongs to.
        stopping: Tells why a step that is done in parts is to begin none any more, or None.
        spark: The session, where steps of the plan are Spark's.
    """

    config: LakeConfig
    step: PlannedStep
    policy: MaintenancePolicy
    planned_at: datetime
    run_id: str
    stopping: Callable[[], str | None]
    spark: Any = None

    @property
    def purpose(self) -> str:
        """What is being done, for messages and the queue."""
        return f"maintenance ({self.step.operation} of {self.step.where})"

    @property
    def table(self) -> TableName:
        """The table."""
        return table_name(self.step.table or "")

    def info(self, **figures: Any) -> CommitInfo:
        """Return what a snapshot says about the step that made it."""
        step = self.step
        told = {"run_id": self.run_id, "operation": step.operation, "table": step.table, "engine": step.engine}
        return CommitInfo(AUTHOR, f"{self.purpose}: {step.reason}", {"maintenance": told | figures})


@dataclass(frozen=True)
class Done:
    """What a step did.

    Attributes:
        step: It, with the figures of what was done.
        snapshot_id: The last snapshot that it made, if it made one.
        stopped: Why it is not done to its end, if it is not.
    """

    step: PlannedStep
    snapshot_id: int | None = None
    stopped: str | None = None
