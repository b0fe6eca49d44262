"""Rows of floating-point numbers, conditions on them, and a Python model that evaluates the conditions."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

NAN, INF = math.nan, math.inf
# The values of each file. The files differ in bounds, Bloom filters and dictionaries.
FILES = (
    *((-0.0, 3.5), (-0.0,), (0.0,), (1.5, NAN), (1.0, 2.0, NAN), (NAN,), (1.5, 2.5)),
    *((-INF, -1.0, 5e-324, INF), (-5e-324, -0.0, 2.5)),
)
SCHEMA = pa.schema(
    [("n", pa.int32()), ("x", pa.float64()), ("f", pa.float32()), ("s", pa.struct([("x", pa.float64())]))]
)
COLUMNS = "n INTEGER, x DOUBLE, f FLOAT, s STRUCT(x DOUBLE)"
Value = Callable[[float], float]
# The columns by the name in a condition, each with the conversion of a number to its type.
PLACES: Mapping[str, Value] = {"x": float, "f": lambda v: float(np.float32(v)), "s.x": float}


class Condition(NamedTuple):
    """A condition on one column, and a function that evaluates it; NaN equals itself and is above all other numbers."""

    sql: str
    holds: Callable[[float], bool]


def _above(left: float, right: float) -> bool:
    return not math.isnan(right) and (math.isnan(left) or left > right)


def _equal(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


# Comparisons of a column with a constant, and functions that evaluate them.
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "{0} = {1}": _equal,
    "{0} <> {1}": lambda constant, value: not _equal(constant, value),
    "{0} < {1}": _above,
    "{0} >= {1}": lambda constant, value: not _above(constant, value),
    "{1} >= {0}": lambda constant, value: not _above(value, constant),
    "{0} IN ({1}, 7)": _equal,
}


def conditions(place: str) -> list[Condition]:
    """Return conditions on a column, with constants of every kind."""
    constants = [
        *(("0", 0.0), ("-0.0", 0.0), ("CAST('-0' AS DOUBLE)", 0.0), ("CAST('nan' AS DOUBLE)", NAN)),
        *(("CAST('inf' AS DOUBLE)", INF), ("1.5", 1.5), ("CAST('5e-324' AS DOUBLE)", 5e-324)),
    ]
    result = [
        Condition(text.format(place, sql), partial(holds, number))
        for sql, number in constants
        for text, holds in _COMPARISONS.items()
    ]
    result.append(Condition(f"{place} BETWEEN 0 AND 2", lambda v: 0 <= v <= 2))
    result.append(Condition(f"NOT ({place} BETWEEN -0.0 AND 9)", lambda v: not 0 <= v <= 9))
    return result


class Rows:
    """The values of a table's rows by their number `n`."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}
        self.files: list[pa.Table] = []
        for values in FILES:
            first = len(self.values)
            # Repeated often enough for a dictionary, and with it a Bloom filter.
            self.values |= {first + n: value for n, value in enumerate(values * 20)}
            rows = [{"n": n, "x": v, "f": np.float32(v), "s": {"x": v}} for n, v in list(self.values.items())[first:]]
            self.files.append(pa.Table.from_pylist(rows, schema=SCHEMA))

    def matching(self, place: str, condition: Condition) -> set[int]:
        """Return the rows that meet a condition."""
        return {n for n, value in self.values.items() if condition.holds(PLACES[place](value))}
