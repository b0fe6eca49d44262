"""The facade's verbs that write rows, and change them where they are."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.errors import ConfigError
from ducklake_orch.handle import LakeHandle
from ducklake_orch.results import CommitInfo, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_orch.catalog.hits import Finder
    from ducklake_orch.catalog.workers import Workers


class RowVerbs(LakeHandle):
    """What can be done to the rows of a table."""

    def write(
        self,
        data: Any,
        table: str,
        *,
        mode: str,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        where: str | None = None,
        outside: str = "error",
        schema_evolution: str = "error",
        engine: str = "auto",
        distribution: str = "auto",
        inline: str = "never",
        keys: Sequence[str] | None = None,
        when_matched: str | Mapping[str, str] | None = None,
        matched_condition: str | None = None,
        delete_condition: str | None = None,
        when_not_matched: str | None = None,
        when_not_matched_by_source: str | None = None,
        null_keys: str | None = None,
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Write data to a table: one snapshot, exactly once, beside any other writer.

        Columns are matched by name; a column that the data lack gets its default. A table that is not there is made.

        Args:
            data: A Spark DataFrame, a pyarrow.Table, RecordBatchReader or dataset, a pandas or Polars frame, a DuckDB
                relation, or anything else that offers an Arrow stream.
            table: `table` or `schema.table`.
            mode: `append`, `overwrite` (all rows), `overwrite_partitions` (each partition that the data have rows for),
                `replace_where` (the rows that match `where`), `merge` (the rows that have the same `keys`), `error` or
                `ignore` (only where there is no table yet).
            partition_by: Keys of a new table, such as `year(ts)`; for one that is there they must be its own.
            sort_by: Sort keys of a new table; for one that is there they must be its own.
            where: What `replace_where` replaces, in DuckDB's SQL.
            outside: What becomes of data rows that do not match `where`: `error`, or `drop`.
            schema_evolution: `error`, `add` (new columns), or `promote` (new columns, wider types).
            engine: What writes the files of a Spark DataFrame: `duckdb` in its tasks, `native` (Spark's own Parquet
                writer, for tables without partitions and types that it does right), or `auto`. Of a merge: who matches
                its rows with the table's, `duckdb` in this process, `spark`, or `auto`, by how much there is to read.
            distribution: How a Spark DataFrame is shuffled first, so that a partition's rows meet in few files: `none`,
                `hash`, `range`, or `auto`.
            inline: `never`, or `auto`: rows up to the table's `data_inlining_row_limit` stay in the catalog, where only
                DuckLake's own readers see them, until a flush writes them to files. Not on MySQL, nor nested columns.
            keys: Of mode `merge`: the columns that say which rows are the same. No two rows of the data may be.
            when_matched: What becomes of a row of the table that the data have a row for: `update` (by default: it gets
                their values), `keep`, `delete`, or `{column: expression}` over `source.column` and `target.column`.
            matched_condition: Such a row stays as it is where this, over `source` and `target`, does not hold.
            delete_condition: It goes where this holds.
            when_not_matched: What becomes of other rows of the data: `insert` (by default) or `ignore`.
            when_not_matched_by_source: What becomes of other rows of the table: `keep` (by default) or `delete`.
            null_keys: What a NULL in a key is: `error` (by default), or `match`: a value like others.
            expect_snapshot: Refuse when what is replaced has changed since this snapshot.
            idempotency_key: The same for every attempt at the same work: an append that is committed already is not
                done again; nor is a merge that would not come to the same a second time.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.write import write_table
        from ducklake_orch.catalog.write_request import WriteRequest
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.frames import rows_of

        merging: dict[str, Any] = {"keys": keys, "when_matched": when_matched, "matched_condition": matched_condition}
        merging |= {"delete_condition": delete_condition, "when_not_matched": when_not_matched}
        merging |= {"when_not_matched_by_source": when_not_matched_by_source, "null_keys": null_keys}
        given = {name: value for name, value in merging.items() if value is not None}
        if mode == "merge":
            from ducklake_orch.catalog.merge import MergeRequest, merge_rows
            from ducklake_orch.frames import is_spark, refuse_for_merge, spool_of

            refuse_for_merge(where=where, outside=outside, inline=inline, distribution=distribution)
            merge = MergeRequest(
                table=table_name(table),
                engine=engine,
                partition_by=partition_by,
                sort_by=sort_by,
                schema_evolution=schema_evolution,
                expect_snapshot=expect_snapshot,
                idempotency_key=idempotency_key,
                commit=commit or CommitInfo(),
                **given,
            )
            spark = getattr(data, "sparkSession", None) if is_spark(data) else None
            workers = self._workers(spark, engine)
            return merge_rows(self.config, spool_of(self.config, data, merge.table), merge, workers)
        if given:
            name = next(iter(given))
            raise ConfigError(f"Mode `{mode}` and `{name}` do not go together.", remedy=f"`{name}` belongs to `merge`.")
        request = WriteRequest(
            table=table_name(table),
            mode=mode,
            partition_by=partition_by,
            sort_by=sort_by,
            where=where,
            outside=outside,
            schema_evolution=schema_evolution,
            inline=inline,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        rows = rows_of(data, engine=engine, distribution=distribution)
        return write_table(self.config, rows, request)

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
        """Delete rows, in one snapshot, beside any other writer; a file that loses few of them is not written anew.

        Args:
            table: `table` or `schema.table`.
            where: Which rows go, as a condition in DuckDB's SQL.
            spark: A session whose tasks may look for the rows.
            engine: What looks for them: `duckdb` in this process, `spark`, or `auto`, by how much there is to read.
            dry_run: Only say how many rows would go.
            expect_snapshot: Refuse when rows that may meet the condition have changed since this snapshot.
            idempotency_key: The caller's name for this work, kept beside the snapshot.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.delete import DeleteRequest, delete_rows
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
        """Change rows, in one snapshot, beside any other writer; they keep their row ids.

        Args:
            table: `table` or `schema.table`.
            set: What columns get, as expressions in DuckDB's SQL over the row as it was: `{"price": "price * 1.1"}`.
            where: Which rows change, as a condition in DuckDB's SQL; all when None.
            spark: A session whose tasks may look for the rows, and write those that take their place.
            engine: Who does it: `duckdb` in this process, `spark`, or `auto`, by how much there is to read.
            dry_run: Only say how many rows would change.
            expect_snapshot: Refuse when rows that may meet the condition have changed since this snapshot.
            idempotency_key: The same for every attempt at the same work: where values follow from others, what is
                committed already is not done again.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.update import UpdateRequest, update_rows
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

    def _workers(self, spark: "SparkSession | None", engine: str) -> "Workers | None":
        if spark is None and engine == "spark":
            raise ConfigError('`engine="spark"` needs a session, or the data as a Spark DataFrame.')
        if spark is None or engine == "duckdb":
            return None
        from ducklake_orch.spark.row_workers import SparkWorkers

        return SparkWorkers(self.config, spark, forced=engine == "spark")

    def _finder(self, spark: "SparkSession | None", engine: str) -> "Finder":
        if spark is None and engine != "spark":
            from ducklake_orch.catalog.hits import DuckDBFinder

            return DuckDBFinder()
        from ducklake_orch.spark.finder import finder_of

        return finder_of(self.config, spark, engine)
