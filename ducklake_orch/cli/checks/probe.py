"""Checks that the storage can be written: creates a tiny lake in a new folder below the data path, and deletes it.

DuckDB has no statement that deletes an object. DuckLake's clean-up deletes objects on every storage, and only files of
the lake that it is called on. The probe is therefore a lake, with its catalog in memory.
"""

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ducklake_orch.cli.checks.check import Check
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import LocalStorage
from ducklake_orch.errors import DuckLakeOrchError

if TYPE_CHECKING:
    import duckdb

_NAME = "storage writable"
_ALIAS = "__ducklake_orch_probe"
_WRITE = f"CREATE TABLE {_ALIAS}.probe AS SELECT 1 AS one"
_DELETE = (
    f"DROP TABLE {_ALIAS}.probe",
    f"CALL ducklake_expire_snapshots('{_ALIAS}', older_than => now() + INTERVAL 1 DAY)",
    f"CALL ducklake_cleanup_old_files('{_ALIAS}', cleanup_all => true)",
)


def write_check(config: LakeConfig) -> Check:
    """Write an object below the data path and delete it. The check names the files that could not be deleted."""
    import duckdb

    from ducklake_orch.engine.error_classes import classify
    from ducklake_orch.engine.instances import start_instance

    if config.data_path is None:
        return Check(_NAME, "skip", "MotherDuck keeps the data")
    folder = f"{config.data_path}.ducklake-orch-probe-{uuid4().hex}/"
    new_here = isinstance(config.storage, LocalStorage) and not os.path.exists(config.data_path)
    try:
        with closing(start_instance(config).root) as con:
            _attach(con, folder)
            con.execute(_WRITE)
            failure = _delete(con)
            remaining = _remaining(con, folder)
    except DuckLakeOrchError as error:
        return Check.failed(_NAME, error)
    except duckdb.Error as error:
        return Check.failed(_NAME, classify(error, config, f"Writing to {folder} failed"))
    finally:
        if isinstance(config.storage, LocalStorage):
            _remove_empty_folders(Path(folder))
            if new_here:
                _remove_empty_folders(Path(config.data_path))
    if remaining or failure:
        reason = classify(failure, config, "Deleting failed").message if failure else "The deletion had no effect"
        remedy = "Allow this login to delete files, as clean-up must; then remove the files that are left."
        files = ", ".join(remaining) or folder
        return Check(_NAME, "fail", f"The storage can be written. {reason}. Files left: {files}", remedy)
    return Check(_NAME, "ok", f"an object below {config.data_path} was written, read and deleted")


def _attach(con: "duckdb.DuckDBPyConnection", folder: str) -> None:
    from ducklake_orch.engine.quoting import options

    values = options({"data_path": folder, "data_inlining_row_limit": 0})
    con.execute(f"ATTACH 'ducklake::memory:' AS {_ALIAS} {values}")


def _delete(con: "duckdb.DuckDBPyConnection") -> "duckdb.Error | None":
    import duckdb

    try:
        con.execute(f"FROM {_ALIAS}.probe").fetchall()
        for statement in _DELETE:
            con.execute(statement).fetchall()
    except duckdb.Error as error:
        return error
    return None


def _remaining(con: "duckdb.DuckDBPyConnection", folder: str) -> list[str]:
    from ducklake_orch.engine.quoting import literal

    return [str(row[0]) for row in con.execute(f"SELECT file FROM glob({literal(folder + '**')})").fetchall()]


def _remove_empty_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):  # not empty: another process uses the folder by now
            os.rmdir(folder)
