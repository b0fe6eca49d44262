"""The operators that end a stage: publish it as one snapshot, or discard it."""

import logging
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from ducklake_orch.airflow.assets import report, report_snapshot
from ducklake_orch.airflow.base_operator import LakeOperator
from ducklake_orch.airflow.frame_references import is_reference
from ducklake_orch.airflow.run_stage import STAGE_ID, existing_stage, last_stage, refuse_scattered
from ducklake_orch.airflow.task_run import Work

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


class DuckLakePublishOperator(StageOperator):
    """Publishes a stage: readers see the rows of all its tables from one snapshot on, or nothing.

    All attempts of the task, and clearing it, publish once. If the writing tasks are cleared, too, they stage anew, and
    that is published. The task returns the outcome as JSON.

    Args:
        stage: The name of the stage, as the writing tasks have it.
        writers: The tasks that stage. All that they have staged must be in the stage, or already in the lake. The
            events of the task's `outlets` get the partitions that they wrote.
        tag: The name that the published snapshot gets, such as `{{ ds }}`. It moves from an earlier snapshot.
        **kwargs: Arguments of every operator. `outlets` are the assets of the tables.
    """

    template_fields = (*StageOperator.template_fields, "tag")

    def __init__(self, *, stage: str, writers: Sequence[str] = (), tag: str | None = None, **kwargs: Any) -> None:
        super().__init__(stage=stage, **kwargs)
        self.writers = list(writers)
        self.tag = tag

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the stage."""
        work, lake = Work.of(context), self.hook.lake()
        with self.working(f"The stage `{self.stage}` was not published"):
            found, references = existing_stage(lake, self.stage), self._references(context)
            refuse_scattered(lake, found, self.stage, references)
            stage = lake.stage(found.name, create=False)
            written = stage.publish(commit=work.commit_info(f"publication of the stage {found.name}")).to_dict()
            outcome = {"schema_version": 1, "operation": "publish", "stage": found.name, **written}
            if outcome["replayed"]:
                log.info("The stage was already published, as snapshot %d", outcome["snapshot_id"])
            else:
                log.info("Published %s as snapshot %d", ", ".join(found.tables) or "nothing", outcome["snapshot_id"])
            if self.tag is not None:
                lake.tag(self.tag, outcome["snapshot_id"], replace=True)
            snapshots = {name: outcome[name] for name in ("snapshot_id", "previous_snapshot_id")}
            report_snapshot(context, self.outlets, self.ducklake_conn_id, outcome["snapshot_id"])
            for reference in references:
                if reference.get(STAGE_ID) == found.stage_id:
                    report(context, self.outlets, {**reference, **snapshots}, reference["partition_keys"])
            return outcome

    def _references(self, context: Context) -> list[dict[str, Any]]:
        """Return what the writing tasks, mapped or not, have returned."""
        found = context["ti"].xcom_pull(task_ids=self.writers) if self.writers else []
        return [reference for reference in found if is_reference(reference)]


class DiscardOperator(StageOperator):
    """Discards a stage that is not published."""

    def execute(self, context: Context) -> None:
        """Discard the stage, if it is open."""
        with self.working(f"The stage `{self.stage}` was not discarded"):
            found = last_stage(self.hook.lake(), self.stage)
            if found is not None and found.status == "open":
                self.hook.lake().stage(found.name, create=False).discard()
                log.warning("The stage `%s` was not published, so it was discarded", found.name)
