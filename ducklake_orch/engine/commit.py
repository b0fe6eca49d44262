"""Run statements of the extension as one transaction, exactly once: queued, marked, and looked up when in doubt."""

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
from ducklake_orch.engine.attach import Pin
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.failures import MESSAGE_REMEDY, classify
from ducklake_orch.engine.fault_points import fault_point
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
# After these a COMMIT has certainly not happened: the catalog itself said no. Anything else may be a lost answer.
_CERTAIN = (CommitConflictError, CommitMessageRequiredError, CatalogBusyError, ReadOnlyError, UnsupportedStatementError)


@dataclass
class Write:
    """One transaction of this package, known by its write id however often it is tried.

    Attributes:
        purpose: What is being written, for messages and the queue.
        info: Author, message and extra of the snapshot.
        marked: Whether the snapshot carries the write id; not where the statements set the message themselves.
        repeatable: Whether doing it twice is the same as doing it once, so that it needs no mark.
        before: Latest snapshot when the transaction began.
        after: Latest snapshot after it.
        doubt: The error of a COMMIT that may have happened all the same.
        committing: Whether a COMMIT was sent and has not failed for certain: what it commits must not be taken away.
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
        """Return the statement that marks the running transaction."""
        author, message, extra = (literal(one) for one in (self.info.author, self.info.message, self.extra))
        # Literals, not parameters: at its first parameter DuckDB imports pandas, which takes a second.
        # Not as `alias.set_commit_message`: that is nothing where a schema has the alias for a name, too.
        return f"CALL ducklake_set_commit_message({literal(alias)}, {author}, {message}, extra_info => {extra})"


class Transaction(Protocol):
    """How a write reaches the catalog: through the extension, or through the metadata tables themselves."""

    def begin(self, write: Write) -> None:
        """Open it and note in `write` which snapshot it sees."""
        ...

    def mark(self, write: Write) -> None:
        """Make its snapshot carry the write id."""
        ...

    def commit(self) -> None:
        """Commit it."""
        ...

    def roll_back(self) -> None:
        """End it, whatever state it is in."""
        ...


class LakeTransaction:
    """A transaction of the extension: what statements in the lake change becomes one snapshot."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def begin(self, write: Write) -> None:
        """Open it and note in `write` which snapshot it sees."""
        self.session.con.execute("BEGIN")
        write.before = current_snapshot(self.session)
        if write.marked and not write.info.message:
            refuse_without_message(write.purpose, write.info, required=requires_message(self.session))

    def mark(self, write: Write) -> None:
        """Make its snapshot carry the write id."""
        if write.marked:
            self.session.con.execute(write.set_message(self.session.config.alias))

    def commit(self) -> None:
        """Commit it."""
        self.session.con.execute("COMMIT")

    def roll_back(self) -> None:
        """End it, whatever state it is in."""
        roll_back(self.session)


def commit(session: Session, write: Write, work: Callable[[Session], T], *, settle: bool = True) -> T:
    """Run statements of the extension in a transaction of their own; `work` is called again on every attempt."""
    return commit_through(LakeTransaction, session, write, lambda one: work(one.session), settle=settle)


def commit_through(
    opening: Callable[[Session], X], session: Session, write: Write, work: Callable[[X], T], *, settle: bool = True
) -> T:
    """Run `work` in a transaction of its own, trying again what fails for a passing reason.

    Args:
        opening: Gives the transaction of an attempt.
        session: The lake.
        write: Identity of the transaction; its snapshots are filled in.
        work: Runs the statements; called again on every attempt.
        settle: Look up which snapshot it became; a caller that asks the catalog anyway does that itself.

    Raises:
        UnknownOutcomeError: When the answer to COMMIT was lost and it cannot be found out whether it took.
    """
    last: list[T] = []

    def attempt(_: int) -> T:
        if session.broken or write.doubt:
            session.reopen()
        try:
            with session.queue(write.purpose) as still_held, _no_renumbering(session, when=write.doubt is not None):
                return _attempt(opening(session), session, write, work, last, still_held)
        except duckdb.Error as error:
            failure = classify(error, session.config, f"{write.purpose} failed")
        session.broken = True
        raise failure

    def worth(error: DuckLakeOrchError) -> int:
        # What earlier commands did to the connection (USE, SET, temporary tables) is gone when it is opened anew.
        return 1 if session.changed and session.broken else by_family(error)

    try:
        result = retrying(session.patience, write.purpose, attempt, attempts_for=worth)
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
    """Refuse to write to a lake that is opened to be read, now or in the past."""
    pin = Pin(config.read_only, config.snapshot, config.as_of)
    if not pin.writable:
        how = "only to be read" if pin.read_only else "in the past"
        remedy = "Open it without `read_only`, `snapshot`, `as_of`."
        raise ReadOnlyError(f"{purpose}: lake `{config.name}` is opened {how}.", remedy=remedy)


def refuse_managed(config: LakeConfig, purpose: str) -> None:
    """Refuse to write files for a lake whose files are MotherDuck's, before any work."""
    if config.storage is None:
        remedy = "Write with SQL in `lake.execute`, or give the lake a bucket: `mode` = `own_bucket` or `own_compute`."
        raise UnsupportedStatementError(
            f"{purpose}: lake `{config.name}` keeps its files at MotherDuck, where only MotherDuck writes.",
            remedy=remedy,
        )


def requires_message(session: Session) -> bool:
    """Whether the lake takes no commit without a message."""
    # Through the connection that is not in the lake: the transaction may be asked nothing before its own statements.
    row = session.instance.root.execute(dialect_of(session.config).query(message_option_sql(session.config))).fetchone()
    return row is not None and str(row[0]).lower() in ("true", "1")


def message_option_sql(config: LakeConfig) -> str:
    """Return the query for the option that asks for commit messages."""
    # `key` is a word of MySQL's, unless something stands before it.
    value = dialect_of(config).texts(["max(m.value)"])
    name = dialect_of(config).table("ducklake_metadata")
    return f"select {value} from {name} m where m.key = 'require_commit_message' and m.scope is null"


def refuse_without_message(purpose: str, info: CommitInfo, *, required: bool) -> None:
    """Refuse a write without a message where the lake asks for one: the engine would let our mark count as one.

    Raises:
        CommitMessageRequiredError: Before anything is written.
    """
    if required and not info.message:
        raise CommitMessageRequiredError(
            f"{purpose}: the lake takes no commit without a message.", remedy=MESSAGE_REMEDY
        )


@contextlib.contextmanager
def _no_renumbering(session: Session, *, when: bool) -> Iterator[None]:
    """Let a COMMIT fail rather than be re-numbered by the engine, while a lost attempt may still be on its way.

    Both attempts want the same snapshot id. If the lost one gets it after we looked, ours must fail and look again.
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
            if (found := find_write(session, write)) is not None:
                transaction.roll_back()
                log.warning("%s had been committed as snapshot %d; only the answer was lost", write.purpose, found)
                write.after = found
                return last[-1]
        transaction.mark(write)
        last[:] = [work(transaction)]
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
        write.doubt = None  # both would have had the same snapshot id
        return last[-1]
    transaction.roll_back()
    if committing:
        # On SQLite a failed COMMIT keeps its lock until DETACH.
        session.broken = True
        failure = _judge(write, failure)
        write.committing = write.doubt is not None
    raise failure  # outside the handler: the engine's error may show a password


def _judge(write: Write, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Decide what a failed COMMIT means: certainly not done, or only perhaps."""
    if isinstance(failure, _CERTAIN):
        return failure
    if write.doubt is not None and not write.doubt.retryable and write.doubt.message == failure.message:
        # The same words for the same work on a new connection: no answer was lost, this is the answer.
        write.doubt = None
        return failure
    if not (write.marked or write.repeatable):
        return unknown_outcome(write, failure)
    write.doubt = failure
    # Transient, whatever it was: the next attempt looks before it does anything.
    return CatalogUnreachableError(failure.message, remedy=failure.remedy)


def find_lost_commit(session: Session, write: Write, failure: DuckLakeOrchError) -> int:
    """Return the snapshot of a COMMIT whose answer was lost.

    Raises:
        UnknownOutcomeError: When no snapshot carries the mark, and a server may still be at it.
        DuckLakeOrchError: The failure, where no snapshot carries the mark and none can come any more.
    """
    found, certain = None, False
    try:
        session.reopen()
        found = find_write(session, write)
        certain = session.config.catalog.is_file
    except (duckdb.Error, DuckLakeOrchError) as error:
        log.debug("looking for a lost commit: %s", type(error).__name__)
    if found is not None:
        return found
    if not certain:
        raise unknown_outcome(write, failure)
    write.committing = False
    raise failure


def end_users_commit(session: Session, write: Write, failure: DuckLakeOrchError) -> int:
    """After a failed COMMIT of the user's own: return the snapshot it made all the same.

    Raises:
        DuckLakeOrchError: The failure, when it certainly made none; else that the outcome is unknown.
    """
    roll_back(session)
    session.broken = True
    judged = _judge(write, failure)
    if write.doubt is None:
        raise judged
    return find_lost_commit(session, write, failure)


def unknown_outcome(write: Write, failure: DuckLakeOrchError) -> UnknownOutcomeError:
    """Return the error for a COMMIT whose answer was lost and cannot be found out."""
    return UnknownOutcomeError(
        f"{write.purpose}: the answer to COMMIT was lost ({failure.message}).",
        remedy=f"Look at the snapshots after {write.before} before you run it again (write id {write.write_id}).",
    )


def roll_back(session: Session) -> None:
    """End the transaction, whatever state it is in."""
    # After Ctrl-C the statement's threads still work, and ROLLBACK would wait for them.
    session.con.interrupt()
    try:
        session.con.execute("ROLLBACK")
    except duckdb.Error as error:  # the engine has ended it already, or the server has gone
        log.debug("rollback: %s", type(error).__name__)


def find_write(session: Session, write: Write) -> int | None:
    """Return the snapshot that carries a write id, if it was committed; asks for the newest state there is."""
    table = dialect_of(session.config).table("ducklake_snapshot_changes")
    found = f"select max(snapshot_id) from {table} where commit_extra_info like {literal(f'%{write.write_id}%')}"
    # Through the connection that is not in the lake: the transaction may see an older state.
    row = session.instance.root.execute(dialect_of(session.config).query(found)).fetchone()
    return int(row[0]) if row and row[0] is not None else None


def run_in(session: Session, write: Write, statements: Sequence[str]) -> None:
    """Run statements as one snapshot."""

    def work(session: Session) -> None:
        for statement in statements:
            session.con.execute(statement)

    commit(session, write, work)
