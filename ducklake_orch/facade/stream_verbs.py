"""Verbs that give Spark what it runs by itself: a writer of streaming batches, and a data source."""

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.facade.handle import LakeHandle
from ducklake_orch.facade.write_verbs import MergeArguments
from ducklake_orch.results import CommitInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_orch.results import WriteResult

_QUERY_ID = "sql.streaming.queryId"
# Of `lake.write`, what a stream says itself.
_OWN = {"self", "data", "table", "mode", "idempotency_key", "commit", "merging"}


@dataclass(frozen=True)
class StreamWriter:
    """Writes batches of a streaming query; what `foreachBatch` takes.

    Attributes:
        config: The lake.
        table: `table` or `schema.table`.
        mode: As of `lake.write`.
        query: What the query is called in idempotency keys; by default its id, which its checkpoint keeps.
        commit: Author, message and extra of the snapshots.
        how: Further arguments of `lake.write`.
    """

    config: LakeConfig
    table: str
    mode: str
    query: str | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)
    how: dict[str, Any] = field(default_factory=dict)

    def __call__(self, batch: "DataFrame", batch_id: int) -> "WriteResult | None":
        """Write a batch, unless it is in the table already; then return None, or what the write says about that."""
        from ducklake_orch.catalog.commit import snapshot_of_key
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.lake import DuckLake

        query = self.query or _query_id(batch)
        key = f"stream {query} batch {batch_id}"
        # An append looks itself. Other modes would do the same once more: harmless to the batch, but not to what others
        # have done to its rows since.
        lake = DuckLake(self.config)
        if (
            self.mode != "append"
            and snapshot_of_key(lake.reading(entering=False), table_name(self.table), key) is not None
        ):
            return None
        about = {"query": query, "batch": batch_id}
        commit = replace(self.commit, extra={**self.commit.extra, "stream": about})
        return lake.write(batch, self.table, mode=self.mode, idempotency_key=key, commit=commit, **self.how)


def _query_id(batch: "DataFrame") -> str:
    """Return the id of the query that a batch is of, which Spark notes in the thread that runs it."""
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


class StreamVerbs(LakeHandle):
    """Give Spark a writer of streams and a data source."""

    def stream_writer(
        self,
        table: str,
        mode: str = "append",
        *,
        query: str | None = None,
        commit: CommitInfo | None = None,
        **how: Any,
    ) -> StreamWriter:
        """Return what `foreachBatch` of a streaming query takes: each batch gets into the table exactly once.

        A batch that Spark runs again after a restart is known by the id of the query, which the checkpoint keeps, and
        its number. Keys are kept for `keep_keys` (30 days): a query must not stand still for longer.

        Args:
            table: `table` or `schema.table`; made by the first batch if it is not there.
            mode: As of `lake.write`.
            query: What the query is called instead of its id; needed with Spark Connect. A query with a new checkpoint
                needs a new one, as it begins to count its batches anew.
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

    def register(self, spark: "SparkSession", name: str = "ducklake") -> None:
        """Make the lake a data source: `spark.read.format("ducklake")` and `df.write.format("ducklake")`.

        Options are `table` and `where`; to read also `snapshot` and `as_of`; to write `outside`, `schema_evolution`,
        `expect_snapshot`, `idempotency_key`, `author`, `message`. The lake is no option, so that no plan shows a
        secret. `lake.read` and `lake.write` know more: Spark's own Parquet reader, layouts of new tables, shuffles by
        partition.

        Args:
            spark: The session, classic or Connect.
            name: What the source is called; another one for each lake that the session has.

        Examples:
            >>> lake.register(spark)  # doctest: +SKIP
            >>> spark.read.format("ducklake").option("table", "orders").load().count()  # doctest: +SKIP
            3
        """
        from ducklake_orch.spark.data_source import data_source

        spark.dataSource.register(data_source(self.config, name))
