"""The Spark code that the example DAGs share: a shop's orders, cleaned orders, and revenue."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REGIONS = ("north", "east", "south", "west")
ORDERS_OF_A_DAY = 1000


def delivered_orders(spark: "SparkSession", day: str) -> "DataFrame":
    """Return the orders of a day as delivered: some twice, some without an amount."""
    from pyspark.sql import functions as f

    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    first = start.toordinal() * 100_000
    ids = spark.range(first, first + ORDERS_OF_A_DAY)
    amount = (f.pmod(f.col("id") * 37, f.lit(500)) / 4).cast("decimal(9,2)")
    seconds = f.lit(int(start.timestamp())) + f.pmod(f.col("id") * 7919, f.lit(86_400))
    orders = ids.select(
        f.col("id").alias("order_id"),
        f.pmod(f.xxhash64("id"), f.lit(500)).alias("customer_id"),
        f.element_at(f.array(*map(f.lit, REGIONS)), (f.pmod("id", f.lit(4)) + 1).cast("int")).alias("region"),
        f.when(f.pmod("id", f.lit(50)) != 0, amount).alias("amount"),
        f.timestamp_seconds(seconds).alias("ordered_at"),
    )
    return orders.unionAll(orders.where(f.pmod("order_id", f.lit(20)) == 1))


def clean_orders(raw: "DataFrame") -> "DataFrame":
    """Return orders without duplicates and without those that have no amount."""
    from pyspark.sql import functions as f

    complete = raw.where("amount IS NOT NULL").dropDuplicates(["order_id"])
    return complete.withColumn("day", f.to_date("ordered_at"))


def revenue(orders: "DataFrame") -> "DataFrame":
    """Return the revenue of each day and region."""
    from pyspark.sql import functions as f

    return orders.groupBy("day", "region").agg(f.count("*").alias("orders"), f.sum("amount").alias("revenue"))
