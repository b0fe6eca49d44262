"""Divide rows into cells by the values of some columns, so that rows with similar values are in the same cell.

The rows are divided in two at a value of the first column, each half at a value of the second column, and so on in
turn, until there are enough cells of about the same number of rows. A condition on any of the columns then holds only
in a part of the cells. Dividing rows at their own values works for every type and every distribution, also where
columns depend on each other.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import duckdb

# The rows that tell where to divide: some for each cell, so that cells become similar in size.
_SAMPLED, _SAMPLED_FOR_EACH_CELL = 20_000, 50
# The engine's sort keys are BLOBs, and integers for short types.
Key = bytes | int
Row = Sequence[Any]


def cell_sql(con: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[str], files: int, parts: int) -> str:
    """Return the SQL expression for the number of the cell that a row is in.

    Args:
        con: A DuckDB connection that can read the rows.
        rows: The query for the rows.
        keys: SQL expressions for what to divide by, which `create_sort_key` returns.
        files: How many files the cells are for; each holds cells next to each other.
        parts: How many cells each file has.

    Returns:
        An expression for `files * parts` cells. Files and cells that cannot be divided because all keys of their rows
        are equal leave numbers unused.
    """
    if files * parts == 1:
        return "0"
    size = max(_SAMPLED, _SAMPLED_FOR_EACH_CELL * files * parts)
    sample = con.execute(f"SELECT {', '.join(keys)} FROM ({rows}) USING SAMPLE reservoir({size} ROWS)").fetchall()
    return _divided(sample, keys, 0, 0, files * parts, parts)


def _divided(rows: Sequence[Row], keys: Sequence[str], turn: int, first: int, cells: int, unit: int) -> str:
    """Return the expression for the cells of some rows.

    Args:
        rows: The sampled ones of the rows.
        keys: The keys.
        turn: The key to divide by.
        first: The number of the first cell.
        cells: How many cells the rows get.
        unit: How many cells a file has; files are not divided before there is one cell range for each.
    """
    unit = unit if cells > unit else 1
    if cells == 1:
        return str(first)
    for number in [*range(turn, len(keys)), *range(turn)]:
        bound = _bound(sorted(row[number] for row in rows), cells // unit // 2 / (cells // unit))
        if bound is None:
            continue
        below = [row for row in rows if row[number] < bound]
        above = [row for row in rows if row[number] >= bound]
        # Values that many rows share are not divided, so the sides may differ in size.
        left = round(cells / unit * len(below) / len(rows))
        left = min(max(left, 1), cells // unit - 1) * unit
        following = (number + 1) % len(keys)
        low = _divided(below, keys, following, first, left, unit)
        high = _divided(above, keys, following, first + left, cells - left, unit)
        return f"CASE WHEN {keys[number]} < {_literal(bound)} THEN {low} ELSE {high} END"
    return str(first)


def _bound(values: Sequence[Any], share: float) -> Key | None:
    """Return the value that divides sorted values most nearly by a share; None if all are equal."""
    if not values or values[0] == values[-1]:
        return None
    wanted = int(len(values) * share)
    value: Key = values[wanted]
    first, after = bisect_left(values, value), bisect_right(values, value)
    if first and (after == len(values) or wanted - first <= after - wanted):
        return value
    following: Key = values[after]
    return following


def _literal(key: Key) -> str:
    return str(key) if isinstance(key, int) else f"unhex('{key.hex()}')"
