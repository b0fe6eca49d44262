"""Spark DataFrames as asset values, with a session from Dagster's resource, the configuration, or the process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, SparkConfig
from tests.support.dagster_runs import FAR, central, materialize_range, metadata_of

ROOT = Path(__file__).parents[2]
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])


@pytest.mark.parametrize("source", ["none", "config", "dagster-pyspark"])
def test_spark_frames_of_a_partition_are_stored_and_loaded(source: str, spark: SparkSession, tmp_path: Path) -> None:
    sources: dict[str, dict[str, Any]] = {
        "none": {},
        "config": {"spark": SparkConfig(master="local[1]")},
        "dagster-pyspark": {"spark": LazyPySparkResource(spark_config={})},
    }
    catalog = f"sqlite:///{tmp_path / 'c.sqlite'}"
    resource = DuckLakeResource(
        name="lake", catalog=catalog, storage=f"{tmp_path}/files", create_if_missing=True, **sources[source]
    )
    seen: list[Any] = []

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def orders(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.sql(f"SELECT DATE '{context.partition_key}' AS day, id FROM range(3)")

    @dg.asset(partitions_def=DAILY)
    def counted(orders: DataFrame) -> None:
        assert orders.sparkSession is not None
        seen.append([str(row.day) for row in orders.collect()])

    resources = {"io_manager": DuckLakeIOManager(lake=resource)}
    for key in ("2024-01-01", "2024-01-02", "2024-01-02"):
        assert dg.materialize([orders, counted], resources=resources, partition_key=key).success
    assert seen == [["2024-01-01"] * 3, ["2024-01-02"] * 3, ["2024-01-02"] * 3]
    assert resource.lake().table("orders").count() == 6
    assert spark.range(1).count() == 1  # the session still runs


@central
def test_spark_frames_replace_rows_of_time_and_static_partitions(
    spark: SparkSession, resource: DuckLakeResource, io_manager: DuckLakeIOManager
) -> None:
    versions = iter(range(1, 10))

    @dg.asset(partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def shops(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.sql(f"SELECT '{context.partition_key}' AS region, {next(versions)} AS version")

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "at"})
    def visits(context: dg.AssetExecutionContext) -> DataFrame:
        last = f"TIMESTAMP '{context.partition_key} 23:59:59.999999'"
        return spark.sql(f"SELECT {last} AS at, {next(versions)} AS version")

    for asset, keys in ((shops, ("eu", "us", "eu")), (visits, ("2024-01-01", "2024-01-02", "2024-01-01"))):
        for key in keys:
            result = dg.materialize([asset], resources={"io_manager": io_manager}, partition_key=key)
            metadata = metadata_of(result, asset.key.path[0], key)
            assert (metadata["dagster/partition_row_count"], metadata["ducklake/engine"] != "") == (1, True)
    lake = resource.lake()
    assert sorted(row["version"] for row in lake.read("shops").to_pylist()) == [2, 3]
    assert sorted(row["version"] for row in lake.read("visits").to_pylist()) == [5, 6]
    assert len(lake.snapshots()) == 7


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
@pytest.mark.parametrize("resource", [FAR], indirect=True, ids=str)
def test_one_run_replaces_non_adjacent_partitions(
    spark: SparkSession, resource: DuckLakeResource, io_manager: DuckLakeIOManager
) -> None:
    both = dg.MultiPartitionsDefinition({"day": DAILY, "region": REGIONS})
    versions = iter([1, 2, 3])

    @dg.asset(
        partitions_def=both,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": {"day": "day", "region": "region"}},
    )
    def sales(context: dg.AssetExecutionContext) -> DataFrame:
        version = next(versions)
        rows = [(*key.split("|"), version) for key in context.partition_keys]
        return spark.createDataFrame(rows, "day string, region string, version int").selectExpr(
            "CAST(day AS DATE) AS day", "region", "version"
        )

    @dg.asset(partitions_def=both)
    def counted(sales: DataFrame) -> None:
        seen.append(sales.count())

    seen: list[int] = []
    options: dict[str, Any] = {"resources": {"io_manager": io_manager}}
    for region in ("eu", "us", "eu"):  # one region of each day; the other region stays
        result = materialize_range([sales], f"2024-01-01|{region}", f"2024-01-03|{region}", **options)
        assert metadata_of(result, "sales", f"2024-01-02|{region}")["dagster/partition_row_count"] == 1
    found = sorted(
        (str(row["day"]), row["region"], row["version"]) for row in resource.lake().read("sales").to_pylist()
    )
    assert [(region, version) for _, region, version in found] == [("eu", 3), ("us", 2)] * 3
    assert len(resource.lake().snapshots()) == 4
    assert dg.materialize([counted, sales.to_source_asset()], partition_key="2024-01-02|us", **options).success
    assert seen == [1]


SCRIPT = """
import sys
import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, SparkConfig
from ducklake_orch.spark.java_home import find_java

kind, folder = sys.argv[1:]
conf = {"spark.sql.shuffle.partitions": "3", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
if kind == "config":
    source = SparkConfig(master="local[1]", conf=conf)
else:
    find_java()
    source = LazyPySparkResource(spark_config={"spark.master": "local[1]", **conf})
lake = DuckLakeResource(
    name="lake", catalog=f"sqlite:///{folder}/c.sqlite", storage=f"{folder}/files", create_if_missing=True, spark=source
)

@dg.asset
def orders(lake: DuckLakeResource) -> DataFrame:
    assert SparkSession.getActiveSession() is None
    session = lake.spark_session
    assert (session.sparkContext.master, session.conf.get("spark.sql.shuffle.partitions")) == ("local[1]", "3")
    return session.range(5)

@dg.asset
def counted(orders: DataFrame) -> None:
    assert orders.count() == 5

resources = {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}
assert dg.materialize([orders, counted], resources=resources).success
print("rows:", lake.lake().table("orders").count())
"""


@pytest.mark.parametrize("kind", ["config", "dagster-pyspark"])
def test_a_spark_session_is_started_when_none_runs(kind: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", SCRIPT, kind, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows: 5" in done.stdout
