"""Builds assets from a folder of SQL files: each SELECT becomes the table of the same name."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from ducklake_orch.config.nearest import nearest
from ducklake_orch.dagster.event_metadata import failures
from ducklake_orch.dagster.io_context import refuse_misspelt
from ducklake_orch.dagster.select_file import SelectFile
from ducklake_orch.dagster.select_rows import refuse_unknown_parameters, selected_rows
from ducklake_orch.dagster.table_names import Assets, refuse_two_keys, specs_of, table_named
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ConfigError


def ducklake_sql_assets(
    folder: str | Path,
    *,
    lake: str = "lake",
    io_manager: str = "io_manager",
    schema: str = "main",
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    others: Assets = (),
) -> list[dg.AssetsDefinition]:
    """Return an asset for each file `*.sql` in a folder.

    The file `sales/orders.sql` is the asset `sales/orders`: its SELECT runs in the lake, and the IO manager writes the
    rows to the table `sales.orders`. The asset depends on the tables that the SELECT reads. The comment at the
    beginning of the file is the asset's description.

    The SELECT of an asset with partitions has parameters. `$partition_key` is the key, and for several dimensions
    `$partition_key_<dimension>` the key of each. `$partition_start` and `$partition_end` are the limits of the time
    window as TIMESTAMP, on the clock of the definition's zone; `$partition_start_utc` and `$partition_end_utc` are the
    same as TIMESTAMPTZ.

    Args:
        folder: The folder.
        lake: The key of the lake's resource.
        io_manager: The key of the lake's IO manager.
        schema: The schema of the IO manager, in which tables without a schema are.
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
    refuse_two_keys(named, schema)
    keys = _Keys([*((spec.key, spec.metadata) for spec in specs_of(others)), *named], schema)
    return [
        _asset(file, key, keys.read_by(file, key), lake, io_manager, schema, given.get("/".join(key.path), {}))
        for (key, _), file in zip(named, files.values(), strict=True)
    ]


class _Keys:
    """The keys of the assets whose tables SELECTs may read, by table.

    Args:
        assets: The keys, each with the metadata of the asset.
        schema: The schema of tables that are named without one.
    """

    def __init__(self, assets: Sequence[tuple[dg.AssetKey, Mapping[str, Any]]], schema: str) -> None:
        self._schema = schema
        self._by_table = {self._folded(table_named(key, metadata, schema)): key for key, metadata in assets}

    @staticmethod
    def _folded(table: TableName) -> tuple[str, ...]:
        return tuple(map(folded, table))

    def read_by(self, file: SelectFile, own: dg.AssetKey) -> list[dg.AssetKey]:
        """Return the keys of the tables that a file reads, without its own."""
        keys = {
            self._by_table.get(self._folded(TableName(schema or self._schema, table)))
            or dg.AssetKey([table] if schema is None else [schema, table])
            for schema, table in file.tables
        }
        return sorted(keys - {own})


def _asset(
    file: SelectFile,
    key: dg.AssetKey,
    deps: Sequence[dg.AssetKey],
    lake: str,
    io_manager: str,
    schema: str,
    attributes: Mapping[str, Any],
) -> dg.AssetsDefinition:
    given, name = dict(attributes), f"Asset `{key.to_user_string()}`"
    metadata = given.pop("metadata", None) or {}
    refuse_misspelt(name, metadata)
    refuse_unknown_parameters(file, given.get("partitions_def"))
    defaults = {
        "code_version": file.version,
        "description": file.description,
        "kinds": {"ducklake", "sql"},
        "metadata": {"sql": dg.MetadataValue.md(f"```sql\n{file.query}\n```"), **metadata},
    }

    if "deps" not in given:
        # As `deps`, Dagster refuses keys that cannot be names in Python.
        given["ins"] = {f"table_{n}": dg.AssetIn(read, dagster_type=dg.Nothing) for n, read in enumerate(deps)}

    @dg.asset(**(defaults | given), key=key, required_resource_keys={lake}, io_manager_key=io_manager)
    def select(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        resource = getattr(context.resources, lake)
        with (
            failures(f"{name} was not computed", {}),
            selected_rows(resource.existing_lake(), file, schema, context) as rows,
        ):
            yield dg.Output(rows)  # the IO manager reads the rows before the connection closes

    return select
