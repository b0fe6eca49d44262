"""Sixteen concurrent tasks that replace sixteen partitions, and a task that is killed after its commit."""

import os
import signal

import pyarrow as pa
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakeWriteOperator, ducklake_asset

with DAG("e2e_parallel", schedule=None):

    def rows(partition_keys: list[str]) -> pa.Table:
        """Rows of a partition."""
        return pa.table({"part": partition_keys * 1000, "n": list(range(1000))})

    DuckLakeWriteOperator.partial(
        task_id="replace",
        table="parallel",
        partition_expr="part",
        python_callable=rows,
        outlets=[ducklake_asset("parallel")],
    ).expand(partition_key=[f"p{number:02}" for number in range(16)])


with DAG("e2e_killed", schedule=None):

    @task(retries=2, retry_delay=1)
    def append(ti: object = None, params: dict[str, str] | None = None) -> None:
        """Append, then die before Airflow records success: first by SIGKILL, then by SIGTERM, which can be caught."""
        DuckLakeHook().write(pa.table({"n": [1, 2, 3]}), "killed", mode="append")
        tries = ti.try_number  # type: ignore[attr-defined]
        if tries < 3:
            os.kill(os.getpid(), signal.SIGKILL if tries == 1 else signal.SIGTERM)
            raise RuntimeError("ended")

    append()
