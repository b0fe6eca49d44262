"""The source rows of a merge: copied once into a temporary table that can spill to disk, checked before any scan."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, TableDef, duckdb_type, free_column_name
from ducklake_orch.catalog.writing import explain, projection, source_columns, source_of
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.errors import DataError

# The temporary tables: source rows as they arrived, and source rows cast to the target's columns and numbered.
SPOOLED = "__ducklake_orch_spooled"
_ARRIVING = "__ducklake_orch_arriving"
SOURCE = "__ducklake_orch_merged"
# Up to this many keys, the scan condition lists them all; beyond, it gives their minimum and maximum.
_MAX_LISTED_KEYS = 200
_ROWS_AT_ONCE = 100_000
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TEXTS = ("varchar", "date", "timestamp", "timestamptz", "uuid", "boolean")


class Spool(Protocol):
    """Rows that can be copied into a temporary DuckDB table, once."""

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""

    def spool(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Copy the rows into a temporary table."""

    def relation(self, name: str, table: TableDef) -> str:
        """Return the relation to put after FROM to read that table; an untyped column gets the type of `table`'s."""


class ArrowSpool:
    """Rows that this process reads as a stream of Arrow batches.

    Args:
        data: Any object that offers an Arrow stream.
        values: SQL expressions, by name, for the columns whose types Arrow cannot represent.
    """

    def __init__(self, data: Any, values: Mapping[str, str] | None = None) -> None:
        self._source = source_of(data, values)
        self.types = self._source.types
        self.relation = self._source.relation

    def spool(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Copy the rows into a temporary table."""
        con.register(_ARRIVING, self._source.reader())
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {self._source.arriving(_ARRIVING)}")
        except duckdb.Error as error:
            raise DataError(f"The data cannot be read completely: {self._source.failure or error}") from error
        finally:
            con.unregister(_ARRIVING)


class MergeSource:
    """The source rows of a merge.

    Args:
        con: A connection that nothing else uses during the merge.
        rows: The source rows.
        keys: Names of the key columns.
        null_keys: How to treat a key that is NULL: `error` or `match`.

    Attributes:
        number: Name of the row number column.
    """

    number: str

    def __init__(self, con: duckdb.DuckDBPyConnection, rows: Spool, keys: Sequence[str], null_keys: str) -> None:
        self._con = con
        self._null_keys = null_keys
        self._columns: tuple[ColumnDef, ...] | None = None
        self._given: list[ColumnDef] = []
        self._rows = rows
        self.types = rows.types(con)
        names = {folded(name): name for name, _ in self.types}
        for key in keys:
            if folded(key) not in names:
                raise DataError(f"The data have no key column `{key}`.", remedy=nearest(key, list(names.values())))
        self.keys = [names[folded(key)] for key in keys]
        rows.spool(con, SPOOLED)

    @contextmanager
    def again(self, query: str) -> Iterator[Any]:
        """Run a query over the source rows as they arrived (`SPOOLED`), and yield its rows as Arrow batches."""
        # Without this setting, UUIDs and similar types would arrive as text.
        self._con.execute("SET arrow_lossless_conversion = true")
        try:
            yield self._con.execute(query).to_arrow_reader(_ROWS_AT_ONCE)
        finally:
            self._con.execute("RESET arrow_lossless_conversion")

    @property
    def columns(self) -> tuple[ColumnDef, ...]:
        """The columns of the table that the source rows have. All are nullable: constraints are not checked yet."""
        return tuple(replace(column, nullable=True) for column in self._given)

    def become_rows_of(self, table: TableDef) -> list[ColumnDef]:
        """Cast the source rows to the columns of a table that they have; return those columns.

        Raises:
            DataError: When the rows do not fit the table, a key is NULL, or two rows have the same keys.
        """
        if self._columns == table.columns:  # matches that refer to row numbers stay valid
            return self._given
        con, source = self._con, self._rows.relation(SPOOLED, table)
        self.number = free_column_name("__ducklake_orch_number", table.columns)
        projection(con, table, source_columns(con, source))
        given = {folded(name): name for name, _ in self.types}
        columns = [column for column in table.columns if folded(column.name) in given]
        values = (
            f"CAST({identifier(given[folded(column.name)])} AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in columns
        )
        numbered = f"SELECT {', '.join(values)}, row_number() OVER () AS {self.number} FROM {source}"
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE {SOURCE} AS {numbered}")
        except duckdb.Error as error:
            failure = explain(error, table)
            if failure is None:
                raise
            raise failure from None
        self.check_rows(SOURCE)
        self._columns, self._given = table.columns, columns
        return columns

    def check_rows(self, name: str | None = None) -> None:
        """Refuse keys that are NULL or that several source rows share.

        Args:
            name: The table to check; by default the source rows as they arrived.
        """
        con, rows, keys = self._con, name or SPOOLED, ", ".join(map(identifier, self.keys))
        nulls = " OR ".join(f"{identifier(key)} IS NULL" for key in self.keys)
        if self._null_keys == "error" and (row := con.execute(f"FROM {rows} WHERE {nulls} LIMIT 1").fetchone()):
            raise DataError(
                f"A source row has NULL in a key column ({', '.join(self.keys)}): {row}.",
                remedy='Leave out such rows, or match NULL keys like other values with `null_keys="match"`.',
            )
        self._refuse_rounded(rows)
        twice = f"SELECT {keys}, count(*) FROM {rows} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        if row := con.execute(twice).fetchone():
            values = ", ".join(f"{key} = {value!r}" for key, value in zip(self.keys, row, strict=False))
            raise DataError(
                f"{row[-1]} rows of the data have the same keys: {values}.",
                remedy="A merge needs one row for each key: keep one of them before the merge.",
            )

    def _refuse_rounded(self, rows: str) -> None:
        """Refuse keys that Parquet would round: no later merge would find them."""
        kinds = {folded(str(row[0])): str(row[1]) for row in self._con.execute(f"DESCRIBE {rows}").fetchall()}
        for key in self.keys:
            name, kind = identifier(key), kinds[folded(key)]
            if kind not in ("HUGEINT", "UHUGEINT"):
                continue
            is_rounded = f"TRY_CAST(CAST({name} AS DOUBLE) AS {kind}) IS DISTINCT FROM {name}"
            if row := self._con.execute(f"SELECT {name} FROM {rows} WHERE {is_rounded} LIMIT 1").fetchone():
                raise DataError(
                    f"The key {key} = {row[0]} is a {kind}, which Parquet stores as a rounded DOUBLE.",
                    remedy="Use DECIMAL(38, 0) or VARCHAR for the column: they keep every digit.",
                )

    def range(self, table: TableDef, target: TableDef) -> str:
        """Return a condition that is true for every row with a key of the source: a list of keys, or their range.

        Args:
            table: The table.
            target: The table as the merge will leave it. The condition leaves out keys whose type is widened.
        """
        wanted = {folded(key) for key in self.keys}
        both = zip(table.columns, target.columns, strict=False)
        parts = [
            self._key_range(column)
            for column, after in both
            if folded(column.name) in wanted and column.type == after.type
        ]
        return " AND ".join(parts) or "1 = 1"

    def _key_range(self, column: ColumnDef) -> str:
        name, numeric = identifier(column.name), column.type in _INTEGERS or column.type.startswith("decimal")
        if not (numeric or column.type in _TEXTS):
            return "1 = 1"
        distinct = f"SELECT DISTINCT CAST({name} AS VARCHAR), {name} IS NULL FROM {SOURCE} LIMIT {_MAX_LISTED_KEYS + 1}"
        keys = self._con.execute(distinct).fetchall()
        texts = sorted(text for text, is_null in keys if not is_null)
        if any("\0" in text for text in texts):
            return "1 = 1"

        def value(text: str) -> str:
            return text if numeric else literal(text)

        if len(keys) > _MAX_LISTED_KEYS:
            ends = f"SELECT min({name})::VARCHAR, max({name})::VARCHAR, bool_or({name} IS NULL) FROM {SOURCE}"
            low, high, has_null = self._con.execute(ends).fetchall()[0]
            if "\0" in low + high:
                return "1 = 1"
            condition = f"{name} BETWEEN {value(low)} AND {value(high)}"
        else:
            has_null = any(is_null for _, is_null in keys)
            condition = f"{name} IN ({', '.join(map(value, texts))})" if texts else "1 = 0"
        return f"({condition} OR {name} IS NULL)" if has_null else f"({condition})"
