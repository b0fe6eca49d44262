"""Run statements of the extension as one transaction, exactly once: queued, marked, and looked up when in doubt."""

import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

import duckdb

from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.engine.retry import retrying
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import (
    CatalogUnreachableError,
    CommitConflictError,
    DuckLakeOrchError,
    StatementError,
    UnknownOutcomeError,
)
from ducklake_orch.results import CommitInfo

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")


@dataclass
class Write:
    """One transaction of this package, known by its write id however often it is tried.

    Attributes:
        purpose: What is being written, for messages and the queue.
        info: Author, message and extra of the snapshot.
        marked: Whether the snapshot carries the write id; not where the statements set the message themselves.
        before: Latest snapshot when the transaction began.
        after: Latest snapshot after it.
    """

    purpose: str
    info: CommitInfo
    marked: bool = True
    before: int | None = None
    after: int | None = None
    write_id: str = ""
    in_doubt: bool = False

    def __post_init__(self) -> None:
        self.write_id = uuid4().hex

    @property
    def extra(self) -> str:
        """The `commit_extra_info` of the snapshot."""
        own = {"write_id": self.write_id, "host": socket.gethostname(), "process": os.getpid()}
        return json.dumps(dict(self.info.extra) | {"ducklake_orch": own})

    def set_message(self, alias: str) -> str:
        """Return the statement that marks the running transaction."""
        author, message, extra = (literal(one) for one in (self.info.author, self.info.message, self.extra))
        # Literals, not parameters: at its first parameter DuckDB imports pandas, which takes a second.
        return f"CALL {identifier(alias)}.set_commit_message({author}, {message}, extra_info => {extra})"


def commit(session: Session, write: Write, work: Callable[[Session], T], *, settle: bool = True) -> T:
    """Run `work` in a transaction of its own, trying again what fails for a passing reason.

    Args:
        session: The lake.
        write: Identity of the transaction; its snapshots are filled in.
        work: Runs the statements; called again on every attempt.
        settle: Look up which snapshot it became; a caller that asks the catalog anyway does that itself.

    Raises:
        UnknownOutcomeError: When the answer to COMMIT was lost and the catalog cannot be asked.
    """
    last: list[T] = []

    def attempt(number: int) -> T:
        if session.broken or write.in_doubt:
            session.reopen()
        with session.queue(write.purpose):
            return _attempt(session, write, work, last)

    result = retrying(session.config.retry, write.purpose, attempt)
    if settle and write.after is None:
        write.after = last_committed(session, write.before)
    return result


def _attempt(session: Session, write: Write, work: Callable[[Session], T], last: list[T]) -> T:
    con, config = session.con, session.config
    failure: DuckLakeOrchError | None = None
    committing = False
    try:
        con.execute("BEGIN")
        write.before = current_snapshot(session)
        if write.in_doubt and (found := find_write(session, write)) is not None:
            con.execute("ROLLBACK")
            log.warning("%s had been committed as snapshot %d; only the answer was lost", write.purpose, found)
            write.after = found
            return last[-1]
        if write.marked:
            con.execute(write.set_message(config.alias))
        last[:] = [work(session)]
        committing = True
        fault_point("commit.before")
        con.execute("COMMIT")
        fault_point("commit.after")
    except (duckdb.Error, DuckLakeOrchError) as error:
        failure = classify(error, config, f"{write.purpose} failed")
    except BaseException:
        roll_back(session)
        raise
    if failure is None:
        return last[-1]
    roll_back(session)
    if committing:
        # On SQLite a failed COMMIT keeps its lock until DETACH.
        session.broken = True
        failure = _doubt(session, write, failure)
    raise failure  # outside the handler: the engine's error may show a password


def _doubt(session: Session, write: Write, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Decide what a failed COMMIT means: certainly not done, or only perhaps."""
    unclear = isinstance(failure, CatalogUnreachableError) or type(failure) is StatementError
    if session.config.catalog.is_file or not unclear:
        return failure
    if type(failure) is StatementError and (latest := _latest_snapshot(session)) is not None:
        # The server answers, in words we do not know (its language, say): if others committed, it was a conflict.
        moved = latest != write.before
        return CommitConflictError(failure.message, remedy=failure.remedy) if moved else failure
    if not write.marked:
        return UnknownOutcomeError(
            f"{write.purpose}: the connection broke during COMMIT ({failure.message}).",
            remedy=f"Look at the snapshots after {write.before} before you run it again.",
        )
    write.in_doubt = True
    return CatalogUnreachableError(failure.message, remedy=failure.remedy)


def _latest_snapshot(session: Session) -> int | None:
    """Return the latest snapshot, or None when the catalog does not answer."""
    try:
        return current_snapshot(session)
    except duckdb.Error as error:
        log.debug("asking for the latest snapshot: %s", type(error).__name__)
        return None


def roll_back(session: Session) -> None:
    """End the transaction, whatever state it is in."""
    # After Ctrl-C the statement's threads still work, and ROLLBACK would wait for them.
    session.con.interrupt()
    try:
        session.con.execute("ROLLBACK")
    except duckdb.Error as error:  # the engine has ended it already, or the server has gone
        log.debug("rollback: %s", type(error).__name__)


def find_write(session: Session, write: Write) -> int | None:
    """Return the snapshot that carries a write id, if it was committed."""
    config = session.config
    schema = identifier(config.metadata_schema) + "." if config.metadata_schema else ""
    sql = (
        f"SELECT max(snapshot_id) FROM {identifier(config.metadata_alias)}.{schema}ducklake_snapshot_changes"
        f" WHERE contains(commit_extra_info, {literal(write.write_id)})"
    )
    row = session.con.execute(sql).fetchone()
    return int(row[0]) if row and row[0] is not None else None


def current_snapshot(session: Session) -> int:
    """Return the snapshot that the running transaction sees."""
    row = session.con.execute(f"SELECT id FROM ducklake_current_snapshot({literal(session.config.alias)})").fetchone()
    return int(row[0]) if row else 0


def last_committed(session: Session, before: int | None) -> int | None:
    """Return the snapshot that this session committed last, or `before` if it committed none since."""
    sql = f"SELECT id FROM ducklake_last_committed_snapshot({literal(session.config.alias)})"
    # Through the connection that is not in the lake: inside it the engine would first look up the latest snapshot.
    row = session.instance.root.execute(sql).fetchone()
    if row is None or row[0] is None:
        return before
    return max(int(row[0]), before or 0)


def run_in(session: Session, write: Write, statements: Sequence[str]) -> Write:
    """Run statements as one snapshot."""

    def work(session: Session) -> None:
        for statement in statements:
            session.con.execute(statement)

    commit(session, write, work)
    return write
