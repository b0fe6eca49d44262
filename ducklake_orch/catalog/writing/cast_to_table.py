"""Fit data to a table: match columns by name, make lossless casts, and refuse all other columns in one error."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, TableDef, duckdb_type
from ducklake_orch.catalog.parquet import typed_default
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.errors import DataError


@dataclass(frozen=True)
class SourceColumn:
    """A column of the data: its name and its DuckDB type."""

    name: str
    type: str


def source_columns(con: duckdb.DuckDBPyConnection, source: str) -> list[SourceColumn]:
    """Return the columns of a FROM item."""
    return [
        SourceColumn(str(row[0]), str(row[1])) for row in con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    ]


def projection(
    con: duckdb.DuckDBPyConnection, table: TableDef, columns: Sequence[SourceColumn], *, known: bool = False
) -> str:
    """Return the SELECT list that turns the data into rows of the table.

    Args:
        con: Any DuckDB connection.
        table: The table.
        columns: The columns of the data.
        known: Whether the rows are already in the lake. Then their times with a zone are not refused: as the engine
            does, the file keeps the time in UTC.

    Raises:
        DataError: When columns do not fit; names all of them.
    """
    by_name = {folded(column.name): column for column in columns}
    table_names = {folded(column.name) for column in table.columns}
    names = [column.name for column in table.columns]
    problems = [
        f"`{column.name}` is not a column of the table. {nearest(column.name, names)}".strip()
        for column in columns
        if folded(column.name) not in table_names
    ]
    parts = []
    for column in table.columns:
        given = by_name.get(folded(column.name))
        if given is not None and not fits(con, given.type, column):
            problems.append(f"`{column.name}` is {given.type} in the data and {duckdb_type(column)} in the table")
        if column.children and any(leaf.type == "variant" for leaf in column.leaves()):
            problems.append(f"DuckDB writes no file with a VARIANT inside another value, as `{column.name}` has one")
        parts.append(f"{_value(column, given, known)} AS {identifier(column.name)}")
    if problems:
        raise DataError(
            f"The data do not fit table `{table}`: {'; '.join(problems)}.",
            remedy="Rename or cast them; `schema_evolution` adds columns (`add`) and widens integers (`promote`).",
        )
    return ", ".join(parts)


def _value(column: ColumnDef, given: SourceColumn | None, known: bool) -> str:
    kind = duckdb_type(column)
    if given is None:
        value = typed_default(column)
    else:
        value = identifier(given.name) if given.type == kind else f"CAST({identifier(given.name)} AS {kind})"
    if given is not None and not (known and _has_zone(column)) and (bad := _unstorable(value, column)) is not None:
        refusal = literal(f"{_FILE_MARK}{column.name}")
        value = f"CASE WHEN {bad} THEN error({refusal}) ELSE {value} END"
    if column.nullable:
        return value
    refusal = literal(f"{_NULL_MARK}{column.name}")
    return f"CASE WHEN {value} IS NULL THEN error({refusal}) ELSE {value} END"


_NULL_MARK = "ducklake-orch: NULL in column "
_FILE_MARK = "ducklake-orch: no Parquet file holds a value of column "


_WHY = {
    "interval": (
        "an interval that is negative, has more than 49 days in hours, or is finer than a millisecond",
        "Store its microseconds as BIGINT.",
    ),
    "int128": (
        "an integer that DOUBLE does not represent exactly",
        "Make the column DECIMAL(38, 0) or VARCHAR, which keep every digit.",
    ),
    "timetz": (
        "a time with an offset other than UTC",
        "Convert it to UTC, or store the time and the offset in two columns.",
    ),
}
_WHY["uint128"] = _WHY["int128"]


def _unstorable(value: str, column: ColumnDef, depth: int = 0) -> str | None:
    """Return the condition that a Parquet file would change a value; None if it never does."""
    match column.type:
        case "interval":  # Parquet stores up to 49 days of milliseconds, and nothing negative
            parts = {
                part: f"extract('{part}' FROM {value})" for part in ("year", "month", "day", "hour", "microseconds")
            }
            wrong = [f"{sql} < 0" for sql in parts.values()]
            return " OR ".join([*wrong, f"{parts['hour']} >= 1193", f"{parts['microseconds']} % 1000 <> 0"])
        case "int128" | "uint128":  # DuckDB stores the nearest DOUBLE
            again = f"TRY_CAST(CAST({value} AS DOUBLE) AS {duckdb_type(column)})"
            return f"{again} IS DISTINCT FROM {value}"
        case "timetz":  # DuckDB stores the time in UTC
            return f"extract('timezone' FROM {value}) <> 0"
        case "list":
            return _any_inside(value, column.children[0], depth)
        case "map":
            sides = zip(("map_keys", "map_values"), column.children, strict=True)
            inside = [_any_inside(f"{side}({value})", child, depth) for side, child in sides]
        case _:
            inside = [
                _unstorable(f"struct_extract({value}, {literal(child.name)})", child, depth)
                for child in column.children
            ]
    return " OR ".join(f"({condition})" for condition in inside if condition is not None) or None


def _has_zone(column: ColumnDef) -> bool:
    return any(leaf.type == "timetz" for leaf in column.leaves())


def _any_inside(values: str, element: ColumnDef, depth: int) -> str | None:
    name = f"__ducklake_orch_{depth}"
    bad = _unstorable(name, element, depth + 1)
    return None if bad is None else f"len(list_filter({values}, lambda {name}: {bad})) > 0"


def explain(error: duckdb.Error, table: TableDef) -> DataError | None:
    """Return the DataError for a failed COPY, or None if the data did not cause the failure."""
    # Use only the first line: the statement follows, and it always contains the marks.
    message = str(error).strip().splitlines()[0]
    if _NULL_MARK in message:
        name = message.partition(_NULL_MARK)[2]
        return DataError(f"Column `{name}` of table `{table}` does not allow NULL, and the data contain one.")
    if _FILE_MARK in message:
        name = message.partition(_FILE_MARK)[2]
        types = " ".join(leaf.type for column in table.columns if column.name == name for leaf in column.leaves())
        reason, remedy = next(why for kind, why in _WHY.items() if kind in types)
        return DataError(f"Column `{name}` of table `{table}`: a Parquet file cannot store {reason}.", remedy=remedy)
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException):
        return DataError(f"A value does not fit table `{table}`: {message}")
    return None


def fits(con: duckdb.DuckDBPyConnection, given: str, column: ColumnDef) -> bool:
    """Return whether data of a type can be cast to a column's type without loss."""
    kind = duckdb_type(column)
    if given == kind:
        return True
    if "TIME ZONE" in kind and "TIME ZONE" not in given:
        return False  # a time without a zone does not determine an instant
    if column.type == "variant":
        return True  # a variant stores any value unchanged
    if given == "VARIANT":
        return False  # only its values tell whether they fit
    if column.type in ("json", "uuid") and given == "VARCHAR":
        return True  # the cast parses the text, and fails for invalid text
    if _rounds(given, column):
        return False
    row = con.execute(f"SELECT can_cast_implicitly(CAST(NULL AS {given}), CAST(NULL AS {kind}))").fetchone()
    return bool(row and row[0])


# The types whose values a floating-point type stores exactly.
_SMALL = {"TINYINT", "SMALLINT", "UTINYINT", "USMALLINT"}
_EXACT = {"float32": _SMALL, "float64": _SMALL | {"INTEGER", "UINTEGER", "FLOAT"}}


def _rounds(given: str, column: ColumnDef) -> bool:
    """Return whether an implicit cast by the engine would silently round values; overflows are errors anyway."""
    if column.type in _EXACT:
        return given not in _EXACT[column.type]
    if given == "TIMESTAMP_NS":
        return column.type.startswith("timestamp")
    if given.startswith("DECIMAL(") and column.type.startswith("decimal("):
        return _scale(given) > _scale(column.type)
    return False


def _scale(decimal: str) -> int:
    return int(decimal.rpartition(",")[2].rstrip(")"))
