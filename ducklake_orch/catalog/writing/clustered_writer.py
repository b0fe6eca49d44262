"""Write known rows into files that each hold a range of the values of some columns, so that reads skip more files."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, NewFile, TableDef, free_column_name, row_id_name
from ducklake_orch.catalog.parquet import copy_options
from ducklake_orch.catalog.writing.cast_to_table import explain
from ducklake_orch.catalog.writing.cluster_cells import cell_sql
from ducklake_orch.catalog.writing.file_writer import (
    copy_rows,
    fitted,
    known_files,
    partition_folder,
    with_row_ids,
)
from ducklake_orch.engine.quoting import folded, identifier, literal

_SPOOL = "__ducklake_orch_cells"
_ROWS_IN_ROW_GROUP = 122_880  # DuckDB's default
_MOST_CELLS = 1_024
_LETTERS = 64
# A file whose rows have equal keys is not divided by them, but by its size.
_LARGEST = 2


@dataclass(frozen=True)
class Clustering:
    """By what rows are clustered.

    Attributes:
        keys: The columns; none for the sort keys of the table.
        files: How many files the rows get.
        rows: How many rows there are.
        file_size: The size that files should have.
        mark: The part of the files' names that says by what all rows of these files are clustered; None if they are
            clustered only within each file.
    """

    keys: tuple[str, ...]
    files: int
    rows: int
    file_size: int
    mark: str | None = None


def cluster_mark(keys: Sequence[str], sort: Sequence[str]) -> str:
    """Return the part of a file's name that says by what its rows are clustered.

    Args:
        keys: The cluster keys.
        sort: The sort keys, as `SortKey` writes them, if there are no cluster keys.
    """
    text = "\0".join([*map(folded, keys), "", *sort])
    return f"by{md5(text.encode(), usedforsecurity=False).hexdigest()[:8]}"


def cell_of(con: duckdb.DuckDBPyConnection, rows: str, table: TableDef, clustering: Clustering) -> str:
    """Return the SQL expression for the number of the cell that a row is in.

    Args:
        con: A DuckDB connection that can read the rows.
        rows: The query for the rows.
        table: The table.
        clustering: By what the rows are clustered.
    """
    return cell_sql(con, rows, _sort_keys(table, clustering), clustering.files, _parts(table, clustering))


def _sort_keys(table: TableDef, clustering: Clustering) -> list[str]:
    """Return the SQL of values that sort as the rows are to be clustered."""
    if clustering.keys:
        columns = {folded(column.name): column for column in table.columns}
        return [_sort_key(columns[folded(name)]) for name in clustering.keys]
    keys = (f"{key.expression}, {literal(key.order)}" for key in table.sort)
    return [f"create_sort_key({', '.join(keys)})"]


def _sort_key(column: ColumnDef) -> str:
    value = identifier(column.name)
    if column.type in ("varchar", "json"):
        value = f"left({value}, {_LETTERS})"  # the rest of a long text does not matter
    return f"create_sort_key({value}, 'ASC NULLS LAST')"


def _parts(table: TableDef, clustering: Clustering) -> int:
    """Return how many cells a file has: one for each row group."""
    size = int(table.options.get("parquet_row_group_size", _ROWS_IN_ROW_GROUP))
    return max(1, min(round(clustering.rows / clustering.files / size), _MOST_CELLS // clustering.files))


def write_clustered_rows(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    source: str,
    values: tuple[str | None, ...],
    write_id: str,
    clustering: Clustering,
) -> list[NewFile]:
    """Write rows of one partition that are already in the lake into clustered files, with their existing row ids.

    Args:
        con: A DuckDB connection that can reach the storage and that nothing else uses during the call.
        table: The table to write for.
        source: The FROM item that reads the rows, with their ids in the column `row_id_name`; it is read twice.
        values: The partition values of the rows.
        write_id: The write's id, which becomes part of the files' names.
        clustering: By what the rows are clustered.

    Raises:
        DataError: When computed values do not fit the table.
    """
    wider = with_row_ids(table)
    rows = fitted(con, wider, source, None, known=True)
    folder = partition_folder(con, table, values)
    options = copy_options(wider, write_id)
    if clustering.mark is not None:
        options["FILENAME_PATTERN"] = literal(f"{table.file_prefix(write_id)}-{clustering.mark}-{{uuidv7}}")
    options["FILE_SIZE_BYTES"] = str(_LARGEST * clustering.file_size)
    names = ", ".join(identifier(column.name) for column in wider.columns)
    cell = free_column_name("__ducklake_orch_cell", wider.columns)
    # The engine would otherwise compute a key anew for each comparison with it.
    sort_keys = _sort_keys(table, clustering)
    keys = [free_column_name(f"{cell}_key_{n}", wider.columns) for n in range(len(sort_keys))]
    named = ", ".join(f"{sql} AS {key}" for sql, key in zip(sort_keys, keys, strict=True))
    keyed = f"SELECT *, {named} FROM ({rows})"
    files, parts = list[NewFile](), _parts(table, clustering)
    sort = [*([cell] if clustering.keys else []), *(key.sql for key in table.sort), row_id_name(table.columns)]
    try:
        number = cell_sql(con, keyed, keys, clustering.files, parts)
        con.execute(f"CREATE TEMP TABLE {_SPOOL} AS SELECT {names}, {number} AS {cell} FROM ({keyed}) ORDER BY {cell}")
        # No file is written for no rows.
        used = con.execute(f"SELECT DISTINCT {cell} // {parts} FROM {_SPOOL} ORDER BY ALL").fetchall()
        for first in (number * parts for (number,) in used):
            of_file = f"{cell} BETWEEN {first} AND {first + parts - 1}"
            sql = f"SELECT {names} FROM {_SPOOL} WHERE {of_file} ORDER BY {', '.join(sort)}"
            files += copy_rows(con, wider, [], sql, folder, options, values)
    except duckdb.Error as error:
        failure = explain(error, table)
        if failure is None:
            raise
    else:
        return known_files(table, files)
    finally:
        con.execute(f"DROP TABLE IF EXISTS {_SPOOL}")
    raise failure
