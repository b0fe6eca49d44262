"""One transaction on the metadata tables, through the database that the extension has attached.

Every statement that writes passes `_run`, so that a test can kill the process between any two of them.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.model import SnapshotRow
from ducklake_orch.catalog.relation import Relation
from ducklake_orch.engine import server_sql
from ducklake_orch.engine.commit import Write
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.engine.session import Session

log = logging.getLogger("ducklake_orch")
# A list of ids in one statement; MySQL takes packets of 16 MiB.
_IDS_IN_ONE_STATEMENT = 10_000
# Stands for the time of the transaction in `insert_row`.
NOW = object()


class MetadataTransaction:
    """A transaction on the metadata tables.

    Attributes:
        con: The connection; never the one that is in the lake: entering it opens a transaction of the extension, and on
            SQLite the two would block each other.
        metadata: The metadata tables as this transaction sees them.
        latest: The latest snapshot when it began.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.config = session.config
        self.con = session.instance.root.cursor()
        self.metadata = Metadata(self.con, session.config)
        self.latest = SnapshotRow(0, 0, 0, 0)
        self._alias = session.config.metadata_alias
        self._kind = session.config.catalog.type
        self._statements = 0

    # --- beginning and end ---------------------------------------------------------------------------------------

    def begin(self, write: Write) -> None:
        """Open it, and see the newest state."""
        self.con.execute("BEGIN")
        if self._kind == "sqlite":
            # DuckDB begins with a read, which SQLite does not let grow into a write while others write: so write first.
            touch = "update ducklake_metadata set value = value where key = 'version' returning 1"
            self.con.execute(server_sql.query(self.config, touch)).fetchall()
        if self._kind == "postgres":
            # Somebody who changes inlined rows and does not end their transaction must not stop all writers for ever.
            limit = max(1, int(self.config.lock_timeout.total_seconds() * 1000))
            self.con.execute(self._server_sql(f"set local lock_timeout = {limit}"))
        self.latest = self.metadata.latest()
        write.before = self.latest.snapshot_id

    def mark(self, write: Write) -> None:
        """Do nothing here: whoever inserts the snapshot inserts the mark with it."""

    def commit(self) -> None:
        """Commit it."""
        self.con.execute("COMMIT")
        self.con.close()

    def roll_back(self) -> None:
        """End it, whatever state it is in."""
        try:
            self.con.execute("ROLLBACK")
        except duckdb.Error as error:  # the engine has ended it already, or the server has gone
            log.debug("rollback: %s", type(error).__name__)
        self.con.close()

    # --- statements ----------------------------------------------------------------------------------------------

    def epoch(self) -> int:
        """Return the time of the transaction, in seconds."""
        row = self.con.execute("SELECT epoch(now())").fetchone()
        return int(row[0]) if row else 0

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the catalog in its own SQL: fast, but blind on MySQL to what this transaction wrote."""
        return self.con.execute(server_sql.query(self.config, sql)).fetchall()

    def insert(
        self,
        table: str,
        rows: Relation,
        *,
        constants: Mapping[str, Any] | None = None,
        shifts: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        """Insert rows, however many, in one statement.

        Args:
            table: The metadata table.
            rows: What goes in as it is.
            constants: Columns that are the same in every row; `NOW` is the time of the transaction.
            shifts: Columns that are one of the rows' plus an offset: ids and row ids, which were not known before.
        """
        if not rows:
            return
        constants, shifts = constants or {}, shifts or {}
        shifted = {source for source, _ in shifts.values()}
        columns = {name: identifier(name) for name in rows.columns if name not in shifted}
        columns |= {name: _constant(value) for name, value in constants.items()}
        columns |= {name: f"{identifier(source)} + {offset}" for name, (source, offset) in shifts.items()}
        names = ", ".join(map(identifier, columns))
        with rows.source(self.con) as source:
            what = f"SELECT {', '.join(columns.values())} FROM {source}"
            self._run(f"INSERT INTO {self.metadata.table_sql(table)} ({names}) {what}")

    def insert_row(self, table: str, values: Mapping[str, Any]) -> None:
        """Insert one row; `NOW` is the time of the transaction."""
        names = ", ".join(map(identifier, values))
        texts = ", ".join(map(_constant, values.values()))
        self._run(f"INSERT INTO {self.metadata.table_sql(table)} ({names}) VALUES ({texts})")

    def create(self, table: str, columns: Mapping[str, str]) -> bool:
        """Make a metadata table, its columns in DuckDB's types; return whether there is one now.

        MySQL has its own idea of what a column may be called, and of how many there may be.
        """
        name = self.metadata.table_sql(table)
        parts = ", ".join(f"{identifier(column)} {kind}" for column, kind in columns.items())
        create = f"CREATE TABLE {name} ({parts})"
        if self._kind != "mysql":
            self._run(create)
            return True
        # CREATE TABLE commits the transaction that runs it, so another one does. An attempt that failed may have left
        # the table behind, with other columns, and DuckDB keeps the list of the server's tables.
        with closing(self.con.cursor()) as own:
            own.execute(f"CALL mysql_clear_cache(); DROP TABLE IF EXISTS {name}")
            try:
                self._run(create, con=own)
                own.execute("CALL mysql_clear_cache()")
                made = own.execute(f"SELECT * FROM {name} LIMIT 0").description
            except duckdb.Error as error:
                if classify(error, self.config, f"making {table}").retryable:
                    raise
                log.info("%s cannot be made: %s", table, type(error).__name__)
                return False
            if [one[0] for one in made] == list(columns):
                return True
            own.execute(f"DROP TABLE {name}")
            return False

    def change(self, table: str, statement: str) -> None:
        """Run an UPDATE or DELETE in the catalog's own SQL; `{}` stands for the table."""
        if self._kind in ("postgres", "mysql"):
            self._run(self._server_sql(statement.replace("{}", server_sql.table(self.config, table), 1)))
        elif self._kind == "sqlite" and table.startswith("ducklake_inlined_data_"):
            # DuckDB names the rows that it changes by SQLite's `rowid`: a user's column that is called so hides that.
            own = f"{statement.replace('{}', server_sql.table(self.config, table), 1)} returning 1"
            self._run(server_sql.query(self.config, own), fetch=True)
        else:
            self._run(statement.replace("{}", self.metadata.table_sql(table), 1))

    def drop(self, table: str) -> None:
        """Drop a metadata table, if it is there."""
        if self._kind in ("postgres", "mysql"):
            self._run(self._server_sql(f"DROP TABLE IF EXISTS {server_sql.table(self.config, table)}"))
        else:
            self._run(f"DROP TABLE IF EXISTS {self.metadata.table_sql(table)}")

    def change_each(self, table: str, statement: str, column: str, ids: Sequence[int]) -> None:
        """Run an UPDATE or DELETE for the rows whose `column` is one of many ids."""
        for start in range(0, len(ids), _IDS_IN_ONE_STATEMENT):
            some = ", ".join(map(str, ids[start : start + _IDS_IN_ONE_STATEMENT]))
            self.change(table, f"{statement} {column} IN ({some})")

    def _server_sql(self, sql: str) -> str:
        return f"CALL {self._kind}_execute({literal(self._alias)}, {literal(sql)})"

    def _run(self, sql: str, *, fetch: bool = False, con: duckdb.DuckDBPyConnection | None = None) -> None:
        self._statements += 1
        fault_point(f"statement.{self._statements}")
        done = (con or self.con).execute(sql)
        if fetch:  # a query changes rows only as it is read
            done.fetchall()


def _constant(value: Any) -> str:
    return "now()" if value is NOW else literal(value)
