"""Check that new rows match the predicate of the rows that they replace, before the write commits."""

from collections.abc import Iterator
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import TableDef
from ducklake_orch.catalog.writing.arrow_source import Source
from ducklake_orch.catalog.writing.cast_to_table import projection, source_columns
from ducklake_orch.engine.scratch import scratch
from ducklake_orch.errors import RowsOutsideError

_BATCH = "__ducklake_orch_batch"
# Small batches are checked together until they have this many rows or bytes.
_ROWS, _BYTES = 50_000, 16 * 1024 * 1024


class RowsInside:
    """A stream of batches that yields nothing more once a row does not match; it counts all such rows, then fails.

    Args:
        reader: The data, as a pyarrow.RecordBatchReader.
        source: The source of the data.
        table: The table to write for.
        where: The predicate that each row must match.

    Attributes:
        outside: The number of rows that do not match.
        example: One of these rows.
        failure: The error that ended the stream, if any.
    """

    def __init__(self, reader: Any, source: Source, table: TableDef, where: str) -> None:
        self._reader = reader
        self._rows = source.relation(_BATCH, table)
        self._table = table
        self._where = where
        self.outside = 0
        self.example: Any = None
        self.failure: RowsOutsideError | None = None

    def stream(self) -> Any:
        """Return the checked data, as a pyarrow.RecordBatchReader."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._reader.schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        import pyarrow as pa

        # Another instance checks, because the one that reads this stream waits for it.
        with scratch() as con:
            con.execute("SET TimeZone = 'UTC'")
            checks: tuple[str, str] | None = None
            for batches in _gathered(self._reader):
                con.register(_BATCH, pa.Table.from_batches(batches))
                if checks is None:
                    checks = outside_queries(con, self._rows, self._table, self._where)
                row = con.execute(checks[0]).fetchone()
                if row and row[0]:
                    self.outside += row[0]
                    self.example = self.example or con.execute(checks[1]).fetchone()
                con.unregister(_BATCH)
                if not self.outside:
                    yield from batches
        if self.outside:
            self.failure = rows_outside(self._table, self._where, self.outside, self.example)
            raise self.failure


def outside_queries(con: duckdb.DuckDBPyConnection, source: str, table: TableDef, where: str) -> tuple[str, str]:
    """Return the queries for the number of rows that do not match a predicate, and for one of them.

    Args:
        con: A connection that has the rows.
        source: The FROM item that reads the rows.
        table: The table to write for.
        where: The predicate.
    """
    rows = f"SELECT {projection(con, table, source_columns(con, source))} FROM {source}"
    wrong = f"FROM ({rows}) WHERE (\n{where}\n) IS NOT TRUE"
    return f"SELECT count(*) {wrong}", f"SELECT * {wrong} LIMIT 1"


def _gathered(reader: Any) -> Iterator[list[Any]]:
    """Yield lists of batches; small ones are combined, because a query for each would cost more than the check."""
    gathered: list[Any] = []
    rows = size = 0
    for batch in reader:
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield gathered
            gathered, rows, size = [], 0, 0
    if gathered:
        yield gathered


def rows_outside(table: TableDef, where: str, count: int, example: Any) -> RowsOutsideError:
    """Return the error for rows that do not match the predicate of the rows that they replace."""
    return RowsOutsideError(
        f"{count} rows for `{table}` do not match `{where}`, such as {example}.",
        remedy='Correct the data or the predicate; `outside` = "drop" leaves such rows out.',
    )
