"""Warm in-memory DuckDB instances with extensions, settings and secrets, each used by one caller at a time.

Loading extensions makes a connection slow (their signatures are checked), so a process keeps its instances. An instance
for a server catalog stays attached while it is idle; a file catalog is attached only while it is used. The entry points
are `pool.lease` and `working_connection`.
"""

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ducklake_orch.config.lake import LakeConfig, Scalar
from ducklake_orch.config.units import parse_size
from ducklake_orch.engine.attach import Access, attach_statements, secret_statements, setting_statements
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.error_classes import classified, run, run_setting
from ducklake_orch.engine.extensions import open_database
from ducklake_orch.engine.locks import LOCK_ALIAS
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import PoolExhaustedError, SettingError

log = logging.getLogger("ducklake_orch")
# An instance that is reused must have the settings, secrets and databases that it started with, and no tables in
# memory. Empty tables take no memory and pass this check.
_STATE = f"""
SELECT (SELECT md5(string_agg(name || '=' || coalesce(value, ''), ';' ORDER BY name)) FROM duckdb_settings()),
       (SELECT list(name ORDER BY name) FROM duckdb_secrets()),
       (SELECT list(database_name ORDER BY database_name) FROM duckdb_databases()
        WHERE database_name <> '{LOCK_ALIAS}'),
       (SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE')
"""


@dataclass
class Instance:
    """One in-memory DuckDB with everything loaded.

    Attributes:
        attached: Whether a lake is attached.
        without_extension: Whether only its metadata database is attached, because the extension does not read its
            format.
    """

    root: duckdb.DuckDBPyConnection
    attached: bool = False
    without_extension: bool = False
    queue_attached: bool = False
    state: Any = None
    idle_since: float = 0.0
    entered: LakeConnection | None = None
    has_one_thread: bool = False
    threads: int = 1

    def clean_state(self) -> Any:
        """Return the state that must be unchanged when the instance is given back."""
        return self.root.execute(_STATE).fetchone()

    @contextlib.contextmanager
    def one_thread(self) -> Iterator[None]:
        """Run a block of small statements on one thread: threads of busy processes would only wait for each other."""
        if self.has_one_thread:
            yield
            return
        row = self.root.execute("SELECT current_setting('threads')").fetchone()
        self.threads = int(row[0]) if row else 1
        self.root.execute("SET threads = 1")
        self.has_one_thread = True
        try:
            yield
        finally:
            self.has_one_thread = False
            with contextlib.suppress(duckdb.Error):  # the instance has ended and is not used again
                self.root.execute(f"SET threads = {self.threads}")

    @contextlib.contextmanager
    def all_threads(self) -> Iterator[None]:
        """Run a block that reads files, and nothing from the catalog, on all threads, even within `one_thread`."""
        if not self.has_one_thread:
            yield
            return
        self.root.execute(f"SET threads = {self.threads}")
        self.has_one_thread = False
        try:
            yield
        finally:
            self.root.execute("SET threads = 1")
            self.has_one_thread = True

    def close(self, config: LakeConfig) -> None:
        """Detach and close the instance; without DETACH the engine leaks memory and, on SQLite, locks."""
        try:
            self.detach(config)
        finally:
            self.root.close()

    def forget(self, alias: str) -> None:
        """Detach the lake alone, so that another one can have its name; connections stay in whatever has the name."""
        self.root.execute(f"DETACH DATABASE IF EXISTS {identifier(alias)}")
        self.attached = False

    def detach(self, config: LakeConfig) -> None:
        """Detach the lake and the queue's own connection."""
        if self.entered is not None:
            self.entered.close()
            self.entered = None
        alias = config.metadata_alias if self.without_extension else config.alias
        names = ([alias] if self.attached else []) + ([LOCK_ALIAS] if self.queue_attached else [])
        self.attached = self.queue_attached = self.without_extension = False
        for name in names:
            self.root.execute(f"DETACH DATABASE IF EXISTS {identifier(name)}")


def start_instance(config: LakeConfig) -> Instance:
    """Start an instance for a lake: extensions, settings, secrets, `on_connect`; close it if a step fails."""
    root = open_database(config.required_extensions, {})
    try:
        for statement in setting_statements(config):
            run_setting(root, statement, config)
        for name, value in config.engine_settings.items():
            _check_setting(root, name, value)
        for statement in secret_statements(config, reveal=True):
            run(root, statement, config, f"Setting up the secrets of lake `{config.name}` failed")
        if config.on_connect:
            config.on_connect(root)
    except BaseException:
        root.close()
        raise
    return Instance(root)


def _check_setting(root: duckdb.DuckDBPyConnection, name: str, wanted: Scalar) -> None:
    row = root.execute(f"SELECT current_setting({literal(name)})").fetchone()
    actual = row[0] if row else None
    if not _same(actual, wanted):
        raise SettingError(
            f"DuckDB did not apply the setting `{name}`: wanted {wanted!r}, it is {actual!r}.",
            remedy="Check the value in `settings`.",
        )


def _same(actual: Any, wanted: Scalar) -> bool:
    left, right = str(actual).strip().lower(), str(wanted).strip().lower()
    if left == right or {left, right} in ({"true", "1"}, {"false", "0"}, {"true", "on"}, {"false", "off"}):
        return True
    try:
        if left[-1:].isalpha():
            # The engine prints rounded sizes: `512MB` reads back as `488.2 MiB`.
            return abs(parse_size(left) - parse_size(right)) <= 0.01 * parse_size(right)
        return float(left) == float(right)
    except ValueError:
        return False


@dataclass
class Pool:
    """The instances of this process, keyed by the statements that created them. Thread-safe."""

    _idle: dict[Any, list[Instance]] = field(default_factory=dict)
    _configs: dict[Any, LakeConfig] = field(default_factory=dict)
    _leased: Counter[Any] = field(default_factory=Counter)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def lease(self, config: LakeConfig, access: Access, *, apart: bool = False) -> tuple[Any, Instance]:
        """Return an instance for exclusive use, warm if there is one.

        Args:
            config: The lake.
            access: Read-only or at a past snapshot.
            apart: Whether the instance is never attached to a catalog server; it then does not count towards the pool's
                size.

        Raises:
            PoolExhaustedError: When all connections of a lake on a server stay in use longer than `pool.wait`.
        """
        key = _key(config, access, apart=apart)
        with self._changed:
            stale = self._take_stale()
            if not (config.catalog.is_file or apart):
                self._wait_for_room(key, config)
            self._leased[key] += 1
            instance = idle.pop() if (idle := self._idle.get(key)) else None
        for old_config, old in stale:
            _close_quietly(old, old_config)
        if instance is not None:
            return key, instance
        try:
            return key, start_instance(config)
        except BaseException:
            self._end_lease(key)
            raise

    def give_back(self, key: Any, instance: Instance, config: LakeConfig, *, keep: bool) -> None:
        """Take an instance back; close it unless it is fit for the next user."""
        if not keep:
            _close_quietly(instance, config)
            self._end_lease(key)
            return
        instance.idle_since = time.monotonic()
        with self._changed:
            self._configs[key] = config
            self._idle.setdefault(key, []).append(instance)
            surplus = [] if config.catalog.is_file else self._take_surplus(config)
        self._end_lease(key)
        for old_config, old in surplus:
            _close_quietly(old, old_config)

    def _end_lease(self, key: Any) -> None:
        with self._changed:
            self._leased[key] -= 1
            self._changed.notify_all()

    def _wait_for_room(self, key: Any, config: LakeConfig) -> None:
        wait = config.pool.wait.total_seconds()
        if not self._changed.wait_for(lambda: self._leased[key] < config.pool.size, timeout=wait):
            raise PoolExhaustedError(
                f"All {config.pool.size} connections of this process to lake `{config.name}` have been in use for"
                f" {wait:g} s.",
                remedy="Close connections sooner, or raise `pool.size`.",
            )

    def _take_stale(self) -> list[tuple[LakeConfig, Instance]]:
        now, stale = time.monotonic(), []
        for key, instances in self._idle.items():
            limit = self._configs[key].pool.idle.total_seconds()
            stale += [(self._configs[key], instance) for instance in instances if now - instance.idle_since > limit]
            instances[:] = [instance for instance in instances if now - instance.idle_since <= limit]
        return stale

    def _take_surplus(self, config: LakeConfig) -> list[tuple[LakeConfig, Instance]]:
        """Take the oldest idle instances beyond `pool.size`: each past snapshot that is read has one of its own."""
        idle = [
            (instance.idle_since, key)
            for key, instances in self._idle.items()
            if self._configs[key].catalog == config.catalog
            for instance in instances
        ]
        oldest = sorted(idle, key=lambda entry: entry[0])[: max(len(idle) - config.pool.size, 0)]
        return [(self._configs[key], self._idle[key].pop(0)) for _, key in oldest]

    def close(self) -> None:
        """Close every idle instance."""
        with self._changed:
            idle = [(self._configs[key], instance) for key, instances in self._idle.items() for instance in instances]
            self._idle.clear()
        for config, instance in idle:
            _close_quietly(instance, config)


def _key(config: LakeConfig, access: Access, *, apart: bool) -> Any:
    """Return the key that two uses must share to share an instance."""
    statements = [*setting_statements(config), *secret_statements(config, reveal=True)]
    if not (config.catalog.is_file or apart):  # the instance stays attached, so the ATTACH is part of the key
        statements += attach_statements(config, access, create=False, reveal=True)
    hooks: tuple[Callable[..., None] | None, ...] = (config.on_connect, config.on_attach)
    checked = tuple(config.options.items())
    return (tuple(config.required_extensions), tuple(statements), hooks, config.alias, checked)


def _close_quietly(instance: Instance, config: LakeConfig) -> None:
    try:
        instance.close(config)
    except duckdb.Error as error:
        log.debug("closing a connection to lake `%s`: %s", config.name, config.scrubber(str(error)))


@contextlib.contextmanager
def working_connection(
    config: LakeConfig, doing: str | None = None, *, apart: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that reaches the lake's storage but does not attach its catalog, for a block.

    An error of the engine leaves the block as an error of ducklake-orch.

    Args:
        config: The lake.
        doing: The purpose, for error messages.
        apart: Whether the caller opens the lake as well. Two callers that each hold one connection of the pool and wait
            for a second could wait for ever.
    """
    key, instance = pool.lease(config, Access(config.read_only, config.snapshot, config.as_of), apart=apart)
    process, idle_since, keep = os.getpid(), instance.idle_since, False
    doing = f"{doing or f'Using the storage of lake `{config.name}`'} failed"
    try:
        with classified(config, doing), contextlib.closing(instance.root.cursor()) as con:
            yield con
        keep = True
    finally:
        if os.getpid() == process:
            pool.give_back(key, instance, config, keep=keep)
            if not apart:
                # The block did not use the connection to a catalog server, which may have ended since.
                instance.idle_since = idle_since


pool = Pool()
_abandoned: list[Pool] = []


def _forget_after_fork() -> None:
    # The child has none of the engine's threads: closing or even freeing these instances could hang it.
    global pool
    _abandoned.append(pool)
    pool = Pool()


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(lambda: pool.close())
