"""Finds the column or expression that holds the key of a partition dimension, and its kind of values."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.slice_model import ONLY, Slice, Window


class Kind(Enum):
    """The kind of a partition column's values."""

    TEXT = "string"
    INTEGER = "integer"
    DATE = "date"
    TIMESTAMP = "timestamp"
    INSTANT = "timestamp with time zone"


_KINDS = {
    Kind.TEXT: r"VARCHAR",
    Kind.INTEGER: r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?",
    Kind.DATE: r"DATE",
    Kind.TIMESTAMP: r"TIMESTAMP(_S|_MS|_NS)?",
    Kind.INSTANT: r"TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ",
}


@dataclass(frozen=True)
class PartitionColumn:
    """The column or expression that holds the key of a dimension.

    Attributes:
        sql: The column or the expression, as SQL.
        kind: The kind of its values.
        column: The column's name; None for an expression.
    """

    sql: str
    kind: Kind
    column: str | None


def partition_columns(
    what: str, dimensions: Sequence[str], partition_expr: object, types: Mapping[str, str]
) -> dict[str, PartitionColumn]:
    """Find the column of each dimension.

    Args:
        what: The asset, for messages.
        dimensions: Names of the dimensions.
        partition_expr: The asset's setting: a column or an expression in DuckDB's SQL; for several dimensions a
            mapping from each dimension to one.
        types: Types of the table's columns in DuckDB, by name.

    Raises:
        ConfigError: If a dimension has no column, or one whose type cannot hold keys.
    """
    given = _by_dimension(what, dimensions, partition_expr)
    return {name: _column(what, given[name], types) for name in dimensions}


def written_columns(
    what: str,
    dimensions: Sequence[str],
    partition_expr: object,
    stored: Mapping[str, str],
    arriving: Callable[[], Mapping[str, str]],
) -> dict[str, PartitionColumn]:
    """Find the column of each dimension for a write, which can create the table or add the column.

    Args:
        what: The asset, for messages.
        dimensions: Names of the dimensions.
        partition_expr: The asset's setting; see `partition_columns`.
        stored: Types of the table's columns by name; none if the table does not exist.
        arriving: Returns the types of the data's columns; called only if the table does not have all the columns.
    """
    known = set(map(folded, stored))
    if not all(folded(_plain(given)) in known for given in _by_dimension(what, dimensions, partition_expr).values()):
        stored = {**stored, **{name: kind for name, kind in arriving().items() if folded(name) not in known}}
    return partition_columns(what, dimensions, partition_expr, stored)


def partition_transforms(part: Slice, columns: Mapping[str, PartitionColumn]) -> list[str] | None:
    """Return the partition keys of a new table, so that each host partition is a set of whole files."""
    keys: list[str] = []
    for position, name in enumerate(part.dimensions):
        column = columns[name]
        if column.column is None:
            return None  # DuckLake partitions only by columns
        windows = [cell[position].window for cell in part.cells]
        spans = [window for window in windows if window is not None]
        quoted = identifier(column.column)
        if column.kind in (Kind.TIMESTAMP, Kind.INSTANT):
            keys += [f"{part}({quoted})" for part in _calendar(spans)] if spans else []
        elif column.kind is Kind.DATE and (months := _months(spans)):
            keys += [f"{month}({quoted})" for month in months]
        else:
            keys.append(quoted)
    return keys or None


def _calendar(spans: Sequence[Window]) -> list[str]:
    """Return the transforms that distinguish the spans. DuckLake's transforms are parts of a date, so they add up."""
    shortest = min(span.end - span.start for span in spans)
    if shortest >= timedelta(days=360):
        return ["year"]
    if shortest >= timedelta(days=28):
        return ["year", "month"]
    if shortest >= timedelta(hours=22):  # a day on which clocks go forward is shorter than 24 hours
        return ["year", "month", "day"]
    return ["year", "month", "day", "hour"]


def _months(spans: Sequence[Window]) -> list[str]:
    """Return the transforms that distinguish whole months or years; none if some span is neither."""
    ends = [time for span in spans for time in span]
    if not ends or any(time.day != 1 for time in ends):
        return []
    return ["year"] if all(time.month == 1 for time in ends) else ["year", "month"]


def _by_dimension(what: str, dimensions: Sequence[str], given: object) -> dict[str, str]:
    if isinstance(given, str) and given.strip() and list(dimensions) == [ONLY]:
        return {ONLY: given}
    if isinstance(given, Mapping) and list(dimensions) != [ONLY]:
        columns = {name: given[name] for name in dimensions if isinstance(given.get(name), str) and given[name].strip()}
        if len(columns) == len(dimensions) == len(given):
            return columns
    if list(dimensions) == [ONLY]:
        line = '"partition_expr": "<column>"'
    else:
        line = '"partition_expr": {' + ", ".join(f'"{name}": "<column>"' for name in dimensions) + "}"
    wrong = "has no `partition_expr`" if given is None else f"its `partition_expr` = {given!r} does not fit"
    raise ConfigError(f"{what} is partitioned, but {wrong}.", remedy=f"Add this to its metadata: {line}")


def _column(what: str, expression: str, types: Mapping[str, str]) -> PartitionColumn:
    known = {folded(name): name for name in types}
    name = known.get(folded(_plain(expression)))
    type_name = types[name] if name is not None else _type_of(what, expression, types)
    for kind, pattern in _KINDS.items():
        if re.fullmatch(pattern, type_name):
            return PartitionColumn(identifier(name) if name is not None else f"({expression})", kind, name)
    *kinds, last = (kind.value for kind in Kind)
    raise ConfigError(
        f"{what}: `partition_expr` = {expression!r} is of type {type_name}, which cannot hold partition keys.",
        remedy=f"Use a {', '.join(kinds)} or {last}, for example a CAST(…).",
    )


def _plain(expression: str) -> str:
    """Return the name of the column if the expression is one."""
    plain = expression.strip()
    if plain.startswith('"') and plain.endswith('"') and len(plain) > 2:
        return plain[1:-1].replace('""', '"')
    return plain


def _type_of(what: str, expression: str, types: Mapping[str, str]) -> str:
    """Ask DuckDB for the type of an expression over the columns."""
    import duckdb

    row = ", ".join(f"NULL::{kind} AS {identifier(name)}" for name, kind in types.items())
    failure: ConfigError | None = None
    with duckdb.connect(config={"enable_external_access": "false"}) as con:
        try:
            described = con.execute(f"DESCRIBE SELECT ({expression}) AS k FROM (SELECT {row})").fetchall()
            return str(described[0][1])
        except duckdb.Error as error:
            failure = ConfigError(
                f"{what}: `partition_expr` = {expression!r} is not valid for this table: {error}",
                remedy=f"The table has the columns {', '.join(types)}.",
            )
    raise failure
