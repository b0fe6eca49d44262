"""Read the rows of a table with their row ids, for statements that change rows: `rows_with_ids`."""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.spark.read_frame import inlined_table, read_with_duckdb
from ducklake_orch.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_orch.facade.lake_base import LakeBase


def rows_with_ids(
    lake: "LakeBase", spark: "SparkSession", table: TableName, snapshot: int, row_id: str, where: str | None
) -> "DataFrame":
    """Return a table at a snapshot as a DataFrame whose first column is the row id; DuckDB reads its files in tasks.

    Args:
        lake: The lake.
        spark: The session, classic or Connect.
        table: The table.
        snapshot: The snapshot.
        row_id: The name of the column with the row ids.
        where: A condition in DuckDB's SQL.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    with (
        lake.reading(snapshot, None, entering=False) as session,
        reading(session, f"Reading `{table}`") as metadata,
    ):
        plan = plan_scan(metadata, metadata.table(table, snapshot), snapshot, where=where)
        schema = StructType([StructField(row_id, LongType()), *spark_schema(iter(plan.columns)).fields])
        inlined = inlined_table(metadata, plan, row_id)
    frame = spark.createDataFrame([] if inlined is None else inlined, schema)
    if not plan.files:
        return frame
    return read_with_duckdb(spark, lake.config, plan, plan.files, schema, row_id).unionAll(frame)
