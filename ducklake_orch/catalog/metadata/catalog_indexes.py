"""Indexes on the metadata tables, with which planning reads only the files whose partition values can match.

DuckLake has no indexes on them, so that planning reads the partition values and statistics of all files of a table.
The indexes are created on request. Other engines keep them up to date without knowing of them.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.catalog.metadata.transaction import MetadataTransaction, commit_metadata
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import Dialect, dialect_of
from ducklake_orch.engine.exactly_once import Write, refuse_read_only
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import UnsupportedStatementError

# PostgreSQL refuses rows whose indexed values are longer than 2,700 bytes, so that a longer value could not be stored.
INDEXED_LENGTH = 200
VALUES_INDEX = "ducklake_orch_partition_values"
# The columns of each index by its name and its table; `{value}` stands for `indexed_value`.
_INDEXES = MappingProxyType(
    {
        (
            VALUES_INDEX,
            "ducklake_file_partition_value",
        ): "table_id, partition_key_index, {value}, data_file_id",
        ("ducklake_orch_values_of_files", "ducklake_file_partition_value"): "data_file_id",
        ("ducklake_orch_files_by_keys", "ducklake_data_file"): "table_id, partition_id",
        ("ducklake_orch_statistics_of_files", "ducklake_file_column_stats"): "data_file_id, column_id",
        ("ducklake_orch_deletes_of_files", "ducklake_delete_file"): "data_file_id",
    }
)


def indexed_value(dialect: Dialect[Any]) -> str:
    """Return the SQL of the part of a partition value that is indexed."""
    return dialect.by_bytes(f"substr(partition_value, 1, {INDEXED_LENGTH})")


def has_indexes(metadata: Metadata) -> bool:
    """Return whether the catalog has the indexes, and planning can use them."""
    return metadata.dialect.plans_by_indexes and metadata.dialect.exists(metadata.con, VALUES_INDEX)


def create_indexes(config: LakeConfig) -> None:
    """Create the indexes; those that exist stay.

    Raises:
        UnsupportedStatementError: When planning cannot use indexes of this kind of catalog.
    """
    _refuse_unused(config)

    def create(transaction: MetadataTransaction) -> None:
        for (name, table), columns in _INDEXES.items():
            indexed = columns.format(value=indexed_value(transaction.dialect))
            transaction.change(table, f"CREATE INDEX IF NOT EXISTS {name} ON {{}} ({indexed})")
        if transaction.dialect.analysis:
            # Without it, the planner may read whole tables until the server has analysed them by itself.
            for table in sorted({table for _, table in _INDEXES}):
                transaction.change(table, transaction.dialect.analysis)

    _change(config, "creating indexes", create)


def drop_indexes(config: LakeConfig) -> None:
    """Drop the indexes that exist."""
    _refuse_unused(config)

    def drop(transaction: MetadataTransaction) -> None:
        for name, _ in _INDEXES:
            transaction.change(name, "DROP INDEX IF EXISTS {}")

    _change(config, "dropping indexes", drop)


def _refuse_unused(config: LakeConfig) -> None:
    refuse_read_only(config, "changing the indexes of the catalog")
    if not dialect_of(config).plans_by_indexes:
        raise UnsupportedStatementError(
            f"Planning uses no indexes of the catalog of lake `{config.name}` ({config.catalog.type}).",
            remedy="Catalogs in PostgreSQL and SQLite can have them.",
        )


def _change(config: LakeConfig, purpose: str, work: Callable[[MetadataTransaction], None]) -> None:
    write = Write(purpose, marked=False, repeatable=True)
    with open_session(config, entering=False) as session:
        commit_metadata(session, write, work)
