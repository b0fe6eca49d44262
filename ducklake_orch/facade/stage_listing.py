"""List stages."""

from typing import TYPE_CHECKING

from ducklake_orch.results import StageInfo

if TYPE_CHECKING:
    from ducklake_orch.catalog.transactions import StoredStage
    from ducklake_orch.engine.session import Session


def list_stages(session: "Session") -> list[StageInfo]:
    """Return all stages, oldest first."""
    from ducklake_orch.catalog.search import planning
    from ducklake_orch.catalog.transactions import find_stages

    with planning(session.config, "Listing stages", session, reads=True) as metadata:
        return [stage_info(stage) for stage in find_stages(metadata)]


def stage_info(stage: "StoredStage") -> StageInfo:
    """Return what `DuckLake.stages` lists of a stage."""
    head, tables = stage.head, stage.summaries
    return StageInfo(
        stage_id=head.stage_id,
        name=head.name,
        created=head.created,
        expires=head.expires,
        author=head.author,
        base_snapshot=head.base_snapshot,
        tables=[table.table for table in tables],
        rows_added=sum(table.rows_added for table in tables),
        rows_removed=sum(table.rows_removed for table in tables),
        bytes=sum(table.bytes for table in tables),
        status="published" if head.snapshot_id is not None else "expired" if stage.is_past else "open",
        snapshot_id=head.snapshot_id,
    )
