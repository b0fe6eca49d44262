"""Spark DataFrames go into the lake and come out of it, with a session of whoever has one."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, SparkConfig


@pytest.mark.parametrize("source", ["none", "config", "dagster-pyspark"])
def test_frames_of_a_partition_are_stored_and_given(source: str, spark: SparkSession, tmp_path: Path) -> None:
    sources: dict[str, dict[str, Any]] = {
        "none": {},
        "config": {"spark": SparkConfig(master="local[1]")},
        "dagster-pyspark": {"spark": LazyPySparkResource(spark_config={})},
    }
    catalog = f"sqlite:///{tmp_path / 'c.sqlite'}"
    resource = DuckLakeResource(
        name="lake", catalog=catalog, storage=f"{tmp_path}/files", create_if_missing=True, **sources[source]
    )
    daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
    seen: list[Any] = []

    @dg.asset(partitions_def=daily, metadata={"partition_expr": "day"})
    def orders(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.sql(f"SELECT DATE '{context.partition_key}' AS day, id FROM range(3)")

    @dg.asset(partitions_def=daily)
    def counted(orders: DataFrame) -> None:
        assert orders.sparkSession is not None
        seen.append([str(row.day) for row in orders.collect()])

    resources = {"io_manager": DuckLakeIOManager(lake=resource)}
    for key in ("2024-01-01", "2024-01-02", "2024-01-02"):
        assert dg.materialize([orders, counted], resources=resources, partition_key=key).success
    assert seen == [["2024-01-01"] * 3, ["2024-01-02"] * 3, ["2024-01-02"] * 3]
    assert resource.lake().table("orders").count() == 6
    assert spark.range(1).count() == 1  # the session is still there
