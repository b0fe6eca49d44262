"""Verbs that give Spark what it runs by itself: a writer of streaming batches, and a data source."""

from dataclasses import dataclass, field
from datetime import datetime
from inspect import signature
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.facade.write_verbs import MergeArguments
from ducklake_orch.results import CommitInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_ID = "sql.streaming.queryId"
# The parameters of `lake.write` that the stream sets itself.
_OWN = {"self", "data", "table", "mode", "idempotency_key", "commit", "merging"}


@dataclass(frozen=True)
class StreamWriter:
    """Writes the batches of a streaming query; pass it to `foreachBatch`.

    Attributes:
        config: The lake.
        table: `table` or `schema.table`.
        mode: The mode of `lake.write`.
        query: Name of the query in idempotency keys; by default its id, which its checkpoint keeps.
        commit: Author, message and extra of the snapshots.
        how: Further arguments of `lake.write`.
    """

    config: LakeConfig
    table: str
    mode: str
    query: str | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)
    how: dict[str, Any] = field(default_factory=dict)

    def __call__(self, batch: "DataFrame", batch_id: int) -> Any:
        """Write a batch, and return the WriteResult; None if another mode than `append` finds the batch in the table.

        For type checkers, `foreachBatch` takes only functions that return None or anything.
        """
        from ducklake_orch.catalog.verbs import StreamBatch
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.lake import DuckLake

        known = StreamBatch(self.query or _query_id(batch), batch_id)
        # An append checks for its key itself. Other modes would write the batch again, and overwrite what other writers
        # have changed since.
        lake, table = DuckLake(self.config), table_name(self.table)
        result = None
        if self.mode == "append" or not known.is_in(lake.reading(entering=False), table):
            how = {"idempotency_key": known.key, "commit": known.described(self.commit), **self.how}
            result = lake.write(batch, self.table, mode=self.mode, **how)
        if result is None or result.replayed:
            known.refuse_passed(lake.reading(entering=False), table)
        return result


def _query_id(batch: "DataFrame") -> str:
    """Return the id of the streaming query of a batch; Spark stores it in the thread that runs the batch."""
    context = getattr(batch.sparkSession, "_sc", None)
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if not query_id:
        problem = (
            "Spark Connect does not provide the id of the streaming query."
            if context is None
            else "The DataFrame is not a batch of a streaming query."
        )
        raise ConfigError(
            problem,
            remedy="Give `stream_writer` a `query`: a name that no other query into this table has. Keep it across"
            " restarts, and choose a new one with each new checkpoint.",
        )
    return str(query_id)


class StreamVerbs(LakeBase):
    """Write streams, and register the lake as a Spark data source."""

    def stream_writer(
        self,
        table: str,
        mode: str = "append",
        *,
        query: str | None = None,
        commit: CommitInfo | None = None,
        **how: Any,
    ) -> StreamWriter:
        """Return a writer for `foreachBatch` of a streaming query that writes each batch exactly once.

        The id of the query, which the checkpoint keeps, and the number of the batch identify a batch that Spark runs
        again after a restart. Keys are kept for `keep_keys` (30 days): a query must not pause for longer.

        Args:
            table: `table` or `schema.table`; the first batch creates it if it does not exist.
            mode: The mode of `lake.write`.
            query: Name of the query, used instead of its id; required with Spark Connect. A query with a new checkpoint
                needs a new name, because its batch numbers start again.
            commit: Author, message and extra of the snapshots.
            **how: Further arguments of `lake.write`, such as `partition_by`, `where`, `inline`.

        Examples:
            >>> writer = lake.stream_writer("clicks", partition_by=["day(at)"])
            >>> stream.writeStream.foreachBatch(writer).start()  # doctest: +SKIP
            >>> writer.table
            'clicks'
        """
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.lake import DuckLake

        table_name(table)
        known = [
            name
            for name in (*signature(DuckLake.write).parameters, *MergeArguments.__annotations__)
            if name not in _OWN
        ]
        for name in how:
            if name not in known:
                raise ConfigError(f"`stream_writer` has no argument `{name}`.", remedy=nearest(name, known))
        if query is not None and not query.strip():
            raise ConfigError(f"`query` = {query!r} is not a name.")
        return StreamWriter(self.config, table, mode, query, commit or CommitInfo(), how)

    def read_stream(
        self,
        spark: "SparkSession",
        table: str,
        *,
        start: str | int | datetime = "latest",
        changes: bool = False,
        on_update: str = "error",
        max_snapshots_per_batch: int | None = None,
        max_files_per_batch: int | None = None,
        max_rows_per_batch: int | None = None,
        name: str | None = None,
        schema_evolution: str = "error",
    ) -> "DataFrame":
        """Follow a table with a streaming DataFrame: its inserted rows, or its change feed.

        A checkpoint keeps the snapshot up to which everything is delivered, so that a query that is started again
        misses nothing and repeats nothing. Compactions and flushes move rows and are no changes.

        Args:
            spark: The session, classic or Connect.
            table: `table` or `schema.table`.
            start: `latest`: what is committed after the query begins. `earliest`: first the rows that the table has
                then. A snapshot or a time: its changes and all later ones. A checkpoint overrides it.
            changes: Deliver the change feed, with the columns of `lake.changes`, instead of inserted rows.
            on_update: Without `changes`, when rows are updated or deleted: `error` stops the query, `ignore` leaves
                these changes out, and `changes` also delivers the new versions of updated rows.
            max_snapshots_per_batch: The most snapshots in a batch; by default all that there are.
            max_files_per_batch: The most files that the snapshots of a batch have added or retired.
            max_rows_per_batch: About the most rows in a batch. Whatever the limits are, it has at least one snapshot.
            name: A name for the stream, under which maintenance keeps the snapshots that it still needs, until it has
                been silent for seven days.
            schema_evolution: When columns of the table change: `error` stops the query, which delivers the new columns
                when it is started again; with `follow` it keeps the columns that it began with.

        Raises:
            HistoryExpiredError: When changes that are still to be delivered have expired.
            StreamStoppedError: When rows or columns change in a way that the stream does not deliver.

        Examples:
            >>> orders = lake.read_stream(spark, "orders", start="earliest")  # doctest: +SKIP
            >>> orders.writeStream.foreachBatch(lake.stream_writer("copy")).start()  # doctest: +SKIP
        """
        from ducklake_orch.catalog.feed import StreamRequest, read_start
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.spark.stream_source import read_stream

        request = StreamRequest(
            table=table_name(table),
            start=read_start(start) if isinstance(start, str) else start,
            changes=changes,
            on_update=on_update,
            max_snapshots=max_snapshots_per_batch,
            max_files=max_files_per_batch,
            max_rows=max_rows_per_batch,
            name=name,
            schema_evolution=schema_evolution,
        )
        return read_stream(spark, self.config, request)

    def register(self, spark: "SparkSession", name: str = "ducklake") -> None:
        """Register the lake as a data source: `spark.read.format("ducklake")` and `df.write.format("ducklake")`.

        Options are `table` and `where`; for reads also `columns`, `snapshot`, `as_of` and `tag`; for writes `outside`,
        `schema_evolution`, `expect_snapshot`, `idempotency_key`, `author` and `message`. Streams have their own. The
        lake itself is not an option, so that no query plan shows a secret. `lake.read` and `lake.write` offer more:
        Spark's own Parquet reader, layouts of new tables, shuffles by partition.

        Args:
            spark: The session, classic or Connect.
            name: Name of the data source; each lake of a session needs its own.

        Examples:
            >>> lake.register(spark)  # doctest: +SKIP
            >>> spark.read.format("ducklake").option("table", "orders").load().count()  # doctest: +SKIP
            3
        """
        from ducklake_orch.spark.data_source import register_source

        register_source(spark, self.config, name)
