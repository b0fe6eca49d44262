"""A table with a partition for each day, written by backfills and by catch-up, and a consumer of its partitions."""

import pendulum
import pyarrow as pa
from airflow.sdk import DAG, CronPartitionTimetable, PartitionedAssetTimetable, task

from ducklake_orch.airflow import DuckLakeHook, ducklake_asset

MIDNIGHT = CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d")

with DAG("e2e_backfilled", schedule=MIDNIGHT, start_date=pendulum.datetime(2025, 1, 1), catchup=False):

    @task.ducklake(table="backfilled", partition_expr="day")
    def backfilled(partition_keys: list[str]) -> pa.Table:
        """Rows of the run's day."""
        return pa.table({"day": partition_keys * 2})

    backfilled()

with DAG("e2e_consumed", schedule=PartitionedAssetTimetable(assets=ducklake_asset("backfilled"))):

    @task.ducklake(table="consumed", partition_expr="day")
    def consumed(partition_keys: list[str]) -> pa.Table:
        """The rows of the written partition."""
        (day,) = partition_keys
        return DuckLakeHook().lake().read("backfilled", where=f"day = '{day}'")

    consumed()

with DAG("e2e_caught_up", schedule=MIDNIGHT, start_date=pendulum.today("UTC").subtract(days=2), catchup=True):

    @task.ducklake(table="caught_up", partition_expr="day")
    def caught_up(partition_keys: list[str]) -> pa.Table:
        """Rows of the run's day."""
        return pa.table({"day": partition_keys * 2})

    caught_up()

with DAG("e2e_mapped", schedule=None):

    @task.ducklake(table="mapped", partition_expr="part")
    def mapped(partition_keys: list[str]) -> pa.Table:
        """Rows of one partition for each mapped task."""
        return pa.table({"part": partition_keys * 100, "n": list(range(100))})

    mapped.expand(partition_keys=[f"p{number}" for number in range(6)])
