"""Revenue of a day, once its orders have changed: a run for each partition that somebody has written."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, task
from ducklake_shop import revenue

from ducklake_orch.airflow import DuckLakeHook, ducklake_asset
from ducklake_orch.engine.quoting import literal

orders = ducklake_asset("sales.orders")
try:
    from airflow.sdk import PartitionedAssetTimetable

    schedule: Any = PartitionedAssetTimetable(assets=orders)
except ImportError:  # before Airflow 3.2 events have no partitions: the day is that of the logical date
    schedule = [orders]

with DAG("ducklake_revenue", schedule=schedule, catchup=False, tags=["ducklake"], doc_md=__doc__):

    @task.ducklake(table="sales.daily_revenue", partition_expr="day")
    def daily_revenue(spark: Any, partition_keys: list[str]) -> Any:
        """Revenue by region."""
        hook = DuckLakeHook()
        if not hook.lake().exists("sales.orders"):
            raise AirflowSkipException("there are no orders yet: run ducklake_orders")
        (day,) = partition_keys
        return revenue(hook.lake().read("sales.orders", spark, where=f"day = DATE {literal(day)}"))

    daily_revenue()
