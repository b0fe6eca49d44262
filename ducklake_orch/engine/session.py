"""Open a lake: lease an instance, ATTACH, and leave nothing behind on any path."""

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from ducklake_orch.config.catalogs import (
    DuckDBCatalog,
    FileCatalog,
    MotherDuckCatalog,
    PostgresCatalog,
    ServerCatalog,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import LocalStorage
from ducklake_orch.engine import instances
from ducklake_orch.engine.attach import Pin, attach_statements, metadata_attach
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import Instance
from ducklake_orch.engine.locks import LOCK_ALIAS, FileQueue, MySQLQueue, NoQueue, PostgresQueue, Queue
from ducklake_orch.engine.options import drift
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.engine.retry import by_family, retrying
from ducklake_orch.errors import (
    AuthenticationError,
    CatalogUnreachableError,
    DuckLakeOrchError,
    LakeNotFoundError,
    OptionDriftWarning,
    StorageError,
)

log = logging.getLogger("ducklake_orch")
# A server connection that was idle for longer is asked whether it is still there.
_TRUSTED_IDLE_S = 1.0


@dataclass
class Session:
    """An attached lake, for one user at a time.

    Attributes:
        config: The lake.
        con: A cursor that is in the lake.
        instance: The DuckDB instance behind it.
        pin: How this session sees the lake.
        dirty: Set it when something outside the lake may have been changed; the instance is then checked.
        broken: Set it after a failed COMMIT; the lake is then detached, whatever its catalog.
    """

    config: LakeConfig
    con: LakeConnection
    instance: Instance
    pin: Pin
    dirty: bool = False
    broken: bool = False

    @contextlib.contextmanager
    def queue(self, purpose: str) -> Iterator[None]:
        """Wait for this writer's turn and keep it for the block."""
        with self._queue().hold(purpose, self.config.lock_timeout.total_seconds()):
            yield

    def reopen(self) -> None:
        """Attach anew after a failure that may have broken the connection."""
        self.con.close()
        self.instance.entered = None
        self.instance.detach(self.config)
        attach(self.config, self.pin, self.instance)
        self.con = _enter(self.config, self.instance)
        self.broken = False

    def _queue(self) -> Queue:
        catalog = self.config.catalog
        if isinstance(catalog, DuckDBCatalog):
            return NoQueue()  # the whole session holds the lock file
        return catalog_queue(self.config, self.instance)


def catalog_queue(config: LakeConfig, instance: Instance) -> Queue:
    """Return the queue of a lake's catalog; a server's gets its own connection, attached on first use."""
    catalog = config.catalog
    if isinstance(catalog, FileCatalog):
        return FileQueue(catalog.path)
    if isinstance(catalog, MotherDuckCatalog):
        return NoQueue()
    if not instance.queue_attached:
        instance.root.execute(metadata_attach(config, LOCK_ALIAS, read_only=False))
        instance.queue_attached = True
    if isinstance(catalog, PostgresCatalog):
        return PostgresQueue(instance.root, config.metadata_schema)
    return MySQLQueue(instance.root, f"{catalog.database}.{config.metadata_schema or ''}")


@contextlib.contextmanager
def open_session(config: LakeConfig, pin: Pin | None = None) -> Iterator[Session]:
    """Open a lake for a block.

    Args:
        config: The lake.
        pin: Read-only or in the past; by default as the configuration says.
    """
    pin = pin or Pin(config.read_only, config.snapshot, config.as_of)
    with _one_process_at_a_time(config, pin):
        key, instance = instances.pool.lease(config, pin)
        session, keep = None, False
        try:
            attach(config, pin, instance)
            session = Session(config, _enter(config, instance), instance, pin)
            yield session
            keep = True
        except (duckdb.Error, DuckLakeOrchError) as error:
            config.scrubber.clean(error)
            # An error of a statement does not spoil the connection; the check below finds what does.
            keep = session is not None
            raise
        finally:
            keep = session is not None and keep and _ready_for_the_next(session)
            if session is not None and not keep:
                session.con.close()
            instances.pool.give_back(key, instance, config, keep=keep)


def _enter(config: LakeConfig, instance: Instance) -> LakeConnection:
    entered, instance.entered = instance.entered, None
    return entered or _entered(config, instance)


def _entered(config: LakeConfig, instance: Instance) -> LakeConnection:
    return LakeConnection(instance.root.cursor(), f"USE {identifier(config.alias)}")


@contextlib.contextmanager
def _one_process_at_a_time(config: LakeConfig, pin: Pin) -> Iterator[None]:
    """Hold the lock file of a DuckDB catalog while it is attached: only one process can, unless all only read."""
    catalog = config.catalog
    if not isinstance(catalog, DuckDBCatalog):
        yield
        return
    _refuse_missing(config, pin)
    queue = FileQueue(catalog.path, shared=not pin.writable)
    new = [catalog.path.parent] if config.create_if_missing and pin.writable else []
    with _folders(*new), queue.hold(f"a connection to lake `{config.name}`", config.lock_timeout.total_seconds()):
        yield


def _ready_for_the_next(session: Session) -> bool:
    """Make an instance fit for its next user; say whether that worked."""
    instance, config = session.instance, session.config
    stays = not (config.catalog.is_file or session.broken or session.dirty)
    if stays:
        instance.entered = session.con  # USE costs the server a round trip
    else:
        session.con.close()
    try:
        if config.catalog.is_file or session.broken:
            instance.detach(config)
        if not session.dirty:
            return True
        return bool(instance.clean_state() == instance.state)
    except duckdb.Error as error:
        log.debug("a connection to lake `%s` is not kept: %s", config.name, config.scrubber(str(error)))
        return False


def attach(config: LakeConfig, pin: Pin, instance: Instance) -> None:
    """Attach the lake to an instance, trying again what fails for a passing reason; creates it where asked to."""
    if instance.attached:
        if time.monotonic() - instance.idle_since <= _TRUSTED_IDLE_S or _answers(config, instance):
            return
        instance.detach(config)
    if instance.state is None and config.catalog.is_file:
        instance.state = instance.clean_state()
    retrying(
        config.retry,
        f"attaching lake `{config.name}`",
        lambda _: _attach_or_create(config, pin, instance),
        attempts_for=_worth_of_an_attach,
    )
    try:
        _after_attach(config, instance)
    except BaseException:
        instance.detach(config)
        raise
    if not config.catalog.is_file:
        instance.state = instance.clean_state()


def _worth_of_an_attach(error: DuckLakeOrchError) -> int:
    # A server that is down, or a wrong password, is worth one more look, not two minutes of them.
    return 2 if isinstance(error, CatalogUnreachableError | AuthenticationError) else by_family(error)


def _after_attach(config: LakeConfig, instance: Instance) -> None:
    if config.options and (found := drift(config, instance.root)):
        differences = ", ".join(f"{name} is {actual!r} instead of {wanted!r}" for name, wanted, actual in found)
        message = f"Lake `{config.name}` has other options than configured: {differences}."
        warnings.warn(f"{message} `lake.apply_options()` writes them.", OptionDriftWarning, stacklevel=2)
    if config.on_attach:
        with contextlib.closing(instance.root.cursor()) as cursor:
            cursor.execute(f"USE {identifier(config.alias)}")
            config.on_attach(cursor)


def _attach_or_create(config: LakeConfig, pin: Pin, instance: Instance) -> None:
    _refuse_missing(config, pin)
    catalog = config.catalog
    # Attaching a file that is not there would make an empty one, whatever the options say.
    if not isinstance(catalog, FileCatalog) or catalog.path.exists():
        try:
            run_attach(config, pin, instance, create=False)
            return
        except LakeNotFoundError:
            if not (config.create_if_missing and pin.writable):
                raise
    _create(config, pin, instance)
    log.info("created lake `%s` in %s", config.name, catalog.to_url())


def _refuse_missing(config: LakeConfig, pin: Pin) -> None:
    """Refuse a catalog file that is not there; the engine would leave an empty one behind."""
    catalog = config.catalog
    if (
        isinstance(catalog, FileCatalog)
        and not catalog.path.exists()
        and not (config.create_if_missing and pin.writable)
    ):
        raise LakeNotFoundError(
            f"There is no lake `{config.name}`: {catalog.path} does not exist.",
            remedy="Set `create_if_missing=True` (or run `ducklake-orch init --create`) if it should be made.",
        )


def _create(config: LakeConfig, pin: Pin, instance: Instance) -> None:
    catalog = config.catalog
    new = [catalog.path.parent] if isinstance(catalog, FileCatalog) else []
    new += [Path(config.storage.data_path)] if isinstance(config.storage, LocalStorage) else []
    # Two first writers must not both make the lake. A DuckDB file is locked already.
    queue: Queue = NoQueue() if isinstance(catalog, DuckDBCatalog) else catalog_queue(config, instance)
    with _folders(*new), queue.hold(f"creating lake `{config.name}`", config.lock_timeout.total_seconds()):
        made_here = isinstance(catalog, FileCatalog) and not catalog.path.exists()
        try:
            run_attach(config, pin, instance, create=True)
            fault_point("lake.created")
        except BaseException:
            if made_here and isinstance(catalog, FileCatalog):
                _remove_half_made(catalog.path)
            raise


def _remove_half_made(path: Path) -> None:
    for file in (path, *(path.with_name(path.name + tail) for tail in ("-wal", "-shm", "-journal", ".wal"))):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _folders(*paths: Path) -> Iterator[None]:
    """Make the folders of a new lake; when it is not made, they go again."""
    made = [one for path in paths for one in (path, *path.parents) if not one.exists()]
    try:
        for path in paths:
            _make_folder(path)
        yield
    except BaseException:
        for folder in sorted(made, reverse=True):
            with contextlib.suppress(OSError):  # not empty: the lake was made, or somebody else uses it
                folder.rmdir()
        raise


def _make_folder(path: Path) -> None:
    failure = None
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            failure = "it is not writable"
    except OSError as error:
        failure = error.strerror or str(error)
    if failure:
        raise StorageError(
            f"The folder {path} cannot be used: {failure}.", remedy="Choose another folder, or change its permissions."
        )


def run_attach(config: LakeConfig, pin: Pin, instance: Instance, *, create: bool) -> None:
    """Attach and enter the lake once; engine errors become ours, told apart with the server's help."""
    failure: DuckLakeOrchError | None = None
    try:
        for statement in attach_statements(config, pin, create=create, reveal=True):
            instance.root.execute(statement)
        instance.attached = True
        instance.entered = _entered(config, instance)
    except duckdb.Error as error:
        failure = classify(error, config, f"Opening lake `{config.name}` failed")
    if failure:
        instance.detach(config)
        if isinstance(config.catalog, ServerCatalog):
            failure = diagnose(config, instance.root, failure)
        raise failure  # outside the handler: the engine's error shows the password


def _answers(config: LakeConfig, instance: Instance) -> bool:
    catalog = config.catalog
    kind = {"postgres": "postgres_query", "mysql": "mysql_query"}.get(catalog.type)
    if kind is None:
        return True
    try:
        instance.root.execute(f"SELECT * FROM {kind}({literal(config.metadata_alias)}, 'select 1')").fetchall()
        if instance.queue_attached:
            instance.root.execute(f"SELECT * FROM {kind}('{LOCK_ALIAS}', 'select 1')").fetchall()
    except duckdb.Error as error:
        log.info("the idle connection to lake `%s` has ended: %s", config.name, config.scrubber(str(error)))
        return False
    return True


@contextlib.contextmanager
def open_metadata(config: LakeConfig, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the metadata database itself, without the lake, for a block."""
    pin = Pin(read_only=read_only)
    _refuse_missing(config, Pin(read_only=True))
    held: Any = contextlib.nullcontext()
    if isinstance(config.catalog, DuckDBCatalog):
        queue = FileQueue(config.catalog.path, shared=not pin.writable)
        held = queue.hold(f"the metadata of lake `{config.name}`", config.lock_timeout.total_seconds())
    with held:
        instance = instances.start_instance(config)
        alias = config.metadata_alias
        try:
            _attach_metadata(config, instance, alias, read_only=read_only)
            try:
                yield LakeConnection(instance.root.cursor(), f"USE {identifier(alias)}")  # type: ignore[misc]
            except duckdb.Error as error:
                config.scrubber.clean(error)
                raise
            finally:
                instance.root.execute(f"DETACH DATABASE IF EXISTS {identifier(alias)}")
        finally:
            instance.root.close()


def _attach_metadata(config: LakeConfig, instance: Instance, alias: str, *, read_only: bool) -> None:
    failure = None
    try:
        instance.root.execute(metadata_attach(config, alias, read_only=read_only))
    except duckdb.Error as error:
        failure = classify(error, config, f"Opening the metadata of lake `{config.name}` failed")
    if failure:
        raise diagnose(config, instance.root, failure) if isinstance(config.catalog, ServerCatalog) else failure
