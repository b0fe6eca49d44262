"""Finds which columns of a SELECT's result are copies of a table's column."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_orch.engine.quoting import folded

# A table as the SELECT names it: its schema, which may be None, and its name.
TableRef = tuple[str | None, str]
Copied = tuple[TableRef, str]


@dataclass(frozen=True)
class _Table:
    """A table in the FROM clause.

    Attributes:
        ref: The table.
        columns: Its columns, in order.
        qualifiers: The names, folded, that can stand before a column.
    """

    ref: TableRef
    columns: Sequence[str]
    qualifiers: Sequence[tuple[str, ...]]

    def column(self, name: str) -> Copied | None:
        """Return a column; None if the table does not have it."""
        found = [column for column in self.columns if folded(column) == folded(name)]
        return (self.ref, found[0]) if found else None


def copied_columns(
    select: Mapping[str, Any], result: Sequence[str], columns_of: Callable[[TableRef], Sequence[str]]
) -> dict[str, Copied]:
    """Return the columns of a result that are copies of a table's column, with that column.

    Only what the text of the SELECT proves is returned: plain references to columns and stars, in a SELECT from tables
    and joins of tables. Expressions, subqueries, common table expressions and set operations have no entries.

    Args:
        select: The SELECT, as DuckDB's `json_serialize_sql` prints it.
        result: The names of the result's columns.
        columns_of: Returns the columns of a table.
    """
    if select["type"] != "SELECT_NODE" or select["cte_map"]["map"]:
        return {}
    tables = list(_tables(select["from_table"], columns_of))
    if None in tables:
        return {}
    known = [table for table in tables if table is not None]
    found = [copied for item in select["select_list"] for copied in _copied(item, known)]
    if len(found) != len(result):
        return {}  # an item stands for an unknown number of columns
    return {name: copied for name, copied in zip(result, found, strict=True) if copied is not None}


def _tables(node: Mapping[str, Any], columns_of: Callable[[TableRef], Sequence[str]]) -> Iterator[_Table | None]:
    """Return the tables of a FROM clause, and None for anything else that has columns."""
    if node["type"] == "JOIN":
        yield from _tables(node["left"], columns_of)
        yield from _tables(node["right"], columns_of)
    elif node["type"] != "BASE_TABLE" or node["column_name_alias"] or node["catalog_name"] or node["at_clause"]:
        yield None
    else:
        ref = node["schema_name"] or None, node["table_name"]
        named = [(node["alias"],)] if node["alias"] else [ref[1:], *([ref] if ref[0] else [])]
        yield _Table(ref, columns_of(ref), [tuple(map(folded, names)) for names in named])


def _copied(item: Mapping[str, Any], tables: Sequence[_Table]) -> Iterator[Copied | None]:
    """Return, for each column that an item of the select list stands for, what it copies; None if it is computed."""
    if item["type"] == "COLUMN_REF":
        *qualifier, name = item["column_names"]
        found = [copied for table in _named(tables, qualifier) if (copied := table.column(name)) is not None]
        yield found[0] if len(found) == 1 else None
    elif item["type"] != "STAR":
        yield None
    else:
        chosen = _named(tables, [item["relation_name"]] if item["relation_name"] else [])
        unknown = item["columns"] or item["expr"] or item["rename_list"] or item["qualified_exclude_list"]
        if unknown or len(chosen) != 1:
            return  # for a star of a join, USING decides which columns there are
        excluded = set(map(folded, item["exclude_list"]))
        computed = {folded(entry["key"]) for entry in item["replace_list"]}
        for column in chosen[0].columns:
            if folded(column) not in excluded:
                yield None if folded(column) in computed else (chosen[0].ref, column)


def _named(tables: Sequence[_Table], qualifier: Sequence[str]) -> list[_Table]:
    """Return the tables that a qualifier names; all tables if it is empty."""
    wanted = tuple(map(folded, qualifier))
    return [table for table in tables if not wanted or wanted in table.qualifiers]
