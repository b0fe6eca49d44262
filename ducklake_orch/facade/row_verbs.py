"""Verbs that delete, update, truncate and restore rows where they are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import CommitInfo, RollbackResult, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RowVerbs(LakeBase):
    """Change the rows of a table."""

    def delete(
        self,
        table: str,
        where: str,
        *,
        spark: "SparkSession | None" = None,
        engine: str = "auto",
        dry_run: bool = False,
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Delete rows in one snapshot.

        A file that loses a small share of its rows gets a delete file and is not rewritten.

        Args:
            table: `table` or `schema.table`.
            where: Which rows to delete, as a condition in DuckDB's SQL.
            spark: A session whose tasks may search for the rows.
            engine: Engine of the search: `duckdb` in this process, `spark`, or `auto`, which decides by the bytes to
                read.
            dry_run: Only report how many rows would be deleted.
            expect_snapshot: Fail when rows that may meet the condition have changed since this snapshot.
            idempotency_key: The caller's name for this work, stored with the snapshot.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> lake.delete("orders", "price >= 20").rows_removed
            2
        """
        from ducklake_orch.catalog.verbs import DeleteRequest, delete_rows
        from ducklake_orch.engine.quoting import table_name

        request = DeleteRequest(
            table=table_name(table),
            where=where,
            engine=engine,
            dry_run=dry_run,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        return delete_rows(self.config, request, self._finder(spark, engine), self._workers(spark, engine))

    def update(
        self,
        table: str,
        set: Mapping[str, str],
        where: str | None = None,
        *,
        spark: "SparkSession | None" = None,
        engine: str = "auto",
        dry_run: bool = False,
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Update rows in one snapshot. They keep their row ids.

        Args:
            table: `table` or `schema.table`.
            set: Columns and their new values, as expressions in DuckDB's SQL over the row before the update.
            where: Which rows to update, as a condition in DuckDB's SQL; by default all.
            spark: A session whose tasks may search for the rows and write their new versions.
            engine: Engine of the update: `duckdb` in this process, `spark`, or `auto`, which decides by the bytes to
                read.
            dry_run: Only report how many rows would be updated.
            expect_snapshot: Fail when rows that may meet the condition have changed since this snapshot.
            idempotency_key: Identifies the work across retries: a committed update whose new values depend on the old
                ones is not repeated.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> lake.update("orders", {"price": "price * 2"}, "region = 'eu'").rows_written
            2
        """
        from ducklake_orch.catalog.verbs import UpdateRequest, update_rows
        from ducklake_orch.engine.quoting import table_name

        request = UpdateRequest(
            table=table_name(table),
            set=set,
            where=where,
            engine=engine,
            dry_run=dry_run,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        return update_rows(self.config, request, self._finder(spark, engine), self._workers(spark, engine))

    def truncate(self, table: str, *, commit: CommitInfo | None = None) -> None:
        """Delete all rows of a table. Earlier snapshots keep them.

        Args:
            table: `table` or `schema.table`.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> lake.truncate("orders")
            >>> lake.table("orders").count()
            0
        """
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import run_statements

        delete = f"DELETE FROM {table_name(table).sql(self.config.alias)}"
        run_statements(self.config, f"truncating table `{table}`", [delete], commit)

    def rollback(
        self,
        table: str,
        to_snapshot: int | None = None,
        *,
        tag: str | None = None,
        dry_run: bool = False,
        commit: CommitInfo | None = None,
    ) -> RollbackResult:
        """Restore the rows of an earlier snapshot in a new snapshot. The history in between stays.

        Rows keep their ids. Columns and partitions stay those of today: a column that was dropped since stays dropped,
        and a column that was added since has its initial default in the restored rows.

        Args:
            table: `table` or `schema.table`.
            to_snapshot: The snapshot whose rows to restore.
            tag: Instead of `to_snapshot`: the name of that snapshot.
            dry_run: Only report what would change.
            commit: Author, message and extra of the snapshot.

        Raises:
            HistoryExpiredError: When that snapshot has expired.
            TableDroppedError: When that table was dropped since, and another table has its name.

        Examples:
            >>> before = lake.snapshots(limit=1)[0].snapshot_id
            >>> _ = lake.delete("orders", "region = 'eu'")
            >>> _ = lake.rollback("orders", before)
            >>> lake.table("orders").count()
            3
        """
        from ducklake_orch.catalog.verbs import RollbackRequest, roll_back
        from ducklake_orch.engine.quoting import table_name

        request = RollbackRequest(table_name(table), self._restored(to_snapshot, tag), dry_run, commit or CommitInfo())
        return roll_back(self.config, request)
