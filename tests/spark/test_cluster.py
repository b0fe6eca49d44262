"""A real cluster: executors that have DuckDB and pyarrow, and of this package what comes along with the task."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.servers.base import LOOPBACK
from tests.servers.spark_cluster import SparkCluster

PROGRAM = """
import glob, json, os, signal, sys
from ducklake_orch import DuckLake, errors
from ducklake_orch.spark import local_session

url, folder = sys.argv[1:]
spark = local_session("cluster", master=url, conf={"spark.executor.memory": "700m"})
lake = DuckLake.local(folder, data_inlining_row_limit=0)
columns = "id bigint, region string"
frame = spark.range(0, 200_000, 1, 4).selectExpr("id", "concat('r', id % 3) AS region")
told = {}

def whole(table):
    rows = lake.execute(f"SELECT count(*) AS n, count(DISTINCT id) AS ids FROM {table}").rows[0]
    strays = [one.detail for one in lake.fsck(deep=True, storage=True).findings]
    return [rows["n"], rows["ids"], strays]

told["engine"] = lake.write(frame, "t", mode="append", partition_by=["region"]).engine
told["flat"] = lake.write(frame, "flat", mode="append").engine
told["written"] = whole("t")

def die_once(batches):
    from pyspark import TaskContext
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        yield batch
        if context.partitionId() == 2 and context.attemptNumber() == 0 and number == 3:
            daemon = os.getppid()
            executor = int(open(f"/proc/{daemon}/stat").read().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)

lake.create_table("killed", {"id": "BIGINT", "region": "VARCHAR"}, options={"target_file_size": "50KB"})
small = spark.range(0, 200_000, 1, 4).selectExpr("id", "concat('r', id % 3) AS region")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
lake.write(small.mapInArrow(die_once, columns), "killed", mode="append")
told["killed"] = whole("killed")

def hide_sign(batches):
    for batch in batches:
        for sign in glob.glob(f"{folder}.files/*.driver"):
            os.unlink(sign)
        yield batch

try:
    lake.write(frame.mapInArrow(hide_sign, columns), "t", mode="append")
except errors.StorageError as error:
    told["unseen"] = str(error)
told["after"] = whole("t")
told["read"] = {engine: lake.read("t", spark, engine=engine).count() for engine in ("native", "duckdb")}
print(json.dumps(told))
spark.stop()
"""


@pytest.fixture
def cluster(servers: Servers) -> SparkCluster:
    return servers.get(SparkCluster)


def test_a_cluster_writes_and_reads(cluster: SparkCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, cluster.url, str(tmp_path / "lake")]
    env = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["engine"], told["flat"]) == ("duckdb", "duckdb")
    for moment in ("written", "killed", "after"):
        assert told[moment] == [200_000, 200_000, []], moment
    assert "does not see the lake's files" in told["unseen"]
    assert "Mount that folder" in told["unseen"]
    assert told["read"] == {"native": 200_000, "duckdb": 200_000}
