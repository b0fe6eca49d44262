"""Orphans: files below the lake's data path that its catalog does not know, such as those of a write that died.

The storage is listed before the catalog is read: what is committed in between is then known. Paths are compared in one
spelling, and a file that the catalog has by another name is no orphan.
"""

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

import duckdb

from ducklake_orch.catalog.file_paths import canonical
from ducklake_orch.catalog.known_paths import paths_of_tables, scheduled_paths
from ducklake_orch.catalog.pins import read_pins
from ducklake_orch.catalog.planning import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.commit import refuse_read_only
from ducklake_orch.engine.failures import run
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import StorageError

log = logging.getLogger("ducklake_orch")

_OURS = re.compile(r"(?:^|/)ducklake-([0-9a-f]{32})[-.]")
# The last of them says to executors that they see the storage; a driver that was killed has left it.
_KINDS = re.compile(r"\.parquet$|\.puffin$|(?:^|/)ducklake-[0-9a-f]{32}\.driver$")
_FILES_IN_ONE_QUERY = 1000


@dataclass(frozen=True)
class Orphans:
    """Files that nobody knows.

    Attributes:
        files: How many there are; after a deletion, how many it has deleted.
        bytes: Their size.
        paths: Which ones.
        young: How many more are too young to tell: a write may still be about to commit them.
        running: How many more are of writes that are known to run.
        failed: Why some could not be deleted.
    """

    files: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = field(default=(), repr=False)
    young: int = 0
    running: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stored:
    path: str
    size: int
    modified: datetime


def plan_orphans(config: LakeConfig, before: datetime) -> Orphans:
    """List the orphans; changes nothing.

    Args:
        config: The lake.
        before: Only files that were written before this time.
    """
    return _report(*_find(config, before))


def delete_orphans(config: LakeConfig, before: datetime, *, only: Collection[str] | None = None) -> Orphans:
    """Delete the orphans.

    Args:
        config: The lake.
        before: Only files that were written before this time.
        only: No files but these: those that a plan has shown.
    """
    refuse_read_only(config, "deleting orphans")
    old, young, spared = _find(config, before)
    old = [one for one in old if only is None or one.path in only]
    failed = delete_files(config, [one.path for one in old])
    return _report([one for one in old if one.path not in failed], young, spared, failed)


def _report(old: Sequence[_Stored], young: int, running: int, failed: Mapping[str, str] | None = None) -> Orphans:
    return Orphans(len(old), sum(one.size for one in old), tuple(one.path for one in old), young, running, failed or {})


def _find(config: LakeConfig, before: datetime) -> tuple[list[_Stored], int, int]:
    """Return the orphans that are old enough, how many are not, and how many are of running writes."""
    doing = f"Looking for orphans of lake `{config.name}`"
    with planning(config, doing, reads=True) as metadata:
        root = metadata.data_path()
    with working_connection(config) as con:
        pattern = f"SELECT file FROM glob({literal(f'{exactly(root)}**')})"
        listed = [str(row[0]) for row in run(con, pattern, config, f"{doing} failed").fetchall()]
    with planning(config, doing, reads=True) as metadata:
        # Before the paths: a write that ends in between has then committed its files.
        running = read_pins(metadata).write_ids
        known = {*paths_of_tables(metadata), *scheduled_paths(metadata).values()}
    strays = [path for path in listed if path not in known and _KINDS.search(path)]
    if strays:
        # Some servers list `%20` in a name as a space.
        unlisted = known.difference(listed)
        spellings = {name for path in unlisted for name in (canonical(path, root), unquote(path))}
        strays = [path for path in strays if path not in spellings and canonical(path, root) not in spellings]
    own = [path for path in strays if not set(_OURS.findall(path)).isdisjoint(running)]
    with working_connection(config) as con:
        found = list(_looked_at(config, con, sorted(set(strays).difference(own))))
    old = [one for one in found if one.modified < before]
    return old, len(found) - len(old), len(own)


def _looked_at(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> Iterator[_Stored]:
    """Return size and time of files, but for those that are gone meanwhile."""
    for path in paths:
        if "://" not in path and os.path.exists(path):
            stat = os.stat(path)
            yield _Stored(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))
    remote = [path for path in paths if "://" in path]
    for start in range(0, len(remote), _FILES_IN_ONE_QUERY):
        yield from _asked(config, con, remote[start : start + _FILES_IN_ONE_QUERY])


def _asked(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> Iterator[_Stored]:
    """Ask for objects with one question; where one of them cannot be had, find out by halves which."""
    names = ", ".join(literal(exactly(path)) for path in paths)
    sql = f"SELECT filename, size, epoch_us(last_modified::TIMESTAMPTZ) FROM read_blob([{names}])"
    try:
        rows = run(con, sql, config, "Looking at orphans failed").fetchall()
    except StorageError as error:
        if len(paths) == 1:
            log.warning("%s is spared: %s", paths[0], error)
            return
        half = len(paths) // 2
        yield from _asked(config, con, paths[:half])
        yield from _asked(config, con, paths[half:])
        return
    for path, size, modified in rows:
        yield _Stored(str(path), int(size), datetime.fromtimestamp(modified / 1_000_000, UTC))
