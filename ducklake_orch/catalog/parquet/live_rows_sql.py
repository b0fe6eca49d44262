"""Build DuckDB SQL for the live rows of a data file, with the table's columns as they are at a snapshot.

This module needs no catalog, so it runs where the data is: in this process, or in the tasks of a Spark job.
"""

from collections.abc import Sequence
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import (
    ROW_ID,
    ROW_ID_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    DataFile,
    DeleteFile,
    duckdb_type,
    free_name,
    judged_by_rows,
    position_name,
    row_id_name,
    stored_name,
)
from ducklake_orch.catalog.parquet.column_mapping import StoredColumn
from ducklake_orch.catalog.parquet.file_schema import SCHEMA, FileColumn, file_columns
from ducklake_orch.engine.quoting import file_literal, file_literals, identifier, literal

_OWN = {ROW_ID_FIELD: ROW_ID, SNAPSHOT_ID_FIELD: SNAPSHOT_ID}


def parquet_sql(path: str, encryption_key: str | None = None) -> str:
    """Return the FROM item that reads a file's own columns."""
    return f"read_parquet({file_literal(path)}, hive_partitioning = false{decryption(encryption_key)})"


def decryption(key: str | None) -> str:
    """Return the argument of `read_parquet` for files that are encrypted with a key; an empty text without one."""
    return f", encryption_config = {{footer_key_value: from_base64({literal(key)})}}" if key else ""


def data_sql(file: DataFile, footer: Sequence[FileColumn]) -> str:
    """Return the FROM item that reads a data file's own columns as `f`, with DuckDB's column `file_row_number`.

    Args:
        file: The file.
        footer: The columns that it has.
    """
    return f"{parquet_sql(file.path, file.encryption_key)} AS {renamed(footer)}"


def renamed(footer: Sequence[FileColumn]) -> str:
    """Return the table alias `f` with column names that collide with no column of DuckDB or ducklake-orch.

    These names are `stored_name`, except for the two columns that the engine itself writes into files.
    """
    names: list[str] = []
    for column in footer:
        own = _OWN.get(column.field_id) if column.field_id is not None else None
        names.append(free_name(own or stored_name(column.name), names))
    return f"f({', '.join(map(identifier, names))})"


def has_own(footer: Sequence[FileColumn], field_id: int) -> bool:
    """Return whether a file has one of the columns that the engine itself writes into files, by its field id."""
    return any(column.field_id == field_id for column in footer)


def deletes_sql(deletes: DeleteFile) -> str:
    """Return the FROM item for the rows of a delete file: `pos`, and the snapshot of the deletion if the file has it.

    In files without the column of snapshots, they are NULL.
    """
    if deletes.format != "parquet":
        if deletes.positions is None:
            raise AssertionError(f"{deletes.path} has not been read by `read_vectors`")
        # One constant: a list of very many takes long to parse.
        positions = f"string_split({literal(','.join(map(str, deletes.positions)))}, ',')"
        positions = positions if deletes.positions else "[]::VARCHAR[]"
        return f"(SELECT CAST(unnest({positions}) AS BIGINT) AS pos, NULL::BIGINT AS {SNAPSHOT_ID})"
    nothing = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false"
    return f"({nothing} UNION ALL BY NAME FROM {parquet_sql(deletes.path, deletes.encryption_key)})"


def deleted_sql(deletes: DeleteFile, at: int) -> str:
    """Return the query for the positions that a delete file deletes at a snapshot."""
    if deletes.later:
        return f"SELECT pos FROM {deletes_sql(deletes)} WHERE coalesce({SNAPSHOT_ID}, {deletes.begin_snapshot}) <= {at}"
    # Without the column of snapshots, DuckDB reads one column only.
    plain = deletes.format == "parquet"
    return f"SELECT pos FROM {parquet_sql(deletes.path, deletes.encryption_key) if plain else deletes_sql(deletes)}"


def live_sql(file: DataFile, at: int, inlined_deletes: Sequence[int]) -> str:
    """Return the SQL condition for the rows of a file that are live at a snapshot.

    Args:
        file: The file, as it is at the snapshot.
        at: The snapshot.
        inlined_deletes: The positions of its inlined deletions.
    """
    deleted = [deleted_sql(delete, at) for delete in file.deletes]
    if inlined_deletes:
        deleted.append(f"SELECT unnest([{', '.join(map(str, inlined_deletes))}])")
    later = file.partial_max is not None and file.partial_max > at
    conditions = [f"{SNAPSHOT_ID} <= {at}"] if later else []
    conditions += [f"file_row_number NOT IN ({' UNION '.join(deleted)})"] if deleted else []
    return " AND ".join(conditions) or "true"


def rows_sql(
    file: DataFile,
    footer: Sequence[FileColumn],
    columns: Sequence[StoredColumn],
    at: int,
    inlined_deletes: Sequence[int],
) -> str:
    """Return the query for the live rows of a file, with the columns of the table."""
    values = [f"{value_sql(column)} AS {identifier(column.column.name)}" for column in columns] or ["1"]
    return f"SELECT {', '.join(values)} FROM {data_sql(file, footer)} WHERE {live_sql(file, at, inlined_deletes)}"


def placed_rows_sql(
    file: DataFile,
    footer: Sequence[FileColumn],
    columns: Sequence[StoredColumn],
    at: int,
    inlined_deletes: Sequence[int],
) -> str:
    """Return the query for the live rows of a file, each with its row id (`row_id_name`) and its `position_name`.

    Args:
        file: The file, as it is at the snapshot.
        footer: The columns that it has.
        columns: The table's columns, as stored in the file.
        at: The snapshot.
        inlined_deletes: The positions of its inlined deletions.
    """
    names = [column.column for column in columns]
    values = [f"{value_sql(column)} AS {identifier(column.column.name)}" for column in columns]
    counted = "NULL::BIGINT" if file.row_id_start is None else f"{file.row_id_start} + file_row_number"
    has_row_ids = has_own(footer, ROW_ID_FIELD)
    values.append(f"{f'coalesce({ROW_ID}, {counted})' if has_row_ids else counted} AS {row_id_name(names)}")
    values.append(f"file_row_number AS {position_name(names)}")
    return f"SELECT {', '.join(values)} FROM {data_sql(file, footer)} WHERE {live_sql(file, at, inlined_deletes)}"


def read_columns(con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, tuple[FileColumn, ...]]:
    """Return the columns of files, by path, from their footers; files with the same columns share one tuple."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    if paths:
        wanted = file_literals(paths)
        cursor = con.execute(f"SELECT file_name, {', '.join(SCHEMA)} FROM parquet_schema([{wanted}])")
        while batch := cursor.fetchmany(10_000):
            for path, *row in batch:
                rows.setdefault(path, []).append(tuple(row))
    parsed: dict[tuple[tuple[Any, ...], ...], tuple[FileColumn, ...]] = {}
    columns = {}
    for path, schema in zip(rows, map(tuple, rows.values()), strict=True):
        if schema not in parsed:
            parsed[schema] = file_columns([dict(zip(SCHEMA, row, strict=True)) for row in schema])
        columns[path] = parsed[schema]
    return columns


def value_sql(stored: StoredColumn, inside: str = "") -> str:
    """Return the SQL of a column's value, or of a struct field's value, in the column's current type.

    Args:
        stored: The column, as stored in the file.
        inside: The SQL of the struct, for a struct field.
    """
    if stored.name is None:
        return f"CAST({literal(stored.text)} AS {duckdb_type(stored.column)})"
    if inside:
        return _as_now(stored, f"struct_extract({inside}, {literal(stored.name)})")
    return _as_now(stored, judged_by_rows(identifier(stored_name(stored.name)), duckdb_type(stored.column)))


def _as_now(stored: StoredColumn, sql: str) -> str:
    if stored.as_it_is:
        return sql
    column, each = stored.column, f"e{stored.column.column_id}"
    match column.type:
        case "struct":
            fields = [f"{identifier(child.column.name)} := {value_sql(child, sql)}" for child in stored.children]
            return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
        case "list":
            return f"list_transform({sql}, lambda {each}: {_as_now(stored.children[0], each)})"
        case "map":
            parts = zip(("key", "value"), stored.children, strict=True)
            entry = ", ".join(f"{part}: {_as_now(child, f'{each}.{part}')}" for part, child in parts)
            return f"map_from_entries(list_transform(map_entries({sql}), lambda {each}: {{{entry}}}))"
    return f"CAST({sql} AS {duckdb_type(column)})"
