"""Transactions: the verbs of a lake, whose effects become visible together, in one snapshot."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError, TransactionClosedError, UnsupportedStatementError
from ducklake_orch.results import CommitInfo, TransactionResult, WriteResult

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame

    from ducklake_orch.catalog.transactions import LakeDraft, StageDraft
    from ducklake_orch.config.lake import LakeConfig, Scalar
    from ducklake_orch.engine.exactly_once import Write
    from ducklake_orch.engine.quoting import TableName
    from ducklake_orch.lake import DuckLake

ISOLATIONS = ("snapshot", "serializable")
# The transactions that are open where the code runs.
_OPEN: ContextVar[tuple["Opened", ...]] = ContextVar("open transactions", default=())


class Transaction:
    """Verbs on any number of tables that are committed as one snapshot, or not at all.

    The verbs see the lake as it was when the transaction began, with what the transaction has done since. Other readers
    and writers see nothing of it until the block ends.

    Attributes:
        result: The outcome, once the block has ended.
    """

    # What its verbs do not take, and what to do instead.
    _what = "transaction"
    _of_the_whole: Mapping[str, str] = dict.fromkeys(
        ("idempotency_key", "commit", "expect_snapshot"), "Pass it to `transaction`."
    )

    def __init__(
        self,
        lake: "DuckLake",
        *,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
        expect_snapshot: int | None = None,
        isolation: str = "snapshot",
    ) -> None:
        if isolation not in ISOLATIONS:
            raise ConfigError(f"`isolation` = {isolation!r} is unknown.", remedy=nearest(str(isolation), ISOLATIONS))
        self.result: TransactionResult | None = None
        self._lake = lake
        self._key = idempotency_key
        self._commit = commit or CommitInfo()
        self._expect_snapshot = expect_snapshot
        self._isolation = isolation
        self._open: Opened | None = None
        self._ended = False

    def __enter__(self) -> Self:
        if self._open is not None or self._ended:
            raise TransactionClosedError("This transaction has already been used.", remedy="Begin another one.")
        if self._key is not None:
            from ducklake_orch.catalog.commit import check_key

            check_key(self._key)
        self._open = self._begin()
        return self

    def _begin(self) -> "Opened":
        from ducklake_orch.catalog.transactions import LakeDraft
        from ducklake_orch.engine.exactly_once import Write

        return Opened(
            self._lake, Write("a transaction", self._commit), lambda lake, write: LakeDraft(lake, write, self._key)
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened = self._used()
        self._open, self._ended = None, True
        with opened.stack:
            if error is None and opened.writes:
                self.result = opened.publish(self._expect_snapshot, serializable=self._isolation == "serializable")

    # --- verbs ---------------------------------------------------------------------------------------------------

    def write(self, data: Any, table: str, *, mode: str, **arguments: Any) -> WriteResult:
        """Write data to a table; arguments as for `DuckLake.write`, without key, commit and `expect_snapshot`.

        Examples:
            >>> with lake.transaction() as tx:
            ...     _ = tx.write(orders, "archive", mode="append")
            ...     _ = tx.delete("orders", "true")
            >>> lake.table("archive").count(), lake.table("orders").count()
            (3, 0)
        """
        return self._run(mode, table, arguments, lambda lake: lake.write(data, table, mode=mode, **arguments))

    def merge(self, data: Any, table: str, keys: Sequence[str] = (), **arguments: Any) -> WriteResult:
        """Merge data into a table by keys; arguments as for `DuckLake.merge`."""
        return self._run("merge", table, arguments, lambda lake: lake.merge(data, table, keys, **arguments))

    def delete(self, table: str, where: str, **arguments: Any) -> WriteResult:
        """Delete rows; arguments as for `DuckLake.delete`."""
        return self._run("delete", table, arguments, lambda lake: lake.delete(table, where, **arguments))

    def update(self, table: str, set: Any, where: str | None = None, **arguments: Any) -> WriteResult:
        """Update rows; arguments as for `DuckLake.update`."""
        return self._run("update", table, arguments, lambda lake: lake.update(table, set, where, **arguments))

    def add_files(self, table: str, paths: Any, **arguments: Any) -> WriteResult:
        """Add Parquet files that another program wrote; arguments as for `DuckLake.add_files`."""
        return self._run("add_files", table, arguments, lambda lake: lake.add_files(table, paths, **arguments))

    def truncate(self, table: str) -> WriteResult:
        """Delete all rows of a table."""

        def empty(lake: "DuckLake") -> WriteResult:
            return lake.write(lake.read(table, where="false"), table, mode="overwrite")

        return self._run("truncate", table, {}, empty)

    def rollback(self, table: str, to_snapshot: int | None = None, *, tag: str | None = None) -> WriteResult:
        """Restore the rows that a table had at an earlier snapshot, or at a tag, with their row ids."""
        snapshot = self._lake._restored(to_snapshot, tag)
        return self._run("rollback", table, {}, lambda _: self._used().restore(table, snapshot))

    def create_table(
        self,
        table: str,
        schema: Any,
        *,
        defaults: Mapping[str, Any] | None = None,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        comment: str | None = None,
        options: Mapping[str, "Scalar"] | None = None,
        if_not_exists: bool = False,
    ) -> WriteResult:
        """Create a table; arguments as for `DuckLake.create_table`.

        Examples:
            >>> with lake.transaction() as tx:
            ...     _ = tx.create_table("totals", {"region": "VARCHAR NOT NULL", "total": "DOUBLE"})
            ...     _ = tx.write(pa.table({"region": ["eu"], "total": [40.0]}), "totals", mode="append")
            >>> lake.table("totals").count()
            1
        """
        from ducklake_orch.catalog.verbs import ArrowRows, WriteRequest, write_table
        from ducklake_orch.engine.layout import column_comments, empty_rows
        from ducklake_orch.engine.options import check_option
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import describe_table

        name, mode = table_name(table), "ignore" if if_not_exists else "error"
        empty, required = empty_rows(schema)
        request, rows = WriteRequest(name, mode, partition_by, sort_by, required=required), ArrowRows(empty)
        rows.comments = column_comments(schema)
        for option, value in (options or {}).items():
            check_option(option, value, scoped=True)

        def create(lake: "DuckLake") -> WriteResult:
            result = write_table(lake.config, rows, request)
            if result.snapshot_id > result.previous_snapshot_id:
                describe_table(lake.config, name, comment, options or {})
                if defaults:
                    lake.alter_table(table, set_defaults=defaults)
            return result

        return self._run(mode, table, {}, create)

    def alter_table(self, table: str, **arguments: Any) -> WriteResult:
        """Change columns, comments and layout of a table; arguments as for `DuckLake.alter_table`."""
        return self._run("alter", table, arguments, lambda lake: lake.alter_table(table, **arguments))

    def drop_table(self, table: str) -> None:
        """Drop a table. Its history stays until its snapshots expire."""
        self._used().drop(table)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        table: str,
        spark: Any = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        engine: Any = "auto",
    ) -> Any:
        """Read a table or view with what the transaction has done; arguments as for `DuckLake.read`."""
        opened = self._used()
        opened.look_up(table)
        return opened.lake.read(table, spark, columns=columns, where=where, engine=engine)

    def sql(self, spark: Any, text: str, args: Any = None, lakes: Any = None, **frames: Any) -> "DataFrame":
        """Run a statement of Spark's SQL with what the transaction has done; arguments as for `DuckLake.sql`."""
        from ducklake_orch.spark.sql.run_statement import run_sql

        opened = self._used()

        def verbs(name: str) -> Any:
            if not opened.writes:
                raise UnsupportedStatementError(
                    "A stage is only read here.", remedy="Write in `with lake.stage(…).transaction() as tx: tx.sql(…)`."
                )
            return self if name == opened.lake.config.name else (lakes or {})[name]

        def prepare(name: "TableName") -> None:
            opened.look_up(str(name))

        return run_sql(opened.lake, spark, text, args, lakes or {}, frames, prepare, verbs)

    def connect(self) -> "AbstractContextManager[duckdb.DuckDBPyConnection]":
        """Connect to all tables with what the transaction has done to them, for reading.

        Examples:
            >>> with lake.transaction() as tx:
            ...     _ = tx.update("orders", {"price": "0"})
            ...     with tx.connect() as con:
            ...         con.sql("SELECT sum(price) FROM orders").fetchone()
            (0.0,)
        """
        opened = self._used()
        opened.look_up_all()
        return opened.lake.connect(read_only=True)

    def reader(self, *tables: str) -> "DuckLake":
        """Return tables with what the transaction has done to them, by default all, as a lake to read in the block."""
        opened = self._used()
        for table in tables:
            opened.look_up(table)
        if not tables:
            opened.look_up_all()
        return opened.lake

    # --- state ---------------------------------------------------------------------------------------------------

    def _run(
        self, mode: str, table: str, arguments: dict[str, Any], verb: "Callable[[DuckLake], WriteResult]"
    ) -> WriteResult:
        for name, remedy in self._of_the_whole.items():
            if arguments.pop(name, None) is not None:
                raise ConfigError(f"`{name}` applies to the {self._what} as a whole.", remedy=remedy)
        if arguments.pop("inline", "never") != "never":
            raise ConfigError("A transaction inlines no rows.", remedy="Leave `inline` out.")
        return self._used().run(mode, table, verb)

    def run_verb(self, mode: str, table: str, verb: "Callable[[DuckLake], WriteResult]") -> WriteResult:
        """Run a change that is no verb of its own: `verb` gets the tables of the transaction as a lake."""
        return self._run(mode, table, {}, verb)

    def _used(self) -> "Opened":
        if self._open is None:
            how = "has ended" if self._ended else "has not begun"
            raise TransactionClosedError(f"The transaction {how}.", remedy="Use it within `with lake.transaction()`.")
        self._open.refuse_other_thread()
        return self._open


class Opened:
    """A transaction within its block.

    Args:
        lake: The lake.
        write: The transaction.
        begin: Makes the draft that the verbs run in.
        writes: Whether the block may change anything.

    Attributes:
        lake: The draft, as a lake.
        writes: Whether the block may change anything.
        stack: Ends the lease and removes the draft.
    """

    def __init__(
        self,
        lake: "DuckLake",
        write: "Write",
        begin: "Callable[[LakeConfig, Write], LakeDraft | StageDraft]",
        *,
        writes: bool = True,
    ) -> None:
        from ducklake_orch.catalog.commit import Reads, leased
        from ducklake_orch.catalog.transactions import remove_unpublished
        from ducklake_orch.engine.exactly_once import refuse_managed, refuse_read_only

        if writes or lake.config.snapshot is not None or lake.config.as_of is not None:
            refuse_read_only(lake.config, write.purpose)
        refuse_managed(lake.config, write.purpose)
        self._owner = os.getpid(), threading.get_ident()
        self._catalog = lake.config.catalog
        self._refuse_nested()
        self.writes = writes
        self._started = time.monotonic()
        self._results: list[WriteResult] = []
        self._begun = begin(lake.config, write)
        self._draft = self._begun.draft
        self._reads = Reads(self._draft.base.snapshot_id)
        self.lake = type(lake)(self._draft.config)
        self.stack = ExitStack()
        self.stack.callback(self._draft.remove)
        if writes:
            parts = self._draft.recording.write_ids
            self.stack.enter_context(leased(lake.config, write, self._draft.base.snapshot_id, parts))
            self.stack.callback(remove_unpublished, self._draft, write)
        _OPEN.set((*_OPEN.get(), self))
        self.stack.callback(self._end)

    def refuse_other_thread(self) -> None:
        """Refuse use by another thread or process."""
        if self._owner != (os.getpid(), threading.get_ident()):
            raise TransactionClosedError(
                "The transaction was begun by another thread or process.", remedy="Begin one in each."
            )

    def _refuse_nested(self) -> None:
        if any((other._owner, other._catalog) == (self._owner, self._catalog) for other in _OPEN.get()):
            raise UnsupportedStatementError(
                "A transaction of this lake is open in this block.", remedy="Use it, or end it first."
            )

    def _end(self) -> None:
        _OPEN.set(tuple(other for other in _OPEN.get() if other is not self))

    def look_up(self, table: str) -> None:
        """Make the draft hold a table that is to be read, or all tables that a view may read."""
        name = self._adopted(table)
        if (adopted := self._draft.tables[name.key]) is not None:
            self._reads.tables[name.key] = adopted.table
        elif self._draft.has_view(name):
            self.look_up_all()
        else:
            self._reads.tables[name.key] = None

    def look_up_all(self) -> None:
        """Make the draft hold all tables of the lake, to be read."""
        self._draft.adopt_all()
        self._reads.everything = True

    def run(self, mode: str, table: str, verb: "Callable[[DuckLake], WriteResult]") -> WriteResult:
        """Run a verb in the draft."""
        name = self._adopted(table)
        if (earlier := self._begun.earlier) is not None:
            snapshot, previous = earlier.snapshot_id, earlier.previous_snapshot_id
            result = WriteResult(str(name), mode, snapshot, previous, replayed=True)
        else:
            if self._draft.has_dropped(name):
                raise UnsupportedStatementError(
                    f"The transaction has dropped `{name}`.", remedy='Replace its rows instead: `mode="overwrite"`.'
                )
            # The snapshots of the draft are no snapshots of the lake.
            base = self._draft.base.snapshot_id
            result = replace(verb(self.lake), snapshot_id=base, previous_snapshot_id=base)
        self._results.append(result)
        return result

    def restore(self, table: str, to_snapshot: int) -> WriteResult:
        """Give a table of the draft the rows of an earlier snapshot."""
        from ducklake_orch.catalog.transactions import restore
        from ducklake_orch.engine.quoting import table_name

        return restore(self._draft, table_name(table), to_snapshot)

    def drop(self, table: str) -> None:
        """Drop a table in the draft."""
        name = self._adopted(table)
        if self._begun.earlier is None:
            self.lake.drop_table(table)
            self._draft.record_drop(name)

    def publish(self, expect_snapshot: int | None = None, *, serializable: bool = False) -> TransactionResult:
        """Commit everything as one snapshot, or add it to the stage."""
        if (earlier := self._begun.earlier) is not None:
            snapshot, previous = earlier.snapshot_id, earlier.previous_snapshot_id
            return TransactionResult(snapshot, previous, self._results, replayed=True)
        done = self._begun.end(expect_snapshot=expect_snapshot, reads=self._reads if serializable else None)
        snapshot, previous = done.snapshot_id, done.previous_snapshot_id
        writes = [
            replace(result, snapshot_id=snapshot, previous_snapshot_id=previous, replayed=done.replayed)
            for result in self._results
        ]
        duration = time.monotonic() - self._started
        return TransactionResult(snapshot, previous, writes, duration_s=duration, replayed=done.replayed)

    def _adopted(self, table: str) -> "TableName":
        """Make the draft hold a table, if the lake has it, and return its name."""
        from ducklake_orch.engine.quoting import table_name

        name = table_name(table)
        self._draft.adopt(name)
        return name
