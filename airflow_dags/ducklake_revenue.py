"""Revenue of a day, updated when its orders change: one run for each written partition.

Before Airflow 3.2, one run covers all partitions written since the previous run, which the events name.
"""

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
except ImportError:  # before Airflow 3.2
    schedule = [orders]

with DAG("ducklake_revenue", schedule=schedule, catchup=False, tags=["ducklake"], doc_md=__doc__):

    @task.ducklake(table="sales.daily_revenue", partition_expr="day", partition_window="day")
    def daily_revenue(spark: Any, partition_keys: list[str]) -> Any:
        """Revenue by region."""
        hook = DuckLakeHook()
        if not hook.lake().exists("sales.orders"):
            raise AirflowSkipException("sales.orders does not exist yet: run ducklake_orders")
        days = ", ".join(f"DATE {literal(day)}" for day in partition_keys)
        return revenue(hook.lake().read("sales.orders", spark, where=f"day IN ({days})"))

    daily_revenue()
