"""Checks of the lake: its catalog, its lock and its storage. They only read."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_orch.cli.checks.check import Check
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import LocalStorage
from ducklake_orch.errors import DuckLakeOrchError, LakeNotFoundError

if TYPE_CHECKING:
    from ducklake_orch.engine.session import Session

# The doctor must answer within seconds, so it waits shorter than a write does.
_PATIENCE = timedelta(seconds=10)


@dataclass
class Seen:
    """What `catalog_checks` found when it opened the lake.

    Attributes:
        data_file: The path of one data file, if the lake has any.
        exists: Whether the lake exists.
    """

    data_file: str | None = None
    exists: bool = False


def catalog_checks(config: LakeConfig, seen: Seen) -> Iterator[Check]:
    """Check the catalog, and fill in `seen`."""
    import duckdb

    from ducklake_orch.engine.attach import Access
    from ducklake_orch.engine.error_classes import classify
    from ducklake_orch.engine.session import open_session

    if (file := config.catalog_file) is not None and file.exists():
        yield _permissions(file)
        yield _file_lock(file)
    patient = config.model_copy(update={"lock_timeout": _PATIENCE, "options": {}})
    access = Access(read_only=True, snapshot=config.snapshot, as_of=config.as_of)
    started = time.monotonic()
    try:
        with open_session(patient, access) as session:
            yield from _inside(session, config, started, seen)
    except LakeNotFoundError as error:
        if config.create_if_missing:
            yield Check("catalog", "warn", f"{error.message} It is created when it is first opened for writing.")
        else:
            yield Check.failed("catalog", error)
    except DuckLakeOrchError as error:
        yield Check.failed("catalog", error)
    except duckdb.Error as error:
        yield Check.failed("catalog", classify(error, config, f"Reading lake `{config.name}` failed"))


def _inside(session: "Session", config: LakeConfig, started: float, seen: Seen) -> Iterator[Check]:
    from ducklake_orch.engine.dialects import dialect_of
    from ducklake_orch.engine.introspection import tables
    from ducklake_orch.engine.quoting import literal
    from ducklake_orch.engine.snapshots import current_snapshot, metadata

    latest = current_snapshot(session)
    took = time.monotonic() - started
    seen.exists = True
    url = config.catalog.to_url()
    yield Check("catalog", "ok", f"{url} opened in {took * 1000:.0f} ms, at snapshot {latest}")
    sql = f"SELECT key, value FROM {metadata(config, 'ducklake_metadata')} WHERE key IN ('version', 'created_by')"
    known = {_text(key): _text(value) for key, value in session.instance.root.execute(sql).fetchall()}
    yield Check("catalog format", "ok", f"{known.get('version')}, last written by {known.get('created_by')}")
    if config.options:
        yield _option_drift(session, config)
    if dialect_of(config).is_server:
        yield _server_lock(session)
    filled = [table for table in tables(session) if table.file_count]
    if filled:
        smallest = min(filled, key=lambda table: table.file_count)
        table = f"{literal(config.alias)}, {literal(smallest.table)}, schema => {literal(smallest.schema)}"
        row = session.con.execute(f"SELECT data_file FROM ducklake_list_files({table}) LIMIT 1").fetchone()
        seen.data_file = str(row[0]) if row else None


def _permissions(path: Path) -> Check:
    name, facts = "catalog file", path.stat()
    detail = f"{path} is {stat.filemode(facts.st_mode)}, owner {facts.st_uid}, {facts.st_size} bytes"
    if not os.access(path, os.R_OK):
        return Check(name, "fail", f"{detail}: it cannot be read", "Change its permissions.")
    # SQLite creates journals, and ducklake-orch the lock file, in the same folder.
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        remedy = "To write, change the permissions of the file and its folder."
        return Check(name, "warn", f"{detail}: this user can only read it", remedy)
    return Check(name, "ok", detail)


def _file_lock(path: Path) -> Check:
    from ducklake_orch.engine.locks import FileQueue

    queue = FileQueue(path)
    return _lock(queue.holder(), str(queue.path))


def _server_lock(session: "Session") -> Check:
    from ducklake_orch.engine.locks import MySQLQueue, PostgresQueue
    from ducklake_orch.engine.opening import catalog_queue

    queue = catalog_queue(session.config, session.instance)
    assert isinstance(queue, PostgresQueue | MySQLQueue)  # noqa: S101 - the servers there are
    with closing(session.instance.root.cursor()) as cursor:
        return _lock(queue.holder(cursor), "the catalog's queue")


def _lock(holder: str | None, what: str) -> Check:
    return Check("lock", "ok", f"{what} is free" if holder is None else f"{what} is held by {holder}")


def _option_drift(session: "Session", config: LakeConfig) -> Check:
    from ducklake_orch.engine.options import drift

    changes = drift(config, session.instance.root)
    if not changes:
        return Check("options", "ok", "as configured")
    detail = "; ".join(f"{name} is {actual!r}, configured is {wanted!r}" for name, wanted, actual in changes)
    return Check("options", "warn", detail, "Run `lake.apply_options()` to write the configured options.")


def storage_check(config: LakeConfig, seen: Seen) -> Check:
    """Check that the storage can be read: list a prefix, and read the size of one data file if there is one."""
    name, storage = "storage", config.storage
    if storage is None:
        return Check(name, "skip", "MotherDuck keeps the data")
    if isinstance(storage, LocalStorage) and not (seen.data_file or os.path.exists(storage.data_path)):
        return Check(name, "ok", f"{storage.data_path} does not exist yet; the first write creates it")
    import duckdb

    from ducklake_orch.engine.error_classes import classify
    from ducklake_orch.engine.instances import start_instance
    from ducklake_orch.engine.quoting import literal

    try:
        with closing(start_instance(config).root) as con:
            started = time.monotonic()
            # A prefix that matches nothing, because listing a whole lake takes long.
            pattern = literal(f"{config.data_path}.ducklake-orch-probe-*")
            con.execute(f"SELECT count(*) FROM glob({pattern})").fetchall()
            if seen.data_file:
                con.execute(f"SELECT size FROM read_blob({literal(seen.data_file)})").fetchall()
            took = f"in {(time.monotonic() - started) * 1000:.0f} ms"
    except DuckLakeOrchError as error:
        return Check.failed(name, error)
    except duckdb.Error as error:
        return Check.failed(name, classify(error, config, f"Reading the storage of lake `{config.name}` failed"))
    sample = f"and {seen.data_file} " if seen.data_file else ""
    return Check(name, "ok", f"{config.data_path} {sample}can be read, {took}")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)
