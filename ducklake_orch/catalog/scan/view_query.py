"""Translate views that select columns and rows of one table, for readers that cannot run DuckDB's SQL."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import Metadata, TableDef
from ducklake_orch.catalog.scan.predicate import Node, parse_predicate
from ducklake_orch.catalog.scan.printed_tree import printed
from ducklake_orch.catalog.scan.scan_plan import choose
from ducklake_orch.engine.quoting import TableName, folded, literal
from ducklake_orch.errors import ObjectNotFoundError, StatementError, UnsupportedStatementError

# What a SELECT must not have to be a selection of columns and rows.
_CLAUSES = ("modifiers", "group_expressions", "group_sets", "having", "qualify", "sample")
_OF_STAR = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "expr", "columns")
_OF_TABLE = ("sample", "at_clause", "column_name_alias")


@dataclass(frozen=True)
class ViewQuery:
    """A view of some columns and rows of one table.

    Attributes:
        name: The view.
        table: The table.
        columns: The names of the table's columns, by their names in the view.
        where: The condition on the table's rows, if there is one.
    """

    name: TableName
    table: TableDef
    columns: Mapping[str, str]
    where: str | None

    def selection(
        self, con: duckdb.DuckDBPyConnection, names: Sequence[str] | None, where: str | None
    ) -> tuple[dict[str, str], str | None]:
        """Return which columns of the table a selection from the view reads, by their names in the view, and its rows.

        Args:
            con: Any DuckDB connection.
            names: The columns of the view to return; None for all.
            where: A condition on the view's columns.
        """
        of_table = {column.name: column for column in self.table.columns}
        columns = [replace(of_table[source], name=name) for name, source in self.columns.items()]
        view = replace(self.table, schema=self.name.schema, name=self.name.table, columns=tuple(columns))
        chosen = {column.name: self.columns[column.name] for column in choose(view, names)}
        conditions = [] if self.where is None else [self.where]
        if where is not None:
            tree = parse_predicate(con, where, columns).tree
            sources = {folded(name): source for name, source in self.columns.items()}
            own = _rewritten(con, tree, lambda parts: [sources.get(folded(parts[0]), parts[0]), *parts[1:]])
            if own is None:
                raise untranslatable(self.name)
            conditions.append(own)
        return chosen, " AND ".join(conditions) or None


def find_view(metadata: Metadata, name: TableName, at: int) -> ViewQuery | None:
    """Return the view with a name at a snapshot, or None if no view has the name.

    Raises:
        UnsupportedStatementError: When the view does more than select columns and rows of one table.
    """
    view = next((view for view in metadata.views(at) if name.names(*view.name)), None)
    if view is None:
        return None
    found = _translated(metadata, name, at, view.sql, view.aliases)
    if found is None:
        raise untranslatable(name)
    return found


def untranslatable(name: TableName) -> UnsupportedStatementError:
    """Return the error for a view that only DuckDB can read."""
    return UnsupportedStatementError(
        f"`{name}` is a view that does more than select columns and rows of one table. Only DuckDB can run its query.",
        remedy=f'Read it without Spark, and convert the result: `spark.createDataFrame(lake.read("{name}"))`. A query'
        " of `lake.sql` takes that as a frame.",
    )


def _translated(metadata: Metadata, name: TableName, at: int, sql: str, aliases: str) -> ViewQuery | None:
    node = _select(metadata.con, sql)
    if node is None or any(node[clause] for clause in _CLAUSES) or node["cte_map"]["map"]:
        return None
    if node["aggregate_handling"] != "STANDARD_HANDLING" or node["from_table"]["type"] != "BASE_TABLE":
        return None
    source = node["from_table"]
    table = _table(metadata, name, at, source)
    if table is None or any(source[part] for part in _OF_TABLE):
        return None
    qualifier = folded(source["alias"] or source["table_name"])
    pairs = list(_columns(node["select_list"], table, qualifier))
    given = _select(metadata.con, f"SELECT {aliases}") if aliases else {"select_list": []}
    if given is None:
        return None
    names = [part["column_names"][0] for part in given["select_list"]]
    names += [own for own, _ in pairs[len(names) :]]
    if not all(found for _, found in pairs) or len(set(map(folded, names))) < len(pairs):
        return None
    columns = {name: found for name, (_, found) in zip(names, pairs, strict=True)}
    where = None
    if node["where_clause"] is not None:
        where = _rewritten(
            metadata.con,
            node["where_clause"],
            lambda parts: parts[1:] if len(parts) > 1 and folded(parts[0]) == qualifier else parts,
        )
        if where is None or not _is_condition(metadata.con, where, table):
            return None
    return ViewQuery(name, table, columns, where)


def _select(con: duckdb.DuckDBPyConnection, sql: str) -> Node | None:
    """Return DuckDB's parse tree of a SELECT; None for any other statement."""
    row = con.execute(f"SELECT json_serialize_sql({literal(sql)})").fetchone()
    parsed: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    if parsed["error"] or len(parsed["statements"]) != 1:
        return None
    node: Node = parsed["statements"][0]["node"]
    return node if node["type"] == "SELECT_NODE" else None


def _table(metadata: Metadata, view: TableName, at: int, source: Node) -> TableDef | None:
    """Return the table that a view reads; without a schema, one in the view's schema comes before one in `main`."""
    if source["catalog_name"] and folded(source["catalog_name"]) != folded(metadata.config.alias):
        return None
    schemas = [source["schema_name"]] if source["schema_name"] else [view.schema, "main"]
    names = [TableName(schema, source["table_name"]) for schema in schemas]
    first = next((name for name in names if metadata.is_taken(name, at)), None)
    return None if first is None else metadata.find_table(first, at)


def _columns(select: Sequence[Node], table: TableDef, qualifier: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the view's columns, each with the table's column; an empty text for anything else."""
    known = {folded(column.name): column.name for column in table.columns}
    for part in select:
        if part["class"] == "STAR" and not any(part[option] for option in _OF_STAR):
            yield from ((column.name, column.name) for column in table.columns)
        elif part["class"] == "COLUMN_REF" and _is_own(part["column_names"], qualifier):
            found = known.get(folded(part["column_names"][-1]), "")
            yield part["alias"] or found, found
        else:
            yield "", ""


def _is_own(parts: Sequence[str], qualifier: str) -> bool:
    return len(parts) == 1 or (len(parts) == 2 and folded(parts[0]) == qualifier)


def _is_condition(con: duckdb.DuckDBPyConnection, where: str, table: TableDef) -> bool:
    try:
        parse_predicate(con, where, table.columns)
    except (StatementError, ObjectNotFoundError):
        return False
    return True


def _rewritten(con: duckdb.DuckDBPyConnection, tree: Node, rename: Callable[[list[str]], list[str]]) -> str | None:
    """Return the SQL of an expression with other column names; None if it has lambda functions."""
    tree = copy.deepcopy(tree)
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if node.get("class") == "LAMBDA":
                return None
            if node.get("class") == "COLUMN_REF":
                node["column_names"] = rename(node["column_names"])
            waiting += node.values()
    return printed(con, tree)
