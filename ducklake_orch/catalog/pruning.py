"""Turn a condition on rows into conditions on files: can a row of the file meet it, and do all of them?

Both are one question, asked with an outcome: may some row of the file have it? AND, OR and NOT answer it from their
parts without ever losing a row, in SQL's logic of three values, and what is not understood may always be.
"""

import copy
import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.facts import Facts, family
from ducklake_orch.catalog.model import ColumnDef
from ducklake_orch.catalog.predicate import Node, find_column
from ducklake_orch.catalog.types import duckdb_type
from ducklake_orch.engine.quoting import literal

_FLIPPED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
# Functions whose value depends on nothing but their arguments; intervals are written with some of them.
_CONSTANT_FUNCTIONS = {"+", "-", "*", "/", "//", "%", "||", "trunc", "make_date", "make_timestamp"}
_CONSTANT_FUNCTIONS |= {
    f"to_{unit}s"
    for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
}
# How a condition is put with NOT before it, and how without.
_POSITIVE = {
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "COMPARE_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
}
_PREFIXES = {"~~", "starts_with", "prefix", "^@"}
_UNITS = {"year": "year", "month": "month", "day": "day", "dayofmonth": "day", "hour": "hour"}
# A longer IN list is judged by its ends, so that a file costs the same however long it is.
_LONG_LIST = 100
_MAYBE, _NEVER = "true", "false"


class Outcome(enum.Enum):
    """What a condition can come to for a row; NULL is neither true nor false."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    NOT_TRUE = "NOT TRUE"
    NOT_FALSE = "NOT FALSE"

    @property
    def negated(self) -> "Outcome":
        """What the condition comes to when NOT stands before it."""
        return _NEGATED[self]

    @property
    def of_null(self) -> bool:
        """Whether NULL is one of them."""
        return self in (Outcome.NOT_TRUE, Outcome.NOT_FALSE)

    @property
    def holds(self) -> bool:
        """Whether true, and not false, is one of them."""
        return self in (Outcome.TRUE, Outcome.NOT_FALSE)


_NEGATED = {
    Outcome.TRUE: Outcome.FALSE,
    Outcome.FALSE: Outcome.TRUE,
    Outcome.NOT_TRUE: Outcome.NOT_FALSE,
    Outcome.NOT_FALSE: Outcome.NOT_TRUE,
}


@dataclass(frozen=True)
class Domain:
    """What values an expression can have in a file, as SQL.

    Attributes:
        type: Its type in DuckDB's words.
        kind: What it can be compared with; `literal` is a text that takes the other side's type.
        low: A bound, NULL when unknown.
        high: A bound, NULL when unknown.
        null: Whether it may be NULL for a row.
        value: Whether it may be anything else for a row.
        column: The column, when it is nothing but that.
        constant: Whether it is the same for every row.
    """

    type: str
    kind: str
    low: str
    high: str
    null: str
    value: str
    column: ColumnDef | None = None
    constant: bool = False


class FileConditions:
    """Judges files by what the catalog knows of them; the SQL is over the columns that `facts` makes.

    Args:
        con: Any connection; it prints constants.
        columns: The columns of the table.
        facts: Told which columns are needed.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, columns: Sequence[ColumnDef], facts: Facts) -> None:
        self._con = con
        self._columns = columns
        self._facts = facts

    def may_match(self, tree: Node) -> str:
        """Return whether a row of the file may meet a condition."""
        return self.may(tree, Outcome.TRUE)

    def all_match(self, tree: Node) -> str:
        """Return whether every row of the file meets a condition, for certain."""
        return f"NOT ({self.may(tree, Outcome.NOT_TRUE)})"

    def may(self, node: Node, outcome: Outcome) -> str:
        """Return whether a condition may have an outcome for some row."""
        kind, parts = node["type"], node.get("children", [])
        if kind in _POSITIVE:
            kind, outcome = _POSITIVE[kind], outcome.negated
        match kind:
            case "OPERATOR_NOT":
                return self.may(parts[0], outcome.negated)
            case "CONJUNCTION_AND" | "CONJUNCTION_OR":
                every = outcome.holds == (kind == "CONJUNCTION_AND")
                return _join([self.may(one, outcome) for one in parts], every=every)
            case "OPERATOR_IS_NULL":
                return self._is_null(parts[0], outcome)
            case "COMPARE_BETWEEN":
                return self._between(node["input"], node["lower"], node["upper"], outcome)
            case "COMPARE_IN":
                return self._is_in(parts, outcome)
            case "COMPARE_NOT_DISTINCT_FROM":
                return self._is_same(node["left"], node["right"], outcome)
            case "FUNCTION" if node["function_name"] in _PREFIXES and len(parts) == 2:
                return self._starts_with(parts[0], parts[1], outcome, is_pattern=node["function_name"] == "~~")
            case "FUNCTION" if node["function_name"] == "!~~":
                return self._starts_with(parts[0], parts[1], outcome.negated, is_pattern=True)
        if kind in _COMPARISONS:
            return self._compare(_COMPARISONS[kind], node["left"], node["right"], outcome)
        alone = self.domain(node)
        return self._possible("=", alone, _TRUTH, outcome) if alone and alone.type == "BOOLEAN" else _MAYBE

    # --- conditions ----------------------------------------------------------------------------------------------

    def _compare(self, sign: str, left: Node, right: Node, outcome: Outcome) -> str:
        x, y = self.domain(left), self.domain(right)
        return _MAYBE if x is None or y is None else self._possible(sign, x, y, outcome)

    def _possible(self, sign: str, x: Domain, y: Domain, outcome: Outcome) -> str:
        """Return whether a comparison may have an outcome."""
        if not _comparable(x, y):
            return _MAYBE
        if not outcome.holds:
            sign = _FLIPPED[sign]
        parts = [x.value, y.value, _bounds(sign, x, y)]
        if sign == "=":
            parts += [self._in_bucket(x, y), self._in_bucket(y, x)]
        found = _join(parts, every=True)
        return _join([found, x.null, y.null], every=False) if outcome.of_null else found

    def _is_same(self, left: Node, right: Node, outcome: Outcome) -> str:
        x, y = self.domain(left), self.domain(right)
        if x is None or y is None:
            return _MAYBE
        nulls = [(x.null, y.null)] if outcome.holds else [(x.null, y.value), (x.value, y.null)]
        values = self._possible("=", x, y, Outcome.TRUE if outcome.holds else Outcome.FALSE)
        return _join([values, *(_join(pair, every=True) for pair in nulls)], every=False)

    def _is_null(self, node: Node, outcome: Outcome) -> str:
        x = self.domain(node)
        if x is None:
            leaf = self._leaf(node)
            if leaf is None:
                return _MAYBE
            n = self._facts.use(leaf)
            return f"null_{n}" if outcome.holds else f"value_{n}"
        return x.null if outcome.holds else x.value

    def _is_in(self, nodes: Sequence[Node], outcome: Outcome) -> str:
        x, items = self.domain(nodes[0]), [self.domain(one) for one in nodes[1:]]
        if x is None or self._mixed(nodes) or not all(y and y.constant and _comparable(x, y) for y in items):
            return _MAYBE
        constants = [y for y in items if y]
        listed = ", ".join(y.low for y in constants)
        if not outcome.holds:
            # A row that is not in the list: certain not to be there only where the file has one single value.
            outside = f"coalesce({x.low} <> {x.high} OR NOT ({x.low} IN ({listed})), true)"
            found = _join([x.value, outside], every=True)
        elif len(constants) <= _LONG_LIST:
            found = _join([self._possible("=", x, y, Outcome.TRUE) for y in constants], every=False)
        else:
            texts = [f"CAST({y.low} AS {x.type})" if y.kind == "literal" else y.low for y in constants]
            least, most = (f"{name}({', '.join(texts)})" for name in ("least", "greatest"))
            within = f"{x.low} <= {most} AND {least} <= {x.high} AND ({x.low} <> {x.high} OR {x.low} IN ({listed}))"
            found = _join([x.value, f"coalesce({within}, true)"], every=True)
        maybe_null = [x.null, *(y.null for y in constants)] if outcome.of_null else []
        return _join([found, *maybe_null], every=False)

    def _between(self, node: Node, lower: Node, upper: Node, outcome: Outcome) -> str:
        if self._mixed([node, lower, upper]):
            return _MAYBE
        ends = [self._compare(">=", node, lower, outcome), self._compare("<=", node, upper, outcome)]
        return _join(ends, every=outcome.holds)

    def _starts_with(self, node: Node, start: Node, outcome: Outcome, *, is_pattern: bool) -> str:
        x, text = self.domain(node), _text(start)
        if x is None or text is None or x.kind != "text":
            return _MAYBE
        prefix, exact = text, True
        if is_pattern:
            special = [text.index(sign) for sign in "%_" if sign in text]
            if not special:
                return self._possible("=", x, _constant(literal(text), "VARCHAR"), outcome)
            prefix = text[: min(special)]
            exact = text == f"{prefix}%"
        quoted = literal(prefix)
        if outcome.holds:
            # Cutting texts off keeps their order.
            bounds = f"left({x.low}, {len(prefix)}) <= {quoted} AND {quoted} <= {x.high}"
        elif exact:
            bounds = f"NOT (starts_with({x.low}, {quoted}) AND starts_with({x.high}, {quoted}))"
        else:
            bounds = _MAYBE
        found = _join([x.value, f"coalesce({bounds}, true)"], every=True)
        return _join([found, x.null], every=False) if outcome.of_null else found

    def _in_bucket(self, x: Domain, y: Domain) -> str:
        """Return whether files of a column's bucket may hold a constant."""
        if x.column is None or not y.constant or not self._facts.has("bucket", x.column):
            return _MAYBE
        n = x.column.column_id
        hashed = f"murmur3_32(TRY_CAST({y.low} AS {x.type}))"
        return f"coalesce(({hashed} & 2147483647) % buckets_{n} = bucket_{n}, true)"

    def _mixed(self, nodes: Sequence[Node]) -> bool:
        """Whether texts stand beside constants of other types: what they are then cast to depends on all of them."""
        domains = [self.domain(one) for one in nodes]
        kinds = {one.kind for one in domains[1:] if one is not None}
        return None in domains or ("literal" in kinds and len(kinds) > 1)

    # --- expressions ---------------------------------------------------------------------------------------------

    def domain(self, node: Node) -> Domain | None:
        """Return what values an expression can have; None when nothing can be said."""
        if _is_constant(node):
            return self._constant(node)
        leaf = self._leaf(node)
        if leaf is not None:
            kind = duckdb_type(leaf)
            if (group := family(kind)) is None:
                return None
            n = self._facts.use(leaf)
            return Domain(kind, group, f"low_{n}", f"high_{n}", f"null_{n}", f"value_{n}", leaf)
        if node["class"] == "CAST":
            return self._cast(node)
        if node["class"] == "FUNCTION":
            return self._part(node)
        return None

    def _leaf(self, node: Node) -> ColumnDef | None:
        if node["class"] != "COLUMN_REF":
            return None
        found = find_column(node["column_names"], self._columns)
        return None if found is None or found.children else found

    def _constant(self, node: Node) -> Domain:
        text = self._print(node)
        row = self._con.execute(f"SELECT typeof({text})").fetchone()
        kind = str(row[0]) if row else ""
        if node["type"] == "VALUE_CONSTANT" and kind in ("VARCHAR", '"NULL"'):
            return _constant(text, kind, "literal")
        return _constant(text, kind)

    def _cast(self, node: Node) -> Domain | None:
        x = self.domain(node["child"])
        row = self._con.execute(f"SELECT typeof({self._print(node | {'child': _NULL})})").fetchone()
        kind = str(row[0]) if row else ""
        if x is None or node["try_cast"] or family(kind) != x.kind or x.kind not in ("number", "moment"):
            return None
        if kind == "BOOLEAN" and x.type != "BOOLEAN":
            return None  # -1 and 1 are both true
        return _monotone(x, kind, lambda value: f"TRY_CAST({value} AS {kind})")

    def _part(self, node: Node) -> Domain | None:
        """Return the domain of `year(ts)` and its like, and of `date_trunc('day', ts)`."""
        name, arguments = node["function_name"], node["children"]
        unit = _UNITS.get(name)
        if name in ("date_part", "datepart", "date_trunc", "datetrunc") and len(arguments) == 2:
            text, arguments = _text(arguments[0]), arguments[1:]
            unit = text if text is None or name.endswith("trunc") else _UNITS.get(text.lower())
        x = self.domain(arguments[0]) if unit and len(arguments) == 1 else None
        if x is None or unit is None or x.kind != "moment" or x.constant:
            return None
        if name.endswith("trunc"):
            row = self._con.execute(f"SELECT typeof(date_trunc({literal(unit)}, NULL::{x.type}))").fetchone()
            return _monotone(x, str(row[0]) if row else "", lambda value: f"date_trunc({literal(unit)}, {value})")
        if unit == "year":
            return _monotone(x, "BIGINT", lambda value: f"year({value})")
        if x.column is None or not self._facts.has(unit, x.column) or x.type.endswith("ZONE"):
            return None
        part = f"{unit}_{x.column.column_id}"
        return Domain("BIGINT", "number", part, part, _join([x.null, f"{part} IS NULL"], every=False), x.value)

    def _print(self, node: Node) -> str:
        """Return the SQL of a constant, as DuckDB writes it."""
        select = copy.deepcopy(_SELECT)
        select["statements"][0]["node"]["select_list"] = [_exact(node)]
        row = self._con.execute(f"SELECT json_deserialize_sql({literal(json.dumps(select))})").fetchone()
        return f"({str(row[0]).removeprefix('SELECT ')})" if row else "NULL"


_NULL: Node = {
    "class": "CONSTANT",
    "type": "VALUE_CONSTANT",
    "alias": "",
    "query_location": 0,
    "value": {"type": {"id": "NULL", "type_info": None}, "is_null": True},
}
_SELECT: Node = {
    "error": False,
    "statements": [
        {
            "node": {
                "type": "SELECT_NODE",
                "modifiers": [],
                "cte_map": {"map": []},
                "select_list": [],
                "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0},
                "where_clause": None,
                "group_expressions": [],
                "group_sets": [],
                "aggregate_handling": "STANDARD_HANDLING",
                "having": None,
                "sample": None,
                "qualify": None,
            },
            "named_param_map": [],
        }
    ],
}


def _constant(text: str, kind: str, group: str | None = None) -> Domain:
    null, value = f"({text} IS NULL)", f"({text} IS NOT NULL)"
    return Domain(kind, group or family(kind) or "", text, text, null, value, constant=True)


_TRUTH = Domain("BOOLEAN", "truth", "true", "true", _NEVER, _MAYBE, constant=True)


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


def _text(node: Node) -> str | None:
    """Return the value of a text in quotes."""
    value = node.get("value", {})
    is_text = node["type"] == "VALUE_CONSTANT" and value["type"]["id"] == "VARCHAR" and not value["is_null"]
    return str(value["value"]) if is_text else None


def _exact(node: Any) -> Any:
    """Return a tree whose floating-point constants are written as such: printed bare they would be decimals."""
    if isinstance(node, list):
        return [_exact(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "VALUE_CONSTANT" and node["value"]["type"]["id"] == "DOUBLE":
        text = {"type": {"id": "VARCHAR", "type_info": None}, "is_null": False, "value": repr(node["value"]["value"])}
        cast = {"cast_type": {"id": "DOUBLE", "type_info": None}, "try_cast": False, "child": node | {"value": text}}
        return {"class": "CAST", "type": "OPERATOR_CAST", "alias": "", "query_location": 0, **cast}
    return {key: _exact(value) for key, value in node.items()}


def _comparable(x: Domain, y: Domain) -> bool:
    """Whether casting both sides to a common type keeps their order."""
    return bool(x.kind and y.kind) and (x.kind == y.kind or "literal" in (x.kind, y.kind))


def _bounds(sign: str, x: Domain, y: Domain) -> str:
    """Return whether a comparison of two values may be true, judging by bounds; unknown ones exclude nothing."""
    if sign == "=":
        possible = f"{x.low} <= {y.high} AND {y.low} <= {x.high}"
    elif sign == "<>":
        possible = f"{x.low} <> {y.high} OR {x.high} <> {y.low}"
    elif sign in ("<", "<="):
        possible = f"{x.low} {sign} {y.high}"
    else:
        possible = f"{x.high} {sign} {y.low}"
    return f"coalesce({possible}, true)"


def _monotone(x: Domain, kind: str, function: Callable[[str], str]) -> Domain | None:
    """Return the domain of a function that keeps the order of its argument."""
    low, high, group = function(x.low), function(x.high), family(kind)
    if group is None:
        return None
    # Moments in infinity have no year; between two that have one there are no such moments.
    null = _join([x.null, f"{low} IS NULL", f"{high} IS NULL"], every=False)
    return Domain(kind, group, low, high, null, x.value)


def _join(parts: Sequence[str], *, every: bool) -> str:
    """Return AND or OR of conditions that are never NULL."""
    neutral, final = (_MAYBE, _NEVER) if every else (_NEVER, _MAYBE)
    if final in parts:
        return final
    kept = list(dict.fromkeys(one for one in parts if one != neutral))
    if len(kept) <= 1:
        return kept[0] if kept else neutral
    return f"({(' AND ' if every else ' OR ').join(kept)})"
