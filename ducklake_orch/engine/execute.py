"""Run a user's SQL commands and report each of them in a structured result: `execute`."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.drafted_sql import (
    OpenDraft,
    commit_sql,
    drafted_transaction,
    is_drafted,
    refuse_in_draft,
    refuse_prepared_maintenance,
    transactions_of,
)
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, end_users_commit, requires_message, roll_back
from ducklake_orch.engine.execute_request import Request
from ducklake_orch.engine.introspection import NO_SUMMARY, summary
from ducklake_orch.engine.missing_snapshots import with_retained
from ducklake_orch.engine.retention_floors import refuse_below_floor
from ducklake_orch.engine.scratch import scratch
from ducklake_orch.engine.scripts import Command, redact, run_expanded, secrets_in, split
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.engine.snapshots import current_snapshot, last_committed
from ducklake_orch.engine.timelimit import TimeLimit
from ducklake_orch.errors import (
    ConfigError,
    DuckLakeOrchError,
    SnapshotNotFoundError,
    StatementError,
    TransientError,
    UnknownOutcomeError,
)
from ducklake_orch.results import CommandResult, CommitInfo, ExecuteResult

log = logging.getLogger("ducklake_orch")


def execute(
    config: LakeConfig,
    commands: str | Sequence[str],
    request: Request,
    access: Access,
    open_draft: OpenDraft,
    after_commit: Callable[[Session], None],
) -> ExecuteResult:
    """Run commands; raise only if the lake cannot be opened or the request is invalid."""
    started = time.monotonic()
    if not isinstance(commands, str | Sequence):
        kind = type(commands).__name__
        raise ConfigError(f"A value of type {kind} is not a command.", remedy="Give SQL text, or a list of it.")
    scripts = [commands] if isinstance(commands, str) else list(commands)
    with open_session(config, access) as session, TimeLimit(session, request.timeout) as limit:
        todo = _parse(session, scripts)
        run = _Run(session, request, limit, open_draft, after_commit, [command.sql for command in todo])
        results = run.atomically(todo) if request.atomic else run.one_by_one(todo)
        results = [_with_retained(session, result) for result in results]
        lake, committed = _summary(session)
    return ExecuteResult(
        status="error" if any(result.status == "error" for result in results) else "ok",
        command_count=len(results),
        executed=sum(result.status != "skipped" for result in results),
        duration_s=time.monotonic() - started,
        commands=[_settled(result, max(committed or 0, run.published)) for result in results],
        lake={"name": config.name, "catalog": config.catalog.to_url()} | lake,
    )


def only_reads(commands: str | Sequence[str]) -> bool:
    """Whether no command writes, as far as they can be parsed."""
    try:
        scripts = [commands] if isinstance(commands, str) else list(commands)
        with scratch() as con:
            return all(command.kind == "query" for script in scripts for command in split(con, script))
    except (duckdb.Error, DuckLakeOrchError, TypeError):
        return False  # `execute` reports what is wrong with them


def _parse(session: Session, scripts: Sequence[str]) -> list[Command]:
    """Split all scripts before anything runs; a script that cannot be parsed becomes one failed command."""
    todo: list[Command] = []
    for script in scripts:
        try:
            todo += split(session.con.unwrap(), script)
        except (duckdb.Error, DuckLakeOrchError) as error:
            failure = classify(error, session.config, "The command cannot be parsed")
            secrets_in(script).clean(failure)  # the parser's error quotes the line
            todo.append(Command(script, "utility", error=failure))
    if not todo:
        raise ConfigError("There is no command to execute.", remedy="Give at least one SQL statement.")
    return todo


def _summary(session: Session) -> tuple[dict[str, Any], int | None]:
    """Count the lake's snapshots and tables.

    The commands have run already, so their results must be returned even if the server no longer answers.
    """
    try:
        return (NO_SUMMARY, None) if session.broken else summary(session)
    except duckdb.Error as error:
        session.broken = True
        log.warning("lake `%s` no longer answers: %s", session.config.name, session.config.scrubber(str(error)))
        return NO_SUMMARY, None


def _with_retained(session: Session, result: CommandResult) -> CommandResult:
    """Name the existing snapshots in the error of a command that names another one."""
    if session.broken or not isinstance(result.error, SnapshotNotFoundError):
        return result
    doing = f"Command {result.index} failed"
    return replace(result, error=with_retained(result.error, session.con.unwrap(), session.config, doing))


def _settled(result: CommandResult, committed: int) -> CommandResult:
    """Fill in the snapshot of the last write, for which no separate query was run."""
    if result.status != "ok" or result.snapshot_before is None or result.snapshot_after is not None:
        return result
    return replace(result, snapshot_after=max(committed, result.snapshot_before))


class _Run:
    """One call of `execute`."""

    def __init__(
        self,
        session: Session,
        request: Request,
        limit: TimeLimit,
        open_draft: OpenDraft,
        after_commit: Callable[[Session], None],
        texts: Sequence[str],
    ) -> None:
        self._session = session
        self._request = request
        self._limit = limit
        self._open_draft = open_draft
        self._after_commit = after_commit
        # Of all commands: a prepared statement names its tables in another command.
        self._texts = texts
        self._scrub = session.config.scrubber
        # The transaction that the commands began themselves, while it is open.
        self._open: Write | None = None
        self._begun_at = 0
        # Where the commands begin transactions that run in drafts; the draft of the open one, and what commits it.
        self._drafted: set[int] = set()
        self._draft = ExitStack()
        self._publish: Callable[[], None] | None = None
        # The snapshot of the last transaction of the commands that was committed from a draft.
        self.published = 0

    def one_by_one(self, todo: Sequence[Command]) -> list[CommandResult]:
        """Run each command in its own transaction, or in the transactions that the commands begin themselves."""
        own_transactions = any(command.transaction for command in todo)
        queued = own_transactions and self._session.access.writable
        lock = self._session.queue(f"a transaction of {len(todo)} commands") if queued else nullcontext()
        try:
            for index, commands in transactions_of(todo):
                if is_drafted(self._session, commands):
                    refuse_in_draft(self._session.config, commands)
                    self._drafted.add(index)
            with lock, self._draft:
                results = self._each(todo)
                if own_transactions:
                    self._end_open_transaction(results, todo)
                return results
        except DuckLakeOrchError as error:  # the wait for the writers' lock timed out, or a transaction is refused
            return [self._failed(0, todo[0], error), *(self._skipped(i, c) for i, c in enumerate(todo) if i)]

    def _each(self, todo: Sequence[Command]) -> list[CommandResult]:
        results: list[CommandResult] = []
        stopped = undone = False
        for index, command in enumerate(todo):
            if stopped or undone:
                results.append(self._skipped(index, command))
                # After an error inside a transaction, the commands up to the transaction's end belong to it and are
                # skipped.
                undone = undone and command.transaction in (None, "begin")
                continue
            inside, begun = self._open is not None, command.transaction == "begin"
            results.append(self._report(index, command, last=index == len(todo) - 1))
            if begun and results[-1].status == "ok":
                self._begun_at = index
            if results[-1].status == "error":
                undone = inside and self._undo(results, todo)
                stopped = self._request.on_error == "stop" or self._limit.struck
        return results

    def _undo(self, results: list[CommandResult], todo: Sequence[Command]) -> bool:
        """Roll back the commands' own transaction after an error in it, and report its earlier commands as skipped."""
        ended = self._open is None  # its COMMIT failed, which ended it
        if not ended:
            roll_back(self._session)
            self._open = None
        self._draft.close()
        self._publish = None
        for index in range(self._begun_at, len(results) - 1):
            results[index] = self._skipped(index, todo[index])
        return not ended

    def _end_open_transaction(self, results: list[CommandResult], todo: Sequence[Command]) -> None:
        """Roll back a transaction that the commands left open, and report that as the last command's error."""
        if self._open is None:
            return
        message = "The commands left their transaction open, so it was rolled back."
        error = ConfigError(message, remedy="End them with COMMIT.")
        results[-1] = replace(self._done(len(results) - 1, todo[-1]), status="error", error=error)
        self._undo(results, todo)

    def _report(self, index: int, command: Command, *, last: bool) -> CommandResult:
        started = time.monotonic()
        self._session.dirty = self._session.dirty or command.reaches_outside
        info = self._request.commit or CommitInfo()
        write = self._open or Write(f"command {index} of `execute`", info, marked=not command.sets_message)
        failure: Exception | None = command.error
        result: CommandResult | None = None
        if failure is None:
            try:
                result = self._dispatch(index, command, write, last=last)
                self._session.changed = self._session.changed or command.reaches_outside
            except (duckdb.Error, DuckLakeOrchError) as error:
                failure = error
        if result is None or failure is not None:
            result = self._failed(index, command, failure or StatementError("no result"))
        duration = time.monotonic() - started
        return replace(result, duration_s=duration, snapshot_before=write.before, snapshot_after=write.after)

    def _dispatch(self, index: int, command: Command, write: Write, *, last: bool) -> CommandResult:
        session = self._session

        def run(_: Session) -> CommandResult:
            return self._run(index, command)

        if command.kind == "maintenance":
            return self._maintain(index, command, write)
        if command.transaction:
            return self._transaction(index, command, write)
        if self._open is not None:
            self._open.marked = self._open.marked and not command.sets_message
            return run(session)
        if command.writes and session.access.writable:
            result = commit_sql(session, write, run, [command], self._open_draft, texts=self._texts, settle=not last)
            self._after_commit(session)
            return result
        return run(session) if command.own_transaction else self._read(run, write)

    def _maintain(self, index: int, command: Command, write: Write) -> CommandResult:
        session = self._session
        refuse_prepared_maintenance(session.config, command)
        queued = session.access.writable and self._open is None
        with session.queue(write.purpose) if queued else nullcontext():
            if not self._request.force:
                refuse_below_floor(session.con.unwrap(), session.config.alias, command)
            if self._open is not None:
                return self._run(index, command)
            write.before = current_snapshot(session)
            result = self._run(index, command)
            write.after = last_committed(session, write.before)
        return result

    def _transaction(self, index: int, command: Command, write: Write) -> CommandResult:
        """Run a user's own BEGIN, COMMIT or ROLLBACK; the transaction carries a write id, like ducklake-orch's own."""
        session = self._session
        if command.transaction == "begin":
            if index in self._drafted:
                opening = self._open_draft(session, write, self._texts)
                self._publish = self._draft.enter_context(drafted_transaction(opening))
            result = self._run(index, command)
            self._open = write
            write.before = current_snapshot(session)
            if self._publish is not None:
                return result
            if session.access.writable and (write.info.message or not requires_message(session)):
                session.con.execute(write.set_message(session.config.alias))
            else:
                write.marked = False  # the commands must set a message themselves; the engine checks that
            return result
        self._open = None
        if self._publish is not None:
            publish, self._publish = self._publish, None
            with self._draft:
                result = self._run(index, command)
                if command.transaction == "commit":
                    publish()
                    self.published = write.after or 0
            return result
        if command.transaction == "rollback":
            return self._run(index, command)
        failure: DuckLakeOrchError | None = None
        try:
            result = self._run(index, command)
        except DuckLakeOrchError as error:
            failure = error
        if failure is None:
            write.after = last_committed(session, write.before)
        else:
            write.after = end_users_commit(session, write, failure)
            result = self._done(index, command)
        self._after_commit(session)
        return result

    def _read(self, run: Callable[[Session], CommandResult], write: Write) -> CommandResult:
        con = self._session.con
        con.execute("BEGIN")
        try:
            write.before = write.after = current_snapshot(self._session)
            result = run(self._session)
            con.execute("COMMIT")
        except BaseException:
            roll_back(self._session)
            raise
        return result

    def atomically(self, todo: Sequence[Command]) -> list[CommandResult]:
        """Run all commands in one transaction, which becomes one snapshot or has no effect."""
        if any(command.transaction or command.kind == "maintenance" for command in todo):
            raise ConfigError(
                "`atomic=True` opens the transaction itself, and maintenance needs its own.",
                remedy="Leave out BEGIN, COMMIT, ROLLBACK and maintenance calls, or `atomic`.",
            )
        marked = not any(command.sets_message for command in todo)
        write = Write(f"{len(todo)} commands of `execute`", self._request.commit or CommitInfo(), marked=marked)
        self._session.dirty = any(command.reaches_outside for command in todo)
        done: list[CommandResult] = []

        def work(_: Session) -> None:
            done.clear()
            for index, command in enumerate(todo):
                started = time.monotonic()
                result = self._run(index, command)
                done.append(replace(result, duration_s=time.monotonic() - started))

        failure: Exception | None = next((command.error for command in todo if command.error), None)
        failed = next((i for i, command in enumerate(todo) if command.error), 0)
        if failure is None:
            try:
                commit_sql(self._session, write, work, todo, self._open_draft, settle=False)
                self._after_commit(self._session)
                return [replace(result, snapshot_before=write.before, snapshot_after=write.after) for result in done]
            except (duckdb.Error, DuckLakeOrchError) as error:
                failure, failed = error, min(len(done), len(todo) - 1)
        # The rollback also undid the commands before the failed one.
        return [
            self._failed(i, command, failure) if i == failed else self._skipped(i, command)
            for i, command in enumerate(todo)
        ]

    def _run(self, index: int, command: Command) -> CommandResult:
        if self._limit.struck:
            raise self._limit.error()
        con = self._session.con
        self._execute(index, command)
        description = con.description or []
        names = _unique([str(column[0]) for column in description])
        columns = [{"name": n, "type": str(column[1])} for n, column in zip(names, description, strict=True)]
        try:
            limit = self._request.max_rows
            rows = [] if not description else con.fetchall() if limit is None else con.fetchmany(limit + 1)
        except duckdb.Error:
            raise
        except Exception as error:  # DuckDB's client passes on Python's error for a value it cannot represent
            reason = self._scrub(f"{type(error).__name__}: {error}")
            raise StatementError(f"Command {index}: a value of the result has no Python form ({reason}).") from None
        affected = None
        if command.kind in ("dml", "ddl") and names == ["Count"] and len(rows) <= 1:
            # A DDL statement returns an empty count, CREATE TABLE AS its number of rows.
            affected, rows, columns = (int(rows[0][0]) if rows else None), [], []
        shown = rows if limit is None else rows[:limit]
        return replace(
            self._done(index, command),
            columns=columns,
            rows=[dict(zip(names, row, strict=True)) for row in shown] if columns else [],
            row_count=len(shown),
            affected_rows=affected,
            truncated=len(rows) > len(shown),
        )

    def _execute(self, index: int, command: Command) -> None:
        parameters = [self._parameters(command)] if command.parameter_names else []
        try:
            if command.expanded:
                run_expanded(self._session.con.unwrap(), command.sql)
            else:
                self._session.con.run(command.sql, *parameters)
            return
        except duckdb.Error as error:
            failure = classify(error, self._session.config, f"Command {index} failed")
        raise failure  # raised outside the handler: the engine's error may show a secret

    def _parameters(self, command: Command) -> Any:
        params = self._request.params
        if isinstance(params, Mapping):
            return {name: value for name, value in params.items() if name in command.parameter_names}
        return None if params is None else list(params)

    def _done(self, index: int, command: Command) -> CommandResult:
        sql = redact(command.sql, self._scrub)
        return CommandResult(index=index, sql=sql, kind=command.kind, status="ok")

    def _failed(self, index: int, command: Command, error: Exception) -> CommandResult:
        failure = classify(error, self._session.config, f"Command {index} failed")
        secrets_in(command.sql).clean(failure)
        # A lost COMMIT and a wait for another writer keep their own error, even if the time limit was exceeded.
        if self._limit.struck and not isinstance(failure, TransientError | UnknownOutcomeError):
            failure = self._limit.error()
        return replace(self._done(index, command), status="error", error=failure)

    def _skipped(self, index: int, command: Command) -> CommandResult:
        return replace(self._done(index, command), status="skipped")


def _unique(names: list[str]) -> list[str]:
    """Number repeated column names, so that a row's dictionary keeps every value."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return result
