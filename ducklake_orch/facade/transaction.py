"""Transactions: the verbs of a lake, whose effects become visible together, in one snapshot."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError, TransactionClosedError, UnsupportedStatementError
from ducklake_orch.results import CommitInfo, TransactionResult, WriteResult

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.catalog.commit import TableChange
    from ducklake_orch.catalog.transactions import StagedTable
    from ducklake_orch.engine.quoting import TableName
    from ducklake_orch.lake import DuckLake

ISOLATIONS = ("snapshot", "serializable")


class Transaction:
    """Verbs on any number of tables that are committed as one snapshot, or not at all.

    The verbs see the lake as it was when the transaction began, with what the transaction has done since. Other readers
    and writers see nothing of it until the block ends.

    Attributes:
        result: The outcome, once the block has ended.
    """

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
        self._open: _Open | None = None
        self._ended = False

    def __enter__(self) -> Self:
        if self._open is not None or self._ended:
            raise TransactionClosedError("This transaction has already been used.", remedy="Begin another one.")
        self._open = _Open(self._lake, self._commit, self._key)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened = self._used()
        self._open, self._ended = None, True
        with opened.stack:
            if error is None:
                unchanged = list(opened.read.values()) if self._isolation == "serializable" else []
                self.result = opened.publish(self._key, self._expect_snapshot, unchanged)

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
        self._refuse(arguments)
        return self._run(
            mode, table, lambda lake, commit: lake.write(data, table, mode=mode, commit=commit, **arguments)
        )

    def merge(self, data: Any, table: str, keys: Sequence[str], **arguments: Any) -> WriteResult:
        """Merge data into a table by keys; arguments as for `DuckLake.merge`."""
        self._refuse(arguments)
        return self._run("merge", table, lambda lake, commit: lake.merge(data, table, keys, commit=commit, **arguments))

    def delete(self, table: str, where: str, **arguments: Any) -> WriteResult:
        """Delete rows; arguments as for `DuckLake.delete`."""
        self._refuse(arguments)
        return self._run("delete", table, lambda lake, commit: lake.delete(table, where, commit=commit, **arguments))

    def update(self, table: str, set: Any, where: str | None = None, **arguments: Any) -> WriteResult:
        """Update rows; arguments as for `DuckLake.update`."""
        self._refuse(arguments)
        return self._run(
            "update", table, lambda lake, commit: lake.update(table, set, where, commit=commit, **arguments)
        )

    def add_files(self, table: str, paths: Any, **arguments: Any) -> WriteResult:
        """Add Parquet files that another program wrote; arguments as for `DuckLake.add_files`."""
        self._refuse(arguments)
        return self._run(
            "add_files", table, lambda lake, commit: lake.add_files(table, paths, commit=commit, **arguments)
        )

    def truncate(self, table: str) -> WriteResult:
        """Delete all rows of a table."""

        def empty(lake: "DuckLake", commit: CommitInfo) -> WriteResult:
            return lake.write(lake.read(table, where="false"), table, mode="overwrite", commit=commit)

        return self._run("truncate", table, empty)

    def create_table(
        self,
        table: str,
        schema: Any,
        *,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        if_not_exists: bool = False,
    ) -> WriteResult:
        """Create a table; arguments as for `DuckLake.create_table`, but a transaction sets no comment and no options.

        Examples:
            >>> with lake.transaction() as tx:
            ...     _ = tx.create_table("totals", {"region": "VARCHAR", "total": "DOUBLE"})
            ...     _ = tx.write(pa.table({"region": ["eu"], "total": [40.0]}), "totals", mode="append")
            >>> lake.table("totals").count()
            1
        """
        from ducklake_orch.engine.layout import empty_rows

        rows, mode = empty_rows(schema), "ignore" if if_not_exists else "error"

        def create(lake: "DuckLake", commit: CommitInfo) -> WriteResult:
            return lake.write(rows, table, mode=mode, partition_by=partition_by, sort_by=sort_by, commit=commit)

        return self._run(mode, table, create)

    def drop_table(self, table: str) -> None:
        """Drop a table. Its history stays until its snapshots expire."""
        self._used().drop(table)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, table: str, spark: Any = None, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> Any:
        """Read a table with what the transaction has done to it; arguments as for `DuckLake.read`."""
        opened = self._used()
        name = opened.adopt(table)
        opened.read[str(name).lower()] = name
        return opened.lake.read(table, spark, columns=columns, where=where)

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
        opened.adopt_all()
        return opened.lake.connect(read_only=True)

    # --- state ---------------------------------------------------------------------------------------------------

    def _run(self, mode: str, table: str, work: "Callable[[DuckLake, CommitInfo], WriteResult]") -> WriteResult:
        return self._used().run(mode, table, work)

    def _used(self) -> "_Open":
        if self._open is None:
            how = "has ended" if self._ended else "has not begun"
            raise TransactionClosedError(f"The transaction {how}.", remedy="Use it within `with lake.transaction()`.")
        self._open.refuse_other_thread()
        return self._open

    def _refuse(self, arguments: dict[str, Any]) -> None:
        for name in ("idempotency_key", "commit", "expect_snapshot"):
            if arguments.pop(name, None) is not None:
                raise ConfigError(
                    f"`{name}` applies to the transaction as a whole.", remedy="Pass it to `transaction`."
                )
        if arguments.pop("inline", "never") != "never":
            raise ConfigError("A transaction inlines no rows.", remedy="Leave `inline` out.")


class _Open:
    """A transaction within its block.

    Attributes:
        lake: The draft, as a lake.
        stack: Ends the lease and removes the draft.
        read: The tables that were read, by name in lower case.
        earlier: The snapshot of the transaction that was committed with the same key, if there is one. The verbs then
            do nothing.
    """

    def __init__(self, lake: "DuckLake", commit: CommitInfo, key: str | None) -> None:
        from ducklake_orch.catalog.commit import check_key, leased
        from ducklake_orch.catalog.transactions import Draft, published_snapshot
        from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only

        purpose = "a transaction"
        refuse_read_only(lake.config, purpose)
        refuse_managed(lake.config, purpose)
        if key is not None:
            check_key(key)
        self.read: dict[str, TableName] = {}
        self._commit = commit
        self._owner = os.getpid(), threading.get_ident()
        self._started = time.monotonic()
        self._changes: dict[str, tuple[TableName, list[TableChange]]] = {}
        self._results: list[WriteResult] = []
        self._write = Write(purpose, commit)
        self.earlier = published_snapshot(lake.config, key) if key is not None else None
        self._draft = Draft(lake.config)
        self.lake = type(lake)(self._draft.config)
        self.stack = ExitStack()
        self.stack.callback(self._draft.remove)
        self.stack.enter_context(leased(lake.config, self._write, self._draft.base.snapshot_id))
        self.stack.callback(self._clean_up)

    def refuse_other_thread(self) -> None:
        """Refuse use by another thread or process."""
        if self._owner != (os.getpid(), threading.get_ident()):
            raise TransactionClosedError(
                "The transaction was begun by another thread or process.", remedy="Begin one in each."
            )

    def adopt(self, table: str) -> "TableName":
        """Make the draft hold a table, if the lake has it."""
        from ducklake_orch.engine.quoting import table_name

        name = table_name(table)
        self._draft.adopt(name)
        return name

    def adopt_all(self) -> None:
        """Make the draft hold all tables of the lake, all of which count as read."""
        from ducklake_orch.engine.quoting import TableName

        self._draft.adopt_all()
        for key, adopted in self._draft.tables.items():
            if adopted is not None:
                self.read[key] = TableName(adopted.table.schema, adopted.table.name)

    def run(self, mode: str, table: str, work: "Callable[[DuckLake, CommitInfo], WriteResult]") -> WriteResult:
        """Run a verb in the draft, and record what it changed."""
        from ducklake_orch.catalog.commit import recorded_changes

        name = self.adopt(table)
        if self.earlier is not None:
            self._results.append(WriteResult(str(name), mode, self.earlier, self.earlier, replayed=True))
            return self._results[-1]
        if any(change.drops for change in self._changes.get(str(name).lower(), (name, []))[1]):
            raise UnsupportedStatementError(
                f"The transaction has dropped `{name}`.", remedy='Replace its rows instead: `mode="overwrite"`.'
            )
        with recorded_changes() as changes:
            try:
                result = work(self.lake, self._commit)
            finally:  # the draft may have the change even if the verb was interrupted
                self._changes.setdefault(str(name).lower(), (name, []))[1].extend(changes)
        self._results.append(result)
        return result

    def drop(self, table: str) -> None:
        """Drop a table in the draft."""
        from ducklake_orch.catalog.commit import TableChange

        name = self.adopt(table)
        if self.earlier is not None:
            return
        self.lake.drop_table(table, commit=self._commit)
        if (adopted := self._draft.tables[str(name).lower()]) is not None:
            dropped = TableChange(name, adopted.table, adopted.table, drops=True)
            self._changes.setdefault(str(name).lower(), (name, []))[1].append(dropped)

    def publish(
        self, key: str | None, expect_snapshot: int | None, unchanged: "Sequence[TableName]"
    ) -> TransactionResult:
        """Commit everything as one snapshot."""
        from dataclasses import replace

        from ducklake_orch.catalog.transactions import publish

        if self.earlier is not None:
            return TransactionResult(self.earlier, self.earlier, self._results, replayed=True)
        done = publish(
            self._draft, self._write, self._staged(), key=key, expect_snapshot=expect_snapshot, unchanged=unchanged
        )
        snapshot, previous = done.snapshot_id, done.previous_snapshot_id
        writes = [
            replace(result, snapshot_id=snapshot, previous_snapshot_id=previous, replayed=done.replayed)
            for result in self._results
        ]
        duration = time.monotonic() - self._started
        return TransactionResult(snapshot, previous, writes, duration_s=duration, replayed=done.replayed)

    def _staged(self) -> "list[StagedTable]":
        from ducklake_orch.catalog.transactions import StagedTable

        return [
            StagedTable(name, self._draft.tables[key], tuple(changes))
            for key, (name, changes) in self._changes.items()
            if changes
        ]

    def _clean_up(self) -> None:
        from ducklake_orch.catalog.transactions import remove_unpublished

        remove_unpublished(self._draft, self._write, self._staged())
