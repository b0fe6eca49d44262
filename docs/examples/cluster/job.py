"""Append the orders of a day, and count them: `spark-submit job.py 2026-01-31`. A repeated run writes nothing."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ducklake_orch import DuckLake

day = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
lake = DuckLake.from_toml(Path(__file__).with_name("ducklake.toml"))
orders = spark.range(100_000).selectExpr("id", "concat('r', id % 4) AS region", f"DATE '{day}' AS day")
written = lake.write(orders, "sales.orders", mode="append", partition_by=["day"], idempotency_key=f"orders {day}")
rows = lake.read("sales.orders", spark, where=f"day = DATE '{day}'").count()
print(f"{day}: {written.rows_written} rows written, {rows} rows in the table, snapshot {written.snapshot_id}")
