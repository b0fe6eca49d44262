"""Find the conditions of a query that a table's files can be pruned by: `pushed_condition`.

The statement keeps its own conditions. What is pushed may therefore be weaker than they are, and must never be
stronger: a row that Spark would return has to meet it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlglot import exp

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.spark.sql.statement import Node, Reference

_COMPARISONS: dict[type[Node], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_MOMENTS = ("timestamp", "timestamp_us", "timestamptz")
_NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# The number of decimal digits that a double certainly holds.
_CERTAIN_DIGITS = 15


class _NotPushed(Exception):
    """A condition that may mean something else to the planner, or that is not on this table alone."""


@dataclass(frozen=True)
class PushContext:
    """What conditions mean besides their text.

    Attributes:
        arguments: The values of named parameters.
        is_utc: Whether the session's time zone is UTC.
        has_escapes: Whether texts of the statement may contain escapes, which depend on a setting.
    """

    arguments: Mapping[str, Any]
    is_utc: bool
    has_escapes: bool


@dataclass(frozen=True)
class _Table:
    alias: str
    columns: Mapping[str, ColumnDef]
    is_alone: bool
    context: PushContext


def pushed_condition(reference: Reference, columns: Sequence[ColumnDef], context: PushContext) -> str | None:
    """Return a condition in DuckDB's SQL which every row meets that the query needs of a table; None if there is none.

    Conditions that no NULL meets can be pushed below every kind of join: a row that an outer join fills with NULLs,
    because its partner was pruned, does not meet the condition of the statement either.
    """
    node = reference.node
    select = node.parent.parent if isinstance(node.parent, exp.From | exp.Join) else None
    if not isinstance(select, exp.Select) or any(node.args.get(part) for part in ("sample", "pivots")):
        return None
    where = select.args.get("where")
    if where is None:
        return None
    others = [*select.args.get("joins", []), *select.args.get("laterals", [])]
    table = _Table(
        folded(reference.alias or reference.parts[-1]),
        {folded(column.name): column for column in columns},
        not others,
        context,
    )
    if sum(folded(name) == table.alias for name in _aliases(select)) != 1:
        return None
    pushed = []
    for part in _conjuncts(where.this):
        try:
            pushed.append(_condition(part, table))
        except _NotPushed:
            continue
    return " AND ".join(pushed) or None


def exact_condition(where: Node, alias: str, columns: Sequence[ColumnDef], context: PushContext) -> str | None:
    """Return a condition of a statement on one table in DuckDB's SQL; None if a part of it cannot be translated.

    Args:
        where: The condition.
        alias: The name of the table in it.
        columns: The columns of the table.
        context: What it means besides its text.
    """
    try:
        return _condition(where, _table(alias, columns, context))
    except _NotPushed:
        return None


def exact_value(node: Node, column: ColumnDef, context: PushContext) -> str | None:
    """Return a constant of a column's type in DuckDB's SQL; None if it is something else."""
    if isinstance(node.unnest(), exp.Null):
        return "NULL"
    try:
        return _value(column, node, _table("", [column], context))
    except _NotPushed:
        return None


def _table(alias: str, columns: Sequence[ColumnDef], context: PushContext) -> _Table:
    return _Table(folded(alias), {folded(column.name): column for column in columns}, is_alone=True, context=context)


def _aliases(select: exp.Select) -> list[str]:
    start = select.args.get("from_") or select.args.get("from")
    return [source.this.alias_or_name for source in [start, *select.args.get("joins", [])] if source is not None]


def _conjuncts(node: Node) -> list[Node]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _condition(node: Node, table: _Table) -> str:
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        word = "AND" if isinstance(node, exp.And) else "OR"
        return f"({_condition(node.left, table)} {word} {_condition(node.right, table)})"
    if isinstance(node, exp.Not):
        return _negated(node.this.unnest(), table)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and table.is_alone:
        return f"({_name(_column(node.this, table))} IS NULL)"
    if isinstance(node, exp.In):
        return _in(node, table, "IN")
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        column = _column(node.this, table)
        low, high = (_value(column, node.args[end], table) for end in ("low", "high"))
        return f"({_name(column)} BETWEEN {low} AND {high})"
    if type(node) not in _COMPARISONS:
        raise _NotPushed
    sign, flipped = _COMPARISONS[type(node)]
    left, right = node.this.unnest(), node.expression.unnest()
    if not isinstance(left, exp.Column):
        sign, left, right = flipped, right, left
    column = _column(left, table)
    return f"({_name(column)} {sign} {_value(column, right, table)})"


def _negated(node: Node, table: _Table) -> str:
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({_name(_column(node.this, table))} IS NOT NULL)"
    if isinstance(node, exp.In):
        return _in(node, table, "NOT IN")
    raise _NotPushed


def _in(node: exp.In, table: _Table, word: str) -> str:
    column = _column(node.this, table)
    if any(node.args.get(part) for part in ("query", "unnest", "field")) or not node.expressions:
        raise _NotPushed
    return f"({_name(column)} {word} ({', '.join(_value(column, value, table) for value in node.expressions)}))"


def _name(column: ColumnDef) -> str:
    return identifier(column.name)


def _column(node: Node, table: _Table) -> ColumnDef:
    node = node.unnest()
    if not isinstance(node, exp.Column) or node.args.get("db") or isinstance(node.this, exp.Star):
        raise _NotPushed
    if folded(node.table) != table.alias if node.table else not table.is_alone:
        raise _NotPushed
    if (column := table.columns.get(folded(node.name))) is None:
        raise _NotPushed
    return column


# --- constants -------------------------------------------------------------------------------------------------------


def _value(column: ColumnDef, node: Node, table: _Table) -> str:
    """Return a constant in DuckDB's SQL."""
    kind, text = _constant(node.unnest(), table.context)
    if column.type == "varchar" and kind == "text" and not table.context.has_escapes:
        return literal(text)
    if column.type == "date" and kind in ("text", "date") and _DATE.fullmatch(text) and _is_moment(text):
        return f"DATE {literal(text)}"
    if column.type in _MOMENTS and _MOMENT.fullmatch(text) and _is_moment(text):
        # A text is a time without a zone if the column is one; everything else depends on the session's zone.
        if table.context.is_utc and kind in ("text", "date", "timestamp"):
            return literal(text)
        if column.type != "timestamptz" and kind in ("text", "date"):
            return literal(text)
    if kind == "number" and (match := _NUMBER.fullmatch(text)):
        return _number(column, text, match)
    raise _NotPushed


def _number(column: ColumnDef, text: str, match: re.Match[str]) -> str:
    whole, places = match[1].lstrip("0"), match[2] or ""
    if column.type in _INTEGERS and not places and abs(int(text)) < 2**63:
        return text
    if column.type == "float64" and len(whole + places) <= _CERTAIN_DIGITS:
        return text
    if (decimal := _DECIMAL.fullmatch(column.type)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if len(places) <= scale and len(whole) <= precision - scale:
            return text
    raise _NotPushed


def _constant(node: Node, context: PushContext) -> tuple[str, str]:
    """Return the kind of a constant (`text`, `number`, `date`, `timestamp`) and its text."""
    if isinstance(node, exp.Neg):
        kind, text = _constant(node.this, context)
        if kind == "number" and not text.startswith("-"):
            return kind, f"-{text}"
    if isinstance(node, exp.Literal):
        return ("text" if node.is_string else "number"), node.this
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and isinstance(node.this, exp.Literal):
        if node.this.is_string and node.is_type("date"):
            return "date", node.this.this
        if node.this.is_string and node.is_type("timestamp", "timestamptz", "timestampltz"):
            return "timestamp", node.this.this
    if isinstance(node, exp.Placeholder) and node.name in context.arguments:
        return _argument(context.arguments[node.name])
    raise _NotPushed


def _argument(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return "text", value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", repr(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return "date", value.isoformat()
    raise _NotPushed


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
