"""Names the table of an asset or of an op's output."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_orch.dagster.metadata_settings import refuse_misspelt, settings_in
from ducklake_orch.dagster.op_outputs import SCHEMA, output_name
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ConfigError

_REPLACING = ("overwrite", "replace_where")
DEFAULT_SCHEMA = "main"
Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


@dataclass(frozen=True)
class TableNames:
    """The rule that names the tables of a deployment.

    The schema is, as in Dagster's own IO managers, `schema` in the metadata, else the one given here, else the part of
    the asset's key before the table, else `main`. Given as `main`, the schema leaves that to the key.

    Attributes:
        schema: Schema of all assets whose metadata name none.
        prefix: Begins the name of every schema.
    """

    schema: str = DEFAULT_SCHEMA
    prefix: str = ""

    def of_asset(self, key: dg.AssetKey, metadata: Mapping[str, Any]) -> TableName:
        """Return the table of an asset."""
        settings = settings_in(metadata)
        *folders, table = key.path
        of_key = folders[-1] if folders and self.schema == DEFAULT_SCHEMA else self.schema
        return self._table(settings, of_key, table)

    def of(self, context: dg.OutputContext | dg.InputContext, metadata: Mapping[str, Any]) -> TableName:
        """Return the table that an output writes or an input reads.

        Args:
            context: The output or input.
            metadata: Metadata of the producer's definition. Metadata added at run time do not count, because readers
                cannot know them.
        """
        if context.has_asset_key:
            return self.of_asset(context.asset_key, metadata)
        settings = settings_in(metadata)
        output = context if isinstance(context, dg.OutputContext) else context.upstream_output
        if output is None:  # an input that nothing is connected to
            return self._table(settings, self.schema, context.name)
        if settings.get("table"):
            return self._table(settings, self.schema, output.name)
        return self._table(settings, SCHEMA, output_name(output))

    def _table(self, settings: Mapping[str, Any], schema: str, table: str) -> TableName:
        schema = str(settings.get("schema") or schema)
        return TableName(self.prefix + schema, str(settings.get("table") or table))


def specs_of(assets: Assets) -> list[dg.AssetSpec]:
    """Return the specs of assets that are given as definitions or as specs.

    Raises:
        ConfigError: If an asset with a table has a misspelt setting.
    """
    for key, metadata in _stored(assets):
        _refuse_misspelt(key, metadata)
    return [spec for asset in assets for spec in ([asset] if isinstance(asset, dg.AssetSpec) else asset.specs)]


def with_table_names(
    assets: Assets, *, alias: str, schema: str = DEFAULT_SCHEMA, schema_prefix: str = ""
) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets with their table names in the metadata, which Dagster shows before any materialization.

    Args:
        assets: The assets; the IO manager's rules name their tables.
        alias: The alias of the lake; by default it is the lake's name.
        schema: `schema` of the IO manager.
        schema_prefix: `schema_prefix` of the IO manager.

    Raises:
        ConfigError: If two assets are the same table, or a setting is misspelt.
    """
    names = TableNames(schema, schema_prefix)
    check_assets(_stored(assets), names)

    def named(spec: dg.AssetSpec) -> dg.AssetSpec:
        table = f"{alias}.{names.of_asset(spec.key, spec.metadata)}"
        return spec.merge_attributes(metadata={"dagster/table_name": table, "dagster/storage_kind": "ducklake"})

    return dg.map_asset_specs(named, assets)


def definition_of(context: dg.OutputContext | dg.InputContext) -> dict[str, Any]:
    """Return the settings in the definition of an output or input, with its other metadata."""
    return settings_in(context.definition_metadata or {})


def at_run_time(context: dg.OutputContext) -> dict[str, Any]:
    """Return the settings of an output: those of its definition, overridden by those added at run time."""
    return definition_of(context) | settings_in(context.output_metadata or {})


def group_of(schema: str) -> str:
    """Return the name of the group of a schema's tables; Dagster allows letters, digits and underscores."""
    return re.sub("[^A-Za-z0-9_]", "_", schema)


def replaces(metadata: Mapping[str, Any]) -> bool:
    """Return whether an output replaces all rows of the table or of its partitions, whichever writer they are from."""
    return metadata.get("write_mode", "overwrite") in _REPLACING and metadata.get("where") is None


def _stored(assets: Assets) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    """Return the assets that have a table, with their metadata."""
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable:
            yield from ((spec.key, spec.metadata) for spec in asset.specs if not stores_nothing(asset, spec.key))


def _refuse_misspelt(key: dg.AssetKey, metadata: Mapping[str, Any]) -> None:
    refuse_misspelt(f"Asset `{key.to_user_string()}`", settings_in(metadata))


def check_assets(assets: Iterable[tuple[dg.AssetKey, Mapping[str, Any]]], names: TableNames) -> None:
    """Refuse misspelt settings, and assets that are the same table unless each keeps the rows of the others.

    Args:
        assets: The keys of the assets, each with the metadata of its definition.
        names: Names the tables.
    """
    assets_of: dict[tuple[str, ...], dict[dg.AssetKey, bool]] = {}
    tables: dict[tuple[str, ...], TableName] = {}
    for key, metadata in assets:
        _refuse_misspelt(key, metadata)
        table = names.of_asset(key, metadata)
        name = tuple(map(folded, table))
        assets_of.setdefault(name, {})[key] = replaces(settings_in(metadata))
        tables[name] = table
    for name, replacing in assets_of.items():
        if len(replacing) > 1 and any(replacing.values()):
            raise shared(tables[name], sorted(key.to_user_string() for key in replacing))


def shared(table: TableName, names: list[str]) -> ConfigError:
    """Return the error for assets that are the same table; if one of them is about to write, it is the first name."""
    shown = " and ".join(f"`{name}`" for name in names)
    return ConfigError(
        f"The assets {shown} store the same table, `{table}`: each would replace the rows of the other.",
        remedy='Give one of them a table of its own: metadata={"schema": "…"} or {"table": "…"}. If it was renamed, add'
        f' metadata={{"renamed_from": "{names[-1]}"}} for its next run. If all of them add rows, give each'
        ' {"write_mode": "append"}.',
    )


def stores_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    """Return whether an asset is annotated as one that stores nothing, or runs elsewhere: no IO manager handles it."""
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    return bool(output.dagster_type.is_nothing or output.dagster_type.typing_type is dg.MaterializeResult)


def described(context: dg.OutputContext | dg.InputContext) -> str:
    """Return the name of an asset or output for messages."""
    if context.has_asset_key:
        return f"Asset `{context.asset_key.to_user_string()}`"
    return f"Output `{context.name}`"


def described_input(context: dg.InputContext) -> str:
    """Return the name of an input for messages. The context of a unit test can have no name."""
    try:
        return f"Input `{context.name}`"
    except dg.DagsterInvariantViolationError:
        return described(context) if context.has_asset_key else "The input"
