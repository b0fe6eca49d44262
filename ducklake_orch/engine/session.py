"""Open a lake for a block: lease an instance, attach, give it back fit for the next user."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from ducklake_orch.config.lake import LakeConfig, RetryPolicy
from ducklake_orch.engine import instances
from ducklake_orch.engine.attach import Pin
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.failures import run
from ducklake_orch.engine.instances import Instance
from ducklake_orch.engine.locks import Check
from ducklake_orch.engine.opening import attach, catalog_queue, enter, folders, refuse_missing
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")


@dataclass
class Session:
    """An attached lake, for one user at a time.

    Attributes:
        config: The lake.
        instance: The DuckDB instance behind it.
        pin: How this session sees the lake.
        dirty: Set it when something outside the lake may have been changed; the instance is then checked.
        broken: Set it after a failed COMMIT; the lake is then detached, whatever its catalog.
        deadline: When waiting and retrying must end, on the monotonic clock.
        changed: Set it when the connection has state of its own (USE, SET, temporary tables), lost when opened anew.
    """

    config: LakeConfig
    instance: Instance
    pin: Pin
    dirty: bool = False
    broken: bool = False
    deadline: float | None = None
    changed: bool = False
    _turn: Check | None = None
    _con: LakeConnection | None = None

    @property
    def con(self) -> LakeConnection:
        """A connection that is in the lake."""
        if self._con is None:
            self._con = enter(self.config, self.instance)
        return self._con

    def leave(self) -> None:
        """Close the connection that is in the lake, if there is one."""
        if self._con is not None:
            self._con.close()
            self._con = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, or None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def patience(self) -> RetryPolicy:
        """The lake's retry policy, as far as the deadline leaves time for it."""
        retry, remaining = self.config.retry, self.remaining
        if remaining is None or remaining >= retry.max_seconds:
            return retry
        return retry.model_copy(update={"max_seconds": remaining})

    @contextlib.contextmanager
    def queue(self, purpose: str) -> Iterator[Check]:
        """Wait for this writer's turn and keep it for the block; within it, it is here already."""
        if self._turn is not None:
            yield self._turn
            return
        timeout = self.config.lock_timeout.total_seconds()
        if self.remaining is not None:
            timeout = min(timeout, self.remaining)
        with catalog_queue(self.config, self.instance).hold(purpose, timeout) as self._turn:
            try:
                yield self._turn
            finally:
                self._turn = None

    def reopen(self) -> None:
        """Attach anew after a failure that may have broken the connection."""
        entered = self._con is not None
        self.leave()
        self.instance.detach(self.config)
        attach(self.config, self.pin, self.instance, entering=entered)
        self.broken = False


@contextlib.contextmanager
def open_session(config: LakeConfig, pin: Pin | None = None, *, entering: bool = True) -> Iterator[Session]:
    """Open a lake for a block.

    Args:
        config: The lake.
        pin: Read-only or in the past; by default as the configuration says.
        entering: Whether the block is going to use `con`; who only needs the metadata saves the engine's look at it.
    """
    pin = pin or Pin(config.read_only, config.snapshot, config.as_of)
    process = os.getpid()
    with _one_process_at_a_time(config, pin):
        key, instance = instances.pool.lease(config, pin)
        session, keep = None, False
        try:
            attach(config, pin, instance, entering=entering)
            session = Session(config, instance, pin)
            yield session
            keep = True
        except (duckdb.Error, DuckLakeOrchError) as error:
            config.scrubber.clean(error)
            # An error of a statement does not spoil the connection; the check below finds what does.
            keep = session is not None
            raise
        finally:
            if os.getpid() == process:  # a forked child has no engine to close
                keep = session is not None and keep and _ready_for_the_next(session)
                if session is not None and not keep:
                    session.leave()
                instances.pool.give_back(key, instance, config, keep=keep)


@contextlib.contextmanager
def _one_process_at_a_time(config: LakeConfig, pin: Pin) -> Iterator[None]:
    """Hold the lock of a catalog that only one process can have attached, unless all of them only read."""
    dialect, file = dialect_of(config), config.catalog_file
    if not dialect.attached_by_one_process or file is None:
        yield
        return
    refuse_missing(config, pin)
    new = [file.parent] if pin.creates(config) else []
    lock = dialect.attach_lock(shared=not pin.writable)
    with folders(*new), lock.hold(f"a connection to lake `{config.name}`", config.lock_timeout.total_seconds()):
        yield


def _ready_for_the_next(session: Session) -> bool:
    """Make an instance fit for its next user; say whether that worked."""
    instance, config = session.instance, session.config
    stays = not (config.catalog.is_file or session.broken or session.dirty)
    if stays:
        # USE costs the server a round trip
        instance.entered, session._con = session._con or instance.entered, None
    else:
        session.leave()
    try:
        for con in (instance.root, instance.entered):
            if stays and con is not None:
                con.execute("SELECT 1")  # results that were not read to their end keep a transaction open on the server
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
    """Open the metadata database itself, without the lake, for a block.

    Args:
        config: The lake.
        read_only: Whether it is only read.
        trusted: Whether the block is known to leave nothing behind in the instance.
    """
    refuse_missing(config, Pin(read_only=True))
    alias = config.metadata_alias
    with _one_process_at_a_time(config, Pin(read_only=read_only)), _unattached(config, trusted) as instance:
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
            raise
        finally:
            instance.root.execute(f"DETACH DATABASE IF EXISTS {identifier(alias)}")


@contextlib.contextmanager
def _unattached(config: LakeConfig, trusted: bool) -> Iterator[Instance]:
    """Give an instance that has no lake attached: for a file catalog a warm one, which has none while it is idle."""
    if not config.catalog.is_file:
        instance = instances.start_instance(config)
        try:
            yield instance
        finally:
            instance.root.close()
        return
    key, instance = instances.pool.lease(config, Pin())
    keep = False
    try:
        instance.state = instance.state or instance.clean_state()
        yield instance
        keep = trusted or bool(instance.clean_state() == instance.state)
    finally:
        instances.pool.give_back(key, instance, config, keep=keep)
