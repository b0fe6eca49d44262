"""Write a stream of rows as finished data files in the table's folder, with exact statistics.

The entry point is `write_files`. It needs no catalog, so it runs where the data is: in this process, or in the tasks of
a Spark job.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from ducklake_orch.catalog.metadata import (
    ROW_ID_FIELD,
    SNAPSHOT_ID_FIELD,
    ColumnDef,
    ColumnStats,
    NewFile,
    TableDef,
    VariantStats,
    free_column_name,
    row_id_name,
    snapshot_id_name,
)
from ducklake_orch.catalog.parquet import (
    ENCRYPTION_CONFIG,
    PartitionKey,
    copied_stats,
    copy_options,
    encrypt_next,
    file_size,
    partition_keys,
    sort_sql,
    variant_stats,
)
from ducklake_orch.catalog.writing.cast_to_table import explain, projection, source_columns
from ducklake_orch.catalog.writing.long_partition_values import has_stand_ins, stand_ins
from ducklake_orch.engine.quoting import identifier, literal

_SPOOL = "__ducklake_orch_spool"
# Types for which COPY always reports zero values and zero NULLs.
_UNCOUNTED = ("timetz", "interval")
# The size limit is practically infinite, so that COPY writes one file.
_ONE_FILE = {"FILE_SIZE_BYTES": "'1000TiB'"}


@dataclass(frozen=True)
class WrittenVersions:
    """A file with row versions.

    Attributes:
        file: The file.
        first: The first snapshot that added one of its row versions.
        last: The last snapshot that added one of its row versions.
    """

    file: NewFile
    first: int
    last: int


def write_files(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    source: str,
    write_id: str,
    *,
    only: str | None = None,
    known: bool = False,
) -> list[NewFile]:
    """Write rows into files of a table.

    Args:
        con: A DuckDB connection that can reach the storage and that nothing else uses during the call.
        table: The table to write for.
        source: The FROM item that reads the rows; it is read once.
        write_id: The write's id, which becomes part of the files' names.
        only: A predicate; rows that do not match it are left out.
        known: Whether the rows are already in the lake.

    Returns:
        The files, none of them empty.

    Raises:
        DataError: When the data do not fit the table.
    """
    rows = fitted(con, table, source, only, known=known)
    try:
        return _write(con, table, rows, write_id)
    except duckdb.Error as error:
        failure = explain(error, table)
        if failure is None:
            raise
    raise failure


def write_known_rows(con: duckdb.DuckDBPyConnection, table: TableDef, source: str, write_id: str) -> list[NewFile]:
    """Write rows that are already in the lake into files of a table, with their existing row ids.

    Args:
        con: A DuckDB connection that can reach the storage and that nothing else uses during the call.
        table: The table to write for.
        source: The FROM item that reads the rows, with their ids in the column `row_id_name`.
        write_id: The write's id, which becomes part of the files' names.

    Raises:
        DataError: When computed values do not fit the table.
    """
    return known_files(table, write_files(con, with_row_ids(table), source, write_id, known=True))


def with_row_ids(table: TableDef) -> TableDef:
    """Return a table with a column more, for row ids: a column of its files, but not of the table in the catalog."""
    row_id = ColumnDef(ROW_ID_FIELD, row_id_name(table.columns), "int64", nullable=False)
    return replace(table, columns=(*table.columns, row_id))


def known_files(table: TableDef, files: Sequence[NewFile]) -> list[NewFile]:
    """Return files with row ids as the catalog stores them, without statistics of the row ids."""
    column_ids = {leaf.column_id for column in table.columns for leaf in column.leaves()}
    return [
        replace(
            file,
            stats={key: column_stats for key, column_stats in file.stats.items() if key in column_ids},
            has_row_ids=True,
        )
        for file in files
    ]


def write_row_versions(
    con: duckdb.DuckDBPyConnection, table: TableDef, source: str, write_id: str
) -> list[WrittenVersions]:
    """Write row versions into files in the table's layout, each with its row id and its snapshot.

    Args:
        con: A DuckDB connection that can reach the storage and that nothing else uses during the call.
        table: The table as it was when the rows were written; the files get its partition spec.
        source: The query for the row versions: the columns of the table, the row id, the snapshot.
        write_id: The write's id, which becomes part of the files' names.
    """
    wider = replace(table, columns=(*table.columns, *_identity(table)))
    return [_versions(table, file) for file in _write(con, wider, source, write_id)]


def write_versions(
    con: duckdb.DuckDBPyConnection, table: TableDef, rows: str, values: tuple[str | None, ...], write_id: str
) -> WrittenVersions | None:
    """Write row versions of one partition into one file, each with its row id and the snapshot that added it.

    Args:
        con: A DuckDB connection that can reach the storage and that nothing else uses during the call.
        table: The table as it was when the rows were written, with its columns and its partition spec of that time.
        rows: The query for the row versions: the columns of the table, then `row_id_name` and `snapshot_id_name`.
        values: Their partition values in that spec.
        write_id: The write's id, which becomes part of the file's name.

    Returns:
        The file; None if there are no rows.
    """
    wider = replace(table, columns=(*table.columns, *_identity(table)))
    options = copy_options(wider, write_id) | _ONE_FILE
    files = copy_rows(con, wider, [], rows, partition_folder(con, table, values), options, values)
    if not files:
        return None
    return _versions(table, files[0])


def partition_folder(con: duckdb.DuckDBPyConnection, table: TableDef, values: tuple[str | None, ...]) -> str:
    """Return the folder of the files with some partition values in the table's partition spec."""
    folder = table.folder
    if table.options.get("hive_file_pattern") != "false":
        encoded = con.execute(
            f"SELECT {', '.join(f'url_encode({literal(value)})' for value in values) or 'NULL'}"
        ).fetchall()
        for key, text in zip(partition_keys(table), encoded[0], strict=False):
            folder += key.folder_of(text)
    return folder


def _identity(table: TableDef) -> tuple[ColumnDef, ...]:
    """Return the columns that a row version has in addition to those of the table: row id and snapshot."""
    own = [(ROW_ID_FIELD, row_id_name(table.columns)), (SNAPSHOT_ID_FIELD, snapshot_id_name(table.columns))]
    return tuple(ColumnDef(number, name, "int64", nullable=False) for number, name in own)


def _versions(table: TableDef, file: NewFile) -> WrittenVersions:
    """Return a file of row versions as the catalog stores it, without statistics of row ids and snapshots."""
    snapshots, leaves = file.stats[SNAPSHOT_ID_FIELD], table.leaves()
    file = replace(
        file, stats={key: column_stats for key, column_stats in file.stats.items() if key in leaves}, has_row_ids=True
    )
    return WrittenVersions(file, int(snapshots.min_value or 0), int(snapshots.max_value or 0))


def fitted(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    source: str,
    only: str | None,
    *,
    known: bool = False,
    beside: str | None = None,
) -> str:
    """Return the query for data as rows of the table; if `only` is given, only the rows that match it.

    A column named `beside` is no column of the table, and is returned as it is.

    Raises:
        DataError: When the columns do not fit the table.
    """
    given = [column for column in source_columns(con, source) if column.name != beside]
    values = ", ".join([projection(con, table, given, known=known), *([beside] if beside else [])])
    rows = f"SELECT {values} FROM {source}"
    return rows if only is None else f"SELECT * FROM ({rows}) WHERE (\n{only}\n) IS TRUE"


def _write(con: duckdb.DuckDBPyConnection, table: TableDef, rows: str, write_id: str) -> list[NewFile]:
    keys, options = partition_keys(table), copy_options(table, write_id)
    if table.options.get("hive_file_pattern") == "false":
        options["HIVE_FILE_PATTERN"] = "false"
    if not keys:
        options["FILE_SIZE_BYTES"] = str(file_size(table.options))
        return copy_rows(con, table, keys, f"{rows}{sort_sql(table)}", table.folder, options)
    names = ", ".join(identifier(key.folder) for key in keys)
    if all(key.is_identity for key in keys):
        by_value = options | {"PARTITION_BY": f"({names})", "WRITE_PARTITION_COLUMNS": "true"}
        if "HIVE_FILE_PATTERN" in options:
            return copy_rows(con, table, keys, f"{rows}{sort_sql(table)}", table.folder, by_value)
        if has_stand_ins(keys):
            return _write_by_value(con, table, keys, rows, by_value)
        return _write_each_partition(con, table, keys, rows, options)
    taken = {column.name.lower() for column in table.columns}
    if not any(key.is_identity or key.folder.lower() in taken for key in keys):
        # The keys are extra columns, which COPY leaves out of the files.
        computed = ", ".join(f"{key.sql} AS {identifier(key.folder)}" for key in keys)
        options |= {"PARTITION_BY": f"({names})"}
        sql = f"SELECT *, {computed} FROM ({rows}){sort_sql(table)}"
        return copy_rows(con, table, keys, sql, table.folder, options)
    return _write_each_partition(con, table, keys, rows, options)


def _write_by_value(
    con: duckdb.DuckDBPyConnection, table: TableDef, keys: Sequence[PartitionKey], rows: str, options: dict[str, str]
) -> list[NewFile]:
    """Write all partitions with one COPY, also those whose values are too long for it."""
    flat = {name: text for name, text in options.items() if name not in ("PARTITION_BY", "WRITE_PARTITION_COLUMNS")}

    def copy(sql: str, folder: str, values: tuple[str | None, ...]) -> list[NewFile]:
        return copy_rows(con, table, [], f"{sql}{sort_sql(table)}", folder, flat | _ONE_FILE, values)

    with stand_ins(con, table, keys) as short:
        files = copy_rows(con, table, keys, f"{short.query(rows)}{sort_sql(table)}", table.folder, options)
    return [short.restored(file, copy) for file in files]


def _write_each_partition(
    con: duckdb.DuckDBPyConnection, table: TableDef, keys: Sequence[PartitionKey], rows: str, options: dict[str, str]
) -> list[NewFile]:
    """Write one partition after the other, with a COPY for each.

    One COPY keeps either all partition columns in the files or none. That is wrong if the spec mixes columns with
    transforms, or if a transform has the name of a column. So the rows are first stored in a temporary table, which can
    spill to disk.
    """
    numbered = [free_column_name(f"__ducklake_orch_key_{n}", table.columns) for n in range(len(keys))]
    group = free_column_name("__ducklake_orch_group", table.columns)
    computed = ", ".join(f"{key.sql} AS {name}" for key, name in zip(keys, numbered, strict=True))
    names = ", ".join(identifier(column.name) for column in table.columns)
    # DuckDB numbers the partitions, because not every key value survives the round trip through Python.
    rank = f"dense_rank() OVER (ORDER BY {', '.join(numbered)}) AS {group}"
    keyed = f"SELECT *, {computed} FROM ({rows})"
    con.execute(f"CREATE TEMP TABLE {_SPOOL} AS SELECT *, {rank} FROM ({keyed}) ORDER BY {group}")
    try:
        files: list[NewFile] = []
        first = (f"any_value(CAST({name} AS VARCHAR))" for name in numbered)
        texts = ", ".join(f"{text}, url_encode({text})" for text in first)
        partitions = con.execute(f"SELECT {group}, {texts} FROM {_SPOOL} GROUP BY {group}").fetchall()
        options["FILE_SIZE_BYTES"] = str(file_size(table.options))
        for number, *pairs in partitions:
            values, encoded = tuple(pairs[::2]), pairs[1::2]
            hive = "".join(key.folder_of(text) for key, text in zip(keys, encoded, strict=True))
            folder = table.folder + (hive if options.get("HIVE_FILE_PATTERN") != "false" else "")
            sql = f"SELECT {names} FROM {_SPOOL} WHERE {group} = {number}{sort_sql(table)}"
            flat = {name: text for name, text in options.items() if name != "HIVE_FILE_PATTERN"}
            files += copy_rows(con, table, [], sql, folder, flat, values)
        return files
    finally:
        con.execute(f"DROP TABLE {_SPOOL}")


def copy_rows(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    keys: Sequence[PartitionKey],
    sql: str,
    folder: str,
    options: Mapping[str, str],
    values: tuple[str | None, ...] = (),
) -> list[NewFile]:
    """Copy rows into files, and return those that are not empty, with their statistics.

    Args:
        con: A DuckDB connection that can reach the storage.
        table: The table, with all columns of the files.
        keys: The keys by which COPY divides the rows; each is a column of the rows.
        sql: The query for the rows.
        folder: The folder of the files.
        options: The options of COPY, in SQL.
        values: The partition values of all rows, if there are no keys.
    """
    if "://" not in folder:
        os.makedirs(folder, exist_ok=True)
    key = encrypt_next(con) if table.encrypted else None
    options = {**options, "ENCRYPTION_CONFIG": ENCRYPTION_CONFIG} if key else options
    target = literal(folder.rstrip("/"))
    text = ", ".join(f"{name} {value}" for name, value in options.items())
    written = con.execute(f"COPY ({sql}) TO {target} ({text})").fetchall()
    files = []
    for path, count, size, footer, stats, partition in written:
        if count:
            given = tuple(partition[key.folder] for key in keys) if keys else values
            columns, variants = _statistics(stats, leaf_paths(table.columns))
            files.append(NewFile(path, count, size, footer, given, columns, variants, encryption_key=key))
    return files


def leaf_paths(columns: Sequence[ColumnDef]) -> dict[str, ColumnDef]:
    """Return the columns that hold values, by their quoted paths as in COPY's statistics and in footers."""
    leaves: dict[str, ColumnDef] = {}

    def visit(column: ColumnDef, prefix: str) -> None:
        path = f"{prefix}{identifier(column.name)}"
        if not column.children:
            leaves[path] = column
        for child in column.children:
            visit(child, f"{path}.")

    for column in columns:
        visit(column, "")
    return leaves


def _statistics(
    stats: Mapping[str, Mapping[str, str]], leaves: Mapping[str, ColumnDef]
) -> tuple[dict[int, ColumnStats], tuple[VariantStats, ...]]:
    columns, variants = dict[int, ColumnStats](), list[VariantStats]()
    for path, leaf in leaves.items():
        if leaf.type == "variant" and f'{path}."metadata"' in stats:
            columns[leaf.column_id], fields = variant_stats(leaf.column_id, path, stats)
            variants += fields
    for path, values in stats.items():
        if (column := leaves.get(path)) is not None and column.type in _UNCOUNTED:
            columns[column.column_id] = ColumnStats(int(values["column_size_bytes"]))
        elif column is not None:
            columns[column.column_id] = copied_stats(values, _geometry(values) if column.type == "geometry" else None)
    return columns, tuple(variants)


def _geometry(values: Mapping[str, str]) -> str:
    axes = [f"{axis}{end}" for axis in "xyzm" for end in ("min", "max")]
    box = {axis: float(values[f"bbox_{axis}"]) if f"bbox_{axis}" in values else None for axis in axes}
    kinds = values.get("geo_types", "[]")[1:-1]
    return json.dumps({"bbox": box, "types": [part.strip() for part in kinds.split(",") if part.strip()]})
