"""DuckDB's SQL for the live rows of a data file, as the table's columns are at a snapshot.

It needs no catalog, so it runs wherever the data is: in this process, or in the tasks of a Spark job.
"""

from collections.abc import Sequence
from typing import Any

import duckdb

from ducklake_orch.catalog.file_columns import SCHEMA, FileColumn, file_columns
from ducklake_orch.catalog.model import ROW_ID, SNAPSHOT_ID, DataFile, DeleteFile
from ducklake_orch.catalog.stored_columns import StoredColumn
from ducklake_orch.catalog.types import duckdb_type
from ducklake_orch.engine.quoting import exactly, identifier, literal
from ducklake_orch.errors import UnsupportedStatementError

# What the place of a row in its file is called, beside the columns of a table.
POSITION = "__ducklake_orch_position"


def parquet_sql(path: str, encryption_key: str | None = None) -> str:
    """Return the source of a file's own columns, and `file_row_number`."""
    key = (
        f", encryption_config = {{footer_key_value: from_base64({literal(encryption_key)})}}" if encryption_key else ""
    )
    name = literal(exactly(path))
    return f"read_parquet({name}, file_row_number = true, hive_partitioning = false{key})"


def refuse_vectors(files: Sequence[DataFile]) -> None:
    """Refuse files whose deletions are deletion vectors.

    Raises:
        UnsupportedStatementError: Names the first.
    """
    for deletes in (one for file in files for one in file.deletes):
        if deletes.format != "parquet":
            raise UnsupportedStatementError(
                f"{deletes.path} is a deletion vector ({deletes.format}), which is not supported.",
                remedy="Set the option `write_deletion_vectors` to false, then let the extension rewrite the files:"
                " `CALL ducklake_rewrite_data_files('<lake>', '<table>', delete_threshold => 0)` in `lake.execute`.",
            )


def deleted_sql(deletes: DeleteFile, at: int) -> str:
    """Return the query for the positions that a delete file takes away at a snapshot."""
    source = parquet_sql(deletes.path, deletes.encryption_key)
    if not deletes.later:
        return f"SELECT pos FROM {source}"
    maybe = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME FROM {source}"
    return f"SELECT pos FROM ({maybe}) WHERE coalesce({SNAPSHOT_ID}, {deletes.begin_snapshot}) <= {at}"


def live_sql(file: DataFile, at: int, inlined_deletes: Sequence[int]) -> str:
    """Return the condition for the rows of a file that are live at a snapshot.

    Args:
        file: The file, as it is at the snapshot.
        at: The snapshot.
        inlined_deletes: Its positions that the catalog itself names as deleted.
    """
    refuse_vectors([file])
    gone = [deleted_sql(one, at) for one in file.deletes]
    if inlined_deletes:
        gone.append(f"SELECT unnest([{', '.join(map(str, inlined_deletes))}])")
    later = file.partial_max is not None and file.partial_max > at
    conditions = [f"{SNAPSHOT_ID} <= {at}"] if later else []
    conditions += [f"file_row_number NOT IN ({' UNION '.join(gone)})"] if gone else []
    return " AND ".join(conditions) or "true"


def rows_sql(file: DataFile, columns: Sequence[StoredColumn], at: int, inlined_deletes: Sequence[int]) -> str:
    """Return the query for the live rows of a file, in the columns of the table."""
    values = [f"{value_sql(one)} AS {identifier(one.column.name)}" for one in columns] or ["1"]
    source = parquet_sql(file.path, file.encryption_key)
    return f"SELECT {', '.join(values)} FROM {source} WHERE {live_sql(file, at, inlined_deletes)}"


def placed_rows_sql(
    file: DataFile,
    columns: Sequence[StoredColumn],
    at: int,
    inlined_deletes: Sequence[int],
    *,
    has_row_ids: bool,
) -> str:
    """Return the query for the live rows of a file, with the id of each row and its place.

    Args:
        file: The file, as it is at the snapshot.
        columns: Where it has the table's columns.
        at: The snapshot.
        inlined_deletes: Its positions that the catalog itself names as deleted.
        has_row_ids: Whether it carries ids of its rows.
    """
    values = [f"{value_sql(one)} AS {identifier(one.column.name)}" for one in columns]
    counted = "NULL::BIGINT" if file.row_id_start is None else f"{file.row_id_start} + file_row_number"
    values.append(f"{f'coalesce({ROW_ID}, {counted})' if has_row_ids else counted} AS {ROW_ID}")
    values.append(f"file_row_number AS {POSITION}")
    source = parquet_sql(file.path, file.encryption_key)
    return f"SELECT {', '.join(values)} FROM {source} WHERE {live_sql(file, at, inlined_deletes)}"


def read_columns(con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, tuple[FileColumn, ...]]:
    """Return what columns files have, as their footers say; files that have the same share one tuple."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    if paths:
        wanted = ", ".join(literal(exactly(path)) for path in paths)
        cursor = con.execute(f"SELECT file_name, {', '.join(SCHEMA)} FROM parquet_schema([{wanted}])")
        while some := cursor.fetchmany(10_000):
            for path, *row in some:
                rows.setdefault(path, []).append(tuple(row))
    known: dict[tuple[tuple[Any, ...], ...], tuple[FileColumn, ...]] = {}
    found = {}
    for path, schema in zip(rows, map(tuple, rows.values()), strict=True):
        if schema not in known:
            known[schema] = file_columns([dict(zip(SCHEMA, row, strict=True)) for row in schema])
        found[path] = known[schema]
    return found


def value_sql(stored: StoredColumn, inside: str = "") -> str:
    """Return the value of a column, or of a field of a struct, as the column's type is now.

    Args:
        stored: Where the file has it.
        inside: The struct that it is a field of.
    """
    if stored.name is None:
        return f"CAST({literal(stored.text)} AS {duckdb_type(stored.column)})"
    if stored.column.type == "blob" and not inside:
        # DuckDB looks for the printed form of bytes in a file's Bloom filter, and leaves out rows: no condition on
        # blobs, nor a join by them, may come so far down.
        return f"TRY({_as_now(stored, identifier(stored.name))})"
    return _as_now(stored, f"struct_extract({inside}, {literal(stored.name)})" if inside else identifier(stored.name))


def _as_now(stored: StoredColumn, sql: str) -> str:
    if stored.as_it_is:
        return sql
    column, each = stored.column, f"e{stored.column.column_id}"
    match column.type:
        case "struct":
            fields = [f"{identifier(one.column.name)} := {value_sql(one, sql)}" for one in stored.children]
            return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
        case "list":
            return f"list_transform({sql}, lambda {each}: {_as_now(stored.children[0], each)})"
        case "map":
            parts = zip(("key", "value"), stored.children, strict=True)
            entry = ", ".join(f"{part}: {_as_now(one, f'{each}.{part}')}" for part, one in parts)
            return f"map_from_entries(list_transform(map_entries({sql}), lambda {each}: {{{entry}}}))"
    return f"CAST({sql} AS {duckdb_type(column)})"
