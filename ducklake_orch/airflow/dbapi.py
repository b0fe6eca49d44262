"""A DB-API connection to a lake, for Airflow's own SQL operators, checks and sensors.

A cursor of DuckDB is a separate connection: it does not keep `USE` and does not see the open transaction. The cursors
here share one connection. Their writes wait for the catalog's lock and carry a write id, like all writes of
ducklake-orch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import duckdb

from ducklake_orch.catalog.metadata import make_structs_readable
from ducklake_orch.catalog.transactions import draft_sql
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.drafted_sql import (
    UnpublishableError,
    commit_sql,
    drafted_transaction,
    refuse_in_draft,
    refuse_prepared_maintenance,
)
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, commit, end_users_commit, requires_message, roll_back
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.engine.retention_floors import refuse_below_floor
from ducklake_orch.engine.scripts import Command, run_expanded, secrets_in, split
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.engine.snapshots import current_snapshot
from ducklake_orch.errors import DuckLakeOrchError, ObjectNotFoundError, UnsupportedStatementError
from ducklake_orch.results import CommitInfo

if TYPE_CHECKING:
    import pyarrow as pa

Parameters = Sequence[Any] | Mapping[str, Any] | None


class HookConnection:
    """A connection to a lake.

    Without `autocommit`, the first statement begins a transaction. A transaction that has only read is restarted at its
    first write: the write waits for the lock first, and must see what was committed during the wait.

    Args:
        config: The configuration of the lake.
        info: Author, message and extra of the snapshots.
        schema: The schema of table names without a schema; `main` by default.
        opened: What is closed after the connection.
    """

    def __init__(
        self, config: LakeConfig, info: CommitInfo, schema: str | None = None, opened: ExitStack | None = None
    ) -> None:
        self.autocommit = False
        self._config = config
        self._info = info
        self._schema = schema
        # The connection that is in the schema. A session opens another one after a failure.
        self._in_schema: LakeConnection | None = None
        with opened or ExitStack() as stack:
            self._session: Session = stack.enter_context(open_session(config))
            self._stack = stack.pop_all()
        # The open transaction: `_write` if it writes, `_reads` if it only reads.
        self._write: Write | None = None
        self._reads = False
        self._lock = ExitStack()
        # Where the transaction runs in a draft: what commits it, and its statements with their parameters.
        self._publish: Callable[[], None] | None = None
        self._done: list[tuple[Command, Parameters]] = []
        # Prepared statements, temporary views and macros: a later statement uses the tables that these name.
        self._definitions: list[str] = []

    @property
    def locks_the_catalog(self) -> bool:
        """Whether nobody else can open the catalog while this connection is open."""
        return dialect_of(self._config).attached_by_one_process

    def cursor(self) -> "HookCursor":
        """Return a cursor. All cursors share this connection and its transaction."""
        return HookCursor(self)

    def commit(self) -> None:
        """Commit the open transaction, if any. If the answer is lost, the catalog tells whether it was committed."""
        write, reads, publish = self._write, self._reads, self._publish
        self._write, self._reads, self._publish = None, False, None
        if write is None and not reads:
            return
        failure: DuckLakeOrchError | None = None
        with self._lock.pop_all():
            if write is not None and publish is not None:
                self._commit_draft(write, publish)
                return
            try:
                self._session.con.execute("COMMIT")
            except duckdb.Error as error:
                failure = classify(error, self._config, "The transaction was not committed")
            if failure is not None and write is not None:
                end_users_commit(self._session, write, failure)
                failure = None
            if failure is None and write is not None:
                make_structs_readable(self._session)
        if failure is not None:
            raise failure

    def _commit_draft(self, write: Write, publish: Callable[[], None]) -> None:
        """Commit a transaction that ran in a draft; what cannot be committed from there runs again in the catalog."""
        done = self._done
        try:
            self._session.con.run("COMMIT")
            publish()
            return
        except UnpublishableError as error:
            if not error.is_left_to_extension([command for command, _ in done if command.writes]):
                raise

        def run_again(_: Session) -> None:
            for command, parameters in done:
                self._run(command, parameters).kept()

        commit(self._session, Write(write.purpose, write.info), run_again)

    def rollback(self) -> None:
        """Roll back the open transaction, if any."""
        with self._lock.pop_all():
            if self._write is not None or self._reads:
                roll_back(self._session)
            self._write, self._reads, self._publish = None, False, None

    def close(self) -> None:
        """Roll back the open transaction, and release the session."""
        with self._stack.pop_all():
            self.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, sql: str, parameters: Parameters) -> "Rows":
        """Run a statement or a script, and return the rows of the last statement."""
        failure: DuckLakeOrchError | None = None
        rows = Rows(self._session, [], [])
        try:
            for command in split(self._session.con.unwrap(), sql):
                rows = self._dispatch(command, _parameters_of(command, parameters))
        except (duckdb.Error, DuckLakeOrchError) as error:
            failure = classify(error, self._config, "The statement failed")
            secrets_in(sql).clean(failure)
        if failure is not None:
            raise failure  # outside the handler: the engine's error may show a secret
        return rows

    def _dispatch(self, command: Command, parameters: Parameters) -> "Rows":
        session = self._session
        session.dirty = session.dirty or command.reaches_outside
        if command.sql.upper().startswith(("PREPARE", "CREATE")):
            self._definitions.append(command.sql)
        if command.kind == "maintenance":
            return self._maintain(command, parameters)
        if command.transaction == "begin":
            self._begin(writing=session.access.writable, marked=True)
        elif command.transaction == "commit":
            self.commit()
        elif command.transaction == "rollback":
            self.rollback()
        else:
            return self._run_in_transaction(command, parameters)
        return Rows(session, [], [])

    def _run_in_transaction(self, command: Command, parameters: Parameters) -> "Rows":
        """Run a statement in the open transaction, else in a new one or, with `autocommit`, on its own."""
        session, writing = self._session, command.writes and self._session.access.writable
        is_open = self._write is not None or self._reads
        if self.autocommit and not is_open:
            if not writing:
                return self._run(command, parameters)
            write = Write("a statement", self._info, marked=not command.sets_message)
            # COMMIT discards the result, so it is fetched before.
            texts, run = [*self._definitions, command.sql], partial(self._run, command, parameters)
            rows = commit_sql(session, write, lambda _: run().kept(), [command], draft_sql, texts=texts)
            make_structs_readable(session)
            return rows
        if writing and self._write is None:
            self.rollback()
            self._begin(writing=True, marked=not command.sets_message, drafts=not command.lake_calls)
        elif not is_open:
            self._begin(writing=False, marked=False)
        if self._write is not None:
            self._write.marked = self._write.marked and not command.sets_message
        if self._publish is not None:
            refuse_in_draft(self._config, [command])
            self._done.append((command, parameters))
        return self._run(command, parameters)

    def _begin(self, *, writing: bool, marked: bool, drafts: bool = True) -> None:
        session = self._session
        if not writing:
            session.con.execute("BEGIN")
            self._reads = True
            return
        write = Write("a transaction", self._info, marked=marked)
        self._lock.enter_context(session.queue(write.purpose))
        if drafts and dialect_of(self._config).drafts_sql:
            self._publish = self._lock.enter_context(drafted_transaction(draft_sql(session, write, None)))
            self._done = []
        session.con.execute("BEGIN")
        self._write = write
        if self._publish is not None:
            return
        write.before = current_snapshot(session)
        write.marked = marked and (bool(write.info.message) or not requires_message(session))
        if write.marked:  # else the engine checks that the statements set the message that the lake requires
            session.con.execute(write.set_message(self._config.alias))

    def _maintain(self, command: Command, parameters: Parameters) -> "Rows":
        """Run a maintenance call under the lock, within the retention floors and outside a transaction."""
        if self._write is not None:
            raise UnsupportedStatementError(
                "Maintenance needs its own transaction, but a transaction is open.",
                remedy="Run it alone or with `autocommit=True`, or use DuckLakeMaintenanceOperator.",
            )
        refuse_prepared_maintenance(self._config, command)
        self.rollback()
        session = self._session
        with session.queue("a maintenance call"):
            refuse_below_floor(session.con.unwrap(), self._config.alias, command)
            return self._run(command, parameters).kept()

    def _run(self, command: Command, parameters: Parameters) -> "Rows":
        con = self._session.con
        self._enter_schema(con)
        if command.expanded:
            run_expanded(con.unwrap(), command.sql)
        elif parameters:
            con.run(command.sql, parameters)
        else:
            con.run(command.sql)
        description = con.description or []
        if command.kind == "query" or [column[0] for column in description] not in _NO_ROWS:
            return Rows(self._session, description)
        counted = con.fetchall()
        return Rows(self._session, [], [], affected=int(counted[0][0]) if counted else -1)

    def _enter_schema(self, con: LakeConnection) -> None:
        if self._schema is None or con is self._in_schema:
            return
        try:
            con.execute(f"USE {identifier(self._config.alias)}.{identifier(self._schema)}")
        except duckdb.CatalogException:
            raise ObjectNotFoundError(
                f"Lake `{self._config.name}` has no schema `{self._schema}`, which the hook names.",
                remedy="Create it with CREATE SCHEMA through a hook without `schema`.",
            ) from None
        self._in_schema = con
        self._session.dirty = True  # the next user of the instance starts in the default schema


# The columns of statements that return no rows: DuckDB reports how many rows they changed, or nothing.
_NO_ROWS = (["Count"], ["Success"])


def _parameters_of(command: Command, parameters: Parameters) -> Parameters:
    if not command.parameter_names or parameters is None:
        return None
    if isinstance(parameters, Mapping):
        return {name: value for name, value in parameters.items() if name in command.parameter_names}
    return list(parameters)


class Rows:
    """The rows of a statement, which are fetched already or still in the engine.

    Args:
        session: The session in which the statement ran.
        description: The columns.
        rows: The fetched rows; None if they are still in the engine.
        affected: The number of rows that the statement changed; -1 if it changes none.
    """

    def __init__(
        self, session: Session, description: Sequence[Any], rows: list[Any] | None = None, affected: int = -1
    ) -> None:
        self.description = description
        self.affected = affected
        self._session = session
        self._rows = rows

    def kept(self) -> "Rows":
        """Fetch all rows from the engine."""
        if self._rows is None:
            self._rows = self._session.con.fetchall() if self.description else []
        return self

    def frame(self, kind: str) -> Any:
        """Return all rows as a pandas or Polars frame."""
        self._refuse_without_columns()
        return self._session.con.pl() if kind == "polars" else self._session.con.df()

    def reader(self, size: int) -> "pa.RecordBatchReader":
        """Return the rows as a stream of batches of about `size` rows."""
        self._refuse_without_columns()
        return self._session.con.to_arrow_reader(size)

    def _refuse_without_columns(self) -> None:
        if not self.description:
            raise UnsupportedStatementError("The statement returns no rows, so there is no frame.", remedy="Use `run`.")

    def take(self, count: int | None) -> list[Any]:
        """Return the next `count` rows; None returns all remaining rows."""
        if self._rows is None:
            found = self._session.con.fetchall() if count is None else self._session.con.fetchmany(count)
            return list(found)
        end = len(self._rows) if count is None else count
        found, self._rows = self._rows[:end], self._rows[end:]
        return found


class HookCursor:
    """A cursor of a `HookConnection`.

    Args:
        connection: The connection, which all its cursors share.
    """

    arraysize = 1

    def __init__(self, connection: HookConnection) -> None:
        self.connection = connection
        # The number of rows that the last statement changed. That of a query is unknown until all rows are fetched.
        self.rowcount = -1
        self._rows: Rows | None = None

    @property
    def description(self) -> Sequence[Any] | None:
        """The columns of the last statement; None if it returns no rows."""
        return (self._rows.description or None) if self._rows is not None else None

    def execute(self, sql: str, parameters: Parameters = None) -> "HookCursor":
        """Run a statement or a script."""
        self._rows = self.connection.run(sql, parameters)
        self.rowcount = self._rows.affected
        return self

    def executemany(self, sql: str, rows: Sequence[Parameters]) -> "HookCursor":
        """Run a statement once for each row of parameters."""
        counts = [self.execute(sql, row).rowcount for row in rows]
        self.rowcount = sum(counts) if -1 not in counts else -1
        return self

    def fetchone(self) -> Any:
        """Return the next row; None after the last row."""
        found = self._next(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return the next rows."""
        return self._next(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        return self._next(None)

    def close(self) -> None:
        """Discard the rows. The connection stays open."""
        self._rows = None

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def _next(self, count: int | None) -> list[Any]:
        return self._rows.take(count) if self._rows is not None else []
