"""The `dg` component of a lake: its resource and IO manager, its tables as external assets, and its SQL assets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.resolved.core_models import ResolvedAssetAttributes
from pydantic import Field

from ducklake_orch.dagster.asset_specs import ducklake_asset_specs
from ducklake_orch.dagster.component_connection import LAKE_FILE, file_resource, resolve_connection, scaffold_file
from ducklake_orch.dagster.io_manager import DuckLakeIOManager
from ducklake_orch.dagster.resource import DuckLakeResource, LakeResource
from ducklake_orch.dagster.sql_assets import ducklake_sql_assets
from ducklake_orch.dagster.table_names import DEFAULT_SCHEMA, TableNames
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ConfigError

_EXAMPLE = """-- An example. Each file in this folder is an asset: its SELECT becomes the table of the same name.
SELECT 42 AS answer
"""


class LakeScaffolder(dg.Scaffolder):
    """Writes the `defs.yaml` of a component, a TOML file that configures the lake, and an SQL asset."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files."""
        dg.scaffold_component(request, {"file": LAKE_FILE, "tables": {}, "sql": "sql"})
        scaffold_file(request.target_path)
        folder = request.target_path / "sql"
        if not folder.exists():
            folder.mkdir()
            (folder / "example.sql").write_text(_EXAMPLE)


# Dagster takes the descriptions in a component's schema from resolvers; it ignores those of pydantic fields.
described = dg.Resolver.default


class LakeTables(dg.Model, dg.Resolvable):
    """The tables of the lake that are external assets; by default all that no SQL file of the component writes."""

    schemas: Annotated[list[str] | None, described(description="Only tables in these schemas, by name or pattern.")] = (
        None
    )
    tables: Annotated[list[str] | None, described(description="Only these tables, by name or pattern.")] = None
    exclude: Annotated[
        list[str],
        described(description="Tables to leave out, by name or pattern, such as those that other assets write."),
    ] = Field(default=[])
    key_prefix: Annotated[list[str], described(description="The first parts of the asset keys.")] = Field(default=[])


@dg.scaffold_with(LakeScaffolder)
class DuckLakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """A DuckLake lake: its resource and IO manager, its tables as external assets, and a folder of SQL assets."""

    lake: Annotated[str, described(description="Key of the lake's resource.")] = "lake"
    io_manager: Annotated[str, described(description="Key of the lake's IO manager.")] = "io_manager"
    connection: Annotated[
        dict[str, Any] | None,
        dg.Resolver(
            resolve_connection,
            model_field_type=dict[str, Any],
            description="Fields of `DuckLakeResource`, which define the resource and the IO manager.",
        ),
    ] = None
    file: Annotated[
        str | None,
        described(description="Instead of `connection`: a TOML file, relative to the component's folder."),
    ] = None
    profile: Annotated[str | None, described(description="Profile in the file.")] = None
    lake_name: Annotated[
        str | None, described(description="Name of the lake in the file, if the file has several.")
    ] = None
    asset_schema: Annotated[
        str, described(description="Schema of all assets; with `main`, the keys of assets name schemas.")
    ] = DEFAULT_SCHEMA
    tables: Annotated[
        LakeTables | None, described(description="Tables of the lake that are external assets; `{}` for all.")
    ] = None
    sql: Annotated[str | None, described(description="Folder of SQL assets, relative to the component's folder.")] = (
        None
    )
    assets: Annotated[
        dict[str, ResolvedAssetAttributes],
        described(description="Attributes of SQL assets, by asset key: `partitions_def`, `metadata` and so on."),
    ] = Field(default={})

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions."""
        resource = self._resource(context.path)
        specs = self._specs(resource)
        if self.sql is None and self.assets:
            raise ConfigError("`assets` needs `sql`, the folder of the SQL assets.", remedy="Add it.")
        assets = [] if self.sql is None else self._sql_assets(context.path / self.sql, specs)
        written = {self._table(spec) for asset in assets for spec in asset.specs}
        read = [spec for spec in specs if self._table(spec) not in written]
        return dg.Definitions(assets=[*read, *assets], resources=self._resources(resource))

    def _resource(self, folder: Path) -> LakeResource | None:
        """Return the resource of the lake; None if another component or the project defines it."""
        if self.connection is not None and self.file is not None:
            raise ConfigError("`connection` and `file` are both given.", remedy="Give one of them.")
        if self.file is not None:
            return file_resource(folder, self.file, self.profile, self.lake_name)
        return None if self.connection is None else DuckLakeResource(**self.connection)

    def _resources(self, resource: LakeResource | None) -> Mapping[str, Any]:
        if resource is None:
            return {}
        manager = DuckLakeIOManager(lake=resource, schema=self.asset_schema)
        return {self.lake: resource, self.io_manager: manager}

    def _specs(self, resource: LakeResource | None) -> list[dg.AssetSpec]:
        if self.tables is None:
            return []
        if resource is None:
            raise ConfigError(
                "`tables` needs the lake when definitions load.", remedy="Give `connection` or `file`, too."
            )
        chosen = self.tables
        return ducklake_asset_specs(
            resource, chosen.schemas, chosen.tables, exclude=chosen.exclude, key_prefix=chosen.key_prefix
        )

    def _sql_assets(self, folder: Path, specs: list[dg.AssetSpec]) -> list[dg.AssetsDefinition]:
        return ducklake_sql_assets(
            folder,
            lake=self.lake,
            io_manager=self.io_manager,
            schema=self.asset_schema,
            attributes=self.assets,
            others=specs,
        )

    def _table(self, spec: dg.AssetSpec) -> tuple[str, ...]:
        return tuple(map(folded, TableNames(self.asset_schema).of_asset(spec.key, spec.metadata)))
