"""Build a query for the row versions of many data files: the snapshots at which each row began and ended.

Files with the same columns are read together, because a query for each of thousands of files would take longer than
reading them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.metadata import ROW_ID, ROW_ID_FIELD, SNAPSHOT_ID, SNAPSHOT_ID_FIELD, ColumnDef, MappedName
from ducklake_orch.catalog.parquet.column_mapping import StoredColumn, stored_columns
from ducklake_orch.catalog.parquet.file_schema import FileColumn
from ducklake_orch.catalog.parquet.live_rows_sql import has_own, read_columns, refuse_vectors, renamed, value_sql
from ducklake_orch.catalog.parquet.row_versions_sql import FileLife, short
from ducklake_orch.engine.quoting import exactly, literal

_OWN = {ROW_ID_FIELD: ROW_ID, SNAPSHOT_ID_FIELD: SNAPSHOT_ID}
_FILES, _DELETED = "__ducklake_orch_files", "__ducklake_orch_gone"


@dataclass(frozen=True)
class Versions:
    """A query for the row versions of files.

    Attributes:
        sql: The query: `row_id`, `began`, `ended`, and the columns, named after their ids (`c1`, `c2`).
        any_ended: Whether any row may have ended.
        has_row_ids: Whether the row ids of all files are known.
    """

    sql: str
    any_ended: bool
    has_row_ids: bool


def read_versions(
    con: duckdb.DuckDBPyConnection,
    files: Sequence[FileLife],
    columns: Sequence[ColumnDef],
    mappings: Mapping[int, tuple[MappedName, ...]],
) -> Versions:
    """Prepare a query for the row versions of live files; its temporary tables exist until the next call.

    Args:
        con: A DuckDB connection that can reach the storage.
        files: The files, with all delete files that they ever had.
        columns: The columns to read, as they are defined now.
        mappings: The name mappings of files, by `mapping_id`.
    """
    refuse_vectors([file.file for file in files])
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_FILES} (path VARCHAR, begin BIGINT, start BIGINT)")
    rows = [(file.file.path, file.file.begin_snapshot, file.file.row_id_start) for file in files]
    con.execute(f"INSERT INTO {_FILES} VALUES {_values(rows)}")
    any_ended = _store_deletions(con, files)
    footers = read_columns(con, [file.file.path for file in files])
    has_row_ids = all(
        file.file.row_id_start is not None or has_own(footers[file.file.path], ROW_ID_FIELD) for file in files
    )
    return Versions(_versions_sql(files, footers, columns, mappings, any_ended=any_ended), any_ended, has_row_ids)


def _store_deletions(con: duckdb.DuckDBPyConnection, files: Sequence[FileLife]) -> bool:
    """Store all deletions, from delete files and inlined, in a temporary table; return whether there are any.

    A row ends at its first deletion.
    """
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_DELETED} (path VARCHAR, pos BIGINT, gone BIGINT)")
    deletes = [(delete.path, life.file.path, delete.begin_snapshot) for life in files for delete in life.file.deletes]
    if deletes:
        # Some delete files have a snapshot for each row, others have one for all rows.
        source = f"SELECT *, filename FROM {_read(deletes, union=True)}"
        maybe = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME {source}"
        con.execute(
            f"INSERT INTO {_DELETED} SELECT d.file, r.pos, coalesce(r.{SNAPSHOT_ID}, d.begin) FROM ({maybe}) r"
            f" JOIN (VALUES {_values(deletes)}) d(path, file, begin) ON d.path = r.filename"
        )
    deleted = [(life.file.path, position, snapshot) for life in files for position, snapshot in life.deleted]
    if deleted:
        con.execute(f"INSERT INTO {_DELETED} VALUES {_values(deleted)}")
    return bool(deletes or deleted)


def _values(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as the SQL of a VALUES list."""
    return ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


def _read(rows: Sequence[Sequence[object]], *, union: bool = False) -> str:
    """Return the FROM item that reads files together; each of `rows` begins with a path."""
    paths = ", ".join(literal(exactly(str(row[0]))) for row in rows)
    return f"read_parquet([{paths}], hive_partitioning = false{', union_by_name = true' if union else ''})"


def _versions_sql(
    files: Sequence[FileLife],
    footers: Mapping[str, tuple[FileColumn, ...]],
    columns: Sequence[ColumnDef],
    mappings: Mapping[int, tuple[MappedName, ...]],
    *,
    any_ended: bool,
) -> str:
    groups: dict[tuple[tuple[StoredColumn, ...], tuple[FileColumn, ...]], list[str]] = defaultdict(list)
    group_of: dict[tuple[int, int | None, str], list[str]] = {}
    for file in files:
        path, number = file.file.path, file.file.mapping_id
        footer = footers[path]
        # Thousands of files can share a footer. The path matters only with a name mapping, which can take values from
        # it.
        key = (id(footer), number, "" if number is None else path)
        if key not in group_of:
            stored = stored_columns(columns, footer, None if number is None else mappings[number], path)
            group_of[key] = groups[stored, footer]
        group_of[key].append(path)
    parts = []
    for (stored, footer), paths in groups.items():
        inner = [f"{value_sql(column)} AS {short(column.column)}" for column in stored]
        own = [_OWN[field_id] for field_id in _OWN if has_own(footer, field_id)]
        inner = [*inner, *own, "filename", "file_row_number"]
        source = f"(SELECT {', '.join(inner)} FROM {_read([[path] for path in paths])} AS {renamed(footer)}) r"
        source += f" JOIN {_FILES} f ON f.path = r.filename"
        ended = "NULL::BIGINT"
        if any_ended:
            deletions = f"SELECT path, pos, min(gone) AS gone FROM {_DELETED} GROUP BY ALL"
            source += f" LEFT JOIN ({deletions}) g ON g.path = r.filename AND g.pos = r.file_row_number"
            ended = "g.gone"
        row_id, began = "f.start + r.file_row_number", "f.begin"
        row_id = f"coalesce({ROW_ID}, {row_id})" if ROW_ID in own else row_id
        began = f"coalesce({SNAPSHOT_ID}, {began})" if SNAPSHOT_ID in own else began
        select = [
            f"{row_id} AS row_id, {began} AS began, {ended} AS ended",
            *(short(column.column) for column in stored),
        ]
        parts.append(f"SELECT {', '.join(select)} FROM {source}")
    return " UNION ALL ".join(parts)
