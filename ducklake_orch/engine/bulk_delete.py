"""Delete many files: `delete_files`. DuckDB has no statement for it, so objects are deleted by a lake in memory.

The in-memory lake's clean-up works wherever the engine can read, with the engine's credentials, and deletes a thousand
objects per request on S3.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import identifier, literal

_AT_ONCE = 8
_FILES_IN_ONE_CALL = 500


def delete_files(config: LakeConfig, paths: Sequence[str]) -> Mapping[str, str]:
    """Delete files of a lake; a missing file counts as deleted.

    Args:
        config: The lake.
        paths: The absolute paths of the files.

    Returns:
        The reason for each file that could not be deleted.
    """
    local = [path for path in paths if "://" not in path]
    remote = [path for path in paths if "://" in path]
    failed = dict(_local_failures(local))
    if remote:
        with working_connection(config, apart=True) as con:
            failed |= _delete_objects(config, con, remote)
    return failed


def _local_failures(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        file = Path(path)
        try:
            file.unlink(missing_ok=True)
            # Spark's writer creates a folder for each write; other files of the write may still be in it.
            if file.parent.name.startswith("ducklake-"):
                with suppress(OSError):
                    file.parent.rmdir()
        except OSError as error:
            yield path, error.strerror or str(error)


def _delete_objects(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, str]:
    size = min(_FILES_IN_ONE_CALL, -(-len(paths) // _AT_ONCE))
    parts = [paths[start : start + size] for start in range(0, len(paths), size)]
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for failures in pool.map(lambda part: _delete_part(config, con, part), parts):
            failed |= failures
    return failed


def _delete_part(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, str]:
    """Delete files with one call; if it fails, split the list in halves to find the files that cannot be deleted."""
    try:
        _clean_up(config, con, paths)
        return {}
    except duckdb.Error as error:
        failure = classify(error, config, "deleting it failed")
        # If the storage does not answer, half of the files would take just as long.
        if len(paths) == 1 or failure.retryable:
            return dict.fromkeys(paths, failure.message)
    half = len(paths) // 2
    return _delete_part(config, con, paths[:half]) | _delete_part(config, con, paths[half:])


def _clean_up(config: LakeConfig, con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> None:
    alias = f"__ducklake_orch_trash_{uuid4().hex}"
    scheduled = f"{identifier(f'__ducklake_metadata_{alias}')}.ducklake_files_scheduled_for_deletion"
    rows = ", ".join(f"({number}, {literal(path)}, false, now())" for number, path in enumerate(paths))
    with closing(con.cursor()) as own:
        own.execute(f"ATTACH 'ducklake::memory:' AS {identifier(alias)} (DATA_PATH {literal(config.data_path)})")
        try:
            own.execute(f"INSERT INTO {scheduled} VALUES {rows}")
            own.execute(f"CALL ducklake_cleanup_old_files({literal(alias)}, cleanup_all => true)").fetchall()
        finally:
            own.execute(f"DETACH {identifier(alias)}")
