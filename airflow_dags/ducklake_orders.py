"""Orders of a day: delivered, then cleaned. A run replaces only the rows of its partition."""

from typing import Any

from airflow.sdk import DAG, task
from ducklake_shop import clean_orders, delivered_orders

try:
    from airflow.sdk import CronPartitionTimetable

    # At 2:00, for the previous day.
    schedule: Any = CronPartitionTimetable("0 2 * * *", timezone="UTC", run_offset=-1, key_format="%Y-%m-%d")
except ImportError:  # before Airflow 3.2, the logical date is the day
    schedule = "0 2 * * *"

with DAG("ducklake_orders", schedule=schedule, catchup=False, tags=["ducklake"], doc_md=__doc__):

    @task.ducklake(table="raw.orders", partition_expr="ordered_at", partition_window="day")
    def deliver(spark: Any, partition_keys: list[str]) -> Any:
        """Orders as delivered."""
        (day,) = partition_keys
        return delivered_orders(spark, day)

    @task.ducklake(table="sales.orders", partition_expr="day", partition_window="day", read="spark")
    def clean(raw: Any) -> Any:
        """Orders without duplicates."""
        return clean_orders(raw)

    clean(deliver())
