"""DuckLake's type names, and what DuckDB calls them."""

import re
from collections.abc import Sequence

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import DataError

# DuckDB answers conditions on these wrongly from what a file says of its values. In Bloom filters, it looks for bytes
# in their printed form, and for 0.0 where the file holds -0.0. Bounds of other writers leave out NaN, the highest of
# all numbers.
_MISJUDGED = re.compile(r"\b(BLOB|FLOAT|DOUBLE)\b")
# Types of columns that have columns inside them.
NESTED = ("list", "struct", "map")
# Types of which a Parquet file does not keep every value: DuckDB writes 128-bit integers as DOUBLE, intervals in whole
# milliseconds, times without their zone, and of a variant neither every value nor every type.
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
# DuckDB's key for the id of a nested column.
_FIELD_ID = "__duckdb_field_id"
_DUCKLAKE = {duckdb: ducklake for ducklake, duckdb in _DUCKDB.items() if ducklake != "timestamp_us"}


def duckdb_type(column: ColumnDef) -> str:
    """Return the type of a column as DuckDB writes it."""
    match column.type:
        case "list":
            return f"{duckdb_type(column.children[0])}[]"
        case "struct":
            inner = ", ".join(f"{identifier(child.name)} {duckdb_type(child)}" for child in column.children)
            return f"STRUCT({inner})"
        case "map":
            key, value = column.children
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
    return _DUCKDB.get(column.type, column.type.upper())


def judged_by_rows(name: str, kind: str) -> str:
    """Return the SQL of a column that keeps DuckDB from judging conditions on it, and joins by it, by what files say.

    Args:
        name: The column, as SQL.
        kind: Its type in DuckDB's words; other types than those that DuckDB misjudges are left as they are.
    """
    return f"TRY({name})" if _MISJUDGED.search(kind) else name


def storable(word: str) -> bool:
    """Whether a column can have a type of DuckLake's, and Parquet files can hold it."""
    return word in NESTED or (word in _DUCKDB and word != "time_ns") or word.startswith("decimal(")


def inexact_columns(columns: Sequence[ColumnDef]) -> list[ColumnDef]:
    """Return the columns of which a Parquet file would not keep every value."""
    return [one for one in columns if any(leaf.type in INEXACT_IN_PARQUET for leaf in one.leaves())]


def ducklake_type(duckdb: str) -> str:
    """Return DuckLake's word for a type of DuckDB that is not nested."""
    return _DUCKLAKE.get(duckdb, duckdb.lower())


def field_ids(columns: Sequence[ColumnDef]) -> str:
    """Return the value of COPY's FIELD_IDS that gives every column and everything inside it its id.

    Raises:
        DataError: When something has the name by which DuckDB gives nested columns their ids.
    """
    if any(one.name == _FIELD_ID for one in columns):
        raise _no_field_id(_FIELD_ID)
    return "{" + ", ".join(f"{identifier(one.name)}: {_field_id(one)}" for one in columns) + "}"


def _field_id(column: ColumnDef) -> str:
    if not column.children:
        return str(column.column_id)
    for child in column.children:
        if folded(child.name) == _FIELD_ID:
            raise _no_field_id(f"{column.name}.{child.name}")
    return f"{{{_FIELD_ID}: {column.column_id}, {field_ids(column.children)[1:-1]}}}"


def _no_field_id(name: str) -> DataError:
    return DataError(
        f"DuckDB cannot write a column called `{name}` into the files of a lake.", remedy="Rename the column."
    )
