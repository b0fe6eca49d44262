"""Delete files that ducklake-orch wrote and that no snapshot refers to.

The files of a write whose commit has begun are deleted only by `removing_failed`, `remove_leftovers` and
`remove_superseded`. They keep the files of the committed snapshot, and delete nothing while the outcome of the commit
is unknown.
"""

import logging
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")


@contextmanager
def removing_failed(config: LakeConfig, write: Write, folder: str) -> Iterator[None]:
    """Write files and commit them in this block; if it fails, delete the files that no snapshot refers to.

    Args:
        config: The lake.
        write: Identity of the write.
        folder: The table's folder.
    """
    try:
        yield
    except BaseException:
        remove_leftovers(config, write, folder)
        raise


def remove_leftovers(config: LakeConfig, write: Write, folder: str) -> int:
    """Delete the files of a write that no snapshot refers to; return how many were deleted.

    While the outcome of the write is unknown, none are deleted.
    """
    if write.in_doubt:
        # An interrupt may arrive right after COMMIT was sent.
        log.warning("the files of write %s are kept: its COMMIT may have succeeded", write.write_id)
        return 0
    return remove_written(config, folder, write.write_id, write.kept or frozenset())


def remove_superseded(config: LakeConfig, write: Write, paths: Iterable[str]) -> None:
    """Delete those of a committed write's `paths` that no snapshot refers to; none if the outcome was unknown."""
    if not write.in_doubt and (unused := sorted(set(paths).difference(write.kept or ()))):
        remove_unused(config, unused)


def remove_written(config: LakeConfig, folder: str, write_id: str, keep: Set[str] = frozenset()) -> int:
    """Delete the files of a write whose commit has not begun; return how many were deleted.

    A failure is only logged: raising it would hide the error that led here, and the files can be found by their names.

    Args:
        config: The lake.
        folder: The table's folder.
        write_id: Part of the names of this write's files, and of no others.
        keep: Files to keep.
    """
    try:
        unused = [path for path in _written(config, folder, write_id) if path not in keep]
        return len(unused) - _remove(config, unused)
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.warning("files of write %s in %s could not be deleted: %s", write_id, folder, config.scrubber(str(error)))
        return 0


def remove_unused(config: LakeConfig, paths: list[str]) -> None:
    """Delete files that nothing refers to; a failure is only logged, because the work itself has succeeded."""
    try:
        _remove(config, paths)
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.warning(
            "%d unused files could not be deleted, such as %s: %s", len(paths), paths[0], config.scrubber(str(error))
        )


def _remove(config: LakeConfig, paths: list[str]) -> int:
    """Delete files; return how many are left."""
    failed = delete_files(config, paths)
    for path, reason in failed.items():
        log.warning("the unused file %s could not be deleted: %s", path, reason)
    return len(failed)


def _written(config: LakeConfig, folder: str, write_id: str) -> list[str]:
    name = f"ducklake-{write_id}-*.parquet"
    if "://" not in folder:
        # Spark's writer creates a folder for each write and chooses the file names in it.
        paths = [*Path(folder).rglob(name), *Path(folder).glob(f"ducklake-{write_id}-*/*")]
        return [str(path) for path in paths]
    pattern = literal(f"{exactly(folder)}**/{name}")
    with working_connection(config) as con:
        return [str(row[0]) for row in con.execute(f"SELECT file FROM glob({pattern})").fetchall()]
