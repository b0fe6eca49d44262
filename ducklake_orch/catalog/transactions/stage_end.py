"""The end of a stage: what it holds is committed as one snapshot, or deleted."""

import logging
import time
from collections.abc import Sequence
from functools import partial

from ducklake_orch.catalog.commit import Committed, leased
from ducklake_orch.catalog.metadata import Metadata, canonical, paths_of_tables, scheduled_paths
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.publishing import publish, remove_unpublished
from ducklake_orch.catalog.transactions.restored_draft import RestoredDraft
from ducklake_orch.catalog.transactions.stage_draft import refusing_ended
from ducklake_orch.catalog.transactions.stage_rows import (
    StagedMeanwhileError,
    delete_stage,
    end_stage,
    find_stages,
    mark_published,
    open_stage,
)
from ducklake_orch.catalog.transactions.stored_stage import StageHead, StoredStage
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_read_only, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.stored_files import remove_unused
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import CommitInfo, TransactionResult, WriteResult

log = logging.getLogger("ducklake_orch")


def publish_stage(lake: LakeConfig, stage: StoredStage, commit: CommitInfo, key: str | None) -> TransactionResult:
    """Commit what a stage holds as one snapshot, once.

    Args:
        lake: The lake.
        stage: The stage.
        commit: Author, message and extra of the snapshot.
        key: The caller's idempotency key.

    Raises:
        StageConflictError: When another commit changed what was staged; the stage stays.
    """
    started, purpose = time.monotonic(), f"publishing the stage `{stage.head.name}`"
    refuse_read_only(lake, purpose)
    while True:
        with planning(lake, f"Reading the stage `{stage.head.name}`", reads=True) as metadata:
            refuse_without_message(purpose, commit, required=metadata.requires_message())
            stage = open_stage(metadata, stage.head)
        try:
            with refusing_ended(lake, stage.head):
                done, kept = _publish_once(lake, stage, Write(purpose, commit), key)
            break
        except StagedMeanwhileError:
            continue
    fault_point("stage.published")
    _remove(lake, [path for path in stage.own_files if path not in kept])
    writes = [
        WriteResult(
            table=str(table.change.name),
            mode="publish",
            snapshot_id=done.snapshot_id,
            previous_snapshot_id=done.previous_snapshot_id,
            rows_written=table.change.rows_added,
            rows_removed=table.change.rows_removed,
            files_added=len(table.change.files),
            bytes_written=table.change.bytes,
            replayed=done.replayed,
        )
        for table in stage.tables.values()
    ]
    duration = time.monotonic() - started
    return TransactionResult(
        done.snapshot_id, done.previous_snapshot_id, writes, duration_s=duration, replayed=done.replayed
    )


def _publish_once(
    lake: LakeConfig, stage: StoredStage, write: Write, key: str | None
) -> tuple[Committed, frozenset[str]]:
    """Publish a stage as it was read, and return the outcome and the files that the snapshot refers to."""
    draft = RestoredDraft(lake, stage, write)
    try:
        draft.adopt_tables([table.change.name for table in stage.tables.values()])
        with leased(lake, write, stage.head.base_snapshot, draft.recording.write_ids):
            try:
                done = publish(
                    draft,
                    write,
                    key=key,
                    staged_keys=stage.table_keys(),
                    closing=partial(mark_published, stage=stage),
                    stage=stage.head.name,
                )
                if done.replayed or done.snapshot_id == done.previous_snapshot_id:  # there was nothing to commit
                    end_stage(lake, stage, done.snapshot_id, done.previous_snapshot_id)
            finally:
                remove_unpublished(draft, write)
    finally:
        draft.remove()
    return done, write.kept or frozenset()


def discard_stage(lake: LakeConfig, head: StageHead) -> list[str]:
    """Delete a stage and its files, unless it is published, and return the files."""
    refuse_read_only(lake, f"discarding the stage `{head.name}`")
    deleted = delete_stage(lake, head)
    return [] if deleted is None else _remove(lake, deleted.own_files)


def past_stages(metadata: Metadata) -> list[StoredStage]:
    """Return the stages whose time is over, published ones included."""
    return [stage for stage in find_stages(metadata) if stage.is_past]


def discard_past_stages(lake: LakeConfig) -> list[str]:
    """Discard the stages whose time is over, forget those that were published, and return the deleted files."""
    with planning(lake, "Looking for stages whose time is over", reads=True) as metadata:
        past = past_stages(metadata)
    return [path for stage in past for path in discard_stage(lake, stage.head)]


def _remove(lake: LakeConfig, paths: Sequence[str]) -> list[str]:
    """Delete files of a stage that has ended, and return them; those that the lake has got from elsewhere stay."""
    if not paths:
        return []
    try:
        with planning(lake, "Looking for files that a stage shares", reads=True) as metadata:
            root, names = metadata.data_path(), {path.rpartition("/")[2] for path in paths}
            listed = [*paths_of_tables(metadata, names), *scheduled_paths(metadata).values()]
    except DuckLakeOrchError as error:
        log.warning("%d files of a stage that has ended are left to maintenance: %s", len(paths), error)
        return []
    known = {canonical(path, root) for path in listed}
    unused = [path for path in paths if canonical(path, root) not in known]
    if unused:
        remove_unused(lake, unused)
    return unused
