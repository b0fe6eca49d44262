"""A write in a separate Spark cluster, by `spark-submit` of ducklake-orch's entry module.

The parameter `master` names the cluster: `spark://host:7077`. Without it, the task is skipped.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, ducklake_asset

TABLE = "sales.submitted"
QUERY = "SELECT id, id % 7 AS weekday FROM range(100000)"

with DAG(
    "ducklake_submit",
    schedule=None,
    params={"master": os.environ.get("SPARK_MASTER", "")},
    tags=["ducklake"],
    doc_md=__doc__,
):

    @task(outlets=[ducklake_asset(TABLE)])
    def submit(params: Any, ti: Any, run_id: str) -> None:
        """Submit the write, and wait for it."""
        if not params["master"]:
            raise AirflowSkipException("the parameter `master` names no Spark cluster")
        spec, spark = find_spec("ducklake_orch.spark.submit"), find_spec("pyspark")
        if spec is None or spec.origin is None or spark is None or spark.origin is None:
            raise AirflowSkipException("PySpark is not installed")
        hook = DuckLakeHook()
        # The environment passes the lake, as any user can read a command line. Variables of other lakes are left out.
        others = {name: value for name, value in os.environ.items() if not name.startswith("DUCKLAKE_")}
        environment = others | hook.lake().environment() | {"PYSPARK_PYTHON": sys.executable}
        program = str(Path(spark.origin).parent / "bin" / "spark-submit")
        # All attempts share this key, so that even an append is written once.
        work = ["--idempotency-key", hook.idempotency_key(TABLE), "--author", "airflow"]
        work += ["--message", f"task {ti.dag_id}.{ti.task_id}, run {run_id}"]
        command = [program, "--master", params["master"], spec.origin, TABLE, "--mode", "overwrite", "--sql", QUERY]
        subprocess.run([*command, *work], env=environment, check=True)

    submit()
