"""Translate between DuckLake's and DuckDB's type names."""

import re
from collections.abc import Sequence

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import DataError

# For these types DuckDB evaluates conditions wrongly from a file's metadata. In a Bloom filter it searches for bytes in
# their printed form, and for 0.0 if the file holds -0.0. Other writers' bounds leave out NaN, which DuckDB sorts above
# all numbers.
_MISJUDGED = re.compile(r"\b(BLOB|FLOAT|DOUBLE)\b")
# Types of columns that have nested columns.
NESTED = ("list", "struct", "map")
# Types that do not keep every value in a Parquet file: DuckDB writes 128-bit integers as DOUBLE, intervals in whole
# milliseconds, and times without their zone; a variant keeps neither every value nor every type.
INEXACT_IN_PARQUET = ("int128", "uint128", "interval", "timetz", "variant")
_DUCKDB = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "time": "TIME",
    "time_ns": "TIME_NS",
    "timetz": "TIME WITH TIME ZONE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamp_s": "TIMESTAMP_S",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL",
    "varchar": "VARCHAR",
    "blob": "BLOB",
    "uuid": "UUID",
    "json": "JSON",
    "geometry": "GEOMETRY",
    "variant": "VARIANT",
}
# Types of format 1.1 that DuckDB 1.5 does not have, each with the one that its values are read as: to microseconds.
_NEWER = {"null": '"NULL"', "timestamptz_ns": "TIMESTAMP WITH TIME ZONE"}
# DuckDB's key, in FIELD_IDS, for the id of a column that has nested columns.
_FIELD_ID = "__duckdb_field_id"
_DUCKLAKE = {duckdb: ducklake for ducklake, duckdb in _DUCKDB.items() if ducklake != "timestamp_us"}


def duckdb_type(column: ColumnDef) -> str:
    """Return the type of a column as a DuckDB type name."""
    match column.type:
        case "list":
            return f"{duckdb_type(column.children[0])}[]"
        case "struct":
            inner = ", ".join(f"{identifier(child.name)} {duckdb_type(child)}" for child in column.children)
            return f"STRUCT({inner})"
        case "map":
            key, value = column.children
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
    return _DUCKDB.get(column.type) or _NEWER.get(column.type, column.type.upper())


def judged_by_rows(name: str, kind: str) -> str:
    """Return the SQL of a column for which DuckDB evaluates conditions and joins by rows, not by file metadata.

    Args:
        name: The column, as SQL.
        kind: Its DuckDB type; the SQL changes only for the types that DuckDB evaluates wrongly from file metadata.
    """
    return f"TRY({name})" if _MISJUDGED.search(kind) else name


def storable(type_name: str) -> bool:
    """Return whether a type name is a DuckLake type for columns, and Parquet files can hold its values."""
    return type_name in NESTED or (type_name in _DUCKDB and type_name != "time_ns") or type_name.startswith("decimal(")


def inexact_columns(columns: Sequence[ColumnDef]) -> list[ColumnDef]:
    """Return the columns for which a Parquet file does not keep every value."""
    return [column for column in columns if any(leaf.type in INEXACT_IN_PARQUET for leaf in column.leaves())]


def ducklake_type(duckdb: str) -> str:
    """Return DuckLake's name for a DuckDB type that is not nested."""
    return _DUCKLAKE.get(duckdb, duckdb.lower())


def field_ids(columns: Sequence[ColumnDef]) -> str:
    """Return the value of COPY's FIELD_IDS option that gives every column, nested ones included, its id.

    Raises:
        DataError: When a column has the name of DuckDB's key for the ids of nested columns.
    """
    if any(column.name == _FIELD_ID for column in columns):
        raise _no_field_id(_FIELD_ID)
    return "{" + ", ".join(f"{identifier(column.name)}: {_field_id(column)}" for column in columns) + "}"


def _field_id(column: ColumnDef) -> str:
    if not column.children:
        return str(column.column_id)
    for child in column.children:
        if folded(child.name) == _FIELD_ID:
            raise _no_field_id(f"{column.name}.{child.name}")
    return f"{{{_FIELD_ID}: {column.column_id}, {field_ids(column.children)[1:-1]}}}"


def _no_field_id(name: str) -> DataError:
    return DataError(
        f"DuckDB cannot write a column named `{name}` to the files of a lake.", remedy="Rename the column."
    )
