"""Open a lake for a block: lease an instance, attach the lake, and return the instance clean. Use `open_session`."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from ducklake_orch.config.lake import LakeConfig, RetryPolicy
from ducklake_orch.engine import instances
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify, run
from ducklake_orch.engine.formats import only_read
from ducklake_orch.engine.instances import Instance
from ducklake_orch.engine.locks import Check
from ducklake_orch.engine.opening import attach, attach_in_place, catalog_queue, enter, folders, refuse_missing
from ducklake_orch.engine.phases import waiting
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")


@dataclass
class Session:
    """An attached lake, used by one caller at a time.

    Attributes:
        config: The lake.
        instance: The DuckDB instance behind it.
        access: Whether the session can write, and which snapshot it sees.
        dirty: Whether a command may have changed something outside the lake; the instance is then checked before reuse.
        broken: Whether a COMMIT failed; the lake is then detached, whatever its catalog.
        deadline: When waits and retries must end, on the monotonic clock.
        changed: Whether the connection has state of its own (USE, SET, temporary tables), which reopening loses.
    """

    config: LakeConfig
    instance: Instance
    access: Access
    dirty: bool = False
    broken: bool = False
    deadline: float | None = None
    changed: bool = False
    _lock_check: Check | None = None
    _con: LakeConnection | None = None

    @property
    def con(self) -> LakeConnection:
        """The connection whose current database is the lake.

        Raises:
            CatalogVersionError: When the extension does not read the lake's format.
        """
        if self.instance.without_extension:
            raise only_read(self.config.name)
        if self._con is None:
            self._con = enter(self.config, self.instance)
        return self._con

    def leave(self) -> None:
        """Close the connection in the lake, if there is one."""
        if self._con is not None:
            self._con.close()
            self._con = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, or None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def patience(self) -> RetryPolicy:
        """The lake's retry policy, shortened to the time that the deadline leaves."""
        retry, remaining = self.config.retry, self.remaining
        if remaining is None or remaining >= retry.max_seconds:
            return retry
        return retry.model_copy(update={"max_seconds": remaining})

    @contextlib.contextmanager
    def queue(self, purpose: str) -> Iterator[Check]:
        """Hold the writers' lock for the block; within an outer `queue` block the session already holds it."""
        if self._lock_check is not None:
            yield self._lock_check
            return
        timeout = self.config.lock_timeout.total_seconds()
        if self.remaining is not None:
            timeout = min(timeout, self.remaining)
        with contextlib.ExitStack() as held:
            # With more threads, one of them waits for the server and another keeps a processor busy meanwhile.
            with self.instance.one_thread():
                lock = waiting(catalog_queue(self.config, self.instance).hold(purpose, timeout))
                self._lock_check = held.enter_context(lock)
            try:
                yield self._lock_check
            finally:
                self._lock_check = None

    def reopen(self) -> None:
        """Detach and attach again after a failure that may have broken the connection."""
        entered = self._con is not None
        self.leave()
        self.instance.detach(self.config)
        attach(self.config, self.access, self.instance, entering=entered)
        self.broken = False

    @contextlib.contextmanager
    def attached_to(self, other: LakeConfig) -> Iterator[None]:
        """Attach another lake under the name of this one for a block.

        The connection stays the same, with its settings and temporary tables, and the session keeps the writers' lock.
        """
        con, instance = self.con, self.instance
        try:
            attach_in_place(other, Access(), instance)
            yield
        finally:
            try:
                con.interrupt()  # after Ctrl-C the statement's threads keep running, and ROLLBACK would wait for them
                with contextlib.suppress(duckdb.TransactionException):  # no transaction is open
                    con.execute("ROLLBACK")
                attach_in_place(self.config, self.access, instance)
            except (duckdb.Error, DuckLakeOrchError):
                self.broken = True
                raise


@contextlib.contextmanager
def open_session(config: LakeConfig, access: Access | None = None, *, entering: bool = True) -> Iterator[Session]:
    """Open a lake for a block.

    An error of the engine leaves the block as an error of ducklake-orch, unless a user's own statements ran in it.

    Args:
        config: The lake.
        access: Read-only or at a past snapshot; by default what the configuration says.
        entering: Whether the block uses `con`. A block that only needs the metadata saves the engine's check of the
            lake.
    """
    access = access or Access(config.read_only, config.snapshot, config.as_of)
    process, failure = os.getpid(), None
    with _one_process_at_a_time(config, access):
        key, instance = instances.pool.lease(config, access)
        session, keep = None, False
        try:
            attach(config, access, instance, entering=entering)
            session = Session(config, instance, access)
            yield session
            keep = True
        except (duckdb.Error, DuckLakeOrchError) as error:
            config.scrubber.clean(error)
            # A statement's error does not make the connection unusable; `_prepare_for_reuse` detects what does.
            keep = session is not None
            if isinstance(error, DuckLakeOrchError) or (session is not None and session.dirty):
                raise
            failure = classify(error, config, f"Using lake `{config.name}` failed")
        finally:
            if os.getpid() == process:  # a forked child has no engine to close
                fit = False
                try:
                    fit = session is not None and keep and _prepare_for_reuse(session)
                finally:  # also if that is interrupted
                    if session is not None and not fit:
                        session.leave()
                    instances.pool.give_back(key, instance, config, keep=fit)
    if failure is not None:
        raise failure  # outside the handler: the engine's error may show a password


@contextlib.contextmanager
def _one_process_at_a_time(config: LakeConfig, access: Access) -> Iterator[None]:
    """Hold the attach lock of a catalog that only one process can attach; readers share it."""
    dialect, file = dialect_of(config), config.catalog_file
    if not dialect.attached_by_one_process or file is None:
        yield
        return
    refuse_missing(config, access)
    new = [file.parent] if access.creates(config) else []
    lock, purpose = dialect.attach_lock(shared=not access.writable), f"a connection to lake `{config.name}`"
    with folders(*new), waiting(lock.hold(purpose, config.lock_timeout.total_seconds())):
        yield


def _prepare_for_reuse(session: Session) -> bool:
    """Prepare an instance for its next user; return whether that succeeded."""
    instance, config = session.instance, session.config
    stays = not (config.catalog.is_file or session.broken or session.dirty)
    if stays:
        # keep the connection: USE costs the server a round trip
        instance.entered, session._con = session._con or instance.entered, None
    else:
        session.leave()
    try:
        for con in (instance.root, instance.entered):
            if stays and con is not None:
                con.execute("SELECT 1")  # ends the server transaction that a partly read result keeps open
        if config.catalog.is_file or session.broken:
            instance.detach(config)
        if not session.dirty:
            return True
        return bool(instance.clean_state() == instance.state)
    except duckdb.Error as error:
        log.debug("a connection to lake `%s` is not kept: %s", config.name, config.scrubber(str(error)))
        return False


@contextlib.contextmanager
def open_metadata(config: LakeConfig, *, read_only: bool = True, trusted: bool = False) -> Iterator[LakeConnection]:
    """Open the metadata database for a block, without the lake.

    Args:
        config: The lake.
        read_only: Whether the block only reads.
        trusted: Whether the block is known to leave no state behind in the instance. An error of the engine then leaves
            it as an error of ducklake-orch.
    """
    refuse_missing(config, Access(read_only=True))
    failure = None
    alias = config.metadata_alias
    with _one_process_at_a_time(config, Access(read_only=read_only)), _unattached(config, trusted) as instance:
        try:
            doing = f"Opening the metadata of lake `{config.name}` failed"
            run(instance.root, dialect_of(config).metadata_attach(alias, read_only=read_only), config, doing)
        except DuckLakeOrchError as error:
            raise diagnose(config, instance.root, error) from None
        try:
            use = f"USE {identifier(alias)}"
            with LakeConnection(instance.root.cursor().execute(use), use) as con:
                yield con
        except duckdb.Error as error:
            config.scrubber.clean(error)
            if not trusted:
                raise
            failure = classify(error, config, f"Using the metadata of lake `{config.name}` failed")
        finally:
            instance.root.execute(f"DETACH DATABASE IF EXISTS {identifier(alias)}")
    if failure is not None:
        raise failure  # outside the handler: the engine's error may show a password


@contextlib.contextmanager
def _unattached(config: LakeConfig, trusted: bool) -> Iterator[Instance]:
    """Yield an instance with no lake attached: for a file catalog a warm one, which is detached while it is idle."""
    if not config.catalog.is_file:
        instance = instances.start_instance(config)
        try:
            yield instance
        finally:
            instance.root.close()
        return
    key, instance = instances.pool.lease(config, Access())
    keep = False
    try:
        instance.state = instance.state or instance.clean_state()
        yield instance
        keep = trusted or bool(instance.clean_state() == instance.state)
    finally:
        instances.pool.give_back(key, instance, config, keep=keep)
