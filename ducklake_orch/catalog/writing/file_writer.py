"""The task writer: a stream of rows in, finished files in their final places out, with exact statistics.

It needs no catalog, so it runs wherever the data is: in this process, or in the tasks of a Spark job.
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
    beside,
    row_id_name,
    snapshot_id_name,
)
from ducklake_orch.catalog.parquet import (
    PartitionKey,
    copied_stats,
    copy_options,
    file_size,
    partition_keys,
    sort_sql,
    variant_stats,
)
from ducklake_orch.catalog.writing.cast_to_table import explain, projection, source_columns
from ducklake_orch.engine.quoting import identifier, literal

_SPOOL = "__ducklake_orch_spool"
# Of these COPY says that there are no values and no NULLs, whatever there is.
_UNCOUNTED = ("timetz", "interval")


@dataclass(frozen=True)
class WrittenVersions:
    """A file with versions of rows.

    Attributes:
        first: The first of the snapshots that they came with.
        last: The last of them.
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
        con: A DuckDB that can reach the storage; it is used by nobody else meanwhile.
        table: What to write for.
        source: What stands behind FROM to read the rows; it is read once.
        write_id: Becomes part of the files' names.
        only: Leave out the rows that do not match this predicate.
        known: Whether the rows are in the lake already.

    Returns:
        The files, none of them empty.

    Raises:
        DataError: When the data do not fit.
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
    """Write rows that were in the lake before into files of a table, with the ids that they had.

    Args:
        con: A DuckDB that can reach the storage; it is used by nobody else meanwhile.
        table: What to write for.
        source: What stands behind FROM to read the rows; they have their ids as a column, called `row_id_name`.
        write_id: Becomes part of the files' names.

    Raises:
        DataError: When values that were computed do not fit.
    """
    # In the file, ids of rows are a column like others; in the catalog they are none.
    row_id = ColumnDef(ROW_ID_FIELD, row_id_name(table.columns), "int64", nullable=False)
    wider = replace(table, columns=(*table.columns, row_id))
    known = {leaf.column_id for column in table.columns for leaf in column.leaves()}
    return [
        replace(file, stats={key: one for key, one in file.stats.items() if key in known}, has_row_ids=True)
        for file in write_files(con, wider, source, write_id, known=True)
    ]


def write_row_versions(
    con: duckdb.DuckDBPyConnection, table: TableDef, source: str, write_id: str
) -> list[WrittenVersions]:
    """Write versions of rows into files, laid out as the table's rows are, each with its id and its snapshot.

    Args:
        con: A DuckDB that can reach the storage; it is used by nobody else meanwhile.
        table: The table as it was when they were written; its partition spec is that of the files.
        source: The query for them: the columns of the table, the row id, the snapshot.
        write_id: Becomes part of the files' names.
    """
    wider = replace(table, columns=(*table.columns, *_identity(table)))
    return [_versions(table, file) for file in _write(con, wider, source, write_id)]


def write_versions(
    con: duckdb.DuckDBPyConnection, table: TableDef, rows: str, values: tuple[str | None, ...], write_id: str
) -> WrittenVersions | None:
    """Write versions of rows into one file, each with its id and the snapshot that it came with.

    Args:
        con: A DuckDB that can reach the storage; it is used by nobody else meanwhile.
        table: The table as it was when they were written: columns, and the partition spec.
        rows: The query for them: the columns of the table, then `row_id_name` and `snapshot_id_name`.
        values: Their keys in the partition spec.
        write_id: Becomes part of the file's name.

    Returns:
        The file; None when there are no rows.
    """
    wider = replace(table, columns=(*table.columns, *_identity(table)))
    folder = table.folder
    if table.options.get("hive_file_pattern") != "false":
        encoded = con.execute(
            f"SELECT {', '.join(f'url_encode({literal(one)})' for one in values) or 'NULL'}"
        ).fetchall()
        for key, text in zip(partition_keys(table), encoded[0], strict=False):
            folder += key.folder_of(text)
    # One file, however large.
    options = copy_options(wider, write_id) | {"FILE_SIZE_BYTES": "'1000TiB'"}
    files = _copy(con, wider, [], rows, folder, options, values)
    if not files:
        return None
    return _versions(table, files[0])


def _identity(table: TableDef) -> tuple[ColumnDef, ...]:
    """Return what a row version has beside the columns of the table."""
    own = [(ROW_ID_FIELD, row_id_name(table.columns)), (SNAPSHOT_ID_FIELD, snapshot_id_name(table.columns))]
    return tuple(ColumnDef(number, name, "int64", nullable=False) for number, name in own)


def _versions(table: TableDef, file: NewFile) -> WrittenVersions:
    """Return a file of row versions as the catalog knows it: ids and snapshots are no columns there."""
    snapshots, leaves = file.stats[SNAPSHOT_ID_FIELD], table.leaves()
    file = replace(file, stats={key: one for key, one in file.stats.items() if key in leaves}, has_row_ids=True)
    return WrittenVersions(file, int(snapshots.min_value or 0), int(snapshots.max_value or 0))


def fitted(
    con: duckdb.DuckDBPyConnection, table: TableDef, source: str, only: str | None, *, known: bool = False
) -> str:
    """Return the query for data as rows of the table, maybe only those that match a predicate.

    Raises:
        DataError: When their columns do not fit.
    """
    rows = f"SELECT {projection(con, table, source_columns(con, source), known=known)} FROM {source}"
    return rows if only is None else f"SELECT * FROM ({rows}) WHERE (\n{only}\n) IS TRUE"


def _write(con: duckdb.DuckDBPyConnection, table: TableDef, rows: str, write_id: str) -> list[NewFile]:
    keys, options = partition_keys(table), copy_options(table, write_id)
    if table.options.get("hive_file_pattern") == "false":
        options["HIVE_FILE_PATTERN"] = "false"
    if not keys:
        options["FILE_SIZE_BYTES"] = str(file_size(table.options))
        return _copy(con, table, keys, f"{rows}{sort_sql(table)}", table.folder, options)
    names = ", ".join(identifier(key.folder) for key in keys)
    if all(key.is_identity for key in keys):
        options |= {"PARTITION_BY": f"({names})", "WRITE_PARTITION_COLUMNS": "true"}
        return _copy(con, table, keys, f"{rows}{sort_sql(table)}", table.folder, options)
    taken = {column.name.lower() for column in table.columns}
    if not any(key.is_identity or key.folder.lower() in taken for key in keys):
        # The keys are columns of their own, which COPY leaves out of the files.
        computed = ", ".join(f"{key.sql} AS {identifier(key.folder)}" for key in keys)
        options |= {"PARTITION_BY": f"({names})"}
        sql = f"SELECT *, {computed} FROM ({rows}){sort_sql(table)}"
        return _copy(con, table, keys, sql, table.folder, options)
    return _write_each_partition(con, table, keys, rows, options)


def _write_each_partition(
    con: duckdb.DuckDBPyConnection, table: TableDef, keys: Sequence[PartitionKey], rows: str, options: dict[str, str]
) -> list[NewFile]:
    """Write one partition after the other.

    COPY either keeps all partition columns in the files or none. Where a key is a column and another one is not, or is
    called like a column, the rows wait in a table that spills to disk, and each partition is copied by itself.
    """
    numbered = [beside(f"__ducklake_orch_key_{n}", table.columns) for n in range(len(keys))]
    group = beside("__ducklake_orch_group", table.columns)
    computed = ", ".join(f"{key.sql} AS {name}" for key, name in zip(keys, numbered, strict=True))
    names = ", ".join(identifier(column.name) for column in table.columns)
    # Numbered by the engine: not every value comes back from Python as it was.
    rank = f"dense_rank() OVER (ORDER BY {', '.join(numbered)}) AS {group}"
    keyed = f"SELECT *, {computed} FROM ({rows})"
    con.execute(f"CREATE TEMP TABLE {_SPOOL} AS SELECT *, {rank} FROM ({keyed}) ORDER BY {group}")
    try:
        files: list[NewFile] = []
        first = (f"any_value(CAST({name} AS VARCHAR))" for name in numbered)
        texts = ", ".join(f"{text}, url_encode({text})" for text in first)
        found = con.execute(f"SELECT {group}, {texts} FROM {_SPOOL} GROUP BY {group}").fetchall()
        options["FILE_SIZE_BYTES"] = str(file_size(table.options))
        for number, *pairs in found:
            values, encoded = tuple(pairs[::2]), pairs[1::2]
            hive = "".join(key.folder_of(text) for key, text in zip(keys, encoded, strict=True))
            folder = table.folder + (hive if options.get("HIVE_FILE_PATTERN") != "false" else "")
            sql = f"SELECT {names} FROM {_SPOOL} WHERE {group} = {number}{sort_sql(table)}"
            flat = {name: text for name, text in options.items() if name != "HIVE_FILE_PATTERN"}
            files += _copy(con, table, [], sql, folder, flat, values)
        return files
    finally:
        con.execute(f"DROP TABLE {_SPOOL}")


def _copy(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    keys: Sequence[PartitionKey],
    sql: str,
    folder: str,
    options: Mapping[str, str],
    values: tuple[str | None, ...] = (),
) -> list[NewFile]:
    if "://" not in folder:
        os.makedirs(folder, exist_ok=True)
    target = literal(folder.rstrip("/"))
    text = ", ".join(f"{name} {value}" for name, value in options.items())
    found = con.execute(f"COPY ({sql}) TO {target} ({text})").fetchall()
    files = []
    for path, count, size, footer, stats, partition in found:
        if count:
            given = tuple(partition[key.folder] for key in keys) if keys else values
            columns, variants = _statistics(stats, leaf_paths(table.columns))
            files.append(NewFile(path, count, size, footer, given, columns, variants))
    return files


def leaf_paths(columns: Sequence[ColumnDef]) -> dict[str, ColumnDef]:
    """Return the columns that hold values by their quoted paths, as COPY and the footers name them."""
    found: dict[str, ColumnDef] = {}

    def visit(column: ColumnDef, prefix: str) -> None:
        path = f"{prefix}{identifier(column.name)}"
        if not column.children:
            found[path] = column
        for child in column.children:
            visit(child, f"{path}.")

    for column in columns:
        visit(column, "")
    return found


def _statistics(
    stats: Mapping[str, Mapping[str, str]], leaves: Mapping[str, ColumnDef]
) -> tuple[dict[int, ColumnStats], tuple[VariantStats, ...]]:
    found, variants = dict[int, ColumnStats](), list[VariantStats]()
    for path, leaf in leaves.items():
        if leaf.type == "variant" and f'{path}."metadata"' in stats:
            found[leaf.column_id], fields = variant_stats(leaf.column_id, path, stats)
            variants += fields
    for path, values in stats.items():
        if (known := leaves.get(path)) is not None and known.type in _UNCOUNTED:
            found[known.column_id] = ColumnStats(int(values["column_size_bytes"]))
        elif known is not None:
            found[known.column_id] = copied_stats(values, _geometry(values) if known.type == "geometry" else None)
    return found, tuple(variants)


def _geometry(values: Mapping[str, str]) -> str:
    axes = [f"{axis}{end}" for axis in "xyzm" for end in ("min", "max")]
    box = {axis: float(values[f"bbox_{axis}"]) if f"bbox_{axis}" in values else None for axis in axes}
    kinds = values.get("geo_types", "[]")[1:-1]
    return json.dumps({"bbox": box, "types": [one.strip() for one in kinds.split(",") if one.strip()]})
