"""Compact one bin of files. `compact_bin` takes all that it needs as arguments, so that it runs in any process.

It runs in this process or in a Spark task.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from ducklake_orch.catalog.lifecycle.compaction_commit import Compacted, Way
from ducklake_orch.catalog.metadata import (
    ROW_ID,
    SNAPSHOT_ID,
    ColumnDef,
    DataFile,
    MappedName,
    TableDef,
    row_id_name,
    snapshot_id_name,
    unnumbered,
)
from ducklake_orch.catalog.parquet import FileLife, data_sql, footers_of, read_versions, short, sort_sql
from ducklake_orch.catalog.writing import (
    Clustering,
    cell_of,
    write_clustered_rows,
    write_delete_file,
    write_known_rows,
    write_versions,
)
from ducklake_orch.engine.quoting import TableName, identifier

log = logging.getLogger("ducklake_orch")
_DEAD = "__ducklake_orch_dead"


@dataclass(frozen=True)
class Bin:
    """Files to compact into one, or into several clustered ones.

    Attributes:
        schema_version: The version of the table's schema that the files were written with.
        partition_id: The partition spec that the files were written with.
        values: Their partition values in it; None for NULL.
        files: Ids of the data files.
        rows: How many rows the files hold, including deleted ones.
        deleted: How many of these rows their delete files list.
        bytes: Size of the files.
        delete_files: How many delete files they have.
        clustering: By what the rows are clustered, if they are.
    """

    table: TableName
    table_id: int
    schema_version: int
    partition_id: int | None
    values: tuple[str | None, ...]
    files: tuple[int, ...]
    rows: int
    deleted: int
    bytes: int
    delete_files: int
    clustering: Clustering | None = None


@dataclass(frozen=True)
class BinJob:
    """A bin to compact, with the current state of its files.

    Attributes:
        files: The files, with the history of their rows.
        table: The table as it is now.
        columns: The columns of the new file.
        mappings: Column names of files that have a `mapping_id`, by that id.
        layouts: The columns that the table has had, by the first snapshot that has them, if the files are encrypted.
        oldest: The oldest retained snapshot. Row versions that ended by then are visible to no snapshot.
        sorted: Whether to sort the rows, which takes by far the most memory.
        again: Whether an earlier attempt ran out of memory and may have left files.
    """

    way: Way
    bin: Bin
    files: tuple[FileLife, ...]
    table: TableDef
    columns: tuple[ColumnDef, ...]
    mappings: Mapping[int, tuple[MappedName, ...]]
    layouts: Mapping[int, tuple[ColumnDef, ...]]
    oldest: int
    sorted: bool = True
    again: bool = False

    @property
    def is_divisible(self) -> bool:
        """Whether the bin can be split: each part of a merge needs at least two files."""
        return len(self.files) >= (4 if self.way == "merge" else 2)

    @property
    def clustering(self) -> Clustering | None:
        """By what the rows of the files are clustered, if they are; a part of a bin has fewer rows."""
        planned, share = self.bin.clustering, len(self.files) / len(self.bin.files)
        return None if planned is None else replace(planned, rows=round(planned.rows * share))

    def halves(self) -> "tuple[BinJob, BinJob]":
        """Split the bin into two; files next to each other stay together."""
        middle = len(self.files) // 2
        left, right = self.files[:middle], self.files[middle:]
        return replace(self, files=left, again=True), replace(self, files=right, again=True)


def compact_bin(con: duckdb.DuckDBPyConnection, job: BinJob, write_id: str) -> list[Compacted]:
    """Write the new files of a bin, in parts if memory does not suffice for the whole bin.

    Sorting takes the most memory. A bin that cannot be split any further is therefore retried once without sorting.

    Args:
        con: A DuckDB connection that reaches the storage and that nothing else uses at the same time.
        job: The bin.
        write_id: Becomes part of the file names.

    Returns:
        The new files, part by part; none if memory does not suffice to cluster, or if the old files are unfit: row ids
        are missing or not unique, so that rows cannot be distinguished, or the files do not hold as many rows as the
        catalog says.
    """
    try:
        result = _compacted(con, job, write_id)
    except duckdb.OutOfMemoryException as error:
        if not job.sorted:
            raise
        reason = str(error).partition("\n")[0]
        if job.clustering is not None and job.clustering.mark is not None:
            message = "%d files of `%s` are not clustered: %s; a lower `layout.max_bytes` helps"
            log.warning(message, len(job.files), job.table, reason)
            return []
    else:
        if isinstance(result, Compacted):
            return [replace(result, again=job.again)]
        log.warning("%d files of `%s` are not compacted: %s", len(job.files), job.table, result)
        return []
    consequence = "they are compacted in two parts" if job.is_divisible else "their rows are not sorted"
    log.warning("%d files of `%s`: %s; %s", len(job.files), job.table, reason, consequence)
    parts = job.halves() if job.is_divisible else (replace(job, sorted=False, again=True),)
    return [compacted for part in parts for compacted in compact_bin(con, part, write_id)]


def _compacted(con: duckdb.DuckDBPyConnection, job: BinJob, write_id: str) -> Compacted | str:
    """Return the new files, or the reason why the old ones are unfit."""
    versions = read_versions(con, job.files, job.columns, job.mappings, job.layouts)
    if not versions.has_row_ids:
        return "some of their rows have no row ids"
    merge = job.way == "merge"
    # A merge keeps the row versions that any retained snapshot sees; a rewrite keeps only live rows.
    retained = f"ended > {job.oldest} AND ended > began" if merge else "false"
    seen = f"SELECT * FROM ({versions.sql}) WHERE ended IS NULL OR ({retained})"
    result = (
        _merge(con, job, seen, write_id, any_ended=versions.any_ended) if merge else _rewrite(con, job, seen, write_id)
    )
    if result is None:
        return "their row ids are not unique"
    left_out = 0
    if versions.any_ended:
        dropped = f"SELECT count(*) FROM ({versions.sql}) WHERE NOT (ended IS NULL OR ({retained}))"
        left_out = con.execute(dropped).fetchall()[0][0]
    if sum(file.record_count for file in result.files) + left_out != sum(file.file.record_count for file in job.files):
        return "their row counts differ from the catalog's"
    return result


def _merge(
    con: duckdb.DuckDBPyConnection, job: BinJob, seen: str, write_id: str, *, any_ended: bool
) -> Compacted | None:
    """Write row versions into one file; return None if their row ids are not unique."""
    table, columns = job.table, job.columns
    spec = next((spec for spec in table.past_specs if spec.partition_id == job.bin.partition_id), None)
    if any_ended:
        ended = f"SELECT row_id, began, ended FROM ({seen}) WHERE ended IS NOT NULL"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_DEAD} AS {ended}")
    row_id, snapshot = row_id_name(columns), snapshot_id_name(columns)
    # ORDER BY is in the outer query: sort keys are expressions over the table's columns; no others may be in scope.
    rows = f"SELECT * FROM (SELECT {_named(columns)}, row_id AS {row_id}, began AS {snapshot} FROM ({seen}))"
    # The keys refer to the current columns.
    keys = _order(con, job, rows) if columns == table.columns and job.sorted else ""
    order = f"{keys}, {row_id}, {snapshot}" if keys else f" ORDER BY {row_id}, {snapshot}"
    file_table = replace(table, columns=columns, partition=spec)
    written = write_versions(con, file_table, f"{rows}{order if job.sorted else ''}", job.bin.values, write_id)
    if written is None:
        return Compacted(job.files, ())
    deletes = None
    if any_ended:
        positions = _ended_positions(con, unnumbered(written.file), columns)
        if positions is None:
            return None
        if positions:
            deletes = write_delete_file(con, table, write_id, unnumbered(written.file), (), new=positions)
    return Compacted(job.files, (written.file,), written.first, written.last, job.bin.partition_id, deletes)


def _ended_positions(con: duckdb.DuckDBPyConnection, file: DataFile, columns: Sequence[ColumnDef]) -> str | None:
    """Return the query for the ended rows of a merged file, with the snapshots in which they ended.

    Returns:
        An empty text if no row has ended; None if the row ids are not unique.
    """
    source = data_sql(file, footers_of(con, [file], {-1: columns})[file.path])
    same = f"f.{ROW_ID} = d.row_id AND f.{SNAPSHOT_ID} = d.began"
    positions = f"SELECT f.file_row_number AS pos, d.ended FROM {source} JOIN {_DEAD} d ON {same}"
    counts = f"count(*), count(DISTINCT pos), (SELECT count(*) FROM {_DEAD})"
    numbers = set(con.execute(f"SELECT {counts} FROM ({positions})").fetchall()[0])
    if numbers == {0}:
        return ""
    return positions if len(numbers) == 1 else None


def _order(con: duckdb.DuckDBPyConnection, job: BinJob, rows: str) -> str:
    """Return the ORDER BY of a merged file, without the tie-breakers; an empty text if the rows have no keys."""
    if job.clustering is None or not job.clustering.keys:
        return sort_sql(job.table)
    # A number alone would be the number of a column.
    return f" ORDER BY 0 + {cell_of(con, rows, job.table, job.clustering)}"


def _rewrite(con: duckdb.DuckDBPyConnection, job: BinJob, seen: str, write_id: str) -> Compacted:
    """Write the live rows with the current columns and layout."""
    table = job.table if job.sorted else replace(job.table, sort=())
    spec = table.partition.partition_id if table.partition else None
    rows = f"SELECT {_named(job.columns)}, row_id AS {row_id_name(job.columns)} FROM ({seen})"
    if job.clustering is not None and job.sorted and spec == job.bin.partition_id:
        clustered = write_clustered_rows(con, table, f"({rows})", job.bin.values, write_id, job.clustering)
        return Compacted(job.files, tuple(clustered), partition_id=spec)
    order = "" if sort_sql(table) or not job.sorted else f" ORDER BY {row_id_name(job.columns)}"
    files = write_known_rows(con, table, f"({rows}{order})", write_id)
    return Compacted(job.files, tuple(files), partition_id=spec)


def _named(columns: Sequence[ColumnDef]) -> str:
    return ", ".join(f"{short(column)} AS {identifier(column.name)}" for column in columns)
