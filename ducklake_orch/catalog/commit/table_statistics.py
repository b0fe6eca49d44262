"""Read a table's column statistics from the catalog, widen them to cover new files, and store them."""

from collections.abc import Mapping

from ducklake_orch.catalog.metadata import MetadataTransaction, Relation, TableDef, text, truth
from ducklake_orch.catalog.parquet import TableColumnStats, widen

_STATS = {
    "column_id": "BIGINT",
    "contains_null": "BOOLEAN",
    "contains_nan": "BOOLEAN",
    "min_value": "VARCHAR",
    "max_value": "VARCHAR",
    "extra_stats": "VARCHAR",
}


def widen_table_statistics(
    transaction: MetadataTransaction, table: TableDef, added: Mapping[int, TableColumnStats]
) -> None:
    """Widen a table's statistics so that they cover new files.

    Args:
        transaction: The commit.
        table: The table.
        added: The statistics of the new files, by column id.
    """
    metadata, table_id, leaves = transaction.metadata, table.table_id, table.leaves()
    columns = "column_id, contains_null, contains_nan, min_value, max_value, extra_stats"
    rows = metadata.rows(
        f"SELECT {columns} FROM {metadata.table_sql('ducklake_table_column_stats')} WHERE table_id = {table_id}"
    )
    current = {int(r[0]): TableColumnStats(truth(r[1]), truth(r[2]), text(r[3]), text(r[4]), text(r[5])) for r in rows}
    wider = widen(
        transaction.con, leaves, current, {key: column_stats for key, column_stats in added.items() if key in leaves}
    )
    statement = f"DELETE FROM {{}} WHERE table_id = {table_id} AND"
    transaction.change_each("ducklake_table_column_stats", statement, "column_id", list(wider))
    write_table_statistics(transaction, table_id, wider)


def write_table_statistics(
    transaction: MetadataTransaction, table_id: int, stats: Mapping[int, TableColumnStats]
) -> None:
    """Insert the known statistics of a table's columns."""
    rows = [
        (
            column_id,
            column_stats.contains_null,
            column_stats.contains_nan,
            column_stats.min_value,
            column_stats.max_value,
            column_stats.extra,
        )
        for column_id, column_stats in stats.items()
        if column_stats.known
    ]
    transaction.insert("ducklake_table_column_stats", Relation.of(_STATS, rows), constants={"table_id": table_id})
