"""Builds assets from a folder of SQL files: each SELECT becomes the table of the same name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from ducklake_orch.config.nearest import nearest
from ducklake_orch.dagster.event_metadata import LINEAGE, failures
from ducklake_orch.dagster.select_file import SelectFile
from ducklake_orch.dagster.select_lineage import Copied
from ducklake_orch.dagster.select_rows import refuse_unknown_parameters, selected_rows
from ducklake_orch.dagster.table_keys import TableKeys
from ducklake_orch.dagster.table_names import DEFAULT_SCHEMA, Assets, TableNames, check_assets, group_of, specs_of
from ducklake_orch.errors import ConfigError


def ducklake_sql_assets(
    folder: str | Path,
    *,
    lake: str = "lake",
    io_manager: str = "io_manager",
    schema: str = DEFAULT_SCHEMA,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    others: Assets = (),
) -> list[dg.AssetsDefinition]:
    """Return an asset for each file `*.sql` in a folder.

    The file `sales/orders.sql` is the asset `sales/orders`: its SELECT runs in the lake, and the IO manager writes the
    rows to the table `sales.orders`. The asset is in the group `sales`, and depends on the tables that the SELECT
    reads. The comment at the beginning of the file is its description.

    The SELECT of an asset with partitions has parameters. `$partition_key` is the key, and for several dimensions
    `$partition_key_<dimension>` the key of each. `$partition_start` and `$partition_end` are the limits of the time
    window as TIMESTAMP, on the clock of the definition's zone; `$partition_start_utc` and `$partition_end_utc` are the
    same as TIMESTAMPTZ.

    Args:
        folder: The folder.
        lake: The key of the lake's resource.
        io_manager: The key of the lake's IO manager.
        schema: `schema` of the IO manager. A SELECT finds tables without a schema there.
        attributes: Further arguments of `dg.asset`, by the key of the asset: `{"sales/orders": {"partitions_def": …}}`.
            The settings of the IO manager are `metadata`. `deps` replaces the dependencies that the SELECT has.
        others: Other assets that a SELECT may read; by default the name of a table is taken for the key of its asset.

    Raises:
        ConfigError: If the folder does not exist, a file is not one SELECT, or a key in `attributes` has no file.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(
            f"The folder of SQL assets `{root}` does not exist.", remedy="Create it, or correct its path."
        )
    files = {
        "/".join(path.relative_to(root).with_suffix("").parts): SelectFile.read(path)
        for path in sorted(root.rglob("*.sql"))
    }
    given = attributes or {}
    for key in given:
        if key not in files:
            raise ConfigError(f"The folder `{root}` has no file `{key}.sql`.", remedy=nearest(key, list(files)))
    named = [(dg.AssetKey(key.split("/")), given.get(key, {}).get("metadata") or {}) for key in files]
    names = TableNames(schema)
    check_assets(named, names)
    keys = TableKeys([*((spec.key, spec.metadata) for spec in specs_of(others)), *named], names)
    build = _Builder(lake, io_manager, keys)
    return [build.asset(file, dg.AssetKey(key.split("/")), given.get(key, {})) for key, file in files.items()]


def _read_by(file: SelectFile, own: dg.AssetKey, keys: TableKeys) -> list[dg.AssetKey]:
    """Return the keys of the tables that a file reads, without its own."""
    return sorted({keys.key(*ref) for ref in file.tables} - {own})


def _lineage(copied: Mapping[str, Copied], keys: TableKeys) -> dg.TableColumnLineage:
    """Return the columns that are copied, as Dagster shows them."""
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(keys.key(*ref), column)] for name, (ref, column) in copied.items()}
    )


@dataclass(frozen=True)
class _Builder:
    """Builds the assets of a folder.

    Attributes:
        lake: The key of the lake's resource.
        io_manager: The key of the lake's IO manager.
        keys: The keys of the assets whose tables SELECTs may read.
    """

    lake: str
    io_manager: str
    keys: TableKeys

    def asset(self, file: SelectFile, key: dg.AssetKey, attributes: Mapping[str, Any]) -> dg.AssetsDefinition:
        """Return the asset of a file."""
        what, metadata = f"Asset `{key.to_user_string()}`", attributes.get("metadata") or {}
        refuse_unknown_parameters(file, attributes.get("partitions_def"))

        def select(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
            lake = getattr(context.resources, self.lake).existing_lake()
            with (
                failures(f"{what} was not computed", {}),
                selected_rows(lake, file, self.keys.schema, context, self.io_manager) as (rows, copied),
            ):
                known = {LINEAGE: _lineage(copied, self.keys)} if copied and LINEAGE not in metadata else {}
                yield dg.Output(rows, metadata=known)  # the IO manager reads the rows before the connection closes

        asset: dg.AssetsDefinition = dg.asset(
            **self._arguments(file, key, attributes),
            key=key,
            metadata={"sql": dg.MetadataValue.md(f"```sql\n{file.query}\n```"), **metadata},
            required_resource_keys={self.lake},
            io_manager_key=self.io_manager,
        )(select)
        return asset

    def _arguments(self, file: SelectFile, key: dg.AssetKey, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `dg.asset` that attributes can set."""
        given = {name: value for name, value in attributes.items() if name != "metadata"}
        if "deps" not in given:
            # As `deps`, Dagster refuses keys with characters that a name in Python cannot have.
            read = enumerate(_read_by(file, key, self.keys))
            given["ins"] = {f"table_{n}": dg.AssetIn(table, dagster_type=dg.Nothing) for n, table in read}
        if "skippable" in given:  # of Dagster's YAML, which has the attributes of specs
            given["output_required"] = not given.pop("skippable")
        defaults = {"code_version": file.version, "description": file.description, "kinds": {"ducklake", "sql"}}
        if len(key.path) > 1:
            defaults["group_name"] = group_of(key.path[-2])
        return defaults | given
