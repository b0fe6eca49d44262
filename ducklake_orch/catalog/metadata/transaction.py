"""Run a transaction on the metadata tables, through the metadata database that the extension has attached.

Every statement that writes passes through `_run`, so that a test can kill the process between any two statements. Where
the catalog allows it, statements wait until a query needs their effect, and are sent together: each message to a server
takes about a millisecond.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import duckdb

from ducklake_orch.catalog.metadata.damaged_cells import naming_damage
from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.catalog.metadata.staged_rows import Relation
from ducklake_orch.catalog.metadata.table_model import SnapshotRow
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, commit_through
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.engine.session import Session

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")
# The most ids in one statement: MySQL accepts packets of up to 16 MiB.
_IDS_IN_ONE_STATEMENT = 10_000
# The length of statements that wait, in characters, at which they are sent.
_MOST_TOGETHER = 1_000_000
# Stands for the time of the transaction in `insert_row`.
NOW = object()


class MetadataTransaction:
    """A transaction on the metadata tables.

    Attributes:
        session: The lake; it need not be entered.
        config: The lake's configuration.
        metadata: The metadata tables as this transaction sees them.
        latest: The latest snapshot when the transaction began.
        dialect: The catalog's dialect.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.config = session.config
        self._con = session.instance.root.cursor()
        self.metadata: Metadata = _OwnMetadata(self)
        self.latest = SnapshotRow(0, 0, 0, 0)
        self.dialect = self.metadata.dialect
        self._statements = 0
        self._waiting: list[str] = []
        self._waiting_size = 0
        self._dropped: list[str] = []

    @property
    def now(self) -> datetime:
        """The time of the transaction, by the catalog's clock if it has one: those of hosts may be wrong."""
        return datetime.fromtimestamp(self.latest.read_at / 1e6, UTC)

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection, after it has run the statements that wait.

        It has never entered the lake. Entering opens a transaction of the extension, and on SQLite the two transactions
        would block each other.
        """
        if self._waiting:
            statement = self.dialect.together(self._waiting)
            self._waiting, self._waiting_size = [], 0
            self._run(statement)
        return self._con

    # --- beginning and end ---------------------------------------------------------------------------------------

    def prepare(self, write: Write) -> None:
        """Do nothing."""

    def begin(self, write: Write) -> None:
        """Begin the transaction, and read the latest snapshot."""
        self.con.execute("BEGIN")
        for statement in self.dialect.first_statements():
            self.con.execute(statement).fetchall()
        self.latest = self.metadata.latest()
        write.before = self.latest.snapshot_id

    def mark(self, write: Write) -> None:
        """Do nothing: the caller inserts the mark together with the snapshot."""

    def finish(self) -> None:
        """Run the statements that wait, so that only COMMIT is left."""
        _ = self.con

    def commit(self) -> None:
        """Commit the transaction and close its connection."""
        self.con.execute("COMMIT")
        self.con.close()

    def roll_back(self) -> None:
        """Roll the transaction back, whatever state it is in, and close its connection."""
        self._waiting = []
        try:
            self._con.execute("ROLLBACK")
        except duckdb.Error as error:  # the engine has already ended the transaction, or the server is unreachable
            log.debug("rollback failed: %s", type(error).__name__)
        self._con.close()

    # --- statements ----------------------------------------------------------------------------------------------

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query in the catalog's own SQL, which is fast."""
        return self.con.execute(self.dialect.query(sql)).fetchall()

    def insert(
        self,
        table: str,
        rows: Relation,
        *,
        constants: Mapping[str, Any] | None = None,
        shifts: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        """Insert any number of rows in one statement.

        Args:
            table: The metadata table.
            rows: The rows; their columns are inserted unchanged, except those that `shifts` uses.
            constants: Columns that are the same in every row; `NOW` is the time of the transaction.
            shifts: Columns that are computed as a column of `rows` plus an offset, by name. They are for ids and row
                ids, which only the transaction knows.
        """
        if not rows:
            return
        constants, shifts = constants or {}, shifts or {}
        shifted = {source for source, _ in shifts.values()}
        columns = {name: identifier(name) for name in rows.columns if name not in shifted}
        columns |= {name: self._constant(value) for name, value in constants.items()}
        columns |= {name: f"{identifier(source)} + {offset}" for name, (source, offset) in shifts.items()}
        names = ", ".join(map(identifier, columns))
        if self.dialect.sends_together and rows.arrow is None:
            of_row = [_shifted(dict(zip(rows.columns, row, strict=True)), constants, shifts) for row in rows.rows]
            self._insert_values(table, of_row)
            return
        with rows.source(self.con) as source:
            select = f"SELECT {', '.join(columns.values())} FROM {source}"
            self._run(f"INSERT INTO {self.metadata.table_sql(table)} ({names}) {select}")

    def insert_row(self, table: str, values: Mapping[str, Any]) -> None:
        """Insert one row; `NOW` is the time of the transaction."""
        if self.dialect.sends_together:
            self._insert_values(table, [values])
            return
        names = ", ".join(map(identifier, values))
        texts = ", ".join(map(self._constant, values.values()))
        self._run(f"INSERT INTO {self.metadata.table_sql(table)} ({names}) VALUES ({texts})")

    def _insert_values(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows with the same columns in the catalog's own SQL."""
        now = self.now.isoformat()
        texts = (", ".join(self._native(now if cell is NOW else cell) for cell in row.values()) for row in rows)
        values = ", ".join(f"({text})" for text in texts)
        self.change(table, f"INSERT INTO {{}} ({', '.join(map(identifier, rows[0]))}) VALUES {values}")

    def _constant(self, value: Any) -> str:
        return f"TIMESTAMPTZ {literal(self.now.isoformat())}" if value is NOW else literal(value)

    def _native(self, value: Any) -> str:
        """Return a value as a literal of the catalog's own SQL."""
        return self.dialect.typed_text(value) if isinstance(value, str) else literal(value)

    def create(self, table: str, columns: Mapping[str, str]) -> bool:
        """Create a metadata table with columns of DuckDB types; return whether it exists now.

        MySQL refuses some column names and column counts that DuckDB allows, and changes some names.
        """
        parts = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
        create = f"CREATE TABLE {self.metadata.table_sql(table)} ({parts})"
        if not self.dialect.create_commits:
            self._run(create)
            return True
        # A second transaction creates the table, because CREATE TABLE would commit this one. The table is dropped first
        # because a failed attempt may have left it in the catalog with other columns.
        with closing(self.con.cursor()) as own:
            self._run_alone(own, [*self.dialect.first_statements(), self.dialect.drop(table)])
            self.dialect.refresh_tables(own)
            try:
                self._run(create, con=own)
                self.dialect.refresh_tables(own)
                description = own.execute(f"SELECT * FROM {self.metadata.table_sql(table)} LIMIT 0").description
            except duckdb.Error as error:
                if classify(error, self.config, f"creating {table}").retryable:
                    raise
                log.info("%s cannot be created: %s", table, type(error).__name__)
                return False
            if [column[0] for column in description] == list(columns):
                return True
            own.execute(self.dialect.drop(table))
            return False

    def change(self, table: str, statement: str) -> None:
        """Run an UPDATE or DELETE in SQL that every catalog accepts; `{}` stands for the table."""
        if self.dialect.sends_together:
            self._waiting.append(statement.replace("{}", self.dialect.table(table), 1))
            self._waiting_size += len(statement)
            if self._waiting_size > _MOST_TOGETHER:
                self.finish()
        else:
            self._run(self.dialect.change(table, statement))

    def drop(self, table: str) -> None:
        """Drop a metadata table, if it exists.

        On a server, DROP waits for all transactions that have read the table. It runs after the commit, when other
        writers need not wait for it.
        """
        if self.dialect.is_server:
            self._dropped.append(table)
        else:
            self._run(self.dialect.drop(table))

    def drop_unused(self) -> None:
        """Drop the metadata tables that waited for the commit; leave those that others are reading."""
        for table in self._dropped:
            try:
                with closing(self.session.instance.root.cursor()) as con:
                    self._run_alone(con, [self.dialect.waits(1), self.dialect.drop(table)])
            except duckdb.Error as error:  # the next expiry drops it
                log.warning("%s stays in the catalog: %s", table, self.config.scrubber(str(error)))

    def _run_alone(self, con: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> None:
        """Run statements in a transaction of their own, so that they run on one connection to a server."""
        con.execute("BEGIN")
        try:
            for statement in statements:
                self._run(statement, con=con)
            con.execute("COMMIT")
        except duckdb.Error:
            with suppress(duckdb.Error):  # the connection is lost
                con.execute("ROLLBACK")
            raise

    def change_each(self, table: str, statement: str, column: str, ids: Sequence[int]) -> None:
        """Run an UPDATE or DELETE for the rows whose `column` is one of many ids."""
        for start in range(0, len(ids), _IDS_IN_ONE_STATEMENT):
            id_list = ", ".join(map(str, ids[start : start + _IDS_IN_ONE_STATEMENT]))
            self.change(table, f"{statement} {column} IN ({id_list})")

    def _run(self, sql: str, *, con: duckdb.DuckDBPyConnection | None = None) -> None:
        self._statements += 1
        fault_point(f"statement.{self._statements}")
        (con or self.con).execute(sql).fetchall()  # a query that changes rows runs only while its result is fetched


def commit_metadata(session: Session, write: Write, work: Callable[[MetadataTransaction], T]) -> T:
    """Run `work` in a transaction on the metadata tables, and retry transient failures.

    On one thread: on SQLite, threads that scan several metadata tables of a transaction could crash the process, and
    elsewhere the threads of busy processes would only wait for each other.

    Args:
        session: The lake; it need not be entered.
        write: Identity of the transaction.
        work: Runs the statements; every attempt calls it again.
    """
    last: list[MetadataTransaction] = []

    def begin(session: Session) -> MetadataTransaction:
        last[:] = [MetadataTransaction(session)]
        return last[0]

    doing = write.purpose[:1].upper() + write.purpose[1:]
    damage = naming_damage(session.config, doing, lambda: closing(session.instance.root.cursor()))
    with session.instance.one_thread(), damage:
        result = commit_through(begin, session, write, work, settle=False)
        last[0].drop_unused()
    return result


class _OwnMetadata(Metadata):
    """The metadata tables as a transaction sees them."""

    def __init__(self, transaction: MetadataTransaction) -> None:
        self._transaction = transaction
        super().__init__(transaction._con, transaction.session.config)

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        return self._transaction.con


def _shifted(
    row: Mapping[str, Any], constants: Mapping[str, Any], shifts: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    """Return a row with its constants, and with columns computed from others in place of those."""
    sources = {source for source, _ in shifts.values()}
    values = {name: value for name, value in row.items() if name not in sources} | dict(constants)
    for name, (source, offset) in shifts.items():
        values[name] = None if row[source] is None else row[source] + offset
    return values
