"""Stages: changes of several tables that the catalog keeps until they are published together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.units import parse_duration, read_argument
from ducklake_orch.errors import ConfigError, DuckLakeOrchError, ObjectNotFoundError, TransactionClosedError
from ducklake_orch.facade.transaction import Opened, Transaction
from ducklake_orch.results import CommitInfo, StagedTable, StageInfo, TransactionResult, WriteResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    import pyarrow as pa

    from ducklake_orch.catalog.transactions import StoredStage
    from ducklake_orch.config.lake import LakeConfig
    from ducklake_orch.lake import DuckLake


_REPLACING = ("overwrite", "overwrite_partitions", "replace_where")
_LONGEST_NAME, _LONGEST_TTL = 250, timedelta(days=3650)


class Stage:
    """Changes that the catalog keeps, for any process, until `publish` commits them as one snapshot.

    The verbs see the lake as it was when the stage was created, with what has been staged since. Other readers and
    writers see nothing of it. Several tasks can stage at the same time: different tables, or different partitions of
    one table.

    Attributes:
        name: The name of the stage.
    """

    def __init__(self, lake: "DuckLake", name: str) -> None:
        self.name = name
        self._lake = lake

    # --- verbs ---------------------------------------------------------------------------------------------------

    def transaction(self, *, idempotency_key: str | None = None) -> Transaction:
        """Begin a transaction whose changes are added to the stage together, when its block ends.

        Args:
            idempotency_key: Identifies the work across retries; work that is already staged is not repeated.

        Examples:
            >>> stage = lake.stage("nightly")
            >>> with stage.transaction() as tx:
            ...     _ = tx.write(orders, "archive", mode="append")
            ...     _ = tx.delete("orders", "true")
            >>> [(table.table, table.rows_added, table.rows_removed) for table in stage.tables()]
            [('main.archive', 3, 0), ('main.orders', 0, 3)]
        """
        return _StageTransaction(self, idempotency_key)

    def write(self, data: Any, table: str, *, mode: str, **arguments: Any) -> WriteResult:
        """Write data to a table; arguments as for `Transaction.write`, and `idempotency_key`.

        With a key, work that is staged is not repeated, except that rows which a mode replaces are replaced again.

        Examples:
            >>> lake.stage("nightly").write(orders, "archive", mode="append", idempotency_key="day 1").rows_written
            3
            >>> lake.stage("nightly").write(orders, "archive", mode="append", idempotency_key="day 1").replayed
            True
        """
        key = arguments.pop("idempotency_key", None)
        return _result(self.writing(table, mode, key), lambda tx: tx.write(data, table, mode=mode, **arguments))

    def writing(self, table: str, mode: str, idempotency_key: str | None) -> Transaction:
        """Begin a transaction for one write, whose key has the same effect as that of `write`.

        Without a write in its block, only the key is stored.
        """
        return _StageTransaction(self, idempotency_key, table, replays=mode not in _REPLACING)

    def merge(self, data: Any, table: str, keys: Sequence[str] = (), **arguments: Any) -> WriteResult:
        """Merge data into a table by keys; arguments as for `DuckLake.merge`."""
        return self._run(table, arguments, lambda tx: tx.merge(data, table, keys, **arguments))

    def delete(self, table: str, where: str, **arguments: Any) -> WriteResult:
        """Delete rows; arguments as for `DuckLake.delete`."""
        return self._run(table, arguments, lambda tx: tx.delete(table, where, **arguments))

    def update(self, table: str, set: Any, where: str | None = None, **arguments: Any) -> WriteResult:
        """Update rows; arguments as for `DuckLake.update`."""
        return self._run(table, arguments, lambda tx: tx.update(table, set, where, **arguments))

    def truncate(self, table: str) -> WriteResult:
        """Delete all rows of a table."""
        return self._run(table, {}, lambda tx: tx.truncate(table))

    def rollback(self, table: str, to_snapshot: int | None = None, *, tag: str | None = None) -> WriteResult:
        """Restore the rows that a table had at an earlier snapshot, or at a tag, with their row ids."""
        return self._run(table, {}, lambda tx: tx.rollback(table, to_snapshot, tag=tag))

    def add_files(self, table: str, paths: Any, **arguments: Any) -> WriteResult:
        """Add Parquet files that another program wrote; arguments as for `DuckLake.add_files`."""
        return self._run(table, arguments, lambda tx: tx.add_files(table, paths, **arguments))

    def create_table(self, table: str, schema: Any, **arguments: Any) -> WriteResult:
        """Create a table; arguments as for `Transaction.create_table`."""
        return self._run(table, arguments, lambda tx: tx.create_table(table, schema, **arguments))

    def alter_table(self, table: str, **arguments: Any) -> WriteResult:
        """Change columns, comments and layout of a table; arguments as for `DuckLake.alter_table`."""
        return self._run(table, arguments, lambda tx: tx.alter_table(table, **arguments))

    def drop_table(self, table: str) -> None:
        """Drop a table."""
        with self.transaction() as tx:
            tx.drop_table(table)

    def _run(self, table: str, arguments: dict[str, Any], verb: Callable[[Transaction], WriteResult]) -> WriteResult:
        return _result(_StageTransaction(self, arguments.pop("idempotency_key", None), table), verb)

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
        """Read a table or view as staged; arguments as for `DuckLake.read`.

        Examples:
            >>> _ = lake.stage("nightly").delete("orders", "region = 'eu'")
            >>> lake.stage("nightly").read("orders").num_rows, lake.read("orders").num_rows
            (1, 3)
        """
        with self._reading() as tx:
            return tx.read(table, spark, columns=columns, where=where, engine=engine)

    @contextmanager
    def reader(self, *tables: str) -> "Iterator[DuckLake]":
        """Open tables as staged, by default all, as a lake to read from in a block."""
        with self._reading() as tx:
            yield tx.reader(*tables)

    @contextmanager
    def connect(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Connect to all tables as staged, for reading.

        Examples:
            >>> _ = lake.stage("nightly").delete("orders", "region = 'eu'")
            >>> with lake.stage("nightly").connect() as con:
            ...     con.sql("SELECT count(*) FROM orders").fetchone()
            (1,)
        """
        with self._reading() as tx, tx.connect() as con:
            yield con

    def info(self) -> StageInfo:
        """Return what `DuckLake.stages` lists of the stage."""
        from ducklake_orch.facade.stage_listing import stage_info

        return stage_info(self._stored())

    def keys(self) -> dict[str, list[str]]:
        """Return the idempotency keys of what is staged or was published, by table."""
        return {str(table): list(keys) for table, keys in self._stored().table_keys().items()}

    def tables(self) -> list[StagedTable]:
        """List the tables that publishing would change, with the rows that would come and go.

        Examples:
            >>> _ = lake.stage("nightly").delete("orders", "region = 'eu'")
            >>> [(table.table, table.rows_removed) for table in lake.stage("nightly").tables()]
            [('main.orders', 2)]
        """
        return self._stored().summaries

    def diff(self, table: str, limit: int | None = None) -> "pa.Table":
        """Return the rows of a table that publishing would add and remove, with a first column `change_type`.

        Args:
            table: `table` or `schema.table`.
            limit: How many rows at most.

        Examples:
            >>> _ = lake.stage("nightly").delete("orders", "region = 'us'")
            >>> lake.stage("nightly").diff("orders").select(["change_type", "id"]).to_pylist()
            [{'change_type': 'delete', 'id': 2}]
        """
        import pyarrow as pa

        from ducklake_orch.catalog.feed import FeedRequest, read_changes
        from ducklake_orch.engine.quoting import table_name

        name, stage = table_name(table), self._stored()
        if (changed := stage.table(name)) is None:
            raise ObjectNotFoundError(f"The stage `{self.name}` does not change `{name}`.")
        base = stage.head.base_snapshot
        if changed.change.drops:
            gone = _first_rows(self._lake.read_batches(table, snapshot=base), limit)
            return gone.add_column(0, "change_type", pa.array(["delete"] * gone.num_rows, pa.string()))
        with self.reader(table) as staged:
            feed = read_changes(staged, FeedRequest(name, from_snapshot=base + 1), limit)
        columns = feed.column_names[feed.column_names.index("idempotency_key") + 1 :]
        return feed.select(["change_type", *columns])

    def _reading(self) -> Transaction:
        return _StageTransaction(self, writes=False)

    # --- the end -------------------------------------------------------------------------------------------------

    def publish(self, *, commit: CommitInfo | None = None, idempotency_key: str | None = None) -> TransactionResult:
        """Commit everything that is staged as one snapshot. A stage that is already published stays as it is.

        Args:
            commit: Author, message and extra of the snapshot.
            idempotency_key: Identifies the work across retries and stages; committed work is not repeated.

        Raises:
            StageConflictError: When another commit changed what was staged. The stage stays, for inspection.

        Examples:
            >>> stage = lake.stage("nightly")
            >>> _ = stage.write(orders, "archive", mode="append")
            >>> stage.publish().snapshot_id == lake.snapshots(limit=1)[0].snapshot_id
            True
        """
        from ducklake_orch.catalog.transactions import publish_stage

        stage = self._stored()
        if stage.head.snapshot_id is None:
            try:
                return publish_stage(self._lake.config, stage, commit or CommitInfo(), idempotency_key)
            except TransactionClosedError:  # another task may have published it meanwhile
                stage = self._stored()
                if stage.head.snapshot_id is None:
                    raise
        snapshot, previous = stage.head.snapshot_id, stage.head.previous_snapshot
        return TransactionResult(snapshot, snapshot if previous is None else previous, replayed=True)

    def discard(self) -> None:
        """Delete the stage and its files. Nothing happens to a stage that is published.

        Examples:
            >>> lake.stage("nightly").discard()
            >>> lake.stages()
            []
        """
        from ducklake_orch.catalog.transactions import discard_stage

        if (stage := self._found()) is not None:
            discard_stage(self._lake.config, stage.head)

    def _open(self, key: str | None) -> "StoredStage":
        """Return the stage as it is now; one that has ended only to work that was staged in it."""
        from ducklake_orch.catalog.transactions import refuse_ended

        stage = self._stored()
        if key is None or key not in stage.keys.values():
            refuse_ended(stage)
        return stage

    def _stored(self) -> "StoredStage":
        if (found := self._found()) is None:
            raise TransactionClosedError(f"The stage `{self.name}` was discarded.", remedy="Stage the work again.")
        return found

    def _found(self) -> "StoredStage | None":
        from ducklake_orch.catalog.search import planning
        from ducklake_orch.catalog.transactions import find_stage

        with planning(self._lake.config, f"Reading the stage `{self.name}`", reads=True) as metadata:
            return find_stage(metadata, self.name)

    def __repr__(self) -> str:
        return f"<stage {self.name!r} of {self._lake!r}>"


class _StageTransaction(Transaction):
    """A transaction whose end adds its changes to a stage.

    Args:
        stage: The stage.
        key: The caller's idempotency key.
        table: The table that the key is for; None if it covers everything that the block does.
        writes: Whether the block may change anything.
        replays: Whether work with the key that is staged is not repeated.
    """

    _what = "stage"
    _of_the_whole: Mapping[str, str] = {
        "idempotency_key": "Pass it to `stage.transaction`, or call the verb of the stage itself.",
        "commit": "Pass it to `publish`.",
        "expect_snapshot": "Leave it out: `publish` never replaces rows that have changed since the stage was created.",
    }

    def __init__(
        self,
        stage: Stage,
        key: str | None = None,
        table: str | None = None,
        *,
        writes: bool = True,
        replays: bool = True,
    ) -> None:
        super().__init__(stage._lake, idempotency_key=key)
        self._stage, self._table, self._writes, self._replays = stage, table, writes, replays
        self._stored: StoredStage | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from ducklake_orch.catalog.transactions import refusing_ended

        if self._stored is None or not (error is None or isinstance(error, DuckLakeOrchError)):
            super().__exit__(kind, error, traceback)
            return
        with refusing_ended(self._lake.config, self._stored.head):
            super().__exit__(kind, error, traceback)
            if error is not None:
                raise error

    def _begin(self) -> Opened:
        from ducklake_orch.catalog.transactions import StageDraft, scoped_key
        from ducklake_orch.engine.exactly_once import Write
        from ducklake_orch.engine.quoting import table_name

        key = scoped_key(self._key, table_name(self._table) if self._table is not None else None)
        write = Write(f"{'staging in' if self._writes else 'reading'} `{self._stage.name}`")
        stored = self._stored = self._stage._open(key)

        def begin(lake: "LakeConfig", write: Write) -> StageDraft:
            return StageDraft(lake, stored, write, key, replays=self._replays)

        return Opened(self._lake, write, begin, writes=self._writes)


def _first_rows(reader: "pa.RecordBatchReader", limit: int | None) -> "pa.Table":
    """Return at most `limit` rows, and read no more batches than these need."""
    import pyarrow as pa

    with reader:
        if limit is None:
            return reader.read_all()
        batches, rows = [], 0
        while rows < limit and (batch := next(reader, None)) is not None:
            batches.append(batch)
            rows += batch.num_rows
        return pa.Table.from_batches(batches, reader.schema).slice(0, limit)


def _result(block: Transaction, verb: Callable[[Transaction], WriteResult]) -> WriteResult:
    """Run one verb in a block of its own, and return its result."""
    with block as tx:
        verb(tx)
    assert tx.result is not None  # noqa: S101 - the block has ended
    return tx.result.writes[-1]


def get_stage(
    lake: "DuckLake", name: str, ttl: str | timedelta = "7 days", *, create: bool = False, author: str | None = None
) -> Stage:
    """Return a stage by its name; create it if it is missing and that is wanted."""
    from ducklake_orch.catalog.search import planning
    from ducklake_orch.catalog.transactions import create_stage, discard_stage, find_stage
    from ducklake_orch.engine.exactly_once import refuse_managed, refuse_read_only
    from ducklake_orch.engine.quoting import is_storable

    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not is_storable(name):
        raise ConfigError(f"The name of a stage has 1 to {_LONGEST_NAME} characters, not {str(name)[:80]!r}.")
    lasts = read_argument("ttl", parse_duration, ttl)
    if lasts > _LONGEST_TTL:
        raise ConfigError(f"`ttl` = {ttl!r} is longer than {_LONGEST_TTL.days} days.", remedy="Give a shorter one.")
    doing = f"opening the stage `{name}`"
    if create:
        refuse_read_only(lake.config, doing)
        refuse_managed(lake.config, doing)
        lake.ensure_exists()
    with planning(lake.config, f"Reading the stage `{name}`", reads=True) as metadata:
        found = find_stage(metadata, name)
    if found is not None and found.is_past and create:
        discard_stage(lake.config, found.head)
        found = None
    if found is None:
        if not create:
            raise ObjectNotFoundError(f"There is no stage `{name}`.", remedy="`lake.stages()` lists them.")
        create_stage(lake.config, name, lasts, author)
    return Stage(lake, name)
