"""Rows on their way into a metadata table: made ready before the queue is taken, numbered when their turn has come."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.engine.quoting import identifier, literal

# More rows than this go in as one Arrow relation; for fewer, text is faster than to load pyarrow.
_ROWS_AS_TEXT = 200
_NAME = "__ducklake_orch_rows"


@dataclass(frozen=True)
class Relation:
    """Rows with named columns, as text or as Arrow.

    Attributes:
        columns: Name of each column with its DuckDB type, which a column of NULLs would not tell.
        rows: The rows.
        arrow: The same as an Arrow table, when there are many.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    arrow: Any = None

    @classmethod
    def of(cls, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> "Relation":
        """Make rows ready."""
        if len(rows) <= _ROWS_AS_TEXT:
            return cls(columns, rows)
        import pyarrow as pa

        kinds = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()}
        values = zip(columns.values(), zip(*rows, strict=True), strict=True)
        arrays = [pa.array(column, kinds[kind]) for kind, column in values]
        return cls(columns, rows, pa.Table.from_arrays(arrays, names=list(columns)))

    def __bool__(self) -> bool:
        return bool(self.rows)

    @contextmanager
    def source(self, con: duckdb.DuckDBPyConnection) -> Iterator[str]:
        """Give what stands behind FROM to read the rows."""
        if self.arrow is None:
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in self.rows)
            inner = ", ".join(identifier(name) for name in self.columns)
            typed = ", ".join(
                f"{identifier(name)}::{kind} AS {identifier(name)}" for name, kind in self.columns.items()
            )
            yield f"(SELECT {typed} FROM (VALUES {values}) AS r({inner}))"
            return
        con.register(_NAME, self.arrow)
        try:
            yield _NAME
        finally:
            con.unregister(_NAME)
