"""Build a query for the row versions of many data files: the snapshots at which each row began and ended.

Files with the same columns are read together, because a query for each of thousands of files would take longer than
reading them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.metadata import (
    ROW_ID,
    ROW_ID_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    ColumnDef,
    DeleteFile,
    MappedName,
)
from ducklake_orch.catalog.parquet.column_mapping import StoredColumn, stored_columns
from ducklake_orch.catalog.parquet.encrypted_columns import footers_of
from ducklake_orch.catalog.parquet.file_schema import FileColumn
from ducklake_orch.catalog.parquet.live_rows_sql import decryption, deletes_sql, has_own, renamed, value_sql
from ducklake_orch.catalog.parquet.row_versions_sql import FileLife, short
from ducklake_orch.engine.quoting import file_literals, literal

_OWN = {ROW_ID_FIELD: ROW_ID, SNAPSHOT_ID_FIELD: SNAPSHOT_ID}
_FILES, _DELETED = "__ducklake_orch_files", "__ducklake_orch_gone"
Footer = tuple[FileColumn, ...]
# How the columns of a file are read: as what columns of the table, from what columns of the file, with which key.
_Alike = tuple[tuple[StoredColumn, ...], Footer, str | None]


@dataclass(frozen=True)
class Versions:
    """A query for the row versions of files.

    Attributes:
        sql: The query: `file` (the id of the data file), `pos`, `row_id`, `began`, `ended`, and the columns, named
            after their ids (`c1`, `c2`).
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
    layouts: Mapping[int, Sequence[ColumnDef]],
    footers: dict[str, Footer] | None = None,
) -> Versions:
    """Prepare a query for the row versions of files; its temporary tables exist until the next call.

    Args:
        con: A DuckDB connection that can reach the storage.
        files: The files, with all delete files that they ever had.
        columns: The columns to read, as they are defined now.
        mappings: The name mappings of files, by `mapping_id`.
        layouts: The columns that the table has had, by the first snapshot that has them, if some files are encrypted.
        footers: The columns of files whose footers were read, by path; receives those of the other files.
    """
    any_deleted = _store_deletions(con, files)
    footers = {} if footers is None else footers
    footers |= footers_of(con, [file.file for file in files if file.file.path not in footers], layouts)
    groups = _alike(files, footers, columns, mappings)
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {_FILES}"
        " (part INTEGER, number UBIGINT, file BIGINT, begin BIGINT, start BIGINT, finish BIGINT)"
    )
    parts = []
    for part, ((stored, footer, key), group) in enumerate(groups.items()):
        # The catalog may list a file twice: its rows are read once and joined with both entries.
        numbers = {path: number for number, path in enumerate(dict.fromkeys(file.file.path for file in group))}
        rows = [(part, numbers[file.file.path], *_facts(file)) for file in group]
        con.execute(f"INSERT INTO {_FILES} VALUES {_values(rows)}")
        source = f"{_read(list(numbers), key)} AS {renamed(footer)}"
        parts.append(_versions_sql(part, footer, stored, source, any_deleted=any_deleted))
    has_row_ids = all(
        file.file.row_id_start is not None or has_own(footers[file.file.path], ROW_ID_FIELD) for file in files
    )
    any_ended = any_deleted or any(file.end_snapshot is not None for file in files)
    return Versions(" UNION ALL ".join(parts), any_ended, has_row_ids)


def _facts(life: FileLife) -> tuple[object, ...]:
    return life.file.data_file_id, life.file.begin_snapshot, life.file.row_id_start, life.end_snapshot


def _store_deletions(con: duckdb.DuckDBPyConnection, files: Sequence[FileLife]) -> bool:
    """Store all deletions, from delete files and inlined, in a temporary table; return whether there are any.

    A row ends at its first deletion.
    """
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_DELETED} (file BIGINT, pos BIGINT, gone BIGINT)")
    all_deletes = [(life.file.data_file_id, delete) for life in files for delete in life.file.deletes]
    together = [(file, delete) for file, delete in all_deletes if _is_plain(delete)]
    for file, delete in all_deletes:
        if not _is_plain(delete):
            con.execute(
                f"INSERT INTO {_DELETED} SELECT {file}, pos, coalesce({SNAPSHOT_ID}, {delete.begin_snapshot})"
                f" FROM {deletes_sql(delete)}"
            )
    if together:
        facts = [(number, file, delete.begin_snapshot) for number, (file, delete) in enumerate(together)]
        # Some delete files have a snapshot for each row, others have one for all rows.
        source = f"SELECT *, file_index FROM {_read([delete.path for _, delete in together], None, union=True)}"
        maybe = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME {source}"
        con.execute(
            f"INSERT INTO {_DELETED} SELECT d.file, r.pos, coalesce(r.{SNAPSHOT_ID}, d.begin) FROM ({maybe}) r"
            f" JOIN (VALUES {_values(facts)}) d(number, file, begin) ON d.number::UBIGINT = r.file_index"
        )
    deleted = [(life.file.data_file_id, position, snapshot) for life in files for position, snapshot in life.deleted]
    if deleted:
        con.execute(f"INSERT INTO {_DELETED} VALUES {_values(deleted)}")
    return bool(all_deletes or deleted)


def _is_plain(delete: DeleteFile) -> bool:
    """Whether a delete file can be read with others; `union_by_name` makes DuckDB crash at encrypted files."""
    return delete.format == "parquet" and delete.encryption_key is None


def _values(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as the SQL of a VALUES list."""
    return ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


def _read(paths: Sequence[str], key: str | None, *, union: bool = False) -> str:
    """Return the FROM item that reads files together, which are encrypted with the same key or not at all.

    DuckDB's column `file_index` is a file's place in the list. Its `filename` can be another spelling of the path.
    """
    listed = file_literals(paths)
    options = f"hive_partitioning = false{', union_by_name = true' if union else ''}{decryption(key)}"
    return f"read_parquet([{listed}], {options})"


def _alike(
    files: Sequence[FileLife],
    footers: Mapping[str, Footer],
    columns: Sequence[ColumnDef],
    mappings: Mapping[int, tuple[MappedName, ...]],
) -> dict[_Alike, list[FileLife]]:
    """Group the files by how their columns are read."""
    groups: dict[_Alike, list[FileLife]] = defaultdict(list)
    group_of: dict[tuple[int, int | None, str], list[FileLife]] = {}
    for file in files:
        path, number = file.file.path, file.file.mapping_id
        footer = footers[path]
        # Thousands of files can share a footer. The path matters only with a name mapping, which can take values from
        # it.
        key = (id(footer), number, "" if number is None else path)
        if key not in group_of:
            stored = stored_columns(columns, footer, None if number is None else mappings[number], path)
            group_of[key] = groups[stored, footer, file.file.encryption_key]
        group_of[key].append(file)
    return groups


def _versions_sql(part: int, footer: Footer, stored: Sequence[StoredColumn], files: str, *, any_deleted: bool) -> str:
    inner = [f"{value_sql(column)} AS {short(column.column)}" for column in stored]
    own = [_OWN[field_id] for field_id in _OWN if has_own(footer, field_id)]
    inner = [*inner, *own, "file_index", "file_row_number"]
    source = f"(SELECT {', '.join(inner)} FROM {files}) r"
    source += f" JOIN {_FILES} f ON f.part = {part} AND f.number = r.file_index"
    ended = "f.finish"
    if any_deleted:
        deletions = f"SELECT file, pos, min(gone) AS gone FROM {_DELETED} GROUP BY ALL"
        source += f" LEFT JOIN ({deletions}) g ON g.file = f.file AND g.pos = r.file_row_number"
        ended = "least(f.finish, g.gone)"  # ignores NULLs
    row_id, began = "f.start + r.file_row_number", "f.begin"
    row_id = f"coalesce({ROW_ID}, {row_id})" if ROW_ID in own else row_id
    began = f"coalesce({SNAPSHOT_ID}, {began})" if SNAPSHOT_ID in own else began
    select = [
        f"f.file, r.file_row_number AS pos, {row_id} AS row_id, {began} AS began, {ended} AS ended",
        *(short(column.column) for column in stored),
    ]
    return f"SELECT {', '.join(select)} FROM {source}"
