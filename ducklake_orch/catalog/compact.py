"""Compact files: merge small ones with all that ever happened to their rows, rewrite those that have lost many.

Both keep the ids of rows, and so the change feed; a merge also keeps what every snapshot reads.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from ducklake_orch.catalog.change import NewDeleteFile
from ducklake_orch.catalog.compact_commit import Compacted, Placed, Way, commit_compacted
from ducklake_orch.catalog.compact_plan import Bin
from ducklake_orch.catalog.delete_files import write_delete_file
from ducklake_orch.catalog.feed_sql import FileLife, short
from ducklake_orch.catalog.history import TableHistory
from ducklake_orch.catalog.inlined import deletions_table
from ducklake_orch.catalog.layout import sort_sql
from ducklake_orch.catalog.live_files import DELETE_FILE, FILE, data_file, delete_file
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.model import (
    ROW_ID,
    SNAPSHOT_ID,
    ColumnDef,
    DataFile,
    DeleteFile,
    MappedName,
    NewFile,
    TableDef,
)
from ducklake_orch.catalog.planning import planning
from ducklake_orch.catalog.scan import name_mappings
from ducklake_orch.catalog.versions import read_versions
from ducklake_orch.catalog.writer import write_known_rows, write_versions
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.commit import Write, refuse_read_only
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, identifier, literal
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_unused, remove_written
from ducklake_orch.errors import StalePlanError, UnknownOutcomeError
from ducklake_orch.results import CommitInfo

log = logging.getLogger("ducklake_orch")
_DEAD = "__ducklake_orch_dead"


@dataclass(frozen=True)
class Compaction:
    """What a compaction did to a table.

    Attributes:
        snapshot_id: The snapshot that it made, if it made one.
        bins: How many bins of files were compacted.
        files_in: The files that went.
        files_out: The files that came.
        delete_files_in: The delete files that went with them.
        delete_files_out: The delete files that came, for merged files that hold rows which are gone.
        rows_in: How many rows were in the files that went, deleted ones included.
        rows_out: How many rows are in the files that came.
        bytes_in: Size of the files that went, without delete files.
        bytes_out: Size of the files that came, without delete files.
        changed: How many bins were left alone, because somebody else changed their files meanwhile.
        unfit: How many more were left alone, because ids of their rows are missing or not unique; the log says which.
    """

    table: str
    way: Way
    snapshot_id: int | None = None
    bins: int = 0
    files_in: int = 0
    files_out: int = 0
    delete_files_in: int = 0
    delete_files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    changed: int = 0
    unfit: int = 0
    duration_s: float = 0.0


def compact(config: LakeConfig, way: Way, bins: Sequence[Bin], *, commit: CommitInfo | None = None) -> Compaction:
    """Merge or rewrite bins of files of one table, in one snapshot.

    A bin whose files somebody else has changed, since it was planned or while it is compacted, is left alone; planned
    anew, it can pass.

    Args:
        config: The lake.
        way: `merge` or `rewrite`.
        bins: The bins, as they were planned for this way; all of one table.
        commit: Author, message and extra of the snapshot.
    """
    started, name = time.monotonic(), bins[0].table
    purpose = f"{'merging' if way == 'merge' else 'rewriting'} files of `{name}`"
    refuse_read_only(config, purpose)
    write = Write(purpose, commit or CommitInfo())
    with planning(config, f"Planning {purpose}") as metadata:
        work = _look(metadata, bins)
    try:
        compacted = _write(config, way, work, write)
        fault_point("files.written")
        placed = Placed()
        if compacted:
            with open_session(config, entering=False) as session:
                placed = commit_compacted(session, write, way, work.table, compacted)
    except UnknownOutcomeError as error:
        log.error("the files of write %s are kept: %s", write.write_id, error)
        raise
    except BaseException:
        # Not what a COMMIT has been sent for: an interrupt can come right after it.
        if not write.committing:
            remove_written(config, work.table.folder, write.write_id)
        raise
    if write.doubt is None and (len(placed.done) < len(compacted) or not all(one.files for one in compacted)):
        # Of bins that were changed meanwhile, and of no rows: for these, COPY makes an empty file.
        kept = {path for one in placed.done for path in one.paths}
        remove_written(config, work.table.folder, write.write_id, kept.union(placed.delete_files))
    unfit = len(work.bins) - len(compacted)
    result = replace(_result(str(name), way, placed), changed=len(bins) - len(placed.done) - unfit, unfit=unfit)
    return replace(result, duration_s=time.monotonic() - started)


@dataclass(frozen=True)
class _Work:
    """What is to be compacted, as it is now.

    Attributes:
        oldest: The oldest snapshot that is left; what ended by then, nobody can see.
        bins: The files of each bin that is as it was planned.
        schemas: The columns of the table, by the version of its schema.
    """

    table: TableDef
    oldest: int
    bins: Sequence[tuple[Bin, tuple[FileLife, ...]]]
    mappings: Mapping[int, tuple[MappedName, ...]]
    schemas: Mapping[int, tuple[ColumnDef, ...]]


def _look(metadata: Metadata, bins: Sequence[Bin]) -> _Work:
    """Look at the files of bins; those of which one is gone are left out."""
    table = metadata.table(bins[0].table, metadata.latest().snapshot_id)
    if table.table_id != bins[0].table_id:
        raise StalePlanError(f"The table `{table}` was dropped and made anew.", remedy="Plan anew.")
    history = TableHistory(metadata, table)
    lives = _lives(history, [number for one in bins for number in one.files])
    found = [
        (one, tuple(lives[number] for number in one.files))
        for one in bins
        if all(number in lives for number in one.files)
    ]
    oldest = metadata.rows(f"SELECT min(snapshot_id) FROM {metadata.table_sql('ducklake_snapshot')}")
    mapped = {life.file.mapping_id for life in lives.values() if life.file.mapping_id is not None}
    versions = {one.schema_version for one in bins}
    return _Work(
        table,
        int(oldest[0][0]),
        found,
        name_mappings(metadata, mapped),
        {version: history.columns(version) for version in versions},
    )


def _lives(history: TableHistory, ids: Sequence[int]) -> dict[int, FileLife]:
    """Return those of some files that are live, with all that ever happened to their rows."""
    metadata, name = history.metadata, history.metadata.table_sql
    some = ", ".join(map(str, ids))
    mine = f"table_id = {history.table.table_id} AND data_file_id IN ({some})"
    deletes: dict[int, list[DeleteFile]] = defaultdict(list)
    columns = ["data_file_id", *DELETE_FILE]
    sql = f"SELECT {', '.join(columns)} FROM {name('ducklake_delete_file')} WHERE {mine} ORDER BY delete_file_id"
    for row in metadata.rows(sql):
        one = delete_file(history.table.folder, dict(zip(columns, row, strict=True)), 0)
        deletes[int(row[0])].append(one)
    deleted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if (deletions := deletions_table(metadata, history.table)) is not None:
        sql = f"SELECT file_id, row_id, begin_snapshot FROM {name(deletions)} WHERE file_id IN ({some})"
        for file_id, position, snapshot in metadata.rows(sql):
            deleted[int(file_id)].append((int(position), int(snapshot)))
    found = {}
    sql = f"SELECT {', '.join(FILE)} FROM {name('ducklake_data_file')} WHERE {mine} AND end_snapshot IS NULL"
    for row in metadata.rows(sql):
        values = dict(zip(FILE, row, strict=True))
        number = int(values["data_file_id"])
        file = data_file(history, values, deletes=tuple(deletes[number]))
        found[number] = FileLife(file, deleted=tuple(deleted[number]))
    return found


@dataclass(frozen=True)
class _Writer:
    """Writes the new files of bins; nobody waits meanwhile."""

    config: LakeConfig
    con: duckdb.DuckDBPyConnection
    work: _Work
    write_id: str

    def merged(self, one: Bin, lives: tuple[FileLife, ...]) -> Compacted | None:
        """Write every version of every row that any snapshot can still see."""
        table, columns = self.work.table, self.work.schemas[one.schema_version]
        spec = next((spec for spec in table.past_specs if spec.partition_id == one.partition_id), None)
        versions = read_versions(self.con, lives, columns, self.work.mappings)
        if not versions.has_row_ids:
            log.warning("files of `%s` are not merged: some of their rows have no ids", table)
            return None
        seen = f"SELECT * FROM ({versions.sql}) WHERE ended IS NULL OR (ended > {self.work.oldest} AND ended > began)"
        if versions.any_gone:
            dead = f"SELECT row_id, began, ended FROM ({seen}) WHERE ended IS NOT NULL"
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {_DEAD} AS {dead}")
        rows = f"SELECT {_named(columns)}, row_id AS {ROW_ID}, began AS {SNAPSHOT_ID} FROM ({seen})"
        # The keys of the sort are about the columns of today.
        keys = sort_sql(table) if columns == table.columns else ""
        order = f"{keys}, {ROW_ID}" if keys else f" ORDER BY {ROW_ID}"
        then = replace(table, columns=columns, partition=spec)
        written = write_versions(self.con, then, f"{rows}{order}, {SNAPSHOT_ID}", one.values, self.write_id)
        if written is None:
            return Compacted(lives, ())
        deletes = None
        if versions.any_gone:
            deletes = self._deletes(written.file)
            if deletes is None:
                log.warning("files of `%s` are not merged: the ids of their rows are not unique", table)
                remove_unused(self.config, [written.file.path])
                return None
        found = deletes if deletes and deletes.delete_count else None
        return Compacted(lives, (written.file,), written.first, written.last, one.partition_id, found)

    def _deletes(self, file: NewFile) -> NewDeleteFile | None:
        """Write down which rows of a merged file are gone since when; None where they cannot be told apart."""
        name = literal(exactly(file.path))
        source = f"read_parquet({name}, file_row_number = true, hive_partitioning = false)"
        same = f"f.{ROW_ID} = d.row_id AND f.{SNAPSHOT_ID} = d.began"
        places = f"SELECT f.file_row_number AS pos, d.ended FROM {source} f JOIN {_DEAD} d ON {same}"
        counts = f"(SELECT count(*) FROM {_DEAD}), (SELECT count(DISTINCT pos) FROM ({places}))"
        rows = self.con.execute(f"SELECT count(*), {counts} FROM ({places})").fetchall()
        if len(set(rows[0])) > 1:
            return None
        new = _new_file(file)
        if not rows[0][0]:
            return NewDeleteFile(new, "", 0, 0, None, 0)
        return write_delete_file(self.con, self.work.table, self.write_id, new, (), new=places)

    def rewritten(self, one: Bin, lives: tuple[FileLife, ...]) -> Compacted | None:
        """Write the rows that live, in the columns and the layout of today."""
        table = self.work.table
        versions = read_versions(self.con, lives, table.columns, self.work.mappings)
        if not versions.has_row_ids:
            log.warning("files of `%s` are not rewritten: some of their rows have no ids", table)
            return None
        rows = f"SELECT {_named(table.columns)}, row_id AS {ROW_ID} FROM ({versions.sql}) WHERE ended IS NULL"
        order = "" if sort_sql(table) else f" ORDER BY {ROW_ID}"
        files = write_known_rows(self.con, table, f"({rows}{order})", self.write_id)
        spec = table.partition.partition_id if table.partition and table.partition.fields else None
        return Compacted(lives, tuple(files), partition_id=spec)


def _new_file(file: NewFile) -> DataFile:
    """Return a file that has no number yet, as one of the table's."""
    return DataFile(
        data_file_id=0,
        path=file.path,
        file_size=file.file_size,
        footer_size=file.footer_size,
        record_count=file.record_count,
        begin_snapshot=0,
        row_id_start=None,
        partition_id=None,
        partition_values=(),
        mapping_id=None,
        partial_max=None,
        encryption_key=None,
        schema_version=0,
    )


def _named(columns: Sequence[ColumnDef]) -> str:
    return ", ".join(f"{short(one)} AS {identifier(one.name)}" for one in columns)


def _write(config: LakeConfig, way: Way, work: _Work, write: Write) -> list[Compacted]:
    """Write the new files of every bin."""
    found = []
    try:
        with working_connection(config) as con:
            writer = _Writer(config, con, work, write.write_id)
            for one, lives in work.bins:
                made = writer.merged(one, lives) if way == "merge" else writer.rewritten(one, lives)
                found += [made] if made is not None else []
        return found
    except duckdb.Error as error:
        failure = classify(error, config, f"{write.purpose} failed")
    raise failure


def _result(table: str, way: Way, placed: Placed) -> Compaction:
    inputs = [life.file for one in placed.done for life in one.inputs]
    files = [file for one in placed.done for file in one.files]
    return Compaction(
        table=table,
        way=way,
        snapshot_id=placed.snapshot_id,
        bins=len(placed.done),
        files_in=len(inputs),
        files_out=len(files),
        delete_files_in=sum(one.end_snapshot is None for file in inputs for one in file.deletes),
        delete_files_out=len(placed.delete_files),
        rows_in=sum(file.record_count for file in inputs),
        rows_out=sum(file.record_count for file in files),
        bytes_in=sum(file.file_size for file in inputs),
        bytes_out=sum(file.file_size for file in files),
    )
