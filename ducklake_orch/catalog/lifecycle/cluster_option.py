"""Read and set the cluster keys of a table: the columns by which maintenance clusters its rows.

They are an option of the table in the catalog that only ducklake-orch uses; the extension lists it among its own.
"""

import json
from collections.abc import Mapping, Sequence

from ducklake_orch.catalog.metadata import MetadataTransaction, commit_metadata, duckdb_type
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only
from ducklake_orch.engine.layout import cluster_columns
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session

_OPTION = "cluster_by"


def cluster_keys(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cluster keys among the options of a table."""
    return tuple(json.loads(options.get(_OPTION, "[]")))


def set_cluster_keys(config: LakeConfig, name: TableName, keys: Sequence[str], *, first: bool = False) -> None:
    """Set the cluster keys of a table; no keys remove them.

    Args:
        config: The lake.
        name: The table.
        keys: The keys.
        first: Leave the keys as they are if the table has some.

    Raises:
        ConfigError: When a key is not a column, or its type has no order.
    """
    purpose = f"setting the cluster keys of `{name}`"
    refuse_read_only(config, purpose)
    refuse_managed(config, purpose)

    def put(transaction: MetadataTransaction) -> None:
        table = transaction.metadata.table(name, transaction.latest.snapshot_id)
        if first and _OPTION in table.options:
            return
        columns = cluster_columns(keys, {column.name: duckdb_type(column) for column in table.columns})
        key = transaction.dialect.quoted("key")
        own = f"{key} = '{_OPTION}' AND scope = 'table' AND scope_id = {table.table_id}"
        transaction.change("ducklake_metadata", f"DELETE FROM {{}} WHERE {own}")
        if columns:
            row = {"key": _OPTION, "value": json.dumps(columns), "scope": "table", "scope_id": table.table_id}
            transaction.insert_row("ducklake_metadata", row)

    with open_session(config, entering=False) as session:
        commit_metadata(session, Write(purpose, marked=False, repeatable=True), put)
