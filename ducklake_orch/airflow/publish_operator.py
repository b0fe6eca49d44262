"""The operators that end a stage: publish it as one snapshot, or discard it."""

import logging
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from ducklake_orch.airflow.assets import report, report_snapshot
from ducklake_orch.airflow.base_operator import LakeOperator
from ducklake_orch.airflow.frame_references import is_reference
from ducklake_orch.airflow.run_stage import last_stage
from ducklake_orch.airflow.table_write import STAGE
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.results import StageInfo

log = logging.getLogger("ducklake_orch")


class StageOperator(LakeOperator):
    """Ends a stage.

    Args:
        stage: The name of the stage, as the writing tasks have it.
        **kwargs: Arguments of every operator.
    """

    template_fields = (*LakeOperator.template_fields, "stage")

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage

    def _found(self) -> StageInfo | None:
        return last_stage(self.hook.lake(), self.stage)


class DuckLakePublishOperator(StageOperator):
    """Publishes a stage: readers see the rows of all its tables from one snapshot on, or nothing.

    All attempts of the task, and clearing it, publish once. If the writing tasks are cleared, too, they stage anew, and
    that is published. The task returns the outcome as JSON.

    Args:
        stage: The name of the stage, as the writing tasks have it.
        writers: The tasks that stage. The events of the task's `outlets` get the partitions that they wrote.
        **kwargs: Arguments of every operator. `outlets` are the assets of the tables.
    """

    def __init__(self, *, stage: str, writers: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(stage=stage, **kwargs)
        self.writers = list(writers)

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the stage."""
        work = Work.of(context)
        with self.working(f"The stage `{self.stage}` was not published"):
            if (found := self._found()) is None:
                raise ObjectNotFoundError(
                    f"Nothing is staged as `{self.stage}`.",
                    remedy="Clear the writing tasks with their downstream tasks, so that they stage again.",
                )
            stage = self.hook.lake().stage(found.name)
            written = stage.publish(commit=work.commit_info(f"publication of the stage {found.name}")).to_dict()
            outcome = {"schema_version": 1, "operation": "publish", "stage": found.name, **written}
            log.info("Published %s as snapshot %d", ", ".join(found.tables) or "nothing", outcome["snapshot_id"])
            self._report(context, outcome)
            return outcome

    def _report(self, context: Context, outcome: dict[str, Any]) -> None:
        """Add the snapshot, and what each task has staged, to the events of the tables' assets."""
        snapshots = {name: outcome[name] for name in ("snapshot_id", "previous_snapshot_id")}
        report_snapshot(context, self.outlets, self.ducklake_conn_id, snapshots["snapshot_id"])
        found = context["ti"].xcom_pull(task_ids=self.writers) if self.writers else []
        for written in found:
            if is_reference(written) and written.get(STAGE) == outcome["stage"]:
                report(context, self.outlets, {**written, **snapshots}, written["partition_keys"])


class DiscardOperator(StageOperator):
    """Discards a stage that is not published."""

    def execute(self, context: Context) -> None:
        """Discard the stage, if it is open."""
        with self.working(f"The stage `{self.stage}` was not discarded"):
            found = self._found()
            if found is not None and found.status == "open":
                self.hook.lake().stage(found.name).discard()
                log.warning("A task before failed, so the stage `%s` was discarded", found.name)
