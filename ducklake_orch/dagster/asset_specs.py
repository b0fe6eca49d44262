"""Describes the tables of a lake as external assets, which other assets can depend on and load."""

from collections.abc import Sequence

import dagster as dg

from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan import ListedTable, list_tables, snapshot_of
from ducklake_orch.config.maintenance import names
from ducklake_orch.dagster.event_metadata import column_schema
from ducklake_orch.dagster.op_outputs import SCHEMA
from ducklake_orch.dagster.resource import LakeResource
from ducklake_orch.dagster.table_names import TableNames, group_of, specs_of
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import LakeNotFoundError
from ducklake_orch.host_partitions.metadata_keys import table_address
from ducklake_orch.lake import DuckLake
from ducklake_orch.maintenance.selection import Selection

Excluded = Sequence[str | dg.AssetsDefinition | dg.AssetSpec]


def ducklake_asset_specs(
    lake: DuckLake | LakeResource,
    schemas: Sequence[str] | None = None,
    tables: Sequence[str] | None = None,
    *,
    exclude: Excluded | str = (),
    key_prefix: Sequence[str] | str = (),
    schema_prefix: str = "",
) -> list[dg.AssetSpec]:
    """Return the tables of a lake as external assets.

    The key of an asset is `[schema, table]`, by which the `DuckLakeIOManager` finds the table: an asset that has the
    key as an input loads the table. The assets have the table's comment, columns, partition keys and number of rows.

    The lake is read when definitions load, over one connection, with a number of queries that does not depend on the
    number of tables. The tables of op outputs are left out.

    Args:
        lake: The lake, or its resource.
        schemas: Only tables in these schemas, by name or pattern.
        tables: Only these tables, by name or pattern: `sales.orders`, `raw.*`.
        exclude: Tables to leave out, by name or pattern, and assets whose tables to leave out. An asset key can be
            defined once in a code location, so leave out the tables that its assets write.
        key_prefix: The first parts of the keys, which tell the tables of several lakes apart.
        schema_prefix: `schema_prefix` of the IO manager: only the tables of its schemas, whose keys are without it.

    Raises:
        ObjectNotFoundError: If a name or pattern in `schemas` or `tables` matches no table.
    """
    selection = Selection(schemas=schemas, tables=tables)
    lake = _opened(lake)
    found = _tables(lake)
    if found is None:
        return []
    selection.refuse_unknown([table.name for table in found], lake.config.name)
    left_out = _LeftOut([exclude] if isinstance(exclude, str) else exclude, TableNames(prefix=schema_prefix))
    prefix = [key_prefix] if isinstance(key_prefix, str) else key_prefix
    return [
        _spec(lake, table, [*prefix, table.name.schema.removeprefix(schema_prefix), table.name.table])
        for table in found
        if table.name.schema.startswith(schema_prefix)
        and selection.wants_table(table.name)
        and not left_out.has(table.name)
    ]


def _opened(lake: DuckLake | LakeResource) -> DuckLake:
    if isinstance(lake, DuckLake):
        return lake
    with lake.process_config_and_initialize_cm() as resource:  # which reads the environment
        opened: DuckLake = resource.lake()
    return opened


def _tables(lake: DuckLake) -> list[ListedTable] | None:
    """Return the tables; None if the first write is still to create the lake."""
    try:
        with (
            lake.reading(entering=False) as session,
            reading(session, f"Listing the tables of lake `{lake.config.name}`") as metadata,
        ):
            found = list_tables(metadata, snapshot_of(session, metadata))
    except LakeNotFoundError:
        if not lake.config.create_if_missing:
            raise
        return None
    return [table for table in found if folded(table.name.schema) != SCHEMA]


class _LeftOut:
    """The tables that `exclude` names."""

    def __init__(self, exclude: Excluded, table_names: TableNames) -> None:
        self._patterns = [pattern for pattern in exclude if isinstance(pattern, str)]
        assets = [asset for asset in exclude if not isinstance(asset, str)]
        written = [table_names.of_asset(spec.key, spec.metadata) for spec in specs_of(assets)]
        self._written = {tuple(map(folded, table)) for table in written}

    def has(self, name: TableName) -> bool:
        """Whether a table is left out."""
        return tuple(map(folded, name)) in self._written or any(names(pattern, *name) for pattern in self._patterns)


def _spec(lake: DuckLake, table: ListedTable, key: Sequence[str]) -> dg.AssetSpec:
    metadata = {
        "dagster/column_schema": column_schema(list(table.columns), {}),
        "dagster/table_name": table_address(lake, table.name),
        "dagster/storage_kind": "ducklake",
    }
    if table.rows is not None:
        metadata["dagster/row_count"] = table.rows
    if table.partition_by:
        metadata["partition_by"] = list(table.partition_by)
    return dg.AssetSpec(
        dg.AssetKey(key),
        description=table.comment,
        metadata=metadata,
        group_name=group_of(key[-2]),
        kinds={"ducklake"},
    )
