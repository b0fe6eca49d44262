"""Parse the columns of a Parquet file as DuckDB's reader presents them: lists and maps without their inner groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

# The columns of `parquet_schema` that this module uses.
SCHEMA = (
    "name",
    "type",
    "repetition_type",
    "num_children",
    "converted_type",
    "logical_type",
    "field_id",
    "duckdb_type",
)
_GROUPS = {"LIST", "MAP"}


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file, with its nested columns.

    Attributes:
        name: Its name in the file. The element of a list has the name of the surrounding group: `list`, `bag`, `array`.
        type: The DuckDB type of a column that holds values, else `LIST`, `MAP` or `STRUCT`.
        field_id: Its field id, if it has one.
        leaf: Its number among the columns that hold values.
        physical: Parquet's physical type: `INT32`, `INT96`.
        children: The nested columns.
    """

    name: str
    type: str
    field_id: int | None
    leaf: int | None = None
    physical: str | None = None
    children: tuple["FileColumn", ...] = ()

    def __str__(self) -> str:
        match self.type:
            case "LIST":
                return f"{self.children[0]}[]"
            case "MAP":
                return f"MAP({self.children[0]}, {self.children[1]})"
            case "STRUCT":
                return f"STRUCT({', '.join(f'{child.name} {child}' for child in self.children)})"
        return f"{self.type} (stored as INT96)" if self.physical == "INT96" else self.type


def file_columns(schema: Sequence[Mapping[str, Any]]) -> tuple[FileColumn, ...]:
    """Return the columns of a file.

    Args:
        schema: The rows of `parquet_schema` for the file, in order: parents before their children.
    """
    rows, leaves = iter(schema), count()
    root = next(rows)
    return tuple(_column(rows, leaves, root) for _ in range(root["num_children"] or 0))


def _column(rows: Iterator[Mapping[str, Any]], leaves: Iterator[int], parent: Mapping[str, Any]) -> FileColumn:
    """Consume the rows of one column and its nested columns, and build the column as DuckDB's reader does."""
    row = next(rows)
    name, field_id, repeated = row["name"], row["field_id"], row["repetition_type"] == "REPEATED"
    if not row["num_children"]:
        geometry = (row["logical_type"] or "").startswith("GeometryType")
        kind = "GEOMETRY" if geometry else row["duckdb_type"].strip('"')
        column = FileColumn(name, kind, field_id, next(leaves), row["type"])
        return FileColumn(name, "LIST", field_id, children=(column,)) if repeated else column
    children = tuple(_column(rows, leaves, row) for _ in range(row["num_children"]))
    in_map = parent["converted_type"] == "MAP" and parent["num_children"] == 1
    if (row["converted_type"] == "MAP_KEY_VALUE" or in_map) and len(children) == 2:
        return FileColumn(name, "MAP", field_id, children=children)
    if len(children) > 1 or not (repeated or row["converted_type"] in _GROUPS):
        column = FileColumn(name, "STRUCT", field_id, children=children)
    else:
        # A group around a single column is not a level of its own.
        inner = children[0]
        column = replace(inner, name=name, field_id=field_id if inner.field_id is None else inner.field_id)
    return FileColumn(name, "LIST", field_id, children=(column,)) if repeated else column
