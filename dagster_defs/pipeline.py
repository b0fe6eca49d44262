"""The assets: raw and cleaned orders, published together after checks; customers; revenue by day and region."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ducklake_orch.dagster import DuckLakeFileResource, ducklake_publication

REGIONS = ("north", "east", "south", "west")
DAYS = dg.DailyPartitionsDefinition("2025-01-01")
DAYS_AND_REGIONS = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(list(REGIONS))})
KINDS = {"ducklake", "pyspark"}


class Delivery(dg.Config):
    """The number of orders that the shop delivers for a day."""

    orders: int = 1000
    late: int = 0


@dg.asset(
    key=["raw", "orders"],
    partitions_def=DAYS,
    io_manager_key="after_checks",
    metadata={"partition_expr": "ordered_at", "comment": "Orders as delivered: some twice, some without amount."},
    kinds=KINDS,
)
def raw_orders(context: dg.AssetExecutionContext, config: Delivery, lake: DuckLakeFileResource) -> DataFrame:
    """Orders of a day as delivered. Late orders are in a later delivery for the same day."""
    day = context.partition_time_window.start
    first = day.toordinal() * 100_000
    ids = lake.spark_session.range(first, first + config.orders + config.late)
    seconds = f.lit(int(day.timestamp())) + f.pmod(f.col("id") * 7919, f.lit(86_400))
    amount = (f.pmod(f.col("id") * 37, f.lit(500)) / 4).cast("decimal(9,2)")
    orders = ids.select(
        f.col("id").alias("order_id"),
        f.pmod(f.xxhash64("id"), f.lit(500)).alias("customer_id"),
        f.element_at(f.array(*map(f.lit, REGIONS)), (f.pmod("id", f.lit(4)) + 1).cast("int")).alias("region"),
        f.when(f.pmod("id", f.lit(50)) != 0, amount).alias("amount"),
        f.timestamp_seconds(seconds).alias("ordered_at"),
    )
    return orders.unionAll(orders.where(f.pmod("order_id", f.lit(20)) == 1))


@dg.asset(
    key=["sales", "orders"],
    ins={"raw": dg.AssetIn(["raw", "orders"])},
    partitions_def=DAYS,
    io_manager_key="after_checks",
    metadata={"partition_expr": "day", "comment": "Orders without duplicates."},
    kinds=KINDS,
)
def orders(raw: DataFrame) -> DataFrame:
    """Orders without duplicates and without those that have no amount."""
    complete = raw.where("amount IS NOT NULL").dropDuplicates(["order_id"])
    return complete.withColumn("day", f.to_date("ordered_at"))


@dg.asset_check(asset=orders, blocking=True, description="No order is a duplicate or lacks an amount.")
def orders_are_clean(orders: DataFrame) -> dg.AssetCheckResult:
    """Check the orders of a day before readers see them."""
    row = orders.agg(
        (f.count("*") - f.count_distinct("order_id")).alias("twice"), (f.count("*") - f.count("amount")).alias("empty")
    ).first()
    figures = row.asDict() if row else {}
    return dg.AssetCheckResult(passed=not any(figures.values()), metadata=figures)


# Readers get a day's raw and cleaned orders in one snapshot, or not at all.
checked_orders = ducklake_publication("checked_orders", [raw_orders, orders])


@dg.asset(
    key=["sales", "customers"],
    ins={"orders": dg.AssetIn(["sales", "orders"])},
    deps=["checked_orders"],
    metadata={"write_mode": "merge", "merge_keys": ["customer_id"], "comment": "Orders and revenue by customer."},
    kinds=KINDS,
)
def customers(orders: DataFrame) -> DataFrame:
    """One row for each customer, updated by merge."""
    return orders.groupBy("customer_id").agg(
        f.min("day").alias("first_day"),
        f.max("day").alias("last_day"),
        f.count("*").alias("orders"),
        f.sum("amount").alias("revenue"),
    )


@dg.asset(
    key=["sales", "daily_revenue"],
    ins={"orders": dg.AssetIn(["sales", "orders"])},
    deps=["checked_orders"],
    partitions_def=DAYS_AND_REGIONS,
    metadata={"partition_expr": {"day": "day", "region": "region"}, "preview": True},
    kinds=KINDS,
)
def daily_revenue(context: dg.AssetExecutionContext, orders: DataFrame) -> DataFrame:
    """Revenue of a day in a region."""
    regions = {key.split("|")[1] for key in context.partition_keys}
    totals = (f.count("*").alias("orders"), f.sum("amount").alias("revenue"))
    return orders.where(f.col("region").isin(*regions)).groupBy("day", "region").agg(*totals)


ASSETS = [raw_orders, orders, customers, daily_revenue]
