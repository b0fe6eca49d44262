"""Readers of a table's rows as texts: the engine, and an independent reader of the scan plan."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import Metadata, TableDef, live
from ducklake_orch.catalog.scan import count, plan_scan
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.quoting import TableName, identifier
from tests.catalog.differential.model import Table
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import sql_text
from tests.support.plan_reader import file_sql

# Rows as texts, with the number of each.
Rows = Counter[tuple[str | None, ...]]


class EngineReader:
    """Reads with the extension, on a connection to the lake."""

    def __init__(self, con: LakeConnection | duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def rows(self, table: Table, *, at: int | None = None, where: str | None = None) -> Rows:
        values = ", ".join(sql_text(identifier(name), kind) for name, kind in table.types)
        condition = f" WHERE (\n{where}\n)" if where else ""
        return Counter(self.ask(f"SELECT {values} FROM {_source(table, at)}{condition}"))

    def count(self, table: Table, *, at: int | None = None) -> int:
        return int(self.ask(f"SELECT count(*) FROM {_source(table, at)}")[0][0])

    def types(self, table: Table, *, at: int | None = None) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self.ask(f"DESCRIBE SELECT * FROM {_source(table, at)}")]

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query."""
        return self._con.execute(sql).fetchall()


def _source(table: Table, at: int | None) -> str:
    return identifier(table.name) if at is None else f"{identifier(table.name)} AT (VERSION => {at})"


class PlanReader:
    """Reads scan plans with Parquet and SQL only.

    Args:
        metadata: The metadata tables, through a connection that never entered the lake.

    Attributes:
        files: The number of data files of the last read.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._tables: dict[tuple[str, int], TableDef] = {}
        self.files = 0

    def rows(self, table: Table, *, at: int, where: str | None = None) -> Rows:
        con, plan = self._metadata.con, plan_scan(self._metadata, self._table(table, at), at, where=where)
        self.files = len(plan.files)
        sources = [*(file_sql(con, plan, file) for file in plan.files), *(rows.sql for rows in plan.inlined)]
        condition = f" WHERE {plan.where.sql}" if plan.where else ""
        values = ", ".join(sql_text(identifier(name), kind) for name, kind in table.types)
        found: Rows = Counter()
        if sources:
            together = " UNION ALL BY NAME ".join(f"({sql})" for sql in sources)
            found.update(con.execute(f"SELECT {values} FROM ({together}){condition}").fetchall())
        return found

    def count(self, table: Table, *, at: int) -> int:
        return count(self._metadata, self._table(table, at), at)

    def scanned_twice(self, table: Table, at: int) -> bool:
        """Return whether a data file has two delete files at a snapshot. The engine then scans it once for each."""
        name = self._metadata.table_sql("ducklake_delete_file")
        table_id = self._table(table, at).table_id
        rows = self._metadata.rows(f"SELECT data_file_id FROM {name} WHERE table_id = {table_id} AND {live(at)}")
        return len(rows) > len(set(rows))

    def unrecorded(self, at: int) -> bool:
        """Return whether a snapshot's schema version altered nothing, but only created a table for inlined rows."""
        snapshots, versions = map(self._metadata.table_sql, ("ducklake_snapshot", "ducklake_schema_versions"))
        version = f"SELECT schema_version FROM {snapshots} WHERE snapshot_id = {at}"
        return not self._metadata.rows(f"SELECT 1 FROM {versions} WHERE schema_version = ({version}) LIMIT 1")

    def unknown_place(self, table: Table, at: int) -> bool:
        """Return whether a table's inlined rows are of a schema version without a time in the catalog."""
        versions = self._metadata.table_sql("ducklake_schema_versions")
        found = self._table(table, at)
        known = self._metadata.rows(f"SELECT schema_version FROM {versions} WHERE table_id = {found.table_id}")
        return not {inlined_table.schema_version for inlined_table in found.inlined} <= {int(row[0]) for row in known}

    def _table(self, table: Table, at: int) -> TableDef:
        if (table.name, at) not in self._tables:
            self._tables[table.name, at] = self._metadata.table(TableName("main", table.name), at)
        return self._tables[table.name, at]


def expected(oracle: Oracle, table: Table, ids: Iterable[int] | None = None) -> Rows:
    """Return the expected rows."""
    rows = list(table.rows.values()) if ids is None else [table.rows[number] for number in ids]
    kinds = [column.type for column in table.columns]
    texts: Mapping[Any, str | None] = oracle.texts(
        (kind, v) for row in rows for kind, v in zip(kinds, row, strict=True)
    )
    return Counter(tuple(texts[kind, v] for kind, v in zip(kinds, row, strict=True)) for row in rows)


def difference(table: Table, wanted: Rows, found: Rows) -> str:
    """Describe the difference of rows, by column for rows with the same id."""
    missing, surplus = wanted - found, found - wanted
    if not missing and not surplus:
        return ""
    lines = [f"{missing.total()} rows are missing, {surplus.total()} should not be there"]
    others = {row[0]: row for row in surplus}
    for row in list(missing)[:3]:
        lines.append(_row_difference(table, row, others.pop(row[0], None)))
    lines += [f"surplus row {row}" for row in list(others.values())[:3]]
    return "\n".join(lines)


def _row_difference(table: Table, wanted: Sequence[str | None], found: Sequence[str | None] | None) -> str:
    if found is None:
        return f"missing row {wanted}"
    cells = zip(table.columns, wanted, found, strict=True)
    differing = [f"{column.name}: {left!r}, not {right!r}" for column, left, right in cells if left != right]
    return f"row {wanted[0]} should have {'; '.join(differing) or 'been there once more'}"
