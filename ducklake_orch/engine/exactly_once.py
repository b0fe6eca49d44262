"""Commit statements of the DuckLake extension as one transaction, exactly once: `commit` and `commit_through`.

A writer waits in the catalog's queue, marks its snapshot with a write id, and searches for that id if the answer to
COMMIT was lost.
"""

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import uuid4

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import MESSAGE_REMEDY, classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.phases import phase
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.retry import by_family, retrying
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.snapshots import current_snapshot, last_committed
from ducklake_orch.errors import (
    CatalogBusyError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitMessageRequiredError,
    DuckLakeOrchError,
    ReadOnlyError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from ducklake_orch.results import CommitInfo, to_json

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")
X = TypeVar("X", bound="Transaction")
# With these errors the catalog itself rejected the COMMIT, so it certainly did not happen. With any other error only
# the answer may have been lost.
_CERTAIN = (CommitConflictError, CommitMessageRequiredError, CatalogBusyError, ReadOnlyError, UnsupportedStatementError)


@dataclass
class Write:
    """One transaction of ducklake-orch; all its attempts have the same write id.

    Attributes:
        purpose: A description of the write, for messages and the queue.
        info: Author, message and extra of the snapshot.
        marked: Whether the snapshot carries the write id; false if the statements set the commit message themselves.
        repeatable: Whether running it twice has the same effect as running it once, so that it needs no write id.
        before: Latest snapshot when the transaction began.
        after: Latest snapshot after it.
        doubt: The error of a COMMIT that may have succeeded nevertheless.
        committing: Whether a COMMIT was sent and has not certainly failed; the files that it commits must then be kept.
        kept: The paths of its files that the committed snapshot refers to; None until it is committed.
    """

    purpose: str
    info: CommitInfo = field(default_factory=CommitInfo)
    marked: bool = True
    repeatable: bool = False
    before: int | None = None
    after: int | None = None
    doubt: DuckLakeOrchError | None = None
    committing: bool = False
    kept: frozenset[str] | None = None
    write_id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def in_doubt(self) -> bool:
        """Whether a snapshot may refer to files that `kept` does not name, so that none of its files may be deleted."""
        return self.committing and (self.kept is None or self.doubt is not None)

    @property
    def extra(self) -> str:
        """The `commit_extra_info` of the snapshot."""
        own = {"write_id": self.write_id, "host": socket.gethostname(), "process": os.getpid()}
        return json.dumps(to_json(self.info.extra) | {"ducklake_orch": own})

    def set_message(self, alias: str) -> str:
        """Return the statement that puts the write id and the commit message on the running transaction."""
        author, message, extra = (literal(text) for text in (self.info.author, self.info.message, self.extra))
        # Literals, not parameters: DuckDB imports pandas at its first parameter, which takes a second.
        # Not `alias.set_commit_message`: that name does not resolve if a schema is named like the alias.
        return f"CALL ducklake_set_commit_message({literal(alias)}, {author}, {message}, extra_info => {extra})"


class Transaction(Protocol):
    """One attempt of a write, either through the extension or directly on the metadata tables."""

    def prepare(self, write: Write) -> None:
        """Do what needs no transaction, while other writers do not have to wait yet."""
        ...

    def begin(self, write: Write) -> None:
        """Begin the transaction and record in `write` which snapshot it sees."""
        ...

    def mark(self, write: Write) -> None:
        """Put the write id on the snapshot of the transaction."""
        ...

    def finish(self) -> None:
        """Run all statements that wait, so that only COMMIT is left."""
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...

    def roll_back(self) -> None:
        """Roll the transaction back, whatever state it is in."""
        ...


class LakeTransaction:
    """A transaction of the extension: all changes that statements make to the lake become one snapshot."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def prepare(self, write: Write) -> None:
        """Refuse a write without a message if the lake requires one."""
        if write.marked and not write.info.message:
            refuse_without_message(write.purpose, write.info, required=requires_message(self.session))

    def begin(self, write: Write) -> None:
        """Begin the transaction and record in `write` which snapshot it sees."""
        self.session.con.execute("BEGIN")
        write.before = current_snapshot(self.session)

    def mark(self, write: Write) -> None:
        """Put the write id on the snapshot of the transaction."""
        if write.marked:
            self.session.con.execute(write.set_message(self.session.config.alias))

    def finish(self) -> None:
        """Do nothing: no statement waits."""

    def commit(self) -> None:
        """Commit the transaction."""
        self.session.con.execute("COMMIT")

    def roll_back(self) -> None:
        """Roll the transaction back, whatever state it is in."""
        roll_back(self.session)


def commit(session: Session, write: Write, work: Callable[[Session], T], *, settle: bool = True) -> T:
    """Run statements of the extension in their own transaction; every attempt calls `work` again."""

    def on_all_threads(transaction: LakeTransaction) -> T:
        with session.instance.all_threads():
            return work(transaction.session)

    with session.instance.one_thread():
        return commit_through(LakeTransaction, session, write, on_all_threads, settle=settle)


def commit_through(
    opening: Callable[[Session], X], session: Session, write: Write, work: Callable[[X], T], *, settle: bool = True
) -> T:
    """Run `work` in its own transaction and retry transient failures.

    Args:
        opening: Creates the transaction of an attempt.
        session: The lake.
        write: Identity of the transaction; its snapshots are filled in.
        work: Runs the statements; every attempt calls it again.
        settle: Whether to query which snapshot the transaction became; false if the caller queries the catalog anyway.

    Raises:
        UnknownOutcomeError: When the answer to COMMIT was lost and whether it succeeded cannot be determined.
    """
    last: list[T] = []

    def attempt(_: int) -> T:
        if session.broken or write.doubt:
            session.reopen()
        try:
            transaction = opening(session)
            transaction.prepare(write)
            with session.queue(write.purpose) as still_held, _no_renumbering(session, when=write.doubt is not None):
                with phase("commit"):
                    return _attempt(transaction, session, write, work, last, still_held)
        except duckdb.Error as error:
            failure = classify(error, session.config, f"{write.purpose} failed")
        session.broken = True
        raise failure

    def attempts_for(error: DuckLakeOrchError) -> int:
        # Reopening loses the state that earlier commands gave the connection (USE, SET, temporary tables), so a retry
        # would run in a different state.
        return 1 if session.changed and session.broken else by_family(error)

    try:
        result = retrying(session.patience, write.purpose, attempt, attempts_for=attempts_for)
    except DuckLakeOrchError as error:
        if write.doubt is None or write.repeatable:
            raise
        failure = error
    else:
        if settle and write.after is None:
            write.after = last_committed(session, write.before)
        return result
    if write.after is None:
        write.after = find_lost_commit(session, write, failure)
    return last[-1]


def refuse_read_only(config: LakeConfig, purpose: str) -> None:
    """Refuse a write to a lake that is opened read-only or at a past snapshot."""
    access = Access(config.read_only, config.snapshot, config.as_of)
    if not access.writable:
        how = "read-only" if access.read_only else "at a past snapshot"
        remedy = "Open it without `read_only`, `snapshot` and `as_of`."
        raise ReadOnlyError(f"{purpose}: lake `{config.name}` is open {how}.", remedy=remedy)


def refuse_managed(config: LakeConfig, purpose: str) -> None:
    """Refuse, before any work, to write files for a lake whose storage MotherDuck manages."""
    if config.storage is None:
        remedy = "Write with SQL in `lake.execute`, or give the lake a bucket: `mode` = `own_bucket` or `own_compute`."
        raise UnsupportedStatementError(
            f"{purpose}: only MotherDuck can write the files of lake `{config.name}`, which it manages.",
            remedy=remedy,
        )


def requires_message(session: Session) -> bool:
    """Whether the lake requires a message for every commit."""
    # On the connection outside the lake: the transaction must not run a query before its own statements.
    option = dialect_of(session.config).lake_option("require_commit_message")
    row = session.instance.root.execute(option).fetchone()
    return row is not None and str(row[0]).lower() in ("true", "1")


def refuse_without_message(purpose: str, info: CommitInfo, *, required: bool) -> None:
    """Refuse a write without a message if the lake requires one: the engine would accept our write id as a message.

    Raises:
        CommitMessageRequiredError: Before anything is written.
    """
    if required and not info.message:
        raise CommitMessageRequiredError(f"{purpose}: the lake requires a commit message.", remedy=MESSAGE_REMEDY)


@contextlib.contextmanager
def _no_renumbering(session: Session, *, when: bool) -> Iterator[None]:
    """Keep the engine from renumbering the snapshot of a COMMIT while a lost attempt may still reach the server.

    Both attempts request the same snapshot id. If the lost attempt gets it after our check, this COMMIT must fail, so
    that the next attempt checks again.
    """
    if not when:
        yield
        return
    root = session.instance.root
    row = root.execute("SELECT current_setting('ducklake_max_retry_count')").fetchone()
    root.execute("SET ducklake_max_retry_count = 1")
    try:
        yield
    finally:
        root.execute(f"SET ducklake_max_retry_count = {int(row[0]) if row else 10}")


def _attempt(
    transaction: X,
    session: Session,
    write: Write,
    work: Callable[[X], T],
    last: list[T],
    still_held: Callable[[], None],
) -> T:
    failure: DuckLakeOrchError | None = None
    committing = False
    try:
        transaction.begin(write)
        if write.doubt is not None and not write.repeatable:
            if (snapshot := find_write(session, write)) is not None:
                transaction.roll_back()
                log.warning("%s was committed as snapshot %d; only the answer was lost", write.purpose, snapshot)
                write.after = snapshot
                return last[-1]
        transaction.mark(write)
        last[:] = [work(transaction)]
        transaction.finish()
        still_held()
        committing = write.committing = True
        fault_point("commit.before")
        transaction.commit()
        fault_point("commit.after")
    except (duckdb.Error, DuckLakeOrchError) as error:
        failure = classify(error, session.config, f"{write.purpose} failed")
    except BaseException:
        transaction.roll_back()
        raise
    if failure is None:
        write.doubt = None  # both attempts request the same snapshot id, so only this one committed
        return last[-1]
    transaction.roll_back()
    if committing:
        # SQLite keeps the lock of a failed COMMIT until DETACH.
        session.broken = True
        failure = _judge(write, failure)
        write.committing = write.doubt is not None
    raise failure  # raised outside the handler: the engine's error may show a password


def _judge(write: Write, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Classify a failed COMMIT: it certainly did not happen, or it may have happened."""
    if isinstance(failure, _CERTAIN):
        return failure
    if write.doubt is not None and not write.doubt.retryable and write.doubt.message == failure.message:
        # A second attempt on a new connection failed with the same permanent error, so no answer was lost: this is the
        # answer.
        write.doubt = None
        return failure
    if not (write.marked or write.repeatable):
        return unknown_outcome(write, failure)
    write.doubt = failure
    # A transient error, whatever the cause: the next attempt first searches for the write id.
    return CatalogUnreachableError(failure.message, remedy=failure.remedy)


def find_lost_commit(session: Session, write: Write, failure: DuckLakeOrchError) -> int:
    """Return the snapshot of a COMMIT whose answer was lost.

    Raises:
        UnknownOutcomeError: When no snapshot carries the write id but a server may still be committing it.
        DuckLakeOrchError: The failure, when no snapshot carries the write id and none can appear any more.
    """
    snapshot, certain = None, False
    try:
        session.reopen()
        snapshot = find_write(session, write)
        certain = session.config.catalog.is_file
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.debug("searching for a lost commit: %s", type(error).__name__)
    if snapshot is not None:
        return snapshot
    if not certain:
        raise unknown_outcome(write, failure)
    write.committing = False
    raise failure


def end_users_commit(session: Session, write: Write, failure: DuckLakeOrchError) -> int:
    """Return the snapshot that a user's own failed COMMIT created nevertheless.

    Raises:
        DuckLakeOrchError: The failure, if the COMMIT certainly did not happen; else that the outcome is unknown.
    """
    roll_back(session)
    session.broken = True
    outcome = _judge(write, failure)
    if write.doubt is None:
        raise outcome
    return find_lost_commit(session, write, failure)


def unknown_outcome(write: Write, failure: DuckLakeOrchError) -> UnknownOutcomeError:
    """Return the error for a COMMIT whose answer was lost and whose outcome cannot be determined."""
    return UnknownOutcomeError(
        f"{write.purpose}: the answer to COMMIT was lost ({failure.message}).",
        remedy=f"Check the snapshots after {write.before} before you run it again (write id {write.write_id}).",
    )


def roll_back(session: Session) -> None:
    """Roll the transaction back, whatever state it is in."""
    # After Ctrl-C the statement's threads keep running, and ROLLBACK would wait for them.
    session.con.interrupt()
    try:
        session.con.execute("ROLLBACK")
    except duckdb.Error as error:  # the engine has already ended it, or the server has closed the connection
        log.debug("rollback: %s", type(error).__name__)


def find_write(session: Session, write: Write) -> int | None:
    """Return the snapshot that carries a write id if it was committed, according to the newest state of the catalog."""
    table = dialect_of(session.config).table("ducklake_snapshot_changes")
    query = f"select max(snapshot_id) from {table} where commit_extra_info like {literal(f'%{write.write_id}%')}"
    # On the connection outside the lake: the transaction may see an older state.
    row = session.instance.root.execute(dialect_of(session.config).query(query)).fetchone()
    return int(row[0]) if row and row[0] is not None else None


def run_in(session: Session, write: Write, statements: Sequence[str]) -> None:
    """Run statements as one snapshot."""

    def work(session: Session) -> None:
        for statement in statements:
            session.con.execute(statement)

    commit(session, write, work)
