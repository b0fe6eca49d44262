"""The source rows of a merge: copied once into a temporary table that can spill to disk, checked before any scan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, TableDef, duckdb_type, free_column_name
from ducklake_orch.catalog.verbs.merge_request import KeyedRequest
from ducklake_orch.catalog.writing import Lent, explain, projection, source_columns, source_of
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.layout import sort_terms
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.engine.temporary_setting import temporary_setting
from ducklake_orch.errors import DataError

# The temporary tables: source rows as they arrived, and source rows cast to the target's columns and numbered.
SPOOLED = "__ducklake_orch_spooled"
_ROW = "__ducklake_orch_row"
_ARRIVING = "__ducklake_orch_arriving"
SOURCE = "__ducklake_orch_merged"
# The field ids of the columns that are added to the source rows, in staged files. No column of a table has such an id,
# and DuckLake does not reserve it.
ADDED_FIELDS = 2_000_000_000
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
        request: What the merge asks of its data.
        keys: The columns by which the rows are matched, in which NULL is refused unless it matches.
        unique: The columns that tell rows apart; by default `keys`.
        repeats: Whether several rows may have the same values in them.

    Attributes:
        keys: The columns by which the rows are matched, as the data name them.
        types: The columns of the data, and their types in DuckDB.
        null_keys: How NULL in a key is treated: `error` or `match`.
        number: Name of the row number column.
        deleted: The name of the column that marks rows to delete; None if the data have no such marks.
    """

    number: str
    deleted: str | None

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        rows: Spool,
        request: KeyedRequest,
        keys: Sequence[str],
        unique: Sequence[str] | None = None,
        *,
        repeats: bool = False,
    ) -> None:
        self._con = con
        self.null_keys = request.null_keys
        self._columns: tuple[ColumnDef, ...] | None = None
        self._given: list[ColumnDef] = []
        self._rows = rows
        self.types = rows.types(con)
        self.keys = self.column_names(*keys)
        self._unique = self.keys if unique is None else self.column_names(*unique)
        self._repeats = repeats
        self._mark = self._deletion_mark(request.hard_delete)
        rows.spool(con, SPOOLED)
        if request.deduplicate_by is not None:
            self._deduplicate(request.deduplicate_by)

    def column_names(self, *names: str) -> list[str]:
        """Return the names of columns as the data have them."""
        known = {folded(name): name for name, _ in self.types}
        for name in names:
            if folded(name) not in known:
                raise DataError(f"The data have no column `{name}`.", remedy=nearest(name, list(known.values())))
        return [known[folded(name)] for name in names]

    def _deletion_mark(self, name: str | None) -> tuple[str, str] | None:
        """Return the column that marks rows to delete, and its condition."""
        if name is None:
            return None
        column = self.column_names(name)[0]
        is_boolean = str(dict(self.types)[column]) == "BOOLEAN"
        return column, f"{identifier(column)} {'IS TRUE' if is_boolean else 'IS NOT NULL'}"

    def _deduplicate(self, order: Sequence[str]) -> None:
        """Keep the first row of each key; ties are broken by the row's values."""
        keys = ", ".join(map(identifier, self._unique))
        terms = sort_terms(order, [name for name, _ in self.types], "deduplicate_by")
        first = ", ".join([term._replace(nulls=term.nulls or "NULLS LAST").sql for term in terms] + [_ROW])
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE {SPOOLED} AS FROM {SPOOLED} AS {_ROW}"
            f" QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {first}) = 1"
        )

    def stored_types(self, table: TableDef | None) -> list[tuple[str, Any]]:
        """Return the columns to store; the one that marks rows to delete is stored only if the table has it.

        Args:
            table: The table; None for a new one.
        """
        if self._mark is None or (table and any(folded(c.name) == folded(self._mark[0]) for c in table.columns)):
            return self.types
        return [(name, kind) for name, kind in self.types if name != self._mark[0]]

    def first_rows(self, source: str = SPOOLED) -> str:
        """Return the query for the rows of a new table, as they arrived."""
        names = ", ".join(identifier(name) for name, _ in self.stored_types(None))
        return f"SELECT {names} FROM {source}{f' WHERE ({self._mark[1]}) IS NOT TRUE' if self._mark else ''}"

    def keys_match_sql(self, pairs: Iterable[tuple[str, str]]) -> str:
        """Return the condition that keys of a row of the table and of a source row are the same.

        Args:
            pairs: The SQL of each key of the row of the table, and of the source row.
        """
        sign = "=" if self.null_keys == "error" else "IS NOT DISTINCT FROM"
        return " AND ".join(f"{left} {sign} {right}" for left, right in pairs)

    def with_keys_sql(self, rows: str, alias: str, keys: Mapping[str, str]) -> tuple[str, str]:
        """Return the join of rows of the table with the keys of the data, and the condition that a row has them.

        Args:
            rows: The alias of the rows.
            alias: The alias of the keys.
            keys: The column of the data by the column of the rows.
        """
        mark = self.number
        named = ", ".join(f"{identifier(key)} AS k{n}" for n, key in enumerate(keys.values()))
        same = self.keys_match_sql((f"{rows}.{identifier(key)}", f"{alias}.k{n}") for n, key in enumerate(keys))
        known = f"(SELECT DISTINCT {named}, true AS {mark} FROM {SOURCE}) AS {alias}"
        return f" LEFT JOIN {known} ON {same}", f"{alias}.{mark} IS NOT NULL"

    @contextmanager
    def again(self, query: str) -> Iterator[Any]:
        """Run a query over the source rows as they arrived (`SPOOLED`), and yield its rows as Arrow batches."""
        # Without this setting, UUIDs and similar types would arrive as text.
        with temporary_setting(self._con, "arrow_lossless_conversion", "true"):
            yield self._con.execute(query).to_arrow_reader(_ROWS_AT_ONCE)

    @property
    def lent_table(self) -> Lent:
        """The source rows, cast to the columns of the table. All are nullable: constraints are not checked yet."""
        added = [ColumnDef(ADDED_FIELDS, self.number, "int64", nullable=True)]
        if self.deleted:
            added.append(ColumnDef(ADDED_FIELDS + 1, self.deleted, "boolean", nullable=True))
        columns = (*(replace(column, nullable=True) for column in self._given), *added)
        return Lent(SOURCE, columns, self.number, whole=True)

    @property
    def select_list(self) -> str:
        """The SELECT list of a source row: its columns of the table."""
        return f"source.* EXCLUDE ({', '.join([self.number, *([self.deleted] if self.deleted else [])])})"

    def become_rows_of(self, table: TableDef) -> list[ColumnDef]:
        """Cast the source rows to the columns of a table that they have; return those columns.

        Raises:
            DataError: When the rows do not fit the table, a key is NULL, or two rows have the same keys.
        """
        if self._columns == table.columns:  # matches that refer to row numbers stay valid
            return self._given
        con, source, mark = self._con, self._rows.relation(SPOOLED, table), self._mark
        self.number = free_column_name("__ducklake_orch_number", table.columns)
        self.deleted = free_column_name("__ducklake_orch_deleted", table.columns) if mark else None
        given = {folded(name): name for name, _ in self.stored_types(table)}
        projection(
            con, table, source_columns(con, f"(SELECT {', '.join(map(identifier, given.values()))} FROM {source})")
        )
        columns = [column for column in table.columns if folded(column.name) in given]
        values = [
            f"CAST({identifier(given[folded(column.name)])} AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in columns
        ]
        values += [f"row_number() OVER () AS {self.number}", *([f"{mark[1]} AS {self.deleted}"] if mark else [])]
        numbered = f"SELECT {', '.join(values)} FROM {source}"
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
        con, rows, keys = self._con, name or SPOOLED, ", ".join(map(identifier, self._unique))
        nulls = " OR ".join(f"{identifier(key)} IS NULL" for key in self.keys)
        if self.null_keys == "error" and (row := con.execute(f"FROM {rows} WHERE {nulls} LIMIT 1").fetchone()):
            raise DataError(
                f"A source row has NULL in a key column ({', '.join(self.keys)}): {row}.",
                remedy='Leave out such rows, or match NULL keys like other values with `null_keys="match"`.',
            )
        self._refuse_rounded(rows)
        if self._repeats:
            return
        twice = f"SELECT {keys}, count(*) FROM {rows} GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        if row := con.execute(twice).fetchone():
            values = ", ".join(f"{key} = {value!r}" for key, value in zip(self._unique, row, strict=False))
            raise DataError(
                f"{row[-1]} rows of the data have the same keys: {values}.",
                remedy="A merge needs one row for each key: keep one of them before the merge, or say which in"
                " `deduplicate_by`.",
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

    def range(self, table: TableDef, target: TableDef, keys: Sequence[str]) -> str:
        """Return a condition that is true for every row with a key of the source: a list of keys, or their range.

        Args:
            table: The table.
            target: The table as the merge will leave it. The condition leaves out keys whose type is widened.
            keys: The key columns.
        """
        wanted = {folded(key) for key in keys}
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
