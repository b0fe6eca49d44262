"""A slice of inlined rows on its way into files: all versions of the rows of some ids, dead ones included."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.catalog.lifecycle.partial_files import PlacedFile, unnumbered
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
    versions_of,
)
from ducklake_orch.catalog.parquet import key_sql, parquet_sql, partition_keys, read_columns, renamed, short
from ducklake_orch.catalog.search import travelled
from ducklake_orch.catalog.writing import WrittenVersions, write_delete_file, write_row_versions, write_versions
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_SAYS_INFINITY = "CAST({} AS VARCHAR) LIKE '%infinity%'"
_ARRIVED, _VERSIONS = "__ducklake_orch_arrived", "__ducklake_orch_versions"


@dataclass(frozen=True)
class RowRange:
    """Inlined rows by their ids.

    Attributes:
        place: The metadata table that holds them.
        after: The id before the first.
        last: The last id.
        until: The last snapshot that a version of them came with.
        count: How many versions there are.
        dead: How many of these have ended.
        kept: Ids of rows that stay in the catalog.
    """

    place: str
    after: int
    last: int
    until: int
    count: int = 0
    dead: int = 0
    kept: frozenset[int] = field(default_factory=frozenset)

    @property
    def condition(self) -> str:
        """The condition for the versions of these rows that are moved."""
        kept = f" AND row_id NOT IN ({', '.join(map(str, sorted(self.kept)))})" if self.kept else ""
        return f"row_id > {self.after} AND row_id <= {self.last} AND begin_snapshot <= {self.until}{kept}"


@dataclass(frozen=True)
class InlinedSlice:
    """Inlined rows as they travel.

    Attributes:
        columns: The table's columns as they were when the rows were written.
        oldest: The oldest retained snapshot.
        rows: The versions, their columns called after the columns' ids.
    """

    range: RowRange
    columns: tuple[ColumnDef, ...]
    oldest: int
    rows: "pa.Table"

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class FlushedFile:
    """A new file with row versions, and the delete file that says which of them have ended, if any have."""

    placed: PlacedFile
    deletes: NewDeleteFile | None


@dataclass(frozen=True)
class WrittenSlice:
    """What became of a slice."""

    range: RowRange
    files: tuple[FlushedFile, ...]


def read_slice(history: TableHistory, place: InlinedTable, after: int, until: int, limit: int) -> InlinedSlice | None:
    """Read inlined rows in the order of their ids; None when there are no more.

    Args:
        history: The table and its past.
        place: The metadata table that holds them.
        after: The id before the first.
        until: The last snapshot that they may have come with.
        limit: About how many versions.
    """
    metadata, source = history.metadata, history.metadata.table_sql(place.name)
    some = f"SELECT row_id FROM {source} WHERE row_id > {after} AND begin_snapshot <= {until}"
    last = metadata.rows(f"SELECT max(row_id) FROM ({some} ORDER BY row_id LIMIT {limit})")[0][0]
    if last is None:
        return None
    oldest = metadata.rows(f"SELECT min(snapshot_id) FROM {metadata.table_sql('ducklake_snapshot')}")[0][0]
    columns, found = history.columns(place.schema_version), RowRange(place.name, after, int(last), until)
    select = ", ".join(map(_as_it_travels, columns))
    one = versions_of(history, place, columns, found.condition)
    identity = f"{one.row_id} AS row_id, {one.snapshot} AS began, {one.end} AS ended"
    rows = travelled(metadata.con, f"SELECT {select}, {identity} FROM ({one.sql})")
    return InlinedSlice(found, columns, int(oldest), rows)


def _as_it_travels(column: ColumnDef) -> str:
    """Return a value as Arrow carries it exactly, called after the id of its column."""
    name = identifier(column.name)
    return f"{name if column.children or column.type == 'blob' else f'CAST({name} AS VARCHAR)'} AS {short(column)}"


def write_slice(con: duckdb.DuckDBPyConnection, table: TableDef, part: InlinedSlice, write_id: str) -> WrittenSlice:
    """Write the versions that a retained snapshot sees into files of the table.

    Args:
        con: A DuckDB that can reach the storage; it is used by nobody else meanwhile.
        table: The table as it is now.
        part: The slice.
        write_id: Part of the files' names.
    """
    values = "".join(f"CAST({short(one)} AS {duckdb_type(one)}) AS {short(one)}, " for one in part.columns)
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
    """Return the query for the ids of rows that cannot be moved.

    DuckDB writes no infinite TIMESTAMP_S into Parquet. And where two versions of a row came with one snapshot, and one
    of them has ended, a file would not tell which.
    """
    # Inside other values there is only their text to look at; a text of that word keeps a row that could have moved.
    infinite = [
        f"coalesce({f'isinf({short(one)})' if one.type == 'timestamp_s' else _SAYS_INFINITY.format(short(one))}, false)"
        for one in columns
        if any(leaf.type == "timestamp_s" for leaf in one.leaves())
    ]
    alike = f"SELECT row_id FROM {_VERSIONS} GROUP BY row_id, began HAVING count(*) > 1 AND count(ended) > 0"
    return " UNION ".join([alike, *(f"SELECT row_id FROM {_VERSIONS} WHERE {one}" for one in infinite)])


def _write(
    con: duckdb.DuckDBPyConnection, table: TableDef, columns: tuple[ColumnDef, ...], write_id: str
) -> tuple[FlushedFile, ...]:
    """Write row versions with the columns of then, in the partitions of now: the engine looks for no others."""
    # The keys of the sort are about the columns of now.
    then = replace(table, columns=columns, sort=table.sort if columns == table.columns else ())
    types = {one.column_id: duckdb_type(one) for one in columns}
    keys = partition_keys(table)
    # Of bytes that are no text, COPY cannot name the partition.
    plain = not any(one.is_identity and one.column.type == "blob" for one in keys)
    plain = plain and all(types.get(one.column.column_id) == duckdb_type(one.column) for one in keys)
    written = write_row_versions(con, then, _rows_sql(then), write_id) if plain else _by_key(con, table, then, write_id)
    spec = table.partition.partition_id if table.partition and keys else None
    dead = con.execute(f"SELECT count(ended) FROM {_VERSIONS}").fetchall()[0][0]
    files = []
    for one in written:
        deletes = _delete_file(con, table, one.file, write_id) if dead else None
        files.append(FlushedFile(PlacedFile(one.file, one.first, one.last, spec), deletes))
    if sum(one.deletes.delete_count for one in files if one.deletes) != dead:
        raise DataError(f"Of the inlined rows of `{table}` some that were deleted cannot be told apart.")
    return tuple(files)


def _rows_sql(then: TableDef, condition: str = "true") -> str:
    names = "".join(f"{short(one)} AS {identifier(one.name)}, " for one in then.columns)
    order = "" if then.sort else " ORDER BY row_id, began"
    identity = f"row_id AS {row_id_name(then.columns)}, began AS {snapshot_id_name(then.columns)}"
    source = f"SELECT {names}{identity} FROM {_VERSIONS} WHERE {condition}{order}"
    return f"SELECT * FROM ({source})"


def _by_key(
    con: duckdb.DuckDBPyConnection, table: TableDef, then: TableDef, write_id: str
) -> Iterator[WrittenVersions]:
    """Write one partition after the other: where a key is of a column that was added, has another type, or is bytes."""
    known = {one.column_id: one for one in then.columns}
    keys = []
    for one in partition_keys(table):
        old = known.get(one.column.column_id)
        value = read_as(short(old) if old else "NULL", old, one.column)
        keys.append(key_sql(one.field.transform, f"({value})", duckdb_type(one.column)))
    con.execute(f"ALTER TABLE {_VERSIONS} ADD COLUMN part BIGINT")
    ranked = f"SELECT rowid AS place, dense_rank() OVER (ORDER BY {', '.join(keys)}) AS part FROM {_VERSIONS}"
    con.execute(f"UPDATE {_VERSIONS} v SET part = r.part FROM ({ranked}) r WHERE v.rowid = r.place")
    texts = ", ".join(f"any_value(CAST({key} AS VARCHAR))" for key in keys)
    for part, *values in con.execute(f"SELECT part, {texts} FROM {_VERSIONS} GROUP BY part").fetchall():
        written = write_versions(con, then, _rows_sql(then, f"part = {part}"), tuple(values), write_id)
        if written is not None:
            yield written


def _delete_file(con: duckdb.DuckDBPyConnection, table: TableDef, file: NewFile, write_id: str) -> NewDeleteFile | None:
    """Write down which row versions of a new file have ended, and when."""
    same = f"f.{ROW_ID} = v.row_id AND f.{SNAPSHOT_ID} = v.began"
    source = f"{parquet_sql(file.path)} AS {renamed(read_columns(con, [file.path])[file.path])}"
    ended = f"SELECT f.file_row_number, v.ended FROM {source} JOIN {_VERSIONS} v ON {same}"
    ended = f"{ended} WHERE v.ended IS NOT NULL"
    if not con.execute(f"SELECT count(*) FROM ({ended})").fetchall()[0][0]:
        return None
    return write_delete_file(con, table, write_id, unnumbered(file), (), new=ended)
