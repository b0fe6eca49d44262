"""Verbs that read tables and their history."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, overload

from ducklake_orch.config.units import read_argument
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class ReadVerbs(LakeBase):
    """Read tables, their changes, and the lake's snapshots."""

    @overload
    def read(
        self,
        table: str,
        spark: None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        stage: str | None = None,
    ) -> "pa.Table": ...

    @overload
    def read(
        self,
        table: str,
        spark: "SparkSession",
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        engine: Literal["auto", "native", "duckdb"] = "auto",
        stage: str | None = None,
    ) -> "DataFrame": ...

    def read(
        self,
        table: str,
        spark: "SparkSession | None" = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        engine: str = "auto",
        stage: str | None = None,
    ) -> "DataFrame | pa.Table":
        """Read a table at one snapshot: a lazy Spark DataFrame, or without `spark` a pyarrow.Table.

        Args:
            table: `table` or `schema.table`; without `spark` also a view.
            spark: The session, classic or Connect.
            columns: Names of the columns to return; by default all.
            where: A condition in DuckDB's SQL; files that cannot meet it are not read.
            snapshot: The snapshot to read; by default the latest.
            as_of: The time to read at.
            tag: The name of the snapshot to read.
            engine: Reader of the files in Spark: `native` (Spark's own Parquet reader, wherever its result is correct),
                `duckdb` in its tasks, or `auto`.
            stage: The name of a stage, to read the table as staged.

        Examples:
            >>> lake.read("orders", where="region = 'eu'", columns=["id", "price"]).to_pylist()
            [{'id': 1, 'price': 10.0}, {'id': 3, 'price': 30.0}]
        """
        from ducklake_orch.catalog.scan import Selection, read_arrow
        from ducklake_orch.engine.quoting import table_name

        snapshot = self._snapshot_of(tag, snapshot, as_of)
        if stage is not None:
            self._refuse_past(snapshot, as_of)
            return self._staged(stage).read(table, spark, columns=columns, where=where, engine=engine)
        selection = Selection(table_name(table), columns, where, snapshot, as_of)
        if spark is None:
            return read_arrow(self, selection)
        from ducklake_orch.spark.read_frame import read_table

        return read_table(self, spark, selection, engine)

    def read_batches(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        batch_size: int = 100_000,
    ) -> "pa.RecordBatchReader":
        """Read a table at one snapshot as a stream, which holds a connection until it is exhausted or closed.

        Args:
            table: `table` or `schema.table`, or a view.
            columns: Names of the columns to return; by default all.
            where: A condition in DuckDB's SQL.
            snapshot: The snapshot to read; by default the latest.
            as_of: The time to read at.
            tag: The name of the snapshot to read.
            batch_size: Approximate number of rows in a batch.

        Examples:
            >>> sum(batch.num_rows for batch in lake.read_batches("orders", batch_size=2))
            3
        """
        from ducklake_orch.catalog.scan import Selection, read_batches
        from ducklake_orch.engine.quoting import table_name

        snapshot = self._snapshot_of(tag, snapshot, as_of)
        return read_batches(self, Selection(table_name(table), columns, where, snapshot, as_of), batch_size)

    @overload
    def changes(
        self,
        table: str,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        from_time: datetime | str | None = None,
        to_time: datetime | str | None = None,
        spark: None = None,
        columns: Sequence[str] | None = None,
    ) -> "pa.Table": ...

    @overload
    def changes(
        self,
        table: str,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        from_time: datetime | str | None = None,
        to_time: datetime | str | None = None,
        spark: "SparkSession",
        columns: Sequence[str] | None = None,
    ) -> "DataFrame": ...

    def changes(
        self,
        table: str,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        from_time: datetime | str | None = None,
        to_time: datetime | str | None = None,
        spark: "SparkSession | None" = None,
        columns: Sequence[str] | None = None,
    ) -> "DataFrame | pa.Table":
        """Read the change feed of a table: which rows each snapshot added, deleted and updated.

        The columns are `snapshot_id`, `snapshot_time`, `rowid`, `change_type` (`insert`, `delete`, `update_preimage`,
        `update_postimage`), `author`, `idempotency_key`, then those of the table at the end of the range. Rows that a
        compaction, a flush or a rewrite moves to another file are not changes.

        Args:
            table: `table` or `schema.table`; its name at the end of the range.
            from_snapshot: The first snapshot; by default the first one since which all changes are known.
            to_snapshot: The last snapshot, which is included; by default the latest.
            from_time: Instead of `from_snapshot`: from this time on.
            to_time: Instead of `to_snapshot`: up to this time.
            spark: Return a lazy Spark DataFrame of this session, in no order, instead of a pyarrow.Table.
            columns: Names of the table's columns to return; by default all.

        Raises:
            HistoryExpiredError: When snapshots in the range have expired.

        Examples:
            >>> snapshot = lake.update("orders", {"price": "price + 1"}, "id = 2").snapshot_id
            >>> lake.changes("orders", snapshot, columns=["price"]).select(["change_type", "price"]).to_pylist()
            [{'change_type': 'update_preimage', 'price': 20.0}, {'change_type': 'update_postimage', 'price': 21.0}]
        """
        from ducklake_orch.catalog.feed import FeedRequest
        from ducklake_orch.engine.quoting import table_name

        request = FeedRequest(
            table=table_name(table),
            from_snapshot=from_snapshot,
            to_snapshot=to_snapshot,
            from_time=_moment("from_time", from_time),
            to_time=_moment("to_time", to_time),
            columns=None if columns is None else tuple(columns),
        )
        if spark is None:
            from ducklake_orch.catalog.feed import read_changes

            return read_changes(self, request)
        from ducklake_orch.spark.feed_frame import changes_frame

        return changes_frame(self, spark, request)

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """List the lake's snapshots, newest first. A lake that the first write will create has none.

        Args:
            limit: The largest number of snapshots to return; by default all.

        Examples:
            >>> [(snapshot.snapshot_id, snapshot.changes) for snapshot in lake.snapshots(limit=1)]
            [(1, ['created_table:"main"."orders"', 'inserted_into_table:1'])]
        """
        from ducklake_orch.engine import introspection

        return self._read_if_created(lambda session: introspection.snapshots(session, limit), [])


def _moment(name: str, given: datetime | str | None) -> datetime | None:
    return read_argument(name, datetime.fromisoformat, given) if isinstance(given, str) else given
