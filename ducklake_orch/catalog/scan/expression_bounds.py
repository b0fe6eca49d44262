"""Derive the values that an expression can have in a file, as SQL over what the catalog knows about its columns.

The entry point is `Expressions.domain`: a domain consists of bounds and of whether NULLs and other values may occur.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type
from ducklake_orch.catalog.scan.column_bounds import Facts, family
from ducklake_orch.catalog.scan.predicate import Node, find_column
from ducklake_orch.catalog.scan.printed_tree import printed
from ducklake_orch.engine.quoting import literal

# Functions whose value depends only on their arguments; DuckDB writes intervals with some of them.
_CONSTANT_FUNCTIONS = {"+", "-", "*", "/", "//", "%", "||", "trunc", "make_date", "make_timestamp"}
_CONSTANT_FUNCTIONS |= {
    f"to_{unit}s"
    for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
}
_UNITS = {"year": "year", "month": "month", "day": "day", "dayofmonth": "day", "hour": "hour"}
_UNIT_AROUND = {"month": "year", "day": "month", "hour": "day"}
# A condition that excludes nothing, and one that excludes everything.
MAYBE, NEVER = "true", "false"


@dataclass(frozen=True)
class Domain:
    """The values that an expression can have in a file, as SQL.

    Attributes:
        type: The expression's DuckDB type.
        kind: The family of types that it can be compared with; `literal` is a text that takes the other side's type.
        low: The lower bound, NULL if unknown.
        high: The upper bound, NULL if unknown.
        null: Whether the expression may be NULL for a row.
        value: Whether the expression may be other than NULL for a row.
        column: The column, if the expression is only a column.
        constant: Whether the expression is the same for every row.
    """

    type: str
    kind: str
    low: str
    high: str
    null: str
    value: str
    column: ColumnDef | None = None
    constant: bool = False


class Expressions:
    """Derives the domains of expressions on the columns of a table; their SQL uses the SQL columns of `facts`.

    Args:
        con: Any DuckDB connection, to print constants.
        columns: The columns of the table.
        facts: Registers the columns that expressions use.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, columns: Sequence[ColumnDef], facts: Facts) -> None:
        self.facts = facts
        self._con = con
        self._columns = columns

    def domain(self, node: Node) -> Domain | None:
        """Return the domain of an expression; None if nothing is known about it."""
        if _is_constant(node):
            return self._constant(node)
        leaf = self.leaf(node)
        if leaf is not None:
            kind = duckdb_type(leaf)
            if (group := family(kind)) is None:
                return None
            n = self.facts.use(leaf)
            return Domain(kind, group, f"low_{n}", f"high_{n}", f"null_{n}", f"value_{n}", leaf)
        if node["class"] == "CAST":
            return self._cast(node)
        if node["class"] == "FUNCTION":
            return self._part(node)
        return None

    def leaf(self, node: Node) -> ColumnDef | None:
        """Return the column that an expression names, or None if it names no column without nested columns."""
        if node["class"] != "COLUMN_REF":
            return None
        column = find_column(node["column_names"], self._columns)
        return None if column is None or column.children else column

    def _constant(self, node: Node) -> Domain:
        plain = node["value"] if node["type"] == "VALUE_CONSTANT" else None
        if plain and plain["type"]["id"] in ("VARCHAR", "INTEGER", "BIGINT") and not plain["is_null"]:
            kind = plain["type"]["id"]  # a shortcut for the most frequent types, because lists can be long
            return constant(literal(plain["value"]), kind, "literal" if kind == "VARCHAR" else None)
        text = printed(self._con, node)
        kind = self._type(text)
        return constant(text, kind, "literal" if plain and plain["is_null"] else None)

    def _cast(self, node: Node) -> Domain | None:
        x = self.domain(node["child"])
        kind = self._type(printed(self._con, node | {"child": _NULL}))
        if x is None or kind == x.type:
            return x
        if node["try_cast"] or family(kind) != x.kind or x.kind not in ("number", "moment"):
            return None
        return _monotone(x, kind, lambda value: f"CAST({value} AS {kind})")

    def _part(self, node: Node) -> Domain | None:
        """Return the domain of a date part such as `year(ts)`, or of `date_trunc('day', ts)`."""
        name, arguments = node["function_name"], node["children"]
        unit = _UNITS.get(name)
        if name in ("date_part", "datepart", "date_trunc", "datetrunc") and len(arguments) == 2:
            text, arguments = text_of(arguments[0]), arguments[1:]
            unit = text if text is None or name.endswith("trunc") else _UNITS.get(text.lower())
        x = self.domain(arguments[0]) if unit and len(arguments) == 1 else None
        if x is None or unit is None or x.kind != "moment" or x.constant:
            return None
        if name.endswith("trunc"):
            kind = self._type(f"date_trunc({literal(unit)}, NULL::{x.type})")
            return _monotone(x, kind, lambda value: f"date_trunc({literal(unit)}, {value})")
        if unit == "year":
            return _monotone(x, "BIGINT", lambda value: f"year({value})")
        # Months are in order only within one year, days only within one month, and hours only within one day.
        around = _UNIT_AROUND[unit]
        first, last = (f"TRY(date_trunc('{around}', {end}))" for end in (x.low, x.high))
        low, high = (f"CASE WHEN {first} = {last} THEN TRY({unit}({end})) END" for end in (x.low, x.high))
        if x.column is not None and self.facts.has(unit, x.column) and not x.type.endswith("ZONE"):
            low, high = (f"coalesce({unit}_{x.column.column_id}, {end})" for end in (low, high))
        return Domain("BIGINT", "number", low, high, join([x.null, f"{low} IS NULL"], every=False), x.value)

    def _type(self, sql: str) -> str:
        row = self._con.execute(f"SELECT typeof({sql})").fetchone()
        return str(row[0]) if row else ""


_NULL: Node = {
    "class": "CONSTANT",
    "type": "VALUE_CONSTANT",
    "alias": "",
    "query_location": 0,
    "value": {"type": {"id": "NULL", "type_info": None}, "is_null": True},
}


def _is_constant(node: Node) -> bool:
    match node["class"]:
        case "CONSTANT":
            return True
        case "CAST":
            return _is_constant(node["child"])
        case "FUNCTION":
            plain = not (node["distinct"] or node["filter"] or node["order_bys"]["orders"])
            return plain and node["function_name"] in _CONSTANT_FUNCTIONS and all(map(_is_constant, node["children"]))
    return False


def text_of(node: Node) -> str | None:
    """Return the value of a text literal; None if the node is not one."""
    value = node.get("value", {})
    is_text = node["type"] == "VALUE_CONSTANT" and value["type"]["id"] == "VARCHAR" and not value["is_null"]
    return str(value["value"]) if is_text else None


def _monotone(x: Domain, kind: str, function: Callable[[str], str]) -> Domain | None:
    """Return the domain of a function that keeps the order of its argument."""
    # TRY makes a bound unknown if the function fails. It also keeps DuckDB from rewriting comparisons with date_trunc,
    # which it does wrongly.
    low, high, group = f"TRY({function(x.low)})", f"TRY({function(x.high)})", family(kind)
    if group is None:
        return None
    # Infinite timestamps have no year. If both bounds have one, there are no infinite timestamps between them.
    null = join([x.null, f"{low} IS NULL", f"{high} IS NULL"], every=False)
    return Domain(kind, group, low, high, null, x.value)


def constant(text: str, kind: str, group: str | None = None) -> Domain:
    """Return the domain of a constant, which may be NULL."""
    null, value = f"({text} IS NULL)", f"({text} IS NOT NULL)"
    return Domain(kind, group or family(kind) or "", text, text, null, value, constant=True)


TRUTH = Domain("BOOLEAN", "truth", "true", "true", NEVER, MAYBE, constant=True)


def comparable(x: Domain, y: Domain) -> bool:
    """Return whether casting both sides to a common type keeps their order."""
    if "TIMESTAMP WITH TIME ZONE" in (x.type, y.type) and any(
        domain.type.startswith("TIMESTAMP_") for domain in (x, y)
    ):
        return False  # DuckDB can tell whether they are equal, but not which one is earlier
    return bool(x.kind and y.kind) and (x.kind == y.kind or "literal" in (x.kind, y.kind))


def join(parts: Sequence[str], *, every: bool) -> str:
    """Return the AND or OR of conditions that are never NULL, simplified."""
    neutral, final = (MAYBE, NEVER) if every else (NEVER, MAYBE)
    if final in parts:
        return final
    remaining = list(dict.fromkeys(part for part in parts if part != neutral))
    if len(remaining) <= 1:
        return remaining[0] if remaining else neutral
    return f"({(' AND ' if every else ' OR ').join(remaining)})"
