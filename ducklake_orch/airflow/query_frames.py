"""Reads the result of a query as pandas or Polars frames, at once or in chunks.

Without further arguments DuckDB converts the columns, with their types. Arguments of `pandas.read_sql` and
`polars.read_database` mean what they mean there, because these functions then read the rows.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from inspect import signature
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch.airflow.dbapi import HookConnection, Parameters
from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.errors import DuckLakeOrchError

Query = str | list[str]
Options = Mapping[str, Any]

# The arguments of the two functions that the hook itself gives.
_GIVEN = {"sql", "con", "params", "chunksize", "query", "connection", "iter_batches", "batch_size"}


def read_frame(connection: HookConnection, kind: str, sql: Query, parameters: Parameters, options: Options) -> Any:
    """Run a query and return all its rows as a frame.

    Args:
        connection: The connection.
        kind: `pandas` or `polars`.
        sql: The query, or statements of which the last one is the query.
        parameters: The values of the placeholders.
        options: Arguments of `pandas.read_sql` or `polars.read_database`.
    """
    query = _last(connection, sql, parameters)
    if options:
        return _read(connection, kind, query, parameters, options)
    return connection.run(query, parameters).frame(kind)


def read_chunks(
    connection: HookConnection, kind: str, sql: Query, parameters: Parameters, options: Options, size: int
) -> Iterator[Any]:
    """Run a query and yield frames of `size` rows, and one of the rest. A query without rows yields one empty frame."""
    query = _last(connection, sql, parameters)
    frames: Iterable[Any]
    if options:
        chunked = {"chunksize": size} if kind == "pandas" else {"iter_batches": True, "batch_size": size}
        frames = _read(connection, kind, query, parameters, {**options, **chunked})
    else:
        frames = (_converted(kind, chunk) for chunk in _chunks(connection.run(query, parameters).reader(size), size))
    if connection.locks_the_catalog:
        # The caller could not write to the lake while it iterates, so all rows are read first.
        frames = list(frames)
        connection.close()
    yield from frames


def check_options(method: str, kind: str, options: Options) -> None:
    """Refuse arguments that the function that reads the rows does not have."""
    if not options:
        return
    known = signature(_reader(kind)).parameters.keys() - _GIVEN
    refuse_unknown(method, options, ("df_type", *sorted(known)))


def _reader(kind: str) -> Any:
    if kind == "pandas":
        import pandas

        return pandas.read_sql
    import polars

    return polars.read_database


def _last(connection: HookConnection, sql: Query, parameters: Parameters) -> str:
    """Run all statements but the last, and return that."""
    *before, last = [sql] if isinstance(sql, str) else sql
    for statement in before:
        connection.run(statement, parameters)
    return last


def _read(connection: HookConnection, kind: str, query: str, parameters: Parameters, options: Options) -> Any:
    read = _reader(kind)
    if kind == "polars":
        given = {"parameters": parameters, **(options.get("execute_options") or {})}
        return read(query, connection, **{**options, "execute_options": given})
    import pandas

    try:
        with warnings.catch_warnings():
            # pandas knows no connections but SQLAlchemy's, and warns about all others.
            warnings.filterwarnings("ignore", "pandas only supports SQLAlchemy", UserWarning)
            return read(query, connection, params=parameters, **options)
    except pandas.errors.DatabaseError as error:
        if isinstance(error.__cause__, DuckLakeOrchError):
            raise error.__cause__ from None  # it says what failed, and whether a retry can help
        raise


def _chunks(reader: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    """Yield tables of `size` rows, whatever the sizes of the batches."""
    held = reader.schema.empty_table()
    yielded = False
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while len(held) >= size:
            yield held.slice(0, size)
            held, yielded = held.slice(size), True
    if len(held) or not yielded:
        yield held


def _converted(kind: str, chunk: pa.Table) -> Any:
    if kind == "polars":
        import polars

        return polars.from_arrow(chunk)
    with duckdb.connect() as con:
        return con.from_arrow(chunk).df()  # as DuckDB converts the result of `get_df`
