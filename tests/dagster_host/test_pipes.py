"""Spark jobs elsewhere: `spark-submit` of the entry module under Dagster's Pipes tells what the IO manager would."""

import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark
import pytest

import ducklake_orch.spark.submit
from ducklake_orch import DuckLake
from tests.conftest import Servers
from tests.dagster_host.runs import metadata_of
from tests.servers.base import LOOPBACK
from tests.servers.spark_cluster import SparkCluster

REPOSITORY = Path(__file__).resolve().parents[2]
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")


# Dagster warns of what its own client does.
@pytest.mark.filterwarnings("default")
def test_a_submitted_write_is_told_like_one_of_the_io_manager(tmp_path: Path, servers: Servers) -> None:
    cluster = servers.get(SparkCluster)
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute("SELECT 1").raise_for_error()

    @dg.asset(key=["sales", "orders"], partitions_def=DAYS)
    def orders(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> Any:
        day = context.partition_key
        query = f"SELECT id, DATE '{day}' AS day FROM range(1000)"
        how = ["--mode", "replace_where", "--where", f"day = '{day}'", "--sql", query, "--partition-by", "day"]
        command = [SUBMIT, "--master", cluster.url, ducklake_orch.spark.submit.__file__, "sales.orders", *how]
        env = {
            "PYTHONPATH": str(REPOSITORY),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOOPBACK,
            "DUCKLAKE_CATALOG": f"sqlite:///{tmp_path}/lake.sqlite",
            "DUCKLAKE_STORAGE": f"{tmp_path}/lake.files",
        }
        done = pipes.run(context=context, command=command, env={**os.environ, **env})
        return done.get_materialize_result()

    client = dg.PipesSubprocessClient()
    result = dg.materialize([orders], partition_key="2026-01-02", resources={"pipes": client})
    told = metadata_of(result, "sales/orders", "2026-01-02")
    assert told["dagster/table_name"] == "lake.sales.orders"
    assert told["ducklake/rows_written"] == 1000
    assert told["ducklake/snapshot_id"] == lake.snapshots()[0].snapshot_id
    assert [column.name for column in told["dagster/column_schema"].columns] == ["id", "day"]
    assert lake.table("sales.orders").count() == 1000
    about = lake.snapshots()[0].extra["dagster"]
    assert (about["run_id"], about["asset"], about["partitions"]) == (result.run_id, "sales/orders", ["2026-01-02"])
