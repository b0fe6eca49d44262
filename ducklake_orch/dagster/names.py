"""Which table an asset, or an op's output, is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from ducklake_orch.dagster.op_outputs import SCHEMA, output_name
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ConfigError

_REPLACING = ("overwrite", "replace_where")
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

    Raises:
        ConfigError: When two of them are one table.
    """
    stored = [one for one in assets if isinstance(one, dg.AssetsDefinition) and one.is_materializable]
    specs = [(spec.key, spec.metadata) for one in stored for spec in one.specs if not stores_nothing(one, spec.key)]
    refuse_two_keys(specs, schema)

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


def replaces(metadata: Mapping[str, Any]) -> bool:
    """Whether an output replaces all rows that are there, or those of its partitions, whoever wrote them."""
    return metadata.get("write_mode", "overwrite") in _REPLACING and metadata.get("where") is None


def refuse_two_keys(assets: Iterable[tuple[dg.AssetKey, Mapping[str, Any]]], schema: str) -> None:
    """Refuse assets that are one table, unless each says a write mode that leaves the rows of the others alone.

    Args:
        assets: Their keys, with what their definitions say.
        schema: Schema of assets whose key names none.
    """
    found: dict[tuple[str, ...], dict[dg.AssetKey, bool]] = {}
    tables: dict[tuple[str, ...], TableName] = {}
    for key, metadata in assets:
        table = table_named(key, metadata, schema)
        name = tuple(map(folded, table))
        found.setdefault(name, {})[key] = replaces(plain_metadata(metadata))
        tables[name] = table
    for name, alike in found.items():
        if len(alike) > 1 and any(alike.values()):
            raise shared(tables[name], sorted(key.to_user_string() for key in alike))


def shared(table: TableName, names: list[str]) -> ConfigError:
    """Return the error for assets that are one table; the first one is that which is to write, where one is."""
    shown = " and ".join(f"`{name}`" for name in names)
    return ConfigError(
        f"The assets {shown} are one table, `{table}`: each would replace the rows of the other.",
        remedy='Give one of them a table of its own: metadata={"schema": "…"} or {"table": "…"}. If it was renamed, add'
        f' metadata={{"renamed_from": "{names[-1]}"}} for its next run. If all of them add rows, give each'
        ' {"write_mode": "append"}.',
    )


def stores_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    """Whether an asset is annotated with `-> None`, or runs elsewhere: no IO manager ever sees it."""
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    return bool(output.dagster_type.is_nothing)


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
        return described(context) if context.has_asset_key else "The input"
