"""Read inlined rows and inlined deletions, which the metadata database stores instead of files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_orch.catalog.metadata.cell_values import text
from ducklake_orch.catalog.metadata.column_evolution import read_as
from ducklake_orch.catalog.metadata.inlined_structs import struct_value
from ducklake_orch.catalog.metadata.reserved_names import (
    free_column_name,
    reserved_column,
    row_id_name,
    snapshot_id_name,
    stored_name,
)
from ducklake_orch.catalog.metadata.snapshot_reader import Metadata, live
from ducklake_orch.catalog.metadata.table_history import TableHistory
from ducklake_orch.catalog.metadata.table_model import ColumnDef, InlinedTable, TableDef
from ducklake_orch.catalog.metadata.type_names import duckdb_type
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import Dialect, dialect_of
from ducklake_orch.engine.quoting import identifier

# SQLite allows at most 500 SELECTs in one UNION ALL.
_SELECTS_IN_ONE_QUERY = 400
# An inlined-data table has three internal columns: the row id and the begin and end snapshots.
_INTERNAL_COLUMNS = 3


@dataclass(frozen=True)
class InlinedRows:
    """A query for the inlined rows of one schema version.

    Attributes:
        table: The inlined-data table.
        schema_version: The version of the table's schema that the rows were written with.
        sql: The query. It returns the requested columns by name, then the three columns below.
        row_id: Name of the column with the row id.
        snapshot: Name of the column with the snapshot that added the row.
        end: Name of the column with the snapshot that ended the row, if it was requested.
    """

    table: str
    schema_version: int
    sql: str
    row_id: str
    snapshot: str
    end: str


def deletions_table(metadata: Metadata, table: TableDef) -> str | None:
    """Return the name of the table of inlined deletions, or None if it does not exist."""
    name = f"ducklake_inlined_delete_{table.table_id}"
    return name if table_exists(metadata, name) else None


def deletions_sql(metadata: Metadata, name: str, at: int) -> str:
    """Return the query for the inlined deletions at a snapshot, with the columns `data_file_id` and `pos`."""
    source = metadata.table_sql(name)
    return f"SELECT DISTINCT file_id AS data_file_id, row_id AS pos FROM {source} WHERE begin_snapshot <= {at}"


def inlined_rows(history: TableHistory, at: int, columns: Sequence[ColumnDef]) -> tuple[InlinedRows, ...]:
    """Return the queries for the inlined rows that are live at a snapshot.

    Args:
        history: The table and its past.
        at: The snapshot.
        columns: The columns to read, as they are defined now.
    """
    existing = _existing(history.metadata, history.table)
    return tuple(_rows(history, inlined, live(at), columns) for inlined in existing)


def inlined_versions(history: TableHistory, columns: Sequence[ColumnDef], condition: str) -> tuple[InlinedRows, ...]:
    """Return the queries for live and ended inlined rows, which also return the snapshot that ended each row.

    Args:
        history: The table and its past.
        columns: The columns to read, as they are defined now.
        condition: The condition on the rows, in terms of `begin_snapshot` and `end_snapshot`.
    """
    existing = _existing(history.metadata, history.table)
    return tuple(versions_of(history, inlined, columns, condition) for inlined in existing)


def versions_of(
    history: TableHistory, inlined: InlinedTable, columns: Sequence[ColumnDef], condition: str
) -> InlinedRows:
    """Return the query for the inlined rows of one schema version, as `inlined_versions` does for all."""
    return _rows(history, inlined, condition, columns, ends=True)


def count_sql(metadata: Metadata, inlined: InlinedTable, at: int) -> str:
    """Return the query for the number of inlined rows that are live at a snapshot."""
    return f"SELECT count(*) FROM {metadata.table_sql(inlined.name)} WHERE {metadata.live_inlined(at)}"


def count_inlined(metadata: Metadata, table: TableDef, at: int) -> int:
    """Return the number of inlined rows of a table that are live at a snapshot."""
    return sum(int(metadata.rows(count_sql(metadata, inlined, at))[0][0]) for inlined in _existing(metadata, table))


def tables_with_ended_rows(metadata: Metadata) -> list[str]:
    """Return the names of all inlined-data tables of the lake that hold ended rows.

    The tables are counted in batches, so that the number of queries hardly grows with their number.
    """
    config = metadata.config
    registry = metadata.rows(f"SELECT table_name FROM {metadata.table_sql('ducklake_inlined_data_tables')}")
    existing = set(dialect_of(config).names(metadata.con, "ducklake_inlined_data_"))
    names = [name for row in registry if (name := text(row[0]) or "") in existing]
    with_ended_rows = []
    for start in range(0, len(names), _SELECTS_IN_ONE_QUERY):
        selects = [
            f"select {number} as place, count(end_snapshot) as n from {dialect_of(config).table(name)}"
            for number, name in enumerate(names[start : start + _SELECTS_IN_ONE_QUERY], start)
        ]
        counted = metadata.rows(dialect_of(config).query(" union all ".join(selects)))
        with_ended_rows += [names[int(row[0])] for row in counted if int(row[1])]
    return with_ended_rows


def table_exists(metadata: Metadata, name: str) -> bool:
    """Return whether the metadata database has a table; other sessions may create and drop such tables at any time."""
    if not metadata.dialect.exists(metadata.con, name):
        return False
    metadata.dialect.refresh_tables(metadata.con)
    return True


def _existing(metadata: Metadata, table: TableDef) -> list[InlinedTable]:
    """Return the table's inlined-data tables that still exist."""
    return [inlined for inlined in table.inlined if table_exists(metadata, inlined.name)]


def _rows(
    history: TableHistory,
    inlined: InlinedTable,
    condition: str,
    columns: Sequence[ColumnDef],
    *,
    ends: bool = False,
) -> InlinedRows:
    metadata = history.metadata
    row_id, snapshot, end = (
        row_id_name(columns),
        snapshot_id_name(columns),
        free_column_name("__ducklake_orch_end", columns),
    )
    past_columns = {column.column_id: column for column in history.columns(inlined.schema_version)}
    internal = [f"{metadata.of_inlined(name)} AS {name}" for name in ("row_id", "begin_snapshot", "end_snapshot")]
    select, stored = [], list[str]()
    for column in columns:
        old = past_columns.get(column.column_id)
        value = read_as(stored_value(metadata, old) if old else "NULL", old, column)
        select.append(f"{value} AS {identifier(column.name)}")
        stored += [f"{identifier(old.name)} AS {identifier(stored_name(old.name))}"] if old else []
    select += [f"row_id AS {row_id}", f"begin_snapshot AS {snapshot}"]
    if ends:
        select.append(f"end_snapshot AS {end}")
    # Materialize the rows before any condition applies: DuckDB pushes some conditions down to PostgreSQL that it then
    # cannot write as SQL.
    rows = f"SELECT {', '.join([*internal, *stored])} FROM {metadata.table_sql(inlined.name)}"
    sql = f"WITH stored AS MATERIALIZED (FROM ({rows}) WHERE {condition}) SELECT {', '.join(select)} FROM stored"
    return InlinedRows(inlined.name, inlined.schema_version, sql, row_id, snapshot, end)


def stored_types(dialect: Dialect[Any], columns: Sequence[ColumnDef]) -> dict[str, str] | None:
    """Return the types in which the catalog stores inlined rows; None if it cannot store such columns.

    Args:
        dialect: The catalog's dialect.
        columns: The table's columns.
    """
    if reserved_column(columns) is not None or not all(dialect.takes_inlined_column(column.name) for column in columns):
        return None
    if dialect.most_columns is not None and len(columns) + _INTERNAL_COLUMNS > dialect.most_columns:
        return None
    types = {column.name: dialect.inlined_type(column.type, duckdb_type(column)) for column in columns}
    stored = {name: kind for name, kind in types.items() if kind is not None}
    return stored if len(stored) == len(types) else None


def inlines(config: LakeConfig, table: TableDef) -> bool:
    """Return whether the engine inlines small inserts into a table, which it does by default."""
    limit = table.options.get("data_inlining_row_limit", config.data_inlining_row_limit)
    return limit is None or int(limit) > 0


def stored_value(metadata: Metadata, column: ColumnDef) -> str:
    """Return the SQL of an inlined value, cast to the type of its column; catalogs store many types as text."""
    stored = metadata.dialect.inlined_value(column.type, identifier(stored_name(column.name)))
    if column.type == "struct" and metadata.dialect.inlines_structs_as_sql:
        return struct_value(stored, column)
    return f"CAST({stored} AS {duckdb_type(column)})"
