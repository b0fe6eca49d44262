"""The column lineage of assets whose output is a Spark DataFrame."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import metadata_of

REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])


def lineage_of(result: dg.ExecuteInProcessResult, key: str, partition: str | None = None) -> dict[str, set[str]]:
    """Return the column lineage in the event of an asset, as texts."""
    lineage = metadata_of(result, key, partition).get("dagster/column_lineage")
    return {
        name: {f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps}
        for name, deps in (lineage.deps_by_column if lineage else {}).items()
    }


@dg.asset(key=["eu", "sales", "orders"])
def orders() -> pa.Table:
    return pa.table({"id": [1, 2], "customer": [1, 2], "amount": [10, 20], "price": [1.5, 2.5]})


CUSTOMERS = dg.AssetSpec("people", metadata={"schema": "raw", "table": "customers"})


@pytest.fixture
def resources(resource: DuckLakeResource) -> dict[str, Any]:
    resource.lake().write(pa.table({"customer": [1, 2], "name": ["ann", "bob"]}), "raw.customers", mode="append")
    return {"lake": resource, "io_manager": DuckLakeIOManager(lake=resource)}


def test_columns_that_spark_computes_have_the_keys_of_their_tables(spark: SparkSession, resources: Any) -> None:
    @dg.asset(ins={"orders": dg.AssetIn(orders.key)}, deps=[CUSTOMERS])
    def report(orders: DataFrame, lake: DuckLakeResource) -> DataFrame:
        customers = lake.lake().read("raw.customers", spark)
        joined = orders.join(customers, "customer").filter("price > 0")
        return joined.select(
            "id", F.upper("name").alias("who"), F.expr("amount * price AS total"), F.lit(1).alias("one")
        )

    @dg.asset
    def totals(report: DataFrame) -> DataFrame:
        return report.groupBy("who").agg(F.sum("total").alias("total"))

    result = dg.materialize([orders, CUSTOMERS, report, totals], resources=resources)
    assert lineage_of(result, "report") == {
        "id": {"eu/sales/orders.id"},
        "who": {"people.name"},
        "total": {"eu/sales/orders.amount", "eu/sales/orders.price"},
    }
    assert lineage_of(result, "totals") == {"who": {"report.who"}, "total": {"report.total"}}
    assert lineage_of(result, "eu/sales/orders") == {}


def test_the_lineage_of_a_partition_reaches_through_filters_and_the_table_itself(
    spark: SparkSession, resource: DuckLakeResource
) -> None:
    @dg.asset(key_prefix="sales", partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def raw(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.sql(f"SELECT '{context.partition_key}' AS region, id FROM range(3)")

    @dg.asset(key_prefix="sales", partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def clean(raw: DataFrame) -> DataFrame:
        return raw.dropDuplicates()

    manager = DuckLakeIOManager(lake=resource, schema_prefix="dev_")
    result = dg.materialize([raw, clean], resources={"io_manager": manager}, partition_key="eu")
    assert lineage_of(result, "sales/clean", "eu") == {"region": {"sales/raw.region"}, "id": {"sales/raw.id"}}
    assert lineage_of(result, "sales/raw", "eu") == {}


def test_the_parent_of_an_asset_stands_for_a_table_that_several_assets_fill(
    spark: SparkSession, resources: Any
) -> None:
    shared = {"table": "log", "write_mode": "append"}

    def filled(name: str) -> dg.AssetsDefinition:
        @dg.asset(name=name, metadata=shared)
        def fill() -> pa.Table:
            return pa.table({"id": [1]})

        return fill

    @dg.asset
    def second(web: DataFrame) -> DataFrame:
        return web

    @dg.asset(deps=["web", "shop"])
    def both(lake: DuckLakeResource) -> DataFrame:
        return lake.lake().read("log", spark)

    result = dg.materialize([filled("web"), filled("shop"), second, both], resources=resources)
    assert lineage_of(result, "second") == {"id": {"web.id"}}
    assert lineage_of(result, "both") == {"id": {"web.id", "shop.id"}}


def test_what_no_asset_of_the_lake_stands_for_has_no_lineage(
    spark: SparkSession, resources: Any, tmp_path: Path
) -> None:
    other = DuckLakeResource(
        name="lake", catalog=f"sqlite:///{tmp_path}/other.sqlite", storage=f"{tmp_path}/other", create_if_missing=True
    )
    other.lake().write(pa.table({"customer": [1], "vip": [True]}), "raw.customers", mode="append")

    @dg.op
    def numbers() -> DataFrame:
        return spark.range(3)

    @dg.op
    def doubled(numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr("id * 2 AS id")

    @dg.graph_asset
    def from_ops() -> Any:
        return doubled(numbers())

    @dg.asset(ins={"orders": dg.AssetIn(orders.key)})
    def mixed(orders: DataFrame) -> DataFrame:
        theirs = other.lake().read("raw.customers", spark)
        return orders.join(theirs, "customer").selectExpr("id", "vip", "IF(vip, amount, 0) AS amount")

    result = dg.materialize([orders, from_ops, mixed], resources=resources)
    assert lineage_of(result, "from_ops") == {}
    assert lineage_of(result, "mixed") == {"id": {"eu/sales/orders.id"}}


def test_the_lineage_that_a_user_gives_replaces_that_of_the_plan(spark: SparkSession, resources: Any) -> None:
    given = dg.TableColumnLineage({"id": [dg.TableColumnDep(dg.AssetKey("elsewhere"), "key")]})

    @dg.asset(ins={"orders": dg.AssetIn(orders.key)}, metadata={"dagster/column_lineage": given})
    def copied(orders: DataFrame) -> DataFrame:
        return orders

    @dg.asset(
        ins={"orders": dg.AssetIn(orders.key)},
        metadata={"write_mode": "merge", "merge_keys": ["id"], "when_matched": {"amount": "target.amount + 1"}},
    )
    def merged(orders: DataFrame) -> DataFrame:
        return orders.select("id", "amount")

    result = dg.materialize([orders, copied, merged], resources=resources)
    assert lineage_of(result, "copied") == {"id": {"elsewhere.key"}}
    assert lineage_of(result, "merged") == {"id": {"eu/sales/orders.id"}}
