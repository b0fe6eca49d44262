"""Finds the keys of the assets whose tables are read."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import dagster as dg

from ducklake_orch.dagster.table_names import TableNames
from ducklake_orch.engine.quoting import TableName, folded


class TableKeys:
    """The keys of assets, by table.

    Args:
        assets: The keys, each with the metadata of the asset.
        names: Names the tables of the assets.
    """

    def __init__(self, assets: Iterable[tuple[dg.AssetKey, Mapping[str, Any]]], names: TableNames) -> None:
        self.schema = names.schema
        self._prefix = names.prefix
        self._by_table: dict[tuple[str, ...], list[dg.AssetKey]] = {}
        for key, metadata in assets:
            keys = self._by_table.setdefault(self._folded(names.of_asset(key, metadata)), [])
            keys.append(key)

    @staticmethod
    def _folded(table: TableName) -> tuple[str, ...]:
        return tuple(map(folded, table))

    def known(self, schema: str | None, table: str) -> list[dg.AssetKey]:
        """Return the keys of the assets that store a table; none if no asset is known to."""
        return self._by_table.get(self._folded(TableName(schema or self.schema, table)), [])

    def key(self, schema: str | None, table: str) -> dg.AssetKey:
        """Return the key of a table. A table of no known asset has the key of its name.

        Args:
            schema: The schema; None if the table is named without one.
            table: The table.
        """
        if known := self.known(schema, table):
            return known[-1]
        return dg.AssetKey([table] if schema is None else [schema.removeprefix(self._prefix), table])

    def keys(self, schema: str, table: str, parents: Collection[dg.AssetKey]) -> list[dg.AssetKey]:
        """Return the keys of a table: those that are parents of an asset, else all that are known, else its name."""
        known = self.known(schema, table) or [self.key(schema, table)]
        return [key for key in known if key in parents] or known
