"""Translate a condition from DuckDB's SQL to Spark's if both certainly mean the same: `translate`.

Otherwise DuckDB has to evaluate the condition.
"""

import re
from collections.abc import Sequence
from typing import Any

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.catalog.scan import COMPARISONS, Node, Predicate
from ducklake_orch.engine.quoting import folded
from ducklake_orch.spark.spark_quoting import date_sql, moment_sql, name_sql, text_sql

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_MOMENTS = ("timestamp", "timestamp_us", "timestamptz")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# The number of decimal digits that a double certainly holds.
_CERTAIN_DIGITS = 15


class _NotTheSame(Exception):
    """A part of a condition that may mean something else in Spark."""


def translate(predicate: Predicate) -> str | None:
    """Return a condition in Spark's SQL, None if it may mean something else there."""
    known = {folded(column.name): column for column in predicate.columns}
    try:
        return _condition(predicate.tree, known)
    except _NotTheSame:
        return None


def _condition(node: Node, known: dict[str, ColumnDef]) -> str:
    kind, parts = node["type"], node.get("children", [])
    match kind:
        case "CONJUNCTION_AND" | "CONJUNCTION_OR":
            word = " AND " if kind == "CONJUNCTION_AND" else " OR "
            return f"({word.join(_condition(part, known) for part in parts)})"
        case "OPERATOR_NOT":
            return f"(NOT {_condition(parts[0], known)})"
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return f"({name_sql(_column(parts[0], known).name)} {kind[9:].replace('_', ' ')})"
        case "COMPARE_BETWEEN":
            column, ends = _column(node["input"], known), _values(node["input"], [node["lower"], node["upper"]], known)
            return f"({name_sql(column.name)} BETWEEN {ends[0]} AND {ends[1]})"
        case "COMPARE_IN" | "COMPARE_NOT_IN":
            column, values = _column(parts[0], known), _values(parts[0], parts[1:], known)
            return f"({name_sql(column.name)} {'NOT ' * (kind != 'COMPARE_IN')}IN ({', '.join(values)}))"
        case "COLUMN_REF" if _column(node, known).type == "boolean":
            return name_sql(_column(node, known).name)
    if kind not in COMPARISONS:
        raise _NotTheSame
    sign, left, right = COMPARISONS[kind], node["left"], node["right"]
    if left["class"] != "COLUMN_REF":
        sign, left, right = _FLIPPED[sign], right, left
    return f"({name_sql(_column(left, known).name)} {sign} {_values(left, [right], known)[0]})"


def _column(node: Node, known: dict[str, ColumnDef]) -> ColumnDef:
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        raise _NotTheSame
    return known[folded(node["column_names"][0])]


def _values(node: Node, constants: Sequence[Node], known: dict[str, ColumnDef]) -> list[str]:
    column = _column(node, known)
    values = [_value(column, *_constant(constant)) for constant in constants]
    if None in values or len({_constant(constant)[0] == "VARCHAR" for constant in constants}) != 1:
        raise _NotTheSame  # texts mixed with other values are cast to a type that depends on all of them
    return [str(value) for value in values]


def _constant(node: Node) -> tuple[str, Any, int]:
    """Return a constant's type, its value, and its number of decimal places."""
    if node["class"] == "CAST" and not node["try_cast"] and node["child"]["class"] == "CONSTANT":
        kind, value, _ = _constant(node["child"])
        if kind == "VARCHAR" and node["cast_type"]["id"] in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
            return node["cast_type"]["id"], value, 0
        if kind == "VARCHAR" and node["cast_type"]["id"] == "BOOLEAN" and value in ("t", "f"):
            return "BOOLEAN", value == "t", 0  # the parser's form of `true` and `false`
    if node["class"] != "CONSTANT" or node["value"]["is_null"]:
        raise _NotTheSame
    kind, value = node["value"]["type"], node["value"]["value"]
    scale = kind["type_info"]["scale"] if kind["id"] == "DECIMAL" else 0
    if kind["id"] in ("HUGEINT", "UHUGEINT") or isinstance(value, dict):
        raise _NotTheSame
    return kind["id"], value, scale


def _value(column: ColumnDef, kind: str, value: Any, scale: int) -> str | None:
    """Return a constant to compare a column with, None if it has no safe form."""
    if column.type in _INTEGERS:
        return f"{value}{'L' * (abs(value) > 2**31 - 1)}" if kind in _WHOLE else None
    if column.type == "varchar":
        return text_sql(value) if kind == "VARCHAR" else None
    if column.type == "boolean":
        return str(value).lower() if kind == "BOOLEAN" else None
    if column.type == "date":
        return date_sql(value) if kind in ("VARCHAR", "DATE") else None
    if column.type in _MOMENTS:
        zoned = column.type == "timestamptz"
        if kind == "DATE":
            return moment_sql(value, zoned=zoned) if date_sql(value) else None
        # A timestamp with a zone is compared differently with a column without one.
        fits = kind in ("VARCHAR", "TIMESTAMP") or (zoned and kind == "TIMESTAMP WITH TIME ZONE")
        return moment_sql(value, zoned=zoned) if fits else None
    return _number(column, kind, value, scale)


def _number(column: ColumnDef, kind: str, value: Any, scale: int) -> str | None:
    if kind not in ("DECIMAL", "DOUBLE", *_WHOLE):
        return None
    if column.type == "float64":
        if kind == "DOUBLE":
            return f"CAST('{value!r}' AS DOUBLE)"
        return f"CAST('{value}e-{scale}' AS DOUBLE)" if len(str(abs(value))) <= _CERTAIN_DIGITS else None
    match = _DECIMAL.fullmatch(column.type)
    if not match or kind == "DOUBLE":
        return None
    precision, places = int(match[1]), int(match[2])
    # Cast to the column's own type, so that nothing is rounded and statistics still prune files.
    if scale > places or len(str(abs(value))) - scale > precision - places:
        return None
    return f"CAST('{value}e-{scale}' AS DECIMAL({precision},{places}))"
