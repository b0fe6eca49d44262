"""Write a slice of inlined rows into files: all versions of a range of row ids, including ended ones."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.catalog.lifecycle.partial_files import FileEntry
from ducklake_orch.catalog.metadata import (
    ROW_ID,
    SNAPSHOT_ID,
    ColumnDef,
    InlinedTable,
    NewDeleteFile,
    NewFile,
    TableDef,
    TableHistory,
    duckdb_type,
    read_as,
    row_id_name,
    snapshot_id_name,
    unnumbered,
    versions_of,
)
from ducklake_orch.catalog.parquet import data_sql, footers_of, key_sql, partition_keys, short
from ducklake_orch.catalog.search import arrow_copy
from ducklake_orch.catalog.writing import WrittenVersions, write_delete_file, write_row_versions, write_versions
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_SAYS_INFINITY = "CAST({} AS VARCHAR) LIKE '%infinity%'"
_ARRIVED, _VERSIONS = "__ducklake_orch_arrived", "__ducklake_orch_versions"


@dataclass(frozen=True)
class RowRange:
    """A range of inlined rows.

    Attributes:
        table: The metadata table that holds them.
        after: The row id before the first.
        last: The last row id.
        until: The last snapshot in which a version of them began.
        count: How many versions there are.
        dead: How many of these have ended.
        kept: Ids of rows that stay in the catalog.
    """

    table: str
    after: int
    last: int
    until: int
    count: int = 0
    dead: int = 0
    kept: frozenset[int] = field(default_factory=frozenset)

    @property
    def condition(self) -> str:
        """The condition for the row versions to move."""
        kept = f" AND row_id NOT IN ({', '.join(map(str, sorted(self.kept)))})" if self.kept else ""
        return f"row_id > {self.after} AND row_id <= {self.last} AND begin_snapshot <= {self.until}{kept}"


@dataclass(frozen=True)
class InlinedSlice:
    """Inlined rows, read from the catalog.

    Attributes:
        columns: The table's columns at the time when the rows were written.
        oldest: The oldest retained snapshot.
        rows: The row versions; their columns are named after column ids.
    """

    range: RowRange
    columns: tuple[ColumnDef, ...]
    oldest: int
    rows: "pa.Table"

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class FlushedFile:
    """A new file of row versions, and its delete file if any of them have ended."""

    placed: FileEntry
    deletes: NewDeleteFile | None


@dataclass(frozen=True)
class WrittenSlice:
    """The result of writing a slice."""

    range: RowRange
    files: tuple[FlushedFile, ...]


def read_slice(
    history: TableHistory, inlined_table: InlinedTable, after: int, until: int, limit: int
) -> InlinedSlice | None:
    """Read inlined rows in the order of their ids; return None if there are no more.

    Args:
        history: The table and its history.
        inlined_table: The metadata table that holds the rows.
        after: The row id before the first.
        until: The last snapshot in which the rows may have begun.
        limit: Approximate number of versions.
    """
    metadata, source = history.metadata, history.metadata.table_sql(inlined_table.name)
    ids = f"SELECT row_id FROM {source} WHERE row_id > {after} AND begin_snapshot <= {until}"
    last = metadata.rows(f"SELECT max(row_id) FROM ({ids} ORDER BY row_id LIMIT {limit})")[0][0]
    if last is None:
        return None
    oldest = metadata.rows(f"SELECT min(snapshot_id) FROM {metadata.table_sql('ducklake_snapshot')}")[0][0]
    columns = history.columns(inlined_table.schema_version)
    row_range = RowRange(inlined_table.name, after, int(last), until)
    select = ", ".join(map(_as_it_travels, columns))
    versions = versions_of(history, inlined_table, columns, row_range.condition)
    identity = f"{versions.row_id} AS row_id, {versions.snapshot} AS began, {versions.end} AS ended"
    rows = arrow_copy(metadata.con, f"SELECT {select}, {identity} FROM ({versions.sql})")
    return InlinedSlice(row_range, columns, int(oldest), rows)


def _as_it_travels(column: ColumnDef) -> str:
    """Return the SQL for a value in a form that Arrow carries exactly, named after its column id."""
    name = identifier(column.name)
    return f"{name if column.children or column.type == 'blob' else f'CAST({name} AS VARCHAR)'} AS {short(column)}"


def write_slice(con: duckdb.DuckDBPyConnection, table: TableDef, part: InlinedSlice, write_id: str) -> WrittenSlice:
    """Write the row versions that a retained snapshot sees into files of the table.

    Args:
        con: A DuckDB connection that reaches the storage and that nothing else uses at the same time.
        table: The table as it is now.
        part: The slice.
        write_id: Becomes part of the file names.
    """
    values = "".join(f"CAST({short(column)} AS {duckdb_type(column)}) AS {short(column)}, " for column in part.columns)
    con.register(_ARRIVED, part.rows)
    try:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_VERSIONS} AS SELECT {values}row_id, began, ended FROM {_ARRIVED}")
        kept = frozenset(int(row[0]) for row in con.execute(_kept_sql(part.columns)).fetchall())
        con.execute(f"DELETE FROM {_VERSIONS} WHERE list_contains(?, row_id)", [sorted(kept)])
        count, dead = con.execute(f"SELECT count(*), count(ended) FROM {_VERSIONS}").fetchall()[0]
        con.execute(f"DELETE FROM {_VERSIONS} WHERE ended <= {part.oldest} OR ended <= began")
        files = _write(con, table, part.columns, write_id)
        return WrittenSlice(replace(part.range, count=count, dead=dead, kept=kept), files)
    finally:
        con.unregister(_ARRIVED)
        con.execute(f"DROP TABLE IF EXISTS {_VERSIONS}")


def _kept_sql(columns: tuple[ColumnDef, ...]) -> str:
    """Return the query for the ids of rows that must stay in the catalog.

    DuckDB cannot write an infinite TIMESTAMP_S to Parquet. And if two versions of a row began in the same snapshot and
    one of them has ended, a file could not say which.
    """
    # Nested values can only be checked by their text. A string that contains that word keeps its row inlined although
    # it could be moved.
    seconds = [column for column in columns if any(leaf.type == "timestamp_s" for leaf in column.leaves())]
    tests = ["isinf({})" if column.type == "timestamp_s" else _SAYS_INFINITY for column in seconds]
    infinite = [f"coalesce({test.format(short(column))}, false)" for test, column in zip(tests, seconds, strict=True)]
    ambiguous = f"SELECT row_id FROM {_VERSIONS} GROUP BY row_id, began HAVING count(*) > 1 AND count(ended) > 0"
    return " UNION ".join([ambiguous, *(f"SELECT row_id FROM {_VERSIONS} WHERE {condition}" for condition in infinite)])


def _write(
    con: duckdb.DuckDBPyConnection, table: TableDef, columns: tuple[ColumnDef, ...], write_id: str
) -> tuple[FlushedFile, ...]:
    """Write row versions with the columns of their schema version, in current partitions: engines prune by them."""
    # The sort keys refer to the current columns.
    file_table = replace(table, columns=columns, sort=table.sort if columns == table.columns else ())
    types = {column.column_id: duckdb_type(column) for column in columns}
    keys = partition_keys(table)
    # COPY cannot name a partition after bytes that are not text.
    plain = not any(key.is_identity and key.column.type == "blob" for key in keys)
    plain = plain and all(types.get(key.column.column_id) == duckdb_type(key.column) for key in keys)
    written = (
        write_row_versions(con, file_table, _rows_sql(file_table), write_id)
        if plain
        else _by_key(con, table, file_table, write_id)
    )
    spec = table.partition.partition_id if table.partition and keys else None
    dead = con.execute(f"SELECT count(ended) FROM {_VERSIONS}").fetchall()[0][0]
    files = []
    for versions in written:
        deletes = _delete_file(con, file_table, versions.file, write_id) if dead else None
        files.append(FlushedFile(FileEntry(versions.file, versions.first, versions.last, spec), deletes))
    if sum(file.deletes.delete_count for file in files if file.deletes) != dead:
        raise DataError(
            f"Deletions of inlined rows of `{table}` cannot be assigned to row versions: row ids are not unique."
        )
    return tuple(files)


def _rows_sql(file_table: TableDef, condition: str = "true") -> str:
    names = "".join(f"{short(column)} AS {identifier(column.name)}, " for column in file_table.columns)
    order = "" if file_table.sort else " ORDER BY row_id, began"
    identity = f"row_id AS {row_id_name(file_table.columns)}, began AS {snapshot_id_name(file_table.columns)}"
    source = f"SELECT {names}{identity} FROM {_VERSIONS} WHERE {condition}{order}"
    return f"SELECT * FROM ({source})"


def _by_key(
    con: duckdb.DuckDBPyConnection, table: TableDef, file_table: TableDef, write_id: str
) -> Iterator[WrittenVersions]:
    """Write one partition at a time, for keys on columns that were added later, changed their type or hold bytes."""
    known = {column.column_id: column for column in file_table.columns}
    keys = []
    for key in partition_keys(table):
        old = known.get(key.column.column_id)
        value = read_as(short(old) if old else "NULL", old, key.column)
        keys.append(key_sql(key.field.transform, f"({value})", duckdb_type(key.column)))
    con.execute(f"ALTER TABLE {_VERSIONS} ADD COLUMN part BIGINT")
    ranked = f"SELECT rowid AS number, dense_rank() OVER (ORDER BY {', '.join(keys)}) AS part FROM {_VERSIONS}"
    con.execute(f"UPDATE {_VERSIONS} v SET part = r.part FROM ({ranked}) r WHERE v.rowid = r.number")
    texts = ", ".join(f"any_value(CAST({key} AS VARCHAR))" for key in keys)
    for part, *values in con.execute(f"SELECT part, {texts} FROM {_VERSIONS} GROUP BY part").fetchall():
        written = write_versions(con, file_table, _rows_sql(file_table, f"part = {part}"), tuple(values), write_id)
        if written is not None:
            yield written


def _delete_file(con: duckdb.DuckDBPyConnection, table: TableDef, file: NewFile, write_id: str) -> NewDeleteFile | None:
    """Write the delete file of a new file: which of its row versions have ended, and in which snapshots."""
    same = f"f.{ROW_ID} = v.row_id AND f.{SNAPSHOT_ID} = v.began"
    written = unnumbered(file)
    source = data_sql(written, footers_of(con, [written], {-1: table.columns})[file.path])
    ended = f"SELECT f.file_row_number, v.ended FROM {source} JOIN {_VERSIONS} v ON {same}"
    ended = f"{ended} WHERE v.ended IS NOT NULL"
    if not con.execute(f"SELECT count(*) FROM ({ended})").fetchall()[0][0]:
        return None
    return write_delete_file(con, table, write_id, unnumbered(file), (), new=ended)
