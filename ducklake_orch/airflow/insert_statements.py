"""Builds the statements of `insert_rows`: rows as SQL literals, which are inserted or replace rows with equal keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ducklake_orch.airflow.sql_literals import sql_value
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError, DataError, DuckLakeOrchError

Literals = Sequence[str]


def insert_sql(table: str, fields: Sequence[str], rows: Iterable[Literals]) -> str:
    """Return the statement that inserts rows.

    Args:
        table: The quoted name of the table.
        fields: The columns of the rows; empty for all columns of the table.
        rows: The values of each row, as literals or placeholders.
    """
    columns = f" ({_names(fields)})" if fields else ""
    return f"INSERT INTO {table}{columns} VALUES {_values(rows)}"


def keyed_rows_sql(
    table: str, fields: Sequence[str], rows: Iterable[Literals], *, keys: Sequence[str], types: Mapping[str, str]
) -> str:
    """Return the query for rows that replace the stored rows with equal keys. Of several rows of a key, the last one.

    Args:
        table: The table, for messages.
        fields: The columns of the rows.
        rows: The values of each row, as literals.
        keys: The columns that identify a row.
        types: The types of the table's columns, to which the values are cast.
    """
    kinds = {folded(name): kind for name, kind in types.items()}
    for name in (*fields, *keys):
        if folded(name) not in kinds:
            raise ConfigError(f"`{table}` has no column `{name}`.", remedy=nearest(name, types))
    positions = {folded(name): position for position, name in enumerate(fields)}
    if not keys or any(folded(name) not in positions for name in keys):
        raise ConfigError(
            "`replace` needs the columns that identify a row, because a lake has no keys.",
            remedy="Name them in `replace_index`, and give each row their values.",
        )
    last = {tuple(row[positions[folded(name)]] for name in keys): row for row in rows}.values()
    cast = ", ".join(f"CAST({identifier(name)} AS {kinds[folded(name)]}) AS {identifier(name)}" for name in fields)
    return f"SELECT {cast} FROM (VALUES {_values(last)}) AS literals({_names(fields)})"


def literal_rows(table: str, rows: Iterable[Any], fields: Sequence[str], *, strict: bool) -> Iterator[Literals]:
    """Yield the values of each row as SQL literals.

    Args:
        table: The table, for messages.
        rows: Sequences of values, or mappings from columns to values. A column that a mapping lacks is NULL.
        fields: The columns of the rows.
        strict: Whether to refuse a mapping that has a value for another column.
    """
    for number, row in enumerate(rows):
        try:
            yield [sql_value(value) for value in (_picked(row, fields, strict) if isinstance(row, Mapping) else row)]
        except DuckLakeOrchError as error:
            raise DataError(f"Row {number} for `{table}`: {error.message}", remedy=error.remedy) from error


def _picked(row: Mapping[str, Any], fields: Sequence[str], strict: bool) -> list[Any]:
    values = {folded(name): value for name, value in row.items()}
    picked = [values.pop(folded(name), None) for name in fields]
    if strict and values:
        raise DataError(f"The table has no column `{next(iter(values))}`.", remedy=nearest(next(iter(values)), fields))
    return picked


def chunks(rows: Iterator[Literals], size: int) -> Iterator[list[Literals]]:
    """Yield the rows in lists of at most `size`; 0 puts all rows in one list."""
    while chunk := list(islice(rows, size or None)):
        yield chunk


def _names(fields: Sequence[str]) -> str:
    return ", ".join(map(identifier, fields))


def _values(rows: Iterable[Literals]) -> str:
    return ", ".join(f"({', '.join(row)})" for row in rows)
