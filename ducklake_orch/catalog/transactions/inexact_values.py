"""Refuse values that a Parquet file cannot hold exactly, in files that the extension wrote: `refuse_inexact`.

The verbs refuse such values when they write them. The extension changes them silently, so its files are searched for
values that can be changed ones.
"""

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, TableDef, inexact_columns
from ducklake_orch.catalog.parquet import parquet_sql
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DataError

# The largest number up to which a DOUBLE holds every whole number exactly; it stands for HUGEINT in a file.
_LARGEST = 2**53
_REMEDY = (
    "Write the rows with `lake.write`, or give the column a type that a file holds exactly, such as DECIMAL(38,0)."
)


def refuse_inexact(con: duckdb.DuckDBPyConnection, table: TableDef, files: list[DataFile]) -> None:
    """Refuse files of the extension in which values may have been changed.

    Args:
        con: A connection that can reach the storage.
        table: The table.
        files: Its files that the extension wrote.

    Raises:
        DataError: Names the column.
    """
    for column in (column for column in inexact_columns(table.columns) if files and column.type != "variant"):
        field = f"{column.column_id}: {{name: 'value', type: '{_kind(column)}', default_value: NULL}}"
        for file in files:
            source = f"{parquet_sql(file.path, file.encryption_key).removesuffix(')')}, schema = MAP {{{field}}})"
            if con.execute(f"SELECT 1 FROM {source} WHERE {_may_be_changed(column)} LIMIT 1").fetchall():
                raise DataError(
                    f"{identifier(column.name)} of `{table}` has a value that a file may not hold exactly.",
                    remedy=_REMEDY,
                )


def _kind(column: ColumnDef) -> str:
    return "DOUBLE" if column.type in ("int128", "uint128") else "VARCHAR"


def _may_be_changed(column: ColumnDef) -> str:
    return f"abs(value) > {_LARGEST}" if _kind(column) == "DOUBLE" else "value IS NOT NULL"
