"""Read a table's column statistics from the catalog, widen them to cover new files, and store them."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class TableStatistics:
    """What the catalog knows of all rows that a table has had.

    Attributes:
        next_row_id: The id of the table's next new row.
        columns: The statistics of columns, by column id.
    """

    next_row_id: int
    columns: Mapping[int, TableColumnStats]


def read_table_statistics(transaction: MetadataTransaction, table_id: int) -> TableStatistics | None:
    """Return a table's statistics, or None if it has had no rows."""
    dialect = transaction.dialect
    names = ("column_id", "contains_null", "contains_nan", "min_value", "max_value", "extra_stats")
    rows = transaction.ask(
        f"select {dialect.texts(['s.next_row_id', *(f'c.{name}' for name in names)])}"
        f" from {dialect.table('ducklake_table_stats')} s"
        f" left join {dialect.table('ducklake_table_column_stats')} c on c.table_id = s.table_id"
        f" where s.table_id = {table_id}"
    )
    if not rows:
        return None
    columns = {
        int(text(r[1]) or 0): TableColumnStats(truth(r[2]), truth(r[3]), text(r[4]), text(r[5]), text(r[6]))
        for r in rows
        if r[1] is not None
    }
    return TableStatistics(int(text(rows[0][0]) or 0), columns)


def widen_table_statistics(
    transaction: MetadataTransaction,
    table: TableDef,
    known: TableStatistics,
    added: Mapping[int, TableColumnStats],
) -> None:
    """Widen a table's statistics so that they cover new files.

    Args:
        transaction: The commit.
        table: The table.
        known: The statistics before the commit.
        added: The statistics of the new files, by column id.
    """
    leaves = table.leaves()
    mine = {key: column_stats for key, column_stats in added.items() if key in leaves}
    wider = widen(transaction.session.instance.root, leaves, known.columns, mine)
    statement = f"DELETE FROM {{}} WHERE table_id = {table.table_id} AND"
    transaction.change_each("ducklake_table_column_stats", statement, "column_id", list(wider))
    write_table_statistics(transaction, table.table_id, wider)


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
