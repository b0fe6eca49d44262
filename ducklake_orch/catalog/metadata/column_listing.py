"""Read the columns and partition keys of all tables at a snapshot, with a constant number of queries."""

from collections import defaultdict

from ducklake_orch.catalog.metadata.cell_values import text
from ducklake_orch.catalog.metadata.snapshot_reader import Metadata, live
from ducklake_orch.catalog.metadata.table_model import ColumnDef, ColumnVersion, PartitionField
from ducklake_orch.catalog.metadata.table_reader import build_columns, column_version

_COLUMN = (
    "column_id, column_name, column_type, nulls_allowed, initial_default, default_value, default_value_type,"
    " parent_column, begin_snapshot, end_snapshot"
)


def lake_columns(metadata: Metadata, at: int) -> dict[int, tuple[ColumnDef, ...]]:
    """Return the top-level columns of every table, in order, by table id."""
    tags = metadata.rows(
        f"SELECT table_id, column_id, value FROM {metadata.table_sql('ducklake_column_tag')}"
        f" WHERE key = 'comment' AND {live(at)}"
    )
    comments: dict[int, dict[int, str | None]] = defaultdict(dict)
    for table_id, column_id, value in tags:
        comments[int(table_id)][int(column_id)] = text(value)
    rows = metadata.rows(
        f"SELECT table_id, {_COLUMN} FROM {metadata.table_sql('ducklake_column')} WHERE {live(at)}"
        " ORDER BY table_id, column_order, column_id"
    )
    versions: dict[int, list[ColumnVersion]] = defaultdict(list)
    for table_id, *row in rows:
        versions[int(table_id)].append(column_version(row, comments.get(int(table_id), {})))
    return {table_id: build_columns(found, at) for table_id, found in versions.items()}


def lake_partition_keys(metadata: Metadata, at: int) -> dict[int, tuple[PartitionField, ...]]:
    """Return the partition keys of every partitioned table, in order, by table id."""
    rows = metadata.rows(
        f"SELECT p.table_id, k.column_id, k.transform FROM {metadata.table_sql('ducklake_partition_info')} p"
        f" JOIN {metadata.table_sql('ducklake_partition_column')} k USING (partition_id)"
        f" WHERE {live(at, 'p')} ORDER BY k.partition_key_index"
    )
    keys: dict[int, list[PartitionField]] = defaultdict(list)
    for table_id, column_id, transform in rows:
        keys[int(table_id)].append(PartitionField(int(column_id), text(transform) or ""))
    return {table_id: tuple(fields) for table_id, fields in keys.items()}
