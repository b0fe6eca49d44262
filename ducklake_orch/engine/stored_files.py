"""Delete files of ours from the storage: those of a write that came to nothing, and those that were of no use."""

import logging
from collections.abc import Set
from pathlib import Path

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")


def remove_written(config: LakeConfig, folder: str, write_id: str, keep: Set[str] = frozenset()) -> int:
    """Delete the files of a write that came to nothing, and only those; return how many there were.

    A failure is only logged: it would hide the error that led here, and the files can be found by their names.

    Args:
        config: The lake.
        folder: The table's folder.
        write_id: Part of the names of the write's files, and of no others.
        keep: Those of its files that did come to something.
    """
    try:
        lost = [path for path in _written(config, folder, write_id) if path not in keep]
        return len(lost) - _remove(config, lost)
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.warning("files of write %s are left in %s: %s", write_id, folder, config.scrubber(str(error)))
        return 0


def remove_unused(config: LakeConfig, paths: list[str]) -> None:
    """Delete files that nothing refers to; a failure is only logged, for the work itself is done."""
    try:
        _remove(config, paths)
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.warning("%d unused files are left, such as %s: %s", len(paths), paths[0], config.scrubber(str(error)))


def _remove(config: LakeConfig, paths: list[str]) -> int:
    """Delete files; return how many are left."""
    failed = delete_files(config, paths)
    for path, why in failed.items():
        log.warning("%s is of no use, and is left: %s", path, why)
    return len(failed)


def _written(config: LakeConfig, folder: str, write_id: str) -> list[str]:
    name = f"ducklake-{write_id}-*.parquet"
    if "://" not in folder:
        # Spark's own writer has a folder for each write, in which it names the files.
        found = [*Path(folder).rglob(name), *Path(folder).glob(f"ducklake-{write_id}-*/*")]
        return [str(path) for path in found]
    pattern = literal(f"{exactly(folder)}**/{name}")
    with working_connection(config) as con:
        return [str(row[0]) for row in con.execute(f"SELECT file FROM glob({pattern})").fetchall()]
