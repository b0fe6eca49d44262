"""Stage rows for a metadata table: prepare them before the lake's lock is taken; the commit assigns their ids."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import duckdb

from ducklake_orch.engine.quoting import identifier, literal, refuse_unstorable

# More rows than this are inserted as one Arrow relation. Up to this number, text is as fast. Arrow has a cost: pyarrow
# loads pandas when it converts its first list, which takes a second during which other writers may wait.
_ROWS_AS_TEXT = 5_000
_NAME = "__ducklake_orch_rows"


@dataclass(frozen=True)
class Relation:
    """Rows with named columns, as text or as Arrow.

    Attributes:
        columns: The DuckDB type of each column, by name; a column of NULLs would not show its type.
        rows: The rows.
        arrow: The same rows as an Arrow table, if there are many.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    arrow: Any = None

    @classmethod
    def of(cls, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> "Relation":
        """Prepare rows, as text or as Arrow depending on their number."""
        for value in chain.from_iterable(rows):
            if isinstance(value, str):
                refuse_unstorable(value)
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
        """Yield the FROM item that reads the rows."""
        if self.arrow is None:
            values = zip(self.columns.items(), zip(*self.rows, strict=True), strict=True)
            yield f"(SELECT {', '.join(_unnested(name, kind, column) for (name, kind), column in values)})"
            return
        con.register(_NAME, self.arrow)
        try:
            yield _NAME
        finally:
            con.unregister(_NAME)


def _unnested(name: str, kind: str, column: Sequence[Any]) -> str:
    """Return the SQL that unnests a column's values; they are JSON, which DuckDB parses much faster than SQL lists."""
    values = json.dumps(column, ensure_ascii=False, default=str)
    return f"unnest(from_json_strict({literal(values)}, {literal(json.dumps([kind]))})) AS {identifier(name)}"
