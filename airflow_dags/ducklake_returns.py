"""Returns by day, counted after each write to `raw.returns` by Spark, SQL or another orchestrator.

Airflow is not notified of such writes. The triggerer detects new snapshots, and the asset's event starts a run.
"""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, AssetWatcher, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakeSnapshotTrigger, ducklake_asset

TABLE = "raw.returns"
watcher = AssetWatcher(name="returns", trigger=DuckLakeSnapshotTrigger(table=TABLE, poke_interval=5))
returns = ducklake_asset(TABLE, watchers=[watcher])

with DAG("ducklake_returns", schedule=[returns], catchup=False, tags=["ducklake"], doc_md=__doc__):

    @task.ducklake(table="sales.returns_by_day")
    def by_day() -> Any:
        """Returns of each day."""
        hook = DuckLakeHook()
        if not hook.lake().exists(TABLE):
            raise AirflowSkipException(f"table {TABLE} does not exist yet: create it with columns `day` and `order_id`")
        return hook.get_df(f"SELECT day, count(*) AS returns FROM {TABLE} GROUP BY day")

    by_day()
