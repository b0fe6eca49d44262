"""What became of a table: its changes from snapshot to snapshot, and the way back."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, overload

from ducklake_orch.config.units import read_argument
from ducklake_orch.handle import LakeHandle
from ducklake_orch.results import CommitInfo, RollbackResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class LakePast(LakeHandle):
    """The verbs that look at, or bring back, what a table was."""

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
        """Read how the rows of a table changed: what each snapshot added, deleted and updated.

        The columns are `snapshot_id`, `snapshot_time`, `rowid`, `change_type` (`insert`, `delete`, `update_preimage`,
        `update_postimage`), `author`, `idempotency_key`, then those of the table as it is at the end of the range. What
        compactions and flushes move is no change, nor is what a snapshot puts into another file as it was.

        Args:
            table: `table` or `schema.table`; its name at the end of the range.
            from_snapshot: The first snapshot; by default the first one since which all changes are known.
            to_snapshot: The last snapshot, which is included; by default the latest.
            from_time: Instead of `from_snapshot`: from this time on.
            to_time: Instead of `to_snapshot`: up to this time.
            spark: Return a lazy Spark DataFrame of this session, in no order, instead of a pyarrow.Table.
            columns: Names of the table's columns to return; by default all.

        Raises:
            HistoryExpiredError: When snapshots that tell it have expired.
        """
        from ducklake_orch.catalog.feed_range import FeedRequest
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
            from ducklake_orch.catalog.feed_arrow import read_changes

            return read_changes(self, request)
        from ducklake_orch.spark.feed import changes_frame

        return changes_frame(self, spark, request)

    def rollback(
        self, table: str, to_snapshot: int, *, dry_run: bool = False, commit: CommitInfo | None = None
    ) -> RollbackResult:
        """Give a table the rows of an earlier snapshot again, in a new snapshot; what happened since stays in history.

        Rows keep their ids. Columns and partitions stay those of today: a column that was dropped since stays dropped,
        one that was added since has its initial default in rows of then.

        Args:
            table: `table` or `schema.table`.
            to_snapshot: The snapshot whose rows are wanted.
            dry_run: Only say what would change.
            commit: Author, message and extra of the snapshot.

        Raises:
            HistoryExpiredError: When that snapshot has expired.
            TableDroppedError: When the table of then was dropped since, and another one has its name.
        """
        from ducklake_orch.catalog.rollback import RollbackRequest, roll_back
        from ducklake_orch.engine.quoting import table_name

        request = RollbackRequest(table_name(table), to_snapshot, dry_run, commit or CommitInfo())
        return roll_back(self.config, request)


def _moment(name: str, given: datetime | str | None) -> datetime | None:
    return read_argument(name, datetime.fromisoformat, given) if isinstance(given, str) else given
