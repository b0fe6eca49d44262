"""Evaluates values with plain DuckDB, without a lake: texts, conditions on rows, and partition keys."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import identifier
from tests.catalog.differential.values import Scalar, Type, Typed, Value, sql_text, sql_type, sql_value

# The name and type of each column of the evaluated rows.
Columns = Sequence[tuple[str, Type]]


class Oracle:
    """A DuckDB connection that evaluates SQL without tables, files or statistics."""

    def __init__(self) -> None:
        self._con = duckdb.connect(config={"threads": 1})
        load_extension(self._con, "ducklake")  # only for murmur3_32
        self._con.execute("SET TimeZone = 'UTC'")
        self._texts: dict[tuple[Type, Value], str | None] = {}
        self._types: dict[Type, str] = {}

    def close(self) -> None:
        self._con.close()

    def texts(self, cells: Iterable[tuple[Type, Value]]) -> Mapping[tuple[Type, Value], str | None]:
        """Return the engine's text of each value, which is computed once."""
        new = [cell for cell in dict.fromkeys(cells) if cell not in self._texts]
        if new:
            found = self._one(", ".join(sql_text(sql_value(value, kind), kind) for kind, value in new))
            self._texts |= dict(zip(new, found, strict=True))
        return self._texts

    def texts_of(self, table: pa.Table, values: Sequence[str]) -> list[tuple[str | None, ...]]:
        """Return the values of expressions over an Arrow table's columns, for each row."""
        self._con.register("given", table)
        return self._con.execute(f"SELECT {', '.join(values)} FROM given").fetchall()

    def json(self, value: Typed) -> str:
        """Return the content of a VARIANT as JSON."""
        text: str = self._one(f"CAST(to_json({sql_value(value.value, value.type)}) AS VARCHAR)")[0]
        return text

    def cast(self, value: Value, old: Type, new: Type) -> Value:
        """Return a value after the promotion of its column."""
        text: str | None = self._one(f"CAST(CAST({sql_value(value, old)} AS {sql_type(new)}) AS VARCHAR)")[0]
        return text

    def type_name(self, kind: Type) -> str:
        """Return the type's name in the output of DESCRIBE."""
        if kind not in self._types:
            self._types[kind] = str(self._one(f"typeof({sql_value(None, kind)})")[0])
        return self._types[kind]

    def matching(self, columns: Columns, rows: Mapping[int, Sequence[Value]], where: str) -> set[int]:
        """Return the ids of the rows that meet a condition."""
        return {row[0] for row in self._ask("__id", columns, rows, f" WHERE (\n{where}\n)")}

    def keys(
        self, columns: Columns, rows: Mapping[int, Sequence[Value]], keys: Sequence[str]
    ) -> dict[int, tuple[Any, ...]]:
        """Return the values of expressions as texts, for each row."""
        texts = ", ".join(f"CAST({key} AS VARCHAR)" for key in keys)
        return {row[0]: row[1:] for row in self._ask(f"__id, {texts}", columns, rows)}

    def arrow(self, columns: Columns, rows: Sequence[Sequence[Value]], *, lossless: bool = True) -> Any:
        """Return rows as an Arrow table. A VARIANT becomes its content, which must be of one type.

        Args:
            columns: The names and types of the columns.
            rows: The rows.
            lossless: Whether types that Arrow lacks become DuckDB's extension types; else UUID, JSON and HUGEINT become
                other types.
        """
        inside = [_without_variant(kind, [row[n] for row in rows]) for n, (_, kind) in enumerate(columns)]
        types = [(name, kind) for (name, _), (kind, _) in zip(columns, inside, strict=True)]
        plain = dict(enumerate(zip(*(values for _, values in inside), strict=True)))
        names = ", ".join(identifier(name) for name, _ in columns)
        self._con.execute(f"SET arrow_lossless_conversion = {lossless}")
        return self._con.sql(f"SELECT {names} FROM {_source(types, plain)}").to_arrow_table()

    def _ask(
        self, select: str, columns: Columns, rows: Mapping[int, Sequence[Value]], condition: str = ""
    ) -> list[tuple[Any, ...]]:
        return self._con.execute(f"SELECT {select} FROM {_source(columns, rows)}{condition}").fetchall() if rows else []

    def _one(self, select: str) -> tuple[Any, ...]:
        row = self._con.execute(f"SELECT {select}").fetchone()
        assert row is not None
        return row


def _without_variant(kind: Type, values: Sequence[Value]) -> tuple[Type, Sequence[Value]]:
    if kind != Scalar("VARIANT"):
        return kind, values
    inner = next((value.type for value in values if isinstance(value, Typed)), Scalar("VARCHAR"))
    return inner, [value.value if isinstance(value, Typed) else None for value in values]


def _source(columns: Columns, rows: Mapping[int, Sequence[Value]]) -> str:
    names = ", ".join(identifier(name) for name in ["__id", *(name for name, _ in columns)])
    if not rows:
        nothing = ", ".join(f"{sql_value(None, kind)} AS {identifier(name)}" for name, kind in columns)
        return f"(SELECT {nothing} WHERE false)"
    values = ", ".join(
        f"({', '.join([str(number), *(sql_value(v, kind) for v, (_, kind) in zip(row, columns, strict=True))])})"
        for number, row in rows.items()
    )
    return f"(VALUES {values}) AS rows({names})"
