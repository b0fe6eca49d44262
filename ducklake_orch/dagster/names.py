"""Which table an asset, or an op's output, is."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from ducklake_orch.dagster.op_outputs import SCHEMA, output_name
from ducklake_orch.engine.quoting import TableName

Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def specs_of(assets: Assets) -> list[dg.AssetSpec]:
    """Return the specs of assets, however they are given."""
    return [spec for one in assets for spec in ([one] if isinstance(one, dg.AssetSpec) else one.specs)]


def with_table_names(
    assets: Assets, *, alias: str, schema: str = "main"
) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """Return assets whose definitions say which tables they are, so that Dagster shows it before they are materialized.

    Args:
        assets: The assets; each is the table that the IO manager would take for it.
        alias: The alias of the lake, which is its name unless it has another.
        schema: Schema of assets whose key names none.
    """

    def named(spec: dg.AssetSpec) -> dg.AssetSpec:
        table = f"{alias}.{table_named(spec.key, spec.metadata, schema)}"
        return spec.merge_attributes(metadata={"dagster/table_name": table, "dagster/storage_kind": "ducklake"})

    return dg.map_asset_specs(named, assets)


def definition_of(context: dg.OutputContext | dg.InputContext) -> dict[str, Any]:
    """Return what the definition of an output or input says."""
    return plain_metadata(context.definition_metadata or {})


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as they were given."""
    return {name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in metadata.items()}


def at_run_time(context: dg.OutputContext) -> dict[str, Any]:
    """Return what an output's definition says, and above it what its run said."""
    return definition_of(context) | plain_metadata(context.output_metadata or {})


def table_of(context: dg.OutputContext | dg.InputContext, metadata: Mapping[str, Any], schema: str) -> TableName:
    """Return the table of an output, or of what an input reads.

    Args:
        context: What is written or read.
        metadata: What the producer's definition says: `schema` and `table` go before its name. What its run says does
            not count: those that read it could not know.
        schema: The schema of what names none.
    """
    if context.has_asset_key:
        return table_named(context.asset_key, metadata, schema)
    output = context if isinstance(context, dg.OutputContext) else context.upstream_output
    if output is None:  # an input that nothing is connected to
        return TableName(str(metadata.get("schema") or schema), str(metadata.get("table") or context.name))
    if metadata.get("table"):
        return TableName(str(metadata.get("schema") or schema), str(metadata["table"]))
    return TableName(str(metadata.get("schema") or SCHEMA), output_name(output))


def table_named(key: dg.AssetKey, metadata: Mapping[str, Any], schema: str) -> TableName:
    """Return the table of an asset."""
    metadata = plain_metadata(metadata)
    *folders, table = key.path
    schema = folders[-1] if folders else schema
    return TableName(str(metadata.get("schema") or schema), str(metadata.get("table") or table))


def described(context: dg.OutputContext | dg.InputContext) -> str:
    """Return what messages call it."""
    if context.has_asset_key:
        return f"Asset `{context.asset_key.to_user_string()}`"
    return f"Output `{context.name}`"


def described_input(context: dg.InputContext) -> str:
    """Return what messages call an input; one that a test builds can be without a name."""
    try:
        return f"Input `{context.name}`"
    except dg.DagsterInvariantViolationError:
        return described(context) if context.has_asset_key else "An input"
