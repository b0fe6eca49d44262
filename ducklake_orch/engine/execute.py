"""Run a user's SQL commands one by one and report each of them in a structured result."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import nearest
from ducklake_orch.engine.attach import Pin
from ducklake_orch.engine.commit import Write, commit, current_snapshot, roll_back
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.floors import refuse_below_floor
from ducklake_orch.engine.introspection import summary
from ducklake_orch.engine.scripts import Command, redact, split
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.errors import ConfigError, DuckLakeOrchError, StatementTimeoutError, TransientError
from ducklake_orch.results import CommandResult, CommitInfo, ExecuteResult

log = logging.getLogger("ducklake_orch")
Parameters = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True)
class Request:
    """What the caller of `lake.execute` asked for."""

    atomic: bool = False
    on_error: Literal["stop", "continue"] = "stop"
    max_rows: int = 1000
    params: Parameters = None
    timeout: float | None = None
    force: bool = False
    commit: CommitInfo | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "continue"):
            raise ConfigError(
                f"`on_error` = {self.on_error!r} is unknown.", remedy=nearest(self.on_error, ["stop", "continue"])
            )
        if self.max_rows < 0:
            raise ConfigError(f"`max_rows` = {self.max_rows} is negative.")


def execute(config: LakeConfig, commands: str | Sequence[str], request: Request, pin: Pin) -> ExecuteResult:
    """Run commands; raises only when the lake cannot be opened or the request makes no sense."""
    started = time.monotonic()
    scripts = [commands] if isinstance(commands, str) else list(commands)
    with open_session(config, pin) as session, _time_limit(session, request.timeout) as limit:
        todo = _parse(session, scripts)
        run = _Run(session, request, limit)
        results = run.atomically(todo) if request.atomic else run.one_by_one(todo)
        failed = any(result.status == "error" for result in results)
        lake, committed = ({}, None) if session.broken else summary(session)
        results = [_settled(result, committed) for result in results]
    return ExecuteResult(
        status="error" if failed else "ok",
        command_count=len(results),
        executed=sum(result.status != "skipped" for result in results),
        duration_s=time.monotonic() - started,
        commands=results,
        lake={"name": config.name, "catalog": config.catalog.to_url()} | lake,
    )


def _settled(result: CommandResult, committed: int | None) -> CommandResult:
    """Fill in the snapshot of the last write, which was not worth a query of its own."""
    if result.status != "ok" or result.snapshot_before is None or result.snapshot_after is not None:
        return result
    return replace(result, snapshot_after=max(committed or 0, result.snapshot_before))


def _parse(session: Session, scripts: Sequence[str]) -> list[Command | tuple[str, DuckLakeOrchError]]:
    """Split everything before anything runs; what cannot be parsed becomes a failed command in its place."""
    todo: list[Command | tuple[str, DuckLakeOrchError]] = []
    for script in scripts:
        try:
            todo += split(session.con.unwrap(), script)
        except duckdb.Error as error:
            todo.append((script, classify(error, session.config, "The command cannot be parsed")))
    if not todo:
        raise ConfigError("There is no command to execute.", remedy="Give at least one SQL statement.")
    return todo


class _Limit:
    """Whether the time limit has struck."""

    def __init__(self) -> None:
        self.struck = False


class _time_limit:
    """Interrupts a session's running statement after some seconds."""

    def __init__(self, session: Session, seconds: float | None) -> None:
        self._limit = _Limit()
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._strike) if seconds is not None else None
        self._session = session

    def _strike(self) -> None:
        self._limit.struck = True
        self._session.con.interrupt()

    def __enter__(self) -> _Limit:
        if self._timer:
            self._timer.daemon = True
            self._timer.start()
        return self._limit

    def __exit__(self, *exc: object) -> None:
        if self._timer:
            self._timer.cancel()


class _Run:
    """One call of `execute`."""

    def __init__(self, session: Session, request: Request, limit: _Limit) -> None:
        self._session = session
        self._request = request
        self._limit = limit
        self._params_used = False

    def one_by_one(self, todo: Sequence[Command | tuple[str, DuckLakeOrchError]]) -> list[CommandResult]:
        """Run each command in its own transaction, or in those that the commands open themselves."""
        if any(isinstance(one, Command) and one.transaction for one in todo):
            with self._session.queue(f"a transaction of {len(todo)} commands"):
                results = self._each(todo)
                self._end_open_transaction(results)
                return results
        return self._each(todo)

    def _each(self, todo: Sequence[Command | tuple[str, DuckLakeOrchError]]) -> list[CommandResult]:
        results: list[CommandResult] = []
        stopped, in_transaction = False, False
        for index, one in enumerate(todo):
            if stopped:
                results.append(self._skipped(index, one))
                continue
            result = self._one(index, one, in_transaction, last=index == len(todo) - 1)
            if isinstance(one, Command) and one.transaction and result.status == "ok":
                in_transaction = one.transaction == "begin"
            results.append(result)
            stopped = result.status == "error" and (self._request.on_error == "stop" or self._limit.struck)
        return results

    def _end_open_transaction(self, results: list[CommandResult]) -> None:
        """Roll back what the commands left open, and say so: nothing of it is kept."""
        try:
            self._session.con.execute("ROLLBACK")
        except duckdb.Error:
            return  # no transaction is open: the commands ended theirs
        if all(result.status == "ok" for result in results):
            error = ConfigError(
                "The commands leave their transaction open: nothing of it was kept.", remedy="End them with COMMIT."
            )
            results[-1] = replace(results[-1], status="error", error=error)

    def _one(
        self, index: int, one: Command | tuple[str, DuckLakeOrchError], in_transaction: bool, *, last: bool
    ) -> CommandResult:
        if not isinstance(one, Command):
            return self._failed(index, one[0], one[1])
        started = time.monotonic()
        session, config = self._session, self._session.config
        session.dirty = session.dirty or one.reaches_outside
        purpose = f"command {index} of `execute`"
        write = Write(purpose, self._request.commit or CommitInfo(), marked=not one.sets_message)
        failure: BaseException | None = None
        try:
            if in_transaction or one.transaction:
                result = self._run(index, one)
            elif one.kind == "maintenance":
                with session.queue(purpose):
                    if not self._request.force:
                        refuse_below_floor(session.con.unwrap(), config.alias, one)
                    write.before = current_snapshot(session)
                    result = self._run(index, one)
                    write.after = current_snapshot(session)
            elif one.writes and session.pin.writable:
                result = commit(session, write, lambda _: self._run(index, one), settle=not last)
            elif one.own_transaction:
                result = self._run(index, one)
            else:
                result = self._read(index, one, write)
        except (duckdb.Error, DuckLakeOrchError) as error:
            failure = error
        duration = time.monotonic() - started
        if failure is None:
            return replace(result, duration_s=duration, snapshot_before=write.before, snapshot_after=write.after)
        return replace(self._failed(index, one.sql, failure, one), duration_s=duration, snapshot_before=write.before)

    def _read(self, index: int, command: Command, write: Write) -> CommandResult:
        con = self._session.con
        con.execute("BEGIN")
        try:
            write.before = write.after = current_snapshot(self._session)
            result = self._run(index, command)
            con.execute("COMMIT")
        except BaseException:
            roll_back(self._session)
            raise
        return result

    def atomically(self, todo: Sequence[Command | tuple[str, DuckLakeOrchError]]) -> list[CommandResult]:
        """Run all commands in one transaction: one snapshot, or nothing."""
        broken = [one for one in todo if not isinstance(one, Command)]
        commands = [one for one in todo if isinstance(one, Command)]
        if any(one.transaction or one.kind == "maintenance" for one in commands):
            raise ConfigError(
                "`atomic=True` opens the transaction itself, and maintenance needs its own.",
                remedy="Leave out BEGIN, COMMIT, ROLLBACK and maintenance calls, or `atomic`.",
            )
        if broken:
            return [
                self._failed(i, one[0], one[1]) if not isinstance(one, Command) else self._skipped(i, one)
                for i, one in enumerate(todo)
            ]
        marked = not any(one.sets_message for one in commands)
        write = Write(f"{len(commands)} commands of `execute`", self._request.commit or CommitInfo(), marked=marked)
        self._session.dirty = any(one.reaches_outside for one in commands)
        done: list[CommandResult] = []
        failure: BaseException | None = None

        def work(_: Session) -> None:
            done.clear()
            self._params_used = False
            for index, command in enumerate(commands):
                started = time.monotonic()
                result = self._run(index, command)
                done.append(replace(result, duration_s=time.monotonic() - started))

        try:
            commit(self._session, write, work, settle=False)
        except (duckdb.Error, DuckLakeOrchError) as error:
            failure = error
        if failure is None:
            return [replace(one, snapshot_before=write.before, snapshot_after=write.after) for one in done]
        failed = min(len(done), len(commands) - 1)
        # What ran before the failure was rolled back with it.
        undone = [self._skipped(i, commands[i]) for i in range(failed)]
        rest = [self._skipped(i, commands[i]) for i in range(failed + 1, len(commands))]
        return [*undone, self._failed(failed, commands[failed].sql, failure, commands[failed]), *rest]

    def _run(self, index: int, command: Command) -> CommandResult:
        if self._limit.struck:
            raise StatementTimeoutError(self._timeout_message(), remedy="Give a longer `timeout`, or less to do.")
        con = self._session.con
        con.execute(command.sql, self._parameters(command)) if command.takes_parameters else con.execute(command.sql)
        description = con.description or []
        names = _unique([str(column[0]) for column in description])
        columns = [{"name": n, "type": str(column[1])} for n, column in zip(names, description, strict=True)]
        rows = con.fetchmany(self._request.max_rows + 1) if description else []
        affected = None
        if command.kind in ("ddl", "dml") and names == ["Count"] and len(rows) == 1:
            affected, rows, columns = int(rows[0][0]), [], []
        truncated = len(rows) > self._request.max_rows
        shown = rows[: self._request.max_rows]
        return CommandResult(
            index=index,
            sql=redact(command.sql, self._session.config.scrubber),
            kind=command.kind,
            status="ok",
            columns=columns,
            rows=[dict(zip(names, row, strict=True)) for row in shown] if columns else [],
            row_count=len(shown),
            affected_rows=affected,
            truncated=truncated,
        )

    def _parameters(self, command: Command) -> Any:
        params = self._request.params
        if params is None:
            return None
        if isinstance(params, Mapping):
            wanted = command.parameter_names
            return {name: value for name, value in params.items() if name in wanted}
        return list(params)

    def _timeout_message(self) -> str:
        return f"The commands were interrupted after their time limit of {self._request.timeout:g} s."

    def _failed(self, index: int, sql: str, error: BaseException, command: Command | None = None) -> CommandResult:
        config = self._session.config
        ours = classify(error, config, f"Command {index} failed")
        if self._limit.struck and not isinstance(ours, TransientError):
            ours = StatementTimeoutError(self._timeout_message(), remedy="Give a longer `timeout`, or less to do.")
        kind = command.kind if command else "utility"
        return CommandResult(index=index, sql=redact(sql, config.scrubber), kind=kind, status="error", error=ours)

    def _skipped(self, index: int, one: Command | tuple[str, DuckLakeOrchError]) -> CommandResult:
        sql, kind = (one.sql, one.kind) if isinstance(one, Command) else (one[0], "utility")
        return CommandResult(index=index, sql=redact(sql, self._session.config.scrubber), kind=kind, status="skipped")


def _unique(names: list[str]) -> list[str]:
    """Number repeated column names, so that no value is lost in a row's dictionary."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return result
