"""The input and the result of a step that runs."""

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
    """A step to run.

    Attributes:
        config: The lake, with the limits of the run.
        policy: The policy for its table.
        planned_at: When the plan was made. Ages are relative to it, so that nothing younger is deleted than the plan
            showed.
        run_id: The run that it belongs to.
        stopping: Returns why a step must not begin its next part, or None.
        spark: The session, if the plan has steps for Spark.
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
        """The step's purpose, for messages and the queue."""
        return f"maintenance ({self.step.operation} of {self.step.where})"

    @property
    def table(self) -> TableName:
        """The table of the step."""
        return table_name(self.step.table or "")

    def info(self, **figures: Any) -> CommitInfo:
        """Return the commit information for the snapshots of this step."""
        step = self.step
        about = {"run_id": self.run_id, "operation": step.operation, "table": step.table, "engine": step.engine}
        return CommitInfo(AUTHOR, f"{self.purpose}: {step.reason}", {"maintenance": about | figures})


@dataclass(frozen=True)
class Done:
    """The result of a step.

    Attributes:
        step: The step, with the actual figures.
        snapshot_id: The last snapshot that it committed, if any.
        stopped: Why it stopped before its end, if it did.
    """

    step: PlannedStep
    snapshot_id: int | None = None
    stopped: str | None = None
