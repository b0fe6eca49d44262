"""Parse a condition with DuckDB: its parser yields the tree, and its binder checks that the tree fits the table."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.engine.tokens import refuse_unreadable
from ducklake_orch.errors import ObjectNotFoundError, StatementError

# A node of DuckDB's parse tree, as `json_serialize_sql` gives it.
Node = dict[str, Any]
# Comparison operators, by their names in DuckDB's parse trees.
COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}

# Whether each built-in function can return a different value each time. The result is cached, because the query takes
# longer than a small change of rows.
_BUILT_IN: dict[str, bool] = {}
# Functions that depend on the current time although DuckDB calls them consistent. For macros, DuckDB does not tell, so
# their definitions are searched for the functions in `_IN_MACRO`.
_OF_THE_MOMENT = ("ago", "current_localtime", "current_localtimestamp")
_IN_MACRO = r"\b(now|ago|today|random|uuid\w*|gen_random_uuid|nextval|(get_)?current_(timestamp|date|time))\b"
_REMEDY = "Write one condition in DuckDB's SQL, such as `day >= '2024-01-01' AND region IN ('eu', 'us')`."
# The maximum depth of a tree, because recursive functions walk it.
_DEEPEST = 200
# Nodes that a condition on single rows must not contain, with their names in messages.
_REFUSED = {"SUBQUERY": "a subquery", "STAR": "a star", "PARAMETER": "a placeholder", "DEFAULT": "DEFAULT"}
# SQL functions that are written without parentheses, which DuckDB parses as column names, with what to write instead.
_CALLED = {"current_date": "today()", "current_timestamp": "now()", "localtimestamp": "now()::TIMESTAMP"}


@dataclass(frozen=True)
class Predicate:
    """A condition on the single rows of a table.

    Attributes:
        text: The text as given. It may end in a comment, so a line break must follow it.
        tree: DuckDB's parse tree.
        columns: The columns that the condition mentions.
    """

    text: str
    tree: Node
    columns: tuple[ColumnDef, ...]

    @property
    def sql(self) -> str:
        """The condition in parentheses, ready for use in a query."""
        return f"(\n{self.text}\n)"


@dataclass(frozen=True)
class OrderKey:
    """One key of an order; `nulls` is None if the text leaves the order of NULLs to the engine's settings."""

    tree: Node
    columns: tuple[ColumnDef, ...]
    descending: bool
    nulls: Literal["first", "last"] | None


def parse_predicate(
    con: duckdb.DuckDBPyConnection, text: str, columns: Sequence[ColumnDef], name: str = "where"
) -> Predicate:
    """Parse a condition on the rows of a table.

    Args:
        con: Any DuckDB connection; it accesses no lake.
        text: The condition, in DuckDB SQL.
        columns: The columns of the table.
        name: The name of the caller's argument, for messages.

    Raises:
        ObjectNotFoundError: When the condition names a column that the table does not have; the error suggests similar
            names.
        StatementError: When the text is not one condition on single rows.
    """
    predicate = parse_value(con, text, columns, name, "condition")
    shown, kind = f"`{name}` = `{text.strip()}`", _type_of(con, predicate, name)
    if kind != "BOOLEAN":
        raise StatementError(f"{shown} is not a condition: its type is {kind}.", remedy=_REMEDY)
    return predicate


def parse_value(
    con: duckdb.DuckDBPyConnection, text: str, columns: Sequence[ColumnDef], name: str, kind: str = "expression"
) -> Predicate:
    """Parse an expression on the single rows of a table; its type may be any."""
    shown = f"`{name}` = `{text.strip()}`"
    node = _select(con, text, shown)
    expressions = node.get("select_list", [])
    only = ("modifiers", "group_expressions", "where_clause", "having", "qualify", "sample")
    if (
        len(expressions) != 1
        or expressions[0]["alias"]
        or any(node[part] for part in only)
        or node["from_table"]["type"] != "EMPTY"
    ):
        raise StatementError(f"{shown} is more than one {kind}.", remedy=_REMEDY)
    value = Predicate(text, expressions[0], _mentioned(expressions[0], columns, shown))
    _type_of(con, value, name)
    return value


def refuse_changing(con: duckdb.DuckDBPyConnection, predicate: Predicate, name: str = "where") -> None:
    """Refuse a condition that can give another result for the same row when it is evaluated again.

    Raises:
        StatementError: When the condition calls such a function; names the function.
    """
    if (function := changing_function(con, predicate)) is not None:
        raise StatementError(
            f"`{name}` = `{predicate.text.strip()}`: `{function}` can return another value each time, but the"
            " condition is evaluated more than once.",
            remedy="Evaluate the function first, and put its value into the condition.",
        )


def changing_function(con: duckdb.DuckDBPyConnection, predicate: Predicate) -> str | None:
    """Return the first function in an expression that can return a different value each time, or None."""
    called = _functions(predicate.tree)
    if ("age", 1) in called:  # with one argument, `age` counts from the current time
        return "age"
    names = sorted(name for name, _ in called)
    if not _BUILT_IN:
        _BUILT_IN.update(_changing(con, "internal"))
    own = {} if all(name in _BUILT_IN for name in names) else _changing(con, "true")
    return next((name for name in names if own.get(name) or _BUILT_IN.get(name)), None)


def _changing(con: duckdb.DuckDBPyConnection, condition: str) -> dict[str, bool]:
    """Return, by function name, whether the function can return a different value each time."""
    moment = ", ".join(map(literal, _OF_THE_MOMENT))
    rows = con.execute(
        "SELECT function_name, bool_or(function_name <> 'error' AND (coalesce(stability, '') IN"
        f" ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') OR function_name IN ({moment})"
        f" OR coalesce(regexp_matches(macro_definition, {literal(_IN_MACRO)}, 'i'), false)))"
        f" FROM duckdb_functions() WHERE {condition} GROUP BY 1"
    ).fetchall()
    return {str(name).lower(): changes for name, changes in rows}


def _functions(tree: Node) -> set[tuple[str, int]]:
    """Return the names of the called functions, each with its number of arguments."""
    calls, waiting = set[tuple[str, int]](), [tree]  # type: tuple[set[tuple[str, int]], list[Any]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("class") == "FUNCTION":
                calls.add((str(node["function_name"]).lower(), len(node.get("children", []))))
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return calls


def parse_order(con: duckdb.DuckDBPyConnection, text: str, columns: Sequence[ColumnDef]) -> OrderKey:
    """Parse one key of an order: `ts`, `ts DESC`, `ts DESC NULLS LAST`."""
    shown = f"`order_by` = `{text.strip()}`"
    node = _select(con, f"1 ORDER BY\n{text}", shown)
    orders = node["modifiers"][0].get("orders", []) if len(node.get("modifiers", [])) == 1 else []
    if len(orders) != 1:
        raise StatementError(f"{shown} is not one sort key.", remedy="Give each key separately: `ts DESC`.")
    key = orders[0]
    nulls: dict[str, Literal["first", "last"]] = {"NULLS FIRST": "first", "NULLS LAST": "last"}
    return OrderKey(
        key["expression"],
        _mentioned(key["expression"], columns, shown),
        key["type"] in ("DESCENDING", "DESC"),
        nulls.get(key["null_order"].replace("_", " ")),
    )


def find_column(path: Sequence[str], columns: Sequence[ColumnDef]) -> ColumnDef | None:
    """Return the column that a dotted name means: a top-level column or a field of a struct; None if there is none."""
    match = next((column for column in columns if folded(column.name) == folded(path[0])), None)
    if match is None or len(path) == 1:
        return match
    return find_column(path[1:], match.children) if match.type == "struct" else None


def _select(con: duckdb.DuckDBPyConnection, expression: str, shown: str) -> Node:
    """Return DuckDB's parse tree of a SELECT of an expression."""
    refuse_unreadable(expression)
    select = literal(f"SELECT\n{expression}\n")
    row = con.execute(f"SELECT json_serialize_sql({select})").fetchone()
    parsed = json.loads(row[0]) if row else {}
    if parsed.get("error"):
        raise StatementError(f"{shown}: {parsed['error_message']}", remedy=_REMEDY)
    nodes = [statement["node"] for statement in parsed["statements"]]
    if len(nodes) != 1 or nodes[0]["type"] != "SELECT_NODE":
        raise StatementError(f"{shown} is more than one condition.", remedy=_REMEDY)
    node: Node = nodes[0]
    return node


def _mentioned(tree: Node, columns: Sequence[ColumnDef], shown: str) -> tuple[ColumnDef, ...]:
    names = {folded(name): name for name in _names(tree, shown)}
    by_name = {folded(column.name): column for column in columns}
    for name in names:
        if name not in by_name:
            remedy = f"Write `{_CALLED[name]}`." if name in _CALLED else None
            raise ObjectNotFoundError(
                f"{shown}: there is no column `{names[name]}`.",
                remedy=remedy or nearest(names[name], [column.name for column in columns]),
            )
    return tuple(column for column in columns if folded(column.name) in names)


def _names(tree: Node, shown: str) -> Iterator[str]:
    """Yield the first part of every name in a tree, except for names of lambda parameters."""
    waiting: list[tuple[Any, frozenset[str], int]] = [(tree, frozenset(), 0)]
    while waiting:
        node, bound, depth = waiting.pop()
        if isinstance(node, list):
            waiting += [(child, bound, depth) for child in node]
        if not isinstance(node, dict):
            continue
        if depth > _DEEPEST:
            raise StatementError(f"{shown} is nested too deeply.", remedy="Write it with less nesting.")
        kind = node.get("class")
        if kind in _REFUSED:
            raise StatementError(f"{shown}: {_REFUSED[kind]} is not allowed.", remedy=_REMEDY)
        if kind == "COLUMN_REF":
            if folded(node["column_names"][0]) not in bound:
                yield node["column_names"][0]
            continue
        if kind == "LAMBDA":
            bound |= {folded(name) for name in _names(node["lhs"], shown)}
        waiting += [(child, bound, depth + 1) for child in node.values()]


def _type_of(con: duckdb.DuckDBPyConnection, value: Predicate, name: str) -> str:
    """Let DuckDB check the functions, the types and that the expression is on single rows; return its type."""
    empty = ", ".join(f"NULL::{duckdb_type(column)} AS {identifier(column.name)}" for column in value.columns) or "1"
    sql = f"SELECT {value.sql} FROM (SELECT {empty}) WHERE ({value.sql}) IS NOT NULL LIMIT 0"
    try:
        return str(con.execute(sql).description[0][1])
    except duckdb.Error as error:
        shown = f"`{name}` = `{value.text.strip()}`"
        failure = StatementError(f"{shown}: {str(error).splitlines()[0]}", remedy=_REMEDY)
    raise failure
