"""Build the definition of the table that data are written for: the current, an evolved or a new table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    Metadata,
    PartitionField,
    PartitionSpec,
    SortKey,
    TableDef,
    duckdb_type,
    ducklake_type,
    folder_name,
    inlines,
    refuse_reserved,
    storable,
)
from ducklake_orch.engine.layout import SortTerm, partition_transforms, sort_terms
from ducklake_orch.engine.quoting import TableName, folded, literal
from ducklake_orch.errors import ConfigError, DataError

# The types to which a column can be promoted. FLOAT cannot become DOUBLE, because the engine compares values of older
# files as FLOAT and then misses rows.
PROMOTIONS = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "uint64"),
    "uint16": ("uint32", "uint64"),
    "uint32": ("uint64",),
}


def columns_of(
    types: Sequence[tuple[str, Any]], ids: Iterator[int], required: Sequence[str] = ()
) -> tuple[ColumnDef, ...]:
    """Return the columns of data, with ids in the engine's order: a column before its nested columns.

    Args:
        types: Name and DuckDB type of each column.
        ids: Yields the next free column ids.
        required: The columns that are NOT NULL.
    """
    return tuple(replace(_column(name, kind, ids), nullable=name not in required) for name, kind in types)


def _column(name: str, kind: Any, ids: Iterator[int], outer: str = "") -> ColumnDef:
    path = f"{outer}.{name}" if outer else name
    column_id = next(ids)
    if kind.id in ("list", "array"):
        inside = [("element", kind.children[0][1])]
        type_name = "list"
    elif kind.id == "struct":
        inside, type_name = list(kind.children), "struct"
    elif kind.id == "map":
        inside, type_name = [("key", kind.children[0][1]), ("value", kind.children[1][1])], "map"
    elif kind.id == "enum":
        inside, type_name = [], "varchar"
    else:
        inside, type_name = [], ducklake_type(str(kind))
    if not storable(type_name):
        raise DataError(
            f"`{path}` is {kind} in the data, a type that a lake cannot store.", remedy="Cast it or drop it."
        )
    children = tuple(_column(child, inner, ids, path) for child, inner in inside)
    return ColumnDef(
        column_id, name, type_name, nullable=True, children=children, default_type="" if children else "literal"
    )


def new_table(
    metadata: Metadata,
    name: TableName,
    columns: Sequence[ColumnDef],
    at: int,
    *,
    partition_by: Sequence[str] | None,
    sort_by: Sequence[str] | None,
) -> TableDef:
    """Return the definition of a table to create; the commit assigns its catalog ids."""
    if not columns:
        raise ConfigError(f"The data for the new table `{name}` have no columns.")
    schema = metadata.find_schema(name.schema, at)
    schema_folder = schema[1] if schema else f"{metadata.data_path()}{folder_name(name.schema)}"
    table = TableDef(
        table_id=-1,
        uuid=str(uuid4()),
        schema_id=schema[0] if schema else -1,
        schema=name.schema,
        name=name.table,
        folder=f"{schema_folder}{folder_name(name.schema, name.table)}",
        data_path=metadata.data_path(),
        columns=tuple(columns),
        partition=partition_spec(columns, partition_by or ()),
        sort=sort_keys(metadata.con, columns, sort_by or ()),
        options=metadata.options(schema[0] if schema else None),
        encrypted=metadata.encrypted(),
        lake_mark=metadata.lake_mark(),
    )
    refuse_reserved(columns, inlines=inlines(metadata.config, table))
    return table


def partition_spec(columns: Sequence[ColumnDef], keys: Sequence[str]) -> PartitionSpec | None:
    """Return the partition spec of some keys, whose id the commit assigns; None if there are no keys."""
    ids = {column.name: column.column_id for column in columns}
    transforms = partition_transforms(keys, {column.name: duckdb_type(column) for column in columns})
    fields = tuple(PartitionField(ids[key.column], key.transform) for key in transforms)
    return PartitionSpec(-1, fields) if fields else None


def sort_keys(con: duckdb.DuckDBPyConnection, columns: Sequence[ColumnDef], keys: Sequence[str]) -> tuple[SortKey, ...]:
    """Return sort keys as the catalog stores them."""
    return tuple(
        SortKey(_written(con, term.expression), term.direction or "ASC", (term.nulls or "NULLS LAST").replace(" ", "_"))
        for term in sort_terms(keys, [column.name for column in columns])
    )


def _written(con: duckdb.DuckDBPyConnection, expression: str) -> str:
    """Return an expression as the engine prints it: with quotes only where names need them, as other engines expect."""
    row = con.execute(f"SELECT json_deserialize_sql(json_serialize_sql({literal(f'SELECT {expression}')}))").fetchone()
    assert row is not None  # noqa: S101 - a query without FROM has a row
    return str(row[0]).removeprefix("SELECT ")


def check_layout(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    partition_by: Sequence[str] | None,
    sort_by: Sequence[str] | None,
) -> None:
    """Refuse a requested layout that is not the table's, because a write does not change the layout."""
    types = {column.name: duckdb_type(column) for column in table.columns}
    if partition_by is not None:
        wanted = [(key.transform, key.column) for key in partition_transforms(partition_by, types)]
        fields = table.key_fields
        actual = [(field.transform, table.column(field.column_id).name) for field in fields]
        if wanted != actual:
            shown = ", ".join(f"{transform}({column})" for transform, column in actual) or "nothing"
            raise ConfigError(
                f"Table `{table}` is partitioned by {shown}, not by {', '.join(partition_by)}.",
                remedy="Leave out `partition_by`, or change it first: `alter_table(…, partition_by=[…])`.",
            )
    if sort_by is not None:
        terms = sort_terms(sort_by, list(types))
        if len(terms) != len(table.sort) or not all(map(partial(_is_key, con), terms, table.sort)):
            raise ConfigError(
                f"Table `{table}` is not sorted by {', '.join(sort_by)}.",
                remedy="Leave out `sort_by`, or change it first: `alter_table(…, sort_by=[…])`.",
            )


def _is_key(con: duckdb.DuckDBPyConnection, term: SortTerm, key: SortKey) -> bool:
    """Return whether a requested sort term is the table's key; the order of NULLs counts only if the term gives it."""
    is_same = (_written(con, term.expression), term.direction or "ASC") == (
        _written(con, key.expression),
        key.direction,
    )
    return is_same and term.nulls.replace(" ", "_") in ("", key.nulls)


def evolved(metadata: Metadata, table: TableDef, given: Sequence[tuple[str, Any]], *, promote: bool) -> TableDef:
    """Return the table as the data need it: with their new columns and, if allowed, promoted types.

    Args:
        metadata: The metadata tables, which tell the next free column id; ids are never reused.
        table: The current table.
        given: Name and DuckDB type of each column of the data.
        promote: Whether column types may be promoted.
    """
    ids = count(metadata.first_free_column(table.table_id))
    by_name = {folded(name): (name, kind) for name, kind in given}
    columns = [_evolve(column, by_name.pop(folded(column.name), None), ids, promote) for column in table.columns]
    added = [_column(name, kind, ids) for name, kind in by_name.values()]
    refuse_reserved(added, inlines=inlines(metadata.config, table))
    return replace(table, columns=(*columns, *added))


def commented(table: TableDef, current: TableDef | None, comments: Mapping[str, str]) -> TableDef:
    """Return the table with comments on its new columns; existing columns keep their comments.

    Args:
        table: The table to write for.
        current: The current table, if it exists.
        comments: Comments by column name.
    """
    existing = {column.column_id for column in current.columns} if current else set()
    texts = {folded(name): text for name, text in comments.items()}
    columns = (
        column if column.column_id in existing else replace(column, comment=texts.get(folded(column.name)))
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def _evolve(column: ColumnDef, given: tuple[str, Any] | None, ids: Iterator[int], promote: bool) -> ColumnDef:
    if given is None:
        return column
    kind = given[1]
    if column.type == "struct" and kind.id == "struct":
        inside = {folded(name): (name, inner) for name, inner in kind.children}
        children = [_evolve(child, inside.pop(folded(child.name), None), ids, promote) for child in column.children]
        children += [_column(name, inner, ids) for name, inner in inside.values()]
        return replace(column, children=tuple(children))
    type_name = ducklake_type(str(kind))
    return replace(column, type=type_name) if promote and type_name in PROMOTIONS.get(column.type, ()) else column
