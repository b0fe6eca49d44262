"""Compact files of a table: read them, write new ones and commit these. `compact` is the entry point.

A merge and a rewrite both keep row ids, and so the change feed. A merge also keeps what every snapshot reads.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ducklake_orch.catalog.commit import leased
from ducklake_orch.catalog.lifecycle.compaction_bin import Bin, BinJob, compact_bin
from ducklake_orch.catalog.lifecycle.compaction_commit import CommittedCompaction, Compacted, Way, commit_compacted
from ducklake_orch.catalog.lifecycle.file_history import file_lives
from ducklake_orch.catalog.metadata import Metadata, TableDef, TableHistory
from ducklake_orch.catalog.scan import name_mappings
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_read_only
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import folded
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import StalePlanError
from ducklake_orch.results import CommitInfo


@dataclass(frozen=True)
class Compaction:
    """The result of compacting a table.

    Attributes:
        snapshot_id: The snapshot that the compaction committed; None if it committed none.
        bins: How many bins of files were compacted.
        files_in: How many data files were compacted.
        files_out: How many data files replace them.
        delete_files_in: How many delete files the compacted files had.
        delete_files_out: How many delete files were added, for merged files that hold deleted rows.
        rows_in: How many rows the compacted files held, including deleted ones.
        rows_out: How many rows the new files hold.
        bytes_in: Size of the compacted files, without delete files.
        bytes_out: Size of the new files, without delete files.
        changed: How many bins were skipped because a concurrent commit changed their files.
        unfit: How many more bins were skipped because their files cannot be compacted; the log says why.
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


class Compactor(Protocol):
    """Reads and writes the files of a compaction."""

    def write(self, jobs: Sequence[BinJob], write_id: str) -> list[Compacted]:
        """Write the new files of bins; large bins are written in parts.

        Unfit bins are left out, and files written for them are removed later.
        """


class DuckDBCompactor:
    """Reads and writes the files in this process, one bin at a time.

    Args:
        config: The lake.
    """

    def __init__(self, config: LakeConfig) -> None:
        self._config = config

    def write(self, jobs: Sequence[BinJob], write_id: str) -> list[Compacted]:
        """Write the new files of bins."""
        with working_connection(self._config, f"Compacting files of `{jobs[0].bin.table}`") as con:
            return [compacted for job in jobs for compacted in compact_bin(con, job, write_id)]


def compact(
    config: LakeConfig,
    way: Way,
    bins: Sequence[Bin],
    *,
    commit: CommitInfo | None = None,
    engine: Compactor | None = None,
) -> Compaction:
    """Merge or rewrite bins of files of one table, in one snapshot.

    A bin is skipped if a concurrent commit changes its files after it was planned. A new plan can include it again.

    Args:
        config: The lake.
        way: `merge` or `rewrite`.
        bins: The bins, at least one, all of one table and planned for this way.
        commit: Author, message and extra info of the snapshot.
        engine: Reads and writes the files; by default DuckDB in this process.
    """
    started, name = time.monotonic(), bins[0].table
    purpose = f"{'merging' if way == 'merge' else 'rewriting'} files of `{name}`"
    refuse_read_only(config, purpose)
    write = Write(purpose, commit or CommitInfo())
    with planning(config, f"Planning {purpose}") as metadata:
        snapshot = metadata.latest().snapshot_id
        table, jobs = _read_state(metadata, way, bins, snapshot)
    with leased(config, write, snapshot):
        compacted, placed = _place(config, write, way, table, jobs, engine or DuckDBCompactor(config))
    written, done = _inputs(compacted), _inputs(placed.done)
    unfit = sum(written.isdisjoint(job.bin.files) for job in jobs)
    changed = sum(not done.issuperset(planned.files) for planned in bins) - unfit
    result = replace(_result(str(name), way, placed), changed=changed, unfit=unfit)
    return replace(result, duration_s=time.monotonic() - started)


def _inputs(compacted: Sequence[Compacted]) -> set[int]:
    return {life.file.data_file_id for replacement in compacted for life in replacement.inputs}


def _place(
    config: LakeConfig, write: Write, way: Way, table: TableDef, jobs: Sequence[BinJob], engine: Compactor
) -> tuple[Sequence[Compacted], CommittedCompaction]:
    """Write the new files, commit them and remove those that were not committed."""
    with removing_failed(config, write, table.folder):
        compacted = engine.write(jobs, write.write_id) if jobs else []
        fault_point("files.written")
        placed = CommittedCompaction()
        if compacted:
            with open_session(config, entering=False) as session:
                placed = commit_compacted(session, write, way, table, compacted)
    stray = not all(replacement.files and not replacement.again for replacement in compacted)
    if stray or len(placed.done) < len(jobs) or placed.delete_files:
        # Remove files of bins that a concurrent commit changed, that are unfit or that ran out of memory; the empty
        # file that COPY writes for no rows; and delete files of an earlier commit attempt.
        remove_leftovers(config, write, table.folder)
    return compacted, placed


def _read_state(metadata: Metadata, way: Way, bins: Sequence[Bin], at: int) -> tuple[TableDef, list[BinJob]]:
    """Read the current state of the bins' files; leave out bins with a file that is no longer live."""
    table = metadata.table(bins[0].table, at)
    for planned in bins:
        _refuse_lost_keys(planned, table)
    # `sort_on_insert` holds for inserts only; compaction always sorts.
    table = replace(table, options={key: value for key, value in table.options.items() if key != "sort_on_insert"})
    if table.table_id != bins[0].table_id:
        raise StalePlanError(f"The table `{table}` was dropped and created again.", remedy="Plan again.")
    history = TableHistory(metadata, table)
    lives = file_lives(history, [number for planned in bins for number in planned.files])
    oldest = metadata.rows(f"SELECT min(snapshot_id) FROM {metadata.table_sql('ducklake_snapshot')}")
    mapped = {life.file.mapping_id for life in lives.values() if life.file.mapping_id is not None}
    mappings = name_mappings(metadata, mapped)
    jobs = [
        BinJob(
            way=way,
            bin=planned,
            files=tuple(lives[number] for number in planned.files),
            table=table,
            columns=table.columns if way == "rewrite" else history.columns(planned.schema_version),
            mappings=mappings,
            layouts=history.layouts,
            oldest=int(oldest[0][0]),
        )
        for planned in bins
        if all(number in lives for number in planned.files)
    ]
    return table, jobs


def _refuse_lost_keys(planned: Bin, table: TableDef) -> None:
    if planned.clustering is None:
        return
    known, keys = {folded(column.name) for column in table.columns}, planned.clustering.keys
    if lost := [key for key in keys if folded(key) not in known]:
        raise StalePlanError(f"`{table}` has lost its cluster key `{lost[0]}`.", remedy="Plan again.")
    if not keys and not table.sort:
        raise StalePlanError(f"`{table}` has lost its sort keys.", remedy="Plan again.")


def _result(table: str, way: Way, placed: CommittedCompaction) -> Compaction:
    inputs = [life.file for compacted in placed.done for life in compacted.inputs]
    files = [file for compacted in placed.done for file in compacted.files]
    return Compaction(
        table=table,
        way=way,
        snapshot_id=placed.snapshot_id,
        bins=len(placed.done),
        files_in=len(inputs),
        files_out=len(files),
        delete_files_in=sum(delete.end_snapshot is None for file in inputs for delete in file.deletes),
        delete_files_out=len(placed.delete_files),
        rows_in=sum(file.record_count for file in inputs),
        rows_out=sum(file.record_count for file in files),
        bytes_in=sum(file.file_size for file in inputs),
        bytes_out=sum(file.file_size for file in files),
    )
