"""Spark's SQL on the tables of a lake."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.facade.lake_base import LakeBase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlVerbs(LakeBase):
    """Run statements of Spark's SQL."""

    def sql(
        self,
        spark: "SparkSession",
        text: str,
        args: "Mapping[str, Any] | Sequence[Any] | None" = None,
        lakes: "Mapping[str, LakeBase] | None" = None,
        *,
        stage: str | None = None,
        **frames: Any,
    ) -> "DataFrame":
        """Run a statement of Spark's SQL on the tables of the lake.

        A query returns a lazy DataFrame. A statement that writes has written when the call returns, in one snapshot,
        and returns one row with the fields of its `WriteResult`.

        All tables are read as of one snapshot. Names that the lake does not have are those of the session: its
        temporary views, its own tables, and files.

        Args:
            spark: The session, classic or Connect.
            text: One statement. A table of the lake is named `table`, `schema.table` or `lake.schema.table`.
            args: Values of the parameters: a mapping for `:name`, a sequence for `?`.
            lakes: Further lakes, by the names that the statement gives them.
            stage: The name of a stage, to read the tables as staged.
            **frames: DataFrames that the statement names, as `{name}` or as a table.

        Raises:
            ObjectNotFoundError: When neither the lake nor the session has a table; the error suggests the nearest name.
            StatementError: When the text is not one statement, or a name is ambiguous.
            UnsupportedStatementError: When a statement would not do what it does in Spark; the error names the verb.

        Examples:
            >>> totals = "SELECT region, sum(price) AS total FROM orders WHERE id > :id GROUP BY region"
            >>> lake.sql(spark, totals, {"id": 1}).show()  # doctest: +SKIP
        """
        from ducklake_orch.spark.sql.run_statement import run_sql

        if stage is not None:
            with self._staged(stage)._reading() as tx:
                return tx.sql(spark, text, args, lakes, **frames)
        return run_sql(self, spark, text, args, lakes or {}, frames)
