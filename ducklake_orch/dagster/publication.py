"""Publications: assets whose step makes what the assets before it have staged visible, in one snapshot."""

from collections.abc import Sequence

import dagster as dg

from ducklake_orch.dagster.run_stage import publish, stage_of


def ducklake_publication(
    name: str,
    assets: Sequence[dg.AssetsDefinition | dg.SourceAsset | dg.AssetKey | str],
    *,
    lake: str = "lake",
    key_prefix: str | Sequence[str] | None = None,
    group_name: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
) -> dg.AssetsDefinition:
    """Return an asset that publishes what assets of the same run have staged, as one snapshot.

    The assets are stored by an IO manager with `publish="after_checks"`. The publication runs after them, and not if
    one of them, or one of its blocking checks, failed: the stage then stays, and a re-execution from failure goes on in
    it. Assets that need the published tables depend on the publication.

    Args:
        name: Name of the asset.
        assets: The assets whose outputs are published.
        lake: Key of the lake's resource.
        key_prefix: Prefix of the asset's key.
        group_name: Group of the asset.
        partitions_def: Partitions of the asset; by default those that all of the assets have.

    Examples:
        >>> published = ducklake_publication("published", [orders, customers])
    """
    defined = [asset for asset in assets if isinstance(asset, dg.AssetsDefinition)]
    if partitions_def is None and defined and len(defined) == len(assets):
        kinds = {asset.partitions_def for asset in defined}
        partitions_def = kinds.pop() if len(kinds) == 1 else None

    @dg.asset(
        name=name,
        key_prefix=key_prefix,
        deps=list(assets),
        group_name=group_name,
        partitions_def=partitions_def,
        required_resource_keys={lake},
        kinds={"ducklake"},
        description="Makes what the assets before it have staged visible to readers, in one snapshot."
        " If one of their blocking checks fails, nothing becomes visible, and the stage stays for inspection.",
    )
    def publication(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        stage = stage_of(getattr(context.resources, lake).lake(), context.run, context.instance)
        if stage is None:
            context.log.warning("Nothing is staged in this run, so nothing is published.")
            return dg.MaterializeResult(metadata={"ducklake/tables": []})
        result = publish(stage, context.run, name, context.log)
        return dg.MaterializeResult(
            metadata={
                "ducklake/snapshot_id": result.snapshot_id,
                "ducklake/previous_snapshot_id": result.previous_snapshot_id,
                "ducklake/replayed": result.replayed,
                "ducklake/rows_written": sum(write.rows_written for write in result.writes),
                "ducklake/rows_removed": sum(write.rows_removed for write in result.writes),
                "ducklake/tables": [write.table for write in result.writes],
                "ducklake/stage": stage.name,
            }
        )

    return publication
