"""Orphans: files below the lake's data path that its catalog does not list, such as those of a killed write.

The storage is listed before the catalog is read, so that files committed in between are known. Paths are compared in
one spelling: a file that the catalog lists under another spelling is not an orphan.

A file is deleted if its name proves that a writer of this lake wrote it: by the lake's mark, or by a write id that the
catalog contains. All other files may belong to another lake or program: they are deleted only on demand.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from urllib.parse import unquote

import duckdb

from ducklake_orch.catalog.commit import read_leases
from ducklake_orch.catalog.lifecycle.other_lakes import other_lakes
from ducklake_orch.catalog.lifecycle.quarantine import Quarantine
from ducklake_orch.catalog.metadata import Metadata, canonical, origin, paths_of_tables, scheduled_paths, text
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.error_classes import run
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, file_literals, literal
from ducklake_orch.errors import SharedDataPathError, StorageError

log = logging.getLogger("ducklake_orch")

# A `.driver` file lets executors check that they reach the same storage; a killed driver leaves it behind.
_KINDS = re.compile(r"\.parquet$|\.puffin$|(?:^|/)ducklake-[0-9a-f]{32}(?:-[0-9a-f]{12})?\.driver$")
_WRITE_ID = re.compile(r'"write_id": *"([0-9a-f]{32})"')
_FILES_IN_ONE_QUERY = 1000
_DELETED_AT_ONCE = 5000


@dataclass(frozen=True)
class UnknownFile:
    """A file that no writer of this lake is proved to have written.

    Attributes:
        path: The file.
        size: Its size in bytes.
        reason: What its name says about its writer.
    """

    path: str
    size: int
    reason: str


@dataclass(frozen=True)
class Orphans:
    """Files that the catalog does not list.

    Attributes:
        files: How many files of this lake's writers were found; after a deletion, how many files were deleted.
        bytes: Size of these files.
        paths: Paths of these files.
        unknown: Files that other writers may have written; after a deletion, those that are left.
        others: Why another lake may use this data path; determined only if there are unknown files.
        young: How many more files are too young: a write may still commit them.
        running: How many more files belong to running writes.
        failed: Errors by path of the files that could not be deleted.
        stopped: Why a deletion ended early, if it did.
    """

    files: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = field(default=(), repr=False)
    unknown: tuple[UnknownFile, ...] = ()
    others: tuple[str, ...] = ()
    young: int = 0
    running: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None


@dataclass(frozen=True)
class _Stored:
    path: str
    size: int
    modified: datetime


def plan_orphans(config: LakeConfig, before: datetime) -> Orphans:
    """List the orphans without changing anything.

    Args:
        config: The lake.
        before: Only files that were written before this time.
    """
    return _find(config, before).report()


def delete_orphans(
    config: LakeConfig,
    before: datetime,
    *,
    unknown: bool = False,
    only: Collection[str] | None = None,
    quarantine: bool = False,
    stopping: Callable[[], str | None] = lambda: None,
) -> Orphans:
    """Delete the orphans, or move them into quarantine.

    Args:
        config: The lake.
        before: Only files that were written before this time.
        unknown: Delete the unknown files too.
        only: Delete no files but these, for example those that a plan has shown.
        quarantine: Move the files instead of deleting them.
        stopping: Returns the reason not to delete more files, or None to go on.

    Raises:
        SharedDataPathError: When there are unknown files to delete and another lake may use the data path.
    """
    refuse_read_only(config, "deleting orphans")
    found = _find(config, before)
    own = [file for file in found.own if only is None or file.path in only]
    unknown_files = [file for file in found.unknown if unknown and (only is None or file.path in only)]
    if unknown_files and found.others:
        raise SharedDataPathError(
            f"{len(unknown_files)} unknown files, such as {unknown_files[0].path}, are not deleted: {found.others[0]}.",
            remedy="Give each lake its own data path. Delete files of lakes that no longer exist by hand.",
        )
    wanted, failed, stopped = [*own, *unknown_files], dict[str, str](), None
    remove = Quarantine.of(config).take_in if quarantine else partial(delete_files, config)
    deleted = list[_Stored | UnknownFile]()
    for start in range(0, len(wanted), _DELETED_AT_ONCE):
        if start and (stopped := stopping()) is not None:
            break
        part = wanted[start : start + _DELETED_AT_ONCE]
        failed |= remove([file.path for file in part])
        deleted += [file for file in part if file.path not in failed]
    gone = {file.path for file in deleted}
    left = [file for file in found.unknown if file.path not in gone]
    return replace(replace(found, own=deleted, unknown=left).report(failed), stopped=stopped)


@dataclass(frozen=True)
class _Found:
    """The orphans that are old enough, how many are too young, and how many belong to running writes."""

    own: Sequence[_Stored | UnknownFile]
    unknown: Sequence[UnknownFile]
    others: Sequence[str]
    young: int
    running: int

    def report(self, failed: Mapping[str, str] | None = None) -> Orphans:
        return Orphans(
            len(self.own),
            sum(file.size for file in self.own),
            tuple(file.path for file in self.own),
            tuple(self.unknown),
            tuple(self.others),
            self.young,
            self.running,
            failed or {},
        )


def _find(config: LakeConfig, before: datetime) -> _Found:
    doing = f"Looking for orphans of lake `{config.name}`"
    with planning(config, doing, reads=True) as metadata:
        root = metadata.data_path()
    with working_connection(config) as con:
        pattern = f"SELECT file FROM glob({literal(f'{exactly(root)}**')})"
        found = [str(row[0]) for row in run(con, pattern, config, f"{doing} failed").fetchall()]
    quarantine = Quarantine(config, root)
    listed = [path for path in found if not quarantine.contains(path)]
    with planning(config, doing, reads=True) as metadata:
        # Read before the paths: the files of a write that ends in between are then committed and known.
        running = read_leases(metadata).write_ids
        known = {*paths_of_tables(metadata), *scheduled_paths(metadata).values()}
        strays = _strays(listed, known, root)
        own = [path for path in strays if origin(path)[0] in running]
        strays = sorted(set(strays).difference(own))
        reasons = _reasons(metadata, strays)
    with working_connection(config) as con:
        stored_files = list(_stored_files(config, con, strays))
    old = [file for file in stored_files if file.modified < before]
    unknown = [UnknownFile(file.path, file.size, reasons[file.path]) for file in old if file.path in reasons]
    others = other_lakes(config, root, listed, [path for path in strays if path in reasons]) if unknown else []
    proved = [file for file in old if file.path not in reasons]
    return _Found(proved, unknown, others, len(stored_files) - len(old), len(own))


def _strays(listed: Sequence[str], known: Collection[str], root: str) -> list[str]:
    """Return the listed files that the catalog contains under no spelling."""
    strays = [path for path in listed if path not in known and _KINDS.search(path)]
    if not strays:
        return []
    # Some servers list `%20` in a name as a space.
    unlisted = set(known).difference(listed)
    spellings = {name for path in unlisted for name in (canonical(path, root), unquote(path))}
    return [path for path in strays if path not in spellings and canonical(path, root) not in spellings]


def _reasons(metadata: Metadata, strays: Sequence[str]) -> dict[str, str]:
    """Return the files that no writer of this lake is proved to have written, each with the reason."""
    mark, origins = metadata.lake_mark(), {path: origin(path) for path in strays}
    committed = frozenset[str]()
    if any(write_id and of_lake is None for write_id, of_lake in origins.values()):
        changes = metadata.table_sql("ducklake_snapshot_changes")
        rows = metadata.rows(f"SELECT commit_extra_info FROM {changes} WHERE commit_extra_info IS NOT NULL")
        committed = frozenset(found_id for row in rows for found_id in _WRITE_ID.findall(text(row[0]) or ""))
    reasons = {}
    for path, (write_id, of_lake) in origins.items():
        if of_lake is not None and of_lake != mark:
            reasons[path] = f"a writer of the lake with the mark {of_lake} wrote it"
        elif write_id is None:
            reasons[path] = "its name does not identify a lake"
        elif of_lake is None and write_id not in committed:
            reasons[path] = f"its name does not identify a lake, and no snapshot of this lake has write id {write_id}"
    return reasons


def _stored_files(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> Iterator[_Stored]:
    """Return size and time of files; leave out those that no longer exist."""
    for path in paths:
        if "://" not in path and os.path.exists(path):
            stat = os.stat(path)
            yield _Stored(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))
    remote = [path for path in paths if "://" in path]
    for start in range(0, len(remote), _FILES_IN_ONE_QUERY):
        yield from _stored_objects(config, con, remote[start : start + _FILES_IN_ONE_QUERY])


def _stored_objects(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> Iterator[_Stored]:
    """Query objects with one statement; on failure, bisect to skip the objects that cannot be read."""
    names = file_literals(paths)
    sql = f"SELECT filename, size, epoch_us(last_modified::TIMESTAMPTZ) FROM read_blob([{names}])"
    try:
        rows = run(con, sql, config, "Reading the size and age of orphans failed").fetchall()
    except StorageError as error:
        if len(paths) == 1:
            log.warning("The file %s is not deleted: %s", paths[0], error)
            return
        half = len(paths) // 2
        yield from _stored_objects(config, con, paths[:half])
        yield from _stored_objects(config, con, paths[half:])
        return
    for path, size, modified in rows:
        yield _Stored(str(path), int(size), datetime.fromtimestamp(modified / 1_000_000, UTC))
