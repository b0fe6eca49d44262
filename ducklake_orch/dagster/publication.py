"""Publications: assets whose step makes what the assets before it have staged visible, in one snapshot."""

from collections.abc import Callable, Sequence

import dagster as dg

from ducklake_orch.dagster.event_metadata import STAGE, failures
from ducklake_orch.dagster.output_run import cut
from ducklake_orch.dagster.run_stage import RunStage, find_run_stage
from ducklake_orch.errors import ConfigError


def ducklake_publication(
    name: str,
    assets: Sequence[dg.AssetsDefinition | dg.SourceAsset | dg.AssetKey | str],
    *,
    lake: str = "lake",
    key_prefix: str | Sequence[str] | None = None,
    group_name: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
    tag: str | Callable[[dg.AssetExecutionContext], str] | None = None,
) -> dg.AssetsDefinition:
    """Return an asset that publishes what assets of the same run have staged, as one snapshot.

    The assets are stored by an IO manager with `publish="after_checks"`. The publication runs after them, and not if
    one of them, or one of its blocking checks, failed: the stage then stays, and a re-execution from failure goes on in
    it. Assets that need the published tables depend on the publication.

    Args:
        name: Name of the asset.
        assets: The assets whose outputs are published, all that the run stages; texts are keys such as `sales/orders`.
        lake: Key of the lake's resource.
        key_prefix: Prefix of the asset's key.
        group_name: Group of the asset.
        partitions_def: Partitions of the asset; by default those that all of the assets have.
        tag: The name that the published snapshot gets, or a function that returns it. It moves from an earlier
            snapshot.

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
        deps=[dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset for asset in assets],
        group_name=group_name,
        partitions_def=partitions_def,
        required_resource_keys={lake},
        kinds={"ducklake"},
        description="Makes what the assets before it have staged visible to readers, in one snapshot."
        " If one of their blocking checks fails, nothing becomes visible, and the stage stays for inspection.",
    )
    def publication(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        what = f"Publication `{name}`"
        with failures(f"{what} published nothing", {}):
            staged = find_run_stage(getattr(context.resources, lake).lake(), context.run, context.instance)
            own = {cut(key) for keys in context.assets_def.asset_deps.values() for key in keys}
            published = _staged_assets(what, staged, own)
            result = published.publish(f"`{name}`", context.job_def.asset_layer.asset_graph, context.log)
            named = tag(context) if callable(tag) else tag
            if named is not None:
                getattr(context.resources, lake).lake().tag(named, result.snapshot_id, replace=True)
        return dg.MaterializeResult(
            metadata={
                "ducklake/snapshot_id": result.snapshot_id,
                "ducklake/previous_snapshot_id": result.previous_snapshot_id,
                "ducklake/replayed": result.replayed,
                "ducklake/rows_written": sum(write.rows_written for write in result.writes),
                "ducklake/rows_removed": sum(write.rows_removed for write in result.writes),
                "ducklake/tables": [write.table for write in result.writes],
                STAGE: published.info.name,
                **({} if named is None else {"ducklake/tag": named}),
            }
        )

    return publication


def _staged_assets(what: str, staged: RunStage | None, own: set[str]) -> RunStage:
    """Return the stage of a run; refuse one with nothing to publish, or with outputs of other assets."""
    if staged is None or not staged.assets():
        raise ConfigError(
            f"{what} has nothing to publish: this run staged nothing.",
            remedy='Materialize it in one run with its assets, whose IO manager has `publish="after_checks"`.',
        )
    if others := sorted(staged.assets() - own):
        raise ConfigError(
            f"{what} does not name `{others[0]}`, which the run has staged, too.",
            remedy="Add it to `assets` of the publication: a run has one publication. Or store it with another IO"
            ' manager, which has `publish="immediately"`.',
        )
    return staged
