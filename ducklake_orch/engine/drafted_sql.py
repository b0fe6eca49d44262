"""Commit a user's SQL on catalogs that the DuckLake extension cannot change: `commit_sql`, `drafted_transaction`.

There, the extension runs the statements in a draft, a private copy of the tables that they name. What they did to each
table is then committed to the lake natively, as the verbs do. So statements mean the same on every catalog.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import takewhile
from typing import Protocol, TypeVar

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, commit
from ducklake_orch.engine.retry import by_family, retrying
from ducklake_orch.engine.scripts import Command
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import DuckLakeOrchError, UnsupportedStatementError

T = TypeVar("T")


class UnpublishableError(UnsupportedStatementError):
    """Statements did something in a draft that cannot be committed from there.

    Attributes:
        fits_extension: Whether the extension can do it in the catalog itself.
    """

    fits_extension = False

    def is_left_to_extension(self, commands: Sequence[Command]) -> bool:
        """Whether the commands of the transaction can run in the catalog itself instead."""
        return self.fits_extension and (len(commands) == 1 or not any(each.changes_tables for each in commands))


class SqlDraft(Protocol):
    """A transaction whose statements run in a draft."""

    def attached(self) -> AbstractContextManager[None]:
        """Attach the draft in place of the lake for a block, so that the session's statements run in it."""
        ...

    def publish(self) -> None:
        """Commit what the statements committed to the draft to the lake, as one snapshot."""
        ...


# Opens a draft with the tables that some texts name; with all tables if there are no texts.
OpenDraft = Callable[[Session, Write, Sequence[str] | None], AbstractContextManager[SqlDraft]]


def is_drafted(session: Session, commands: Iterable[Command]) -> bool:
    """Whether the commands of a transaction run in a draft."""
    drafts = dialect_of(session.config).drafts_sql and session.access.writable
    return drafts and any(command.changes_tables for command in commands)


def transactions_of(commands: Sequence[Command]) -> Iterator[tuple[int, list[Command]]]:
    """Yield where each transaction of a script begins, and its commands."""
    for index, command in enumerate(commands):
        if command.transaction == "begin":
            rest = commands[index + 1 :]
            yield index, list(takewhile(lambda one: one.transaction not in ("commit", "rollback"), rest))


def refuse_in_draft(config: LakeConfig, commands: Sequence[Command]) -> None:
    """Refuse commands whose effect or result in a draft is not that in the lake.

    Raises:
        UnsupportedStatementError: Before any of them runs.
    """
    for command in commands:
        if command.reads_history:  # a draft has one snapshot
            raise UnsupportedStatementError(
                f"On a {config.catalog.type} catalog, a transaction that changes tables reads no earlier snapshots.",
                remedy="Read them before, with `CREATE TEMP TABLE past AS FROM t AT (VERSION => 3)`.",
            )
        if command.lists_objects:  # a draft has only the tables that the statements name
            raise UnsupportedStatementError(
                f"On a {config.catalog.type} catalog, a transaction that changes tables lists no tables or columns.",
                remedy="List them before, with `CREATE TEMP TABLE listed AS FROM information_schema.tables`.",
            )
        if command.sets_message:
            raise UnsupportedStatementError(
                f"On a {config.catalog.type} catalog, a script cannot set the commit message.",
                remedy="Pass it as `commit=CommitInfo(author=…, message=…)`.",
            )
        if command.lake_calls or command.kind == "maintenance":
            call = " or ".join(f"`{name}`" for name in sorted(command.lake_calls or {"CHECKPOINT"}))
            raise UnsupportedStatementError(
                f"On a {config.catalog.type} catalog, a transaction that changes tables cannot call {call}.",
                remedy="Call it as a command of its own, outside of the transaction.",
            )


def refuse_prepared_maintenance(config: LakeConfig, command: Command) -> None:
    """Refuse to prepare maintenance: what EXECUTE runs is unknown, and maintenance of a draft would delete files."""
    if dialect_of(config).drafts_sql and command.sql.upper().startswith("PREPARE"):
        raise UnsupportedStatementError(
            f"On a {config.catalog.type} catalog, maintenance cannot be prepared.", remedy="Call it directly."
        )


def commit_sql(
    session: Session,
    write: Write,
    work: Callable[[Session], T],
    commands: Sequence[Command],
    open_draft: OpenDraft,
    *,
    texts: Sequence[str] | None = None,
    settle: bool = True,
) -> T:
    """Run `work` in its own transaction, exactly once: as `commit` does, or in a draft.

    Args:
        session: The lake.
        write: Identity of the transaction.
        work: Runs the commands; every attempt calls it again.
        commands: What it runs.
        open_draft: Opens a draft.
        texts: All texts that can name the tables that the commands use; by default those of the commands.
        settle: As for `commit`.
    """
    if not is_drafted(session, commands):
        return commit(session, write, work, settle=settle)
    refuse_in_draft(session.config, commands)
    named = [command.sql for command in commands] if texts is None else texts

    def attempt(_: int) -> T:
        if session.broken:
            session.reopen()
        with session.queue(write.purpose):
            return _in_draft(session, write, work, open_draft(session, write, named))

    def attempts_for(error: DuckLakeOrchError) -> int:
        return 1 if session.changed and session.broken else by_family(error)  # as in `commit_through`

    try:
        return retrying(session.patience, write.purpose, attempt, attempts_for=attempts_for)
    except UnpublishableError as error:
        if not error.is_left_to_extension(commands):
            raise
    return commit(session, write, work, settle=settle)


def _in_draft(
    session: Session, write: Write, work: Callable[[Session], T], opening: AbstractContextManager[SqlDraft]
) -> T:
    try:
        with opening as draft:
            with draft.attached():
                session.con.execute("BEGIN")
                result = work(session)
                session.con.execute("COMMIT")
            draft.publish()
        return result
    except duckdb.Error as error:
        failure = classify(error, session.config, f"{write.purpose} failed")
    raise failure  # raised outside the handler: the engine's error may show a password


@contextmanager
def drafted_transaction(opening: AbstractContextManager[SqlDraft]) -> Iterator[Callable[[], None]]:
    """Run a transaction that the commands begin and end themselves in a draft, for a block.

    Yields the function that commits to the lake what the statements committed to the draft. The session is then in the
    lake again.

    Args:
        opening: Opens the draft of a session that holds the lock of the writers' queue.
    """
    with opening as draft, ExitStack() as attached:
        attached.enter_context(draft.attached())

        def publish() -> None:
            attached.close()
            draft.publish()

        yield publish
