"""Read the rows of a table with their row ids, for statements that change rows: `rows_with_ids`."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.parquet import refuse_vectors
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.spark.read_frame import numbered_pieces, read_job
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.task_engine import engine_spec
from ducklake_orch.spark.types import exported, spark_schema

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
        refuse_vectors(plan.files)
        schema = StructType([StructField(row_id, LongType()), *spark_schema(iter(plan.columns)).fields])
        columns = [
            f"{exported(column, identifier(column.name))} AS {identifier(column.name)}" for column in plan.columns
        ]
        condition = f" WHERE {plan.where.sql}" if plan.where else ""
        parts = [
            f"(SELECT {', '.join([f'{rows.row_id} AS {identifier(row_id)}', *columns])} FROM ({rows.sql}){condition})"
            for rows in plan.inlined
        ]
        inlined = metadata.con.execute(" UNION ALL ".join(parts)).to_arrow_table() if parts else None
    frame = spark.createDataFrame([] if inlined is None or not inlined.num_rows else inlined, schema)
    if not plan.files:
        return frame
    job, pieces = read_job(lake.config, plan, plan.files)
    read = ship_function(
        "ducklake_orch.spark.read_task:read_pieces", engine_spec(lake.config), replace(job, row_id=row_id), pieces
    )
    size = sum(file.file_size for file in plan.files)
    return numbered_pieces(spark, len(pieces), size).mapInArrow(read, schema).unionAll(frame)
