"""The locks of a catalog, above all the queue in which its writers wait (see docs/architecture.md).

Without the queue, concurrent writers collide at COMMIT and the loser starts again; with it every commit succeeds at the
first attempt. A holder that dies releases the lock: the operating system drops its file lock, the server its session
lock.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import random
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from ducklake_orch.engine.connection import close
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import CatalogUnreachableError, LakeLockedError, StorageError

if TYPE_CHECKING:
    from ducklake_orch.engine.dialects.base import Dialect

log = logging.getLogger("ducklake_orch")
LOCK_ALIAS = "__ducklake_orch_queue"
# A writer is expected to hold the queue for milliseconds.
_LONG_HOLD_S = 1.0


Check = Callable[[], None]


class Queue(Protocol):
    """Serialises the writers of one lake."""

    def hold(self, purpose: str, timeout: float) -> contextlib.AbstractContextManager[Check]:
        """Wait for the lock and hold it for the duration of the block.

        The block gets a function that raises if the lock was lost, to be called right before COMMIT: a lock ends with
        the connection that holds it.

        Raises:
            LakeLockedError: When the lock is not free within `timeout` seconds; the message names the holder.
        """
        ...


def _always_held() -> None:
    """Do nothing: this lock cannot be lost while the process lives."""


class NoQueue:
    """No lock, for catalogs without one (MotherDuck) and for readers."""

    @contextlib.contextmanager
    def hold(self, purpose: str, timeout: float) -> Iterator[Check]:
        """Run the block without a lock."""
        yield _always_held


# The lock files that each thread of this process holds, and the open descriptors of lock files. A thread that waited
# for itself would wait for ever. A forked child closes the descriptors that it inherits.
_held: Counter[tuple[Path, int]] = Counter()
_descriptors: set[int] = set()


def _close_after_fork() -> None:
    # Close, but do not unlock: the lock belongs to the open file, which the parent still has.
    for file in _descriptors:
        os.close(file)
    _descriptors.clear()
    _held.clear()


os.register_at_fork(after_in_child=_close_after_fork)


class FileQueue:
    """A lock file next to a SQLite or DuckDB catalog; with a `name` it is a separate lock from the writers' one."""

    def __init__(self, catalog: Path, *, shared: bool = False, name: str = "") -> None:
        # A symbolic link to the catalog leads to the same lock.
        self._catalog = Path(os.path.realpath(catalog))
        self._name = name
        self.path = self._catalog.with_name(f"{self._catalog.name}{f'.{name}' if name else ''}.lock")
        self._mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX

    @contextlib.contextmanager
    def hold(self, purpose: str, timeout: float) -> Iterator[Check]:
        """Wait for the lock file."""
        process, me = os.getpid(), (self.path, threading.get_ident())
        with contextlib.ExitStack() as opened:
            file = self._take(opened, purpose, timeout, me)
            if file is None:
                yield _always_held
                return
            started = time.monotonic()
            _held[me] += 1
            if self._mode == fcntl.LOCK_EX:
                self._sign(file, purpose)
            try:
                yield _always_held
            finally:
                if os.getpid() == process:
                    _held[me] -= 1
                    if self._mode == fcntl.LOCK_EX and not self._catalog.exists():
                        self.path.unlink(missing_ok=True)  # no lake was created: leave nothing behind
                    elif self._mode == fcntl.LOCK_EX:
                        os.ftruncate(file, 0)  # else a reader's lock would be reported as this writer's
                    fcntl.flock(file, fcntl.LOCK_UN)
                    _warn_of_long_hold(purpose, started, self._name)

    def _take(self, opened: contextlib.ExitStack, purpose: str, timeout: float, me: tuple[Path, int]) -> int | None:
        while True:
            file = opened.enter_context(self._opened())
            if file is None:
                return None
            self._wait(file, purpose, timeout, me)
            if os.fstat(file).st_nlink:
                return file
            # The previous holder removed the file; another writer may hold the lock on a new one.

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        try:
            file = self._open()
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise self._no_lock_file("it is a link, a folder or a pipe") from error
            if self._mode == fcntl.LOCK_EX:
                raise StorageError(
                    f"The lock file {self.path} cannot be opened: {error.strerror}.",
                    remedy="A writer must be able to write to the folder of the catalog and to the lock file. Remove a"
                    " lock file that another user left behind.",
                ) from error
            # A reader of a catalog in a read-only folder needs no lock: no process can write there.
            yield None
            return
        _descriptors.add(file)
        try:
            yield file
        finally:
            if file in _descriptors:  # a forked child has closed it already
                _descriptors.remove(file)
                os.close(file)

    def _open(self) -> int:
        """Open the lock file, and make sure that only users who may write the catalog can lock it.

        A process that can open a file, even only for reading, can hold its lock. So the file's mode denies everything
        to users who may not write the catalog. Links are not followed, because a writer empties the file.
        """
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        create, mode = False, self._lock_mode()
        while True:
            try:
                # Without O_CREAT if the file exists: in a sticky folder Linux refuses O_CREAT on another user's file.
                file = os.open(self.path, flags | (os.O_CREAT | os.O_EXCL if create else 0), mode)
                break
            except (FileNotFoundError, FileExistsError):
                create = not create
                if create and not self._catalog.parent.is_dir():
                    raise
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise self._no_lock_file("it is not a regular file")
            if facts.st_nlink > 1:
                raise self._no_lock_file("it has a second hard link")
            owners = {os.geteuid(), 0, *(self._owner(path) for path in (self._catalog, self._catalog.parent))}
            if facts.st_uid not in owners and not mode & 0o020:
                raise self._no_lock_file(f"it belongs to user {facts.st_uid}, who owns neither catalog nor folder")
            if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) != mode:
                os.fchmod(file, mode)  # the umask or an older version created it with another mode
            if create and self._catalog.exists() and self._catalog.stat().st_gid != facts.st_gid:
                with contextlib.suppress(OSError):  # this user is not a member of the group that may write the catalog
                    os.fchown(file, -1, self._catalog.stat().st_gid)
        except BaseException:
            os.close(file)
            raise
        return file

    def _lock_mode(self) -> int:
        """Return the mode of the lock file: full access for users who may write the catalog, none for others."""
        try:
            mode = self._catalog.stat().st_mode
        except OSError:  # the catalog does not exist yet: users who can write its folder may lock
            mode = self._catalog.parent.stat().st_mode if self._catalog.parent.exists() else 0
            mode &= ~0o002 if mode & stat.S_ISVTX else ~0
        return 0o600 | (0o060 if mode & 0o020 else 0) | (0o006 if mode & 0o002 else 0)

    @staticmethod
    def _owner(path: Path) -> int:
        try:
            return path.stat().st_uid
        except OSError:
            return -1

    def _no_lock_file(self, reason: str) -> StorageError:
        return StorageError(
            f"The lock file {self.path} cannot be used: {reason}.",
            remedy="Another program or user created it. Remove it: ducklake-orch creates a new one.",
        )

    def _wait(self, file: int, purpose: str, timeout: float, me: tuple[Path, int]) -> None:
        deadline = time.monotonic() + timeout
        pause = 0.001
        while True:
            try:
                fcntl.flock(file, self._mode | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                mine = _held[me] > 0
            if mine or time.monotonic() >= deadline:
                raise _locked(str(self.path), purpose, timeout, self._holder(file), mine=mine)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the waiting, no secret
            pause = min(pause * 1.2, 0.004)

    def _sign(self, file: int, purpose: str) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose}
        note["since"] = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(note).encode(), 0)

    def _holder(self, file: int) -> str:
        try:
            note: dict[str, Any] = json.loads(os.pread(file, 4096, 0))
            return f"process {note['pid']} on {note['host']} ({note['purpose']}) since {note['since']}"
        except (ValueError, KeyError):
            return "a reader, or a writer that has just taken it"

    def holder(self) -> str | None:
        """Return the holder of the lock, or None if it is free."""
        if not self.path.exists():
            return None
        with self._opened() as file:
            if file is None:
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)
            except BlockingIOError:
                return self._holder(file)
        return None


class PostgresQueue:
    """An advisory lock on its own connection; with a `name` it is a separate lock from the writers' one.

    The writing transaction cannot hold the lock: its snapshot would be older than the end of the wait and show stale
    data.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, dialect: "Dialect[Any]", *, name: str = "") -> None:
        self._con = con
        self._dialect = dialect
        self._name = name
        # The server keeps advisory locks per database, and each schema is a lake.
        lake = f"ducklake-orch:{dialect.config.metadata_schema or 'public'}{f':{name}' if name else ''}"
        digest = hashlib.sha256(lake.encode()).digest()
        self.key = int.from_bytes(digest[:8], "big", signed=True)

    @contextlib.contextmanager
    def hold(self, purpose: str, timeout: float) -> Iterator[Check]:
        """Wait for the advisory lock; the server grants it in the order of requests."""
        note = f"{purpose} (process {os.getpid()} on {socket.gethostname()})"
        wait = f"set local lock_timeout = {max(1, int(timeout * 1000))}; select pg_advisory_xact_lock({self.key})"
        # The note shows in pg_stat_activity, for users of the database who wait.
        note_sql = f"set local application_name = {literal(note[:60])}"
        # The connection is idle while the writer works; a server that closes idle connections would end the lock.
        # A lock that is held for long must not hold back the server's VACUUM, which a long transaction snapshot would
        # do.
        snapshot = "set transaction isolation level read committed; " if self._name else ""
        sql = f"{snapshot}{wait}; {note_sql}; set local idle_in_transaction_session_timeout = 0"
        with _transaction(self._con) as cursor:
            requested = time.monotonic()
            try:
                cursor.execute(f"CALL postgres_execute('{LOCK_ALIAS}', {literal(sql)})")
            except Exception as error:
                # The server's message depends on its language, so it is not parsed.
                holder = self.holder(cursor)
                if time.monotonic() - requested < timeout * 0.9:
                    raise  # the server or an administrator closed the connection
                holder = holder or "a holder that has just released it"
                raise _locked("the catalog's advisory lock", purpose, timeout, holder) from error
            started = time.monotonic()
            yield lambda: _run(cursor, f"CALL postgres_execute('{LOCK_ALIAS}', 'select 1')")
            _warn_of_long_hold(purpose, started, self._name)

    def holder(self, cursor: duckdb.DuckDBPyConnection) -> str | None:
        """Return the holder of the lock, or None if it is free."""
        high, low = (self.key >> 32) & 0xFFFFFFFF, self.key & 0xFFFFFFFF
        sql = (
            "select a.application_name || ', backend ' || a.pid || coalesce(' from ' || a.client_addr::text, '')"
            " || ' since ' || date_trunc('second', a.xact_start)::text"
            " from pg_locks l join pg_stat_activity a using (pid)"
            f" where l.locktype = 'advisory' and l.granted and l.classid = {high} and l.objid = {low}"
            " and l.database = (select oid from pg_database where datname = current_database())"
        )
        with contextlib.suppress(Exception):  # The name of the holder is only for a message; the lock works without it.
            cursor.execute("ROLLBACK")
        row = cursor.execute(self._dialect.query(sql, alias=LOCK_ALIAS)).fetchone()
        return str(row[0]) if row else None


class MySQLQueue:
    """A named lock of the server on its own connection; with a `name` it is a separate lock from the writers' one."""

    def __init__(self, con: duckdb.DuckDBPyConnection, dialect: "Dialect[Any]", *, name: str = "") -> None:
        self._con = con
        self._dialect = dialect
        self._name = name
        # The server shares named locks between all its databases, and each database is a lake. The server itself
        # inserts the database's name, since the configuration may only know the name of a secret. A lock name has at
        # most 64 characters.
        lake = f"concat(database(), {literal(f':{name}')})" if name else "database()"
        self._key = f"concat('ducklake-orch:', sha1({lake}))"

    @contextlib.contextmanager
    def hold(self, purpose: str, timeout: float) -> Iterator[Check]:
        """Wait for the named lock; the server grants it in the order of requests."""
        # GET_LOCK returns 0 when it fails, which would pass unnoticed, so the subquery turns 0 into an error. The
        # statement is SET, because DO turns errors into warnings and would let two writers in.
        take = f"set @ducklake_orch = if(get_lock({self._key}, {timeout}) = 1, 1, (select 1 union select 2))"
        with _transaction(self._con) as cursor:
            try:
                cursor.execute(f"CALL mysql_execute('{LOCK_ALIAS}', {literal(take)})")
            except Exception as error:
                if "more than 1 row" not in str(error):
                    raise
                raise _locked("the catalog's named lock", purpose, timeout, self.holder(cursor) or "unknown") from error
            started = time.monotonic()
            mine = f"set @ducklake_orch = if(is_used_lock({self._key}) = connection_id(), 1, (select 1 union select 2))"
            release = literal(f"do release_lock({self._key})")
            try:
                yield lambda: _run(cursor, f"CALL mysql_execute('{LOCK_ALIAS}', {literal(mine)})")
            finally:
                try:
                    cursor.execute(f"CALL mysql_execute('{LOCK_ALIAS}', {release})")
                except duckdb.Error as error:  # the connection has ended, which released the lock
                    log.debug("releasing the queue's lock: %s", type(error).__name__)
                _warn_of_long_hold(purpose, started, self._name)

    def holder(self, cursor: duckdb.DuckDBPyConnection) -> str | None:
        """Return the holder of the lock, or None if it is free."""
        with contextlib.suppress(Exception):  # only words for a message
            cursor.execute("ROLLBACK")
        sql = (
            "select concat('connection ', p.id, ' of ', p.user, '@', p.host) as holder"
            f" from information_schema.processlist p where p.id = is_used_lock({self._key})"
        )
        row = cursor.execute(self._dialect.query(sql, alias=LOCK_ALIAS)).fetchone()
        return str(row[0]) if row else None


def _run(cursor: duckdb.DuckDBPyConnection, check: str) -> None:
    try:
        cursor.execute(check)
    except duckdb.Error:
        failure = CatalogUnreachableError(
            "The connection that held the catalog's lock has ended, which released the lock."
        )
    else:
        return
    raise failure


@contextlib.contextmanager
def _transaction(con: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Run a block in a transaction on its own connection; the end of the transaction always releases the lock."""
    with contextlib.closing(con.cursor()) as cursor:
        cursor.execute("BEGIN")
        try:
            yield cursor
        finally:
            try:
                cursor.execute("COMMIT")
            except Exception as error:  # the server closed the connection, which released the lock
                log.debug("the queue's connection ended early: %s", type(error).__name__)
                close(cursor)


def _locked(what: str, purpose: str, timeout: float, holder: str, *, mine: bool = False) -> LakeLockedError:
    if mine:
        return LakeLockedError(
            f"{purpose} waits for {what}, which the same thread holds: {holder}.",
            remedy="Leave the outer `with lake.connect()` first, or use its connection.",
        )
    return LakeLockedError(
        f"{purpose} waited {timeout:g} s for {what}, held by {holder}.",
        remedy="Wait for the holder, or raise `lock_timeout`.",
    )


def _warn_of_long_hold(purpose: str, started: float, name: str) -> None:
    held = time.monotonic() - started
    if held > _LONG_HOLD_S and not name:  # writers wait only for the unnamed lock
        log.warning("%s kept other writers waiting for %.1f s", purpose, held)
