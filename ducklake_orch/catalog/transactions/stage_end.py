"""The end of a stage: what it holds is committed as one snapshot, or deleted."""

import time
from functools import partial

from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.publishing import publish, remove_unpublished
from ducklake_orch.catalog.transactions.stage_draft import StageDraft
from ducklake_orch.catalog.transactions.stage_rows import (
    StagedMeanwhileError,
    StoredStage,
    delete_stage,
    end_stage,
    find_stages,
    mark_published,
    open_stage,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.stored_files import remove_unused
from ducklake_orch.results import CommitInfo, TransactionResult, WriteResult


def publish_stage(lake: LakeConfig, stage: StoredStage, commit: CommitInfo, key: str | None) -> TransactionResult:
    """Commit what a stage holds as one snapshot, once.

    Args:
        lake: The lake.
        stage: The stage.
        commit: Author, message and extra of the snapshot.
        key: The caller's idempotency key.

    Raises:
        ConflictError: When another commit changed what was staged; the stage stays.
    """
    started, purpose = time.monotonic(), f"publishing the stage `{stage.head.name}`"
    while True:
        with planning(lake, f"Reading the stage `{stage.head.name}`", reads=True) as metadata:
            refuse_without_message(purpose, commit, required=metadata.requires_message())
            stage = open_stage(metadata, stage.head)
        write = Write(purpose, commit)
        staged = StageDraft(lake, stage, write)
        try:
            done = publish(staged.draft, write, key=key, closing=partial(mark_published, stage=stage))
            break
        except StagedMeanwhileError:
            continue
        finally:
            remove_unpublished(staged.draft, write)
            staged.draft.remove()
    if done.replayed or not stage.tables:
        end_stage(lake, stage, done.snapshot_id)
    fault_point("stage.published")
    if unused := [path for path in stage.own_files if path not in (write.kept or ())]:
        remove_unused(lake, unused)
    writes = [
        WriteResult(
            table=str(table.change.name),
            mode="publish",
            snapshot_id=done.snapshot_id,
            previous_snapshot_id=done.previous_snapshot_id,
            rows_written=table.change.rows_added,
            rows_removed=table.change.rows_removed,
            files_added=len(table.change.files),
            bytes_written=sum(file.file_size for file in table.change.files),
            replayed=done.replayed,
        )
        for table in stage.tables.values()
    ]
    duration = time.monotonic() - started
    return TransactionResult(
        done.snapshot_id, done.previous_snapshot_id, writes, duration_s=duration, replayed=done.replayed
    )


def discard_stage(lake: LakeConfig, stage: StoredStage) -> None:
    """Delete a stage and its files, unless it is published."""
    if stage.head.snapshot_id is None:
        delete_stage(lake, stage.head)
        if stage.own_files:
            remove_unused(lake, stage.own_files)


def past_stages(lake: LakeConfig) -> list[StoredStage]:
    """Return the stages whose time is over and that were not published."""
    return [stage for stage in _past(lake) if stage.head.snapshot_id is None]


def discard_past_stages(lake: LakeConfig) -> None:
    """Discard the stages whose time is over, and forget those that were published."""
    for stage in _past(lake):
        delete_stage(lake, stage.head)
        if stage.head.snapshot_id is None and stage.own_files:
            remove_unused(lake, stage.own_files)


def _past(lake: LakeConfig) -> list[StoredStage]:
    with planning(lake, "Looking for stages whose time is over", reads=True) as metadata:
        return [stage for stage in find_stages(metadata) if stage.is_past]
