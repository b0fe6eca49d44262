"""Build DuckDB SQL for row versions and changes of rows: a row version begins at a snapshot and may end at a later one.

This module needs no catalog, so it runs where the data is: in this process, or in the tasks of a Spark job. Here the
columns of a table are named after their ids (`c1`, `c2`), so that their names cannot collide with others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb

from ducklake_orch.catalog.metadata import (
    ROW_ID,
    ROW_ID_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    ColumnDef,
    DataFile,
    InlinedRows,
)
from ducklake_orch.catalog.parquet.column_mapping import StoredColumn
from ducklake_orch.catalog.parquet.deletion_vectors import read_vectors
from ducklake_orch.catalog.parquet.file_schema import FileColumn
from ducklake_orch.catalog.parquet.live_rows_sql import data_sql, deletes_sql, has_own, value_sql
from ducklake_orch.engine.quoting import identifier

# Helper columns; the prefix keeps them from colliding with the table's columns.
_POSITION, _GONE = "__ducklake_orch_pos", "__ducklake_orch_gone"


@dataclass(frozen=True, slots=True)
class FileLife:
    """A data file with the whole history of its deletions.

    Attributes:
        file: The file, with every delete file that it ever had.
        end_snapshot: The snapshot that retired it; None if it is live.
        deleted: The positions of its inlined deletions, each with the deleting snapshot.
    """

    file: DataFile
    end_snapshot: int | None = None
    deleted: tuple[tuple[int, int], ...] = ()


def with_vectors(con: duckdb.DuckDBPyConnection, lives: Sequence[FileLife]) -> tuple[FileLife, ...]:
    """Return the files with the positions of their deletion vectors; see `read_vectors`."""
    files = read_vectors(con, [life.file for life in lives])
    return tuple(replace(life, file=file) for life, file in zip(lives, files, strict=True))


@dataclass(frozen=True, slots=True)
class Span:
    """A range of snapshots, both ends included, with the columns to read.

    Attributes:
        first: The first snapshot.
        last: The last snapshot.
        columns: The columns to return.
        compared: The columns to compare, to distinguish changed rows from rows that only moved; empty if rows were only
            added.
    """

    first: int
    last: int
    columns: tuple[ColumnDef, ...]
    compared: tuple[ColumnDef, ...]

    @property
    def needed(self) -> tuple[ColumnDef, ...]:
        """The columns to read."""
        return self.compared or self.columns


def short(column: ColumnDef) -> str:
    """Return the name of a column in these queries."""
    return f"c{column.column_id}"


def file_versions(life: FileLife, footer: Sequence[FileColumn], stored: Sequence[StoredColumn]) -> str:
    """Return the query for the row versions of a file: `row_id`, `began`, `ended`, and columns of the table.

    Args:
        life: The file and its deletions.
        footer: The columns that it has.
        stored: The table's columns, as stored in the file.
    """
    file = life.file
    began, start = str(file.begin_snapshot), "NULL" if file.row_id_start is None else str(file.row_id_start)
    row_id = f"CAST({start} + file_row_number AS BIGINT)"
    if has_own(footer, SNAPSHOT_ID_FIELD):
        began = f"coalesce({SNAPSHOT_ID}, {began})"
    if has_own(footer, ROW_ID_FIELD):
        row_id = f"coalesce({ROW_ID}, {row_id})"
    ends = ["NULL" if life.end_snapshot is None else str(life.end_snapshot)]
    rows, deletions = data_sql(file, footer), _first_deletions(life)
    if deletions:
        rows = f"{rows} LEFT JOIN ({deletions}) d ON d.{_POSITION} = f.file_row_number"
        ends.append(f"d.{_GONE}")
    # LEAST ignores NULLs.
    select = [f"{row_id} AS row_id", f"CAST({began} AS BIGINT) AS began"]
    select += [f"CAST(least({', '.join(ends)}) AS BIGINT) AS ended"]
    select += [f"{value_sql(column)} AS {short(column.column)}" for column in stored]
    return f"SELECT {', '.join(select)} FROM {rows}"


def state_sql(
    file: DataFile, deleted: Sequence[int], footer: Sequence[FileColumn], stored: Sequence[StoredColumn], at: int
) -> str:
    """Return the query for the rows of a file that are live at a snapshot, in the form of `file_versions`.

    Args:
        file: The file, as it is at the snapshot.
        deleted: The positions of its inlined deletions up to the snapshot.
        footer: The columns that it has.
        stored: The table's columns, as stored in the file.
        at: The snapshot.
    """
    versions = file_versions(FileLife(file, deleted=tuple((position, 0) for position in deleted)), footer, stored)
    return f"SELECT * FROM ({versions}) WHERE began <= {at} AND coalesce(ended > {at}, true)"


def same_sql(columns: Sequence[ColumnDef]) -> str:
    """Return the SQL of a hash that is the same for rows with the same values."""
    values = list(map(short, columns))
    for column in columns:
        # Different variants can have the same text: 1 and '1', NULL and 'NULL'. So their JSON is compared, too, and
        # whether they are texts.
        if any(leaf.type == "variant" for leaf in column.leaves()):
            values.append(f"nullif(CAST(TRY_CAST({short(column)} AS JSON) AS VARCHAR), 'null')")
        if column.type == "variant":
            values.append(f"coalesce(variant_typeof({short(column)}) = 'VARCHAR', false)")
    return f"md5(CAST(row({', '.join(values)}) AS VARCHAR))"


def _first_deletions(life: FileLife) -> str:
    """Return the query for the first deletion of each deleted position; later delete files repeat earlier positions."""
    parts = [
        f"SELECT pos, coalesce({SNAPSHOT_ID}, {delete.begin_snapshot}) AS gone FROM {deletes_sql(delete)}"
        for delete in life.file.deletes
    ]
    if life.deleted:
        lists = (f"unnest([{', '.join(map(str, values))}])" for values in zip(*life.deleted, strict=True))
        parts.append(f"SELECT {' AS pos, '.join(lists)} AS gone")
    if not parts:
        return ""
    return f"SELECT pos AS {_POSITION}, min(gone) AS {_GONE} FROM ({' UNION ALL '.join(parts)}) GROUP BY pos"


def inlined_versions_sql(inlined: InlinedRows, columns: Sequence[ColumnDef]) -> str:
    """Return the query for the versions of inlined rows, in the form of `file_versions`."""
    values = "".join(f", {identifier(column.name)} AS {short(column)}" for column in columns)
    own = f"{inlined.row_id} AS row_id, {inlined.snapshot} AS began, {inlined.end} AS ended"
    return f"SELECT {own}{values} FROM ({inlined.sql})"


def _as_it_is(_: ColumnDef, sql: str) -> str:
    return sql


def events_sql(versions: str, span: Span, value: Callable[[ColumnDef, str], str] = _as_it_is) -> str:
    """Return the query for the begins and ends of row versions: `came`, `snapshot`, `row_id`, `same`, and the columns.

    Args:
        versions: The query for row versions.
        span: The snapshots and columns.
        value: Returns the SQL that converts a column's value for the reader.
    """
    within = f"BETWEEN {span.first} AND {span.last}"
    both = "[{came: true, snapshot: began}, {came: false, snapshot: ended}]"
    event = f"unnest(list_filter({both}, lambda one: one.snapshot {within})) AS event"
    same = same_sql(span.compared) if span.compared else "''"
    values = "".join(f", {value(column, short(column))} AS {short(column)}" for column in span.columns)
    return (
        f"SELECT event.came AS came, event.snapshot AS snapshot, row_id, {same} AS same{values} FROM ("
        # A version that began and ended with the same snapshot was never visible.
        f"SELECT *, {event} FROM ({versions}) WHERE began IS DISTINCT FROM ended)"
    )


def changes_sql(events: str, columns: Sequence[ColumnDef]) -> str:
    """Return the query that turns begins and ends of row versions into changes; DuckDB and Spark both run it.

    If a version ends and another one with the same row id and values begins in the same snapshot, the row only moved to
    another file, and the query returns neither. Row ids may be ambiguous, because the engine leaves duplicates when one
    transaction adds and updates rows; such rows are matched one by one.

    Args:
        events: The rows of `events_sql`, as a table or a query in parentheses.
        columns: The columns to return.
    """
    values = "".join(f", {short(column)}" for column in columns)
    came, went = (f"sum(CASE WHEN came THEN {a} ELSE {b} END) OVER" for a, b in ((1, 0), (0, 1)))
    alike, row = "(PARTITION BY snapshot, row_id, same)", "(PARTITION BY snapshot, row_id)"
    number = "row_number() OVER (PARTITION BY snapshot, row_id, same, came ORDER BY snapshot)"
    counted = f"SELECT *, {came} {alike} AS alike_came, {went} {alike} AS alike_went, {number} AS n FROM {events} e"
    unmatched = f"SELECT * FROM ({counted}) counted WHERE n > least(alike_came, alike_went)"
    sides = f"SELECT *, {came} {row} AS all_came, {went} {row} AS all_went FROM ({unmatched}) remaining"
    update = "all_came > 0 AND all_went > 0"
    kinds = (
        f"CASE WHEN {update} AND came THEN 'update_postimage' WHEN {update} THEN 'update_preimage'"
        " WHEN came THEN 'insert' ELSE 'delete' END"
    )
    return f"SELECT came, snapshot, row_id, {kinds} AS kind{values} FROM ({sides}) sides"


def inserts_sql(events: str, columns: Sequence[ColumnDef]) -> str:
    """Return the query of `changes_sql` for the case that no row version ends, so that nothing needs matching."""
    values = "".join(f", {short(column)}" for column in columns)
    return f"SELECT came, snapshot, row_id, 'insert' AS kind{values} FROM {events} e"
