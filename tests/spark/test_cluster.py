"""A real cluster: executors that have DuckDB and pyarrow, and of this package what comes along with the task."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.base import LOOPBACK
from tests.servers.spark_cluster import SparkCluster
from tests.support.lakes import Servers

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

SPECULATING = """
import json, sys, time
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

url, folder = sys.argv[1:]
conf = {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5"}
conf |= {"spark.speculation.multiplier": "1.1", "spark.executor.memory": "700m"}
spark = local_session("speculation", master=url, conf=conf)
bound = spark.sparkContext.getConf().get("spark.driver.bindAddress")
lake = DuckLake.local(folder, data_inlining_row_limit=0)

def hang_once(batches):
    from pyspark import TaskContext
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        yield batch
        if context.partitionId() == 1 and context.attemptNumber() == 0 and number == 3:
            time.sleep(150)

lake.create_table("t", {"id": "BIGINT"}, options={"target_file_size": "50KB"})
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
started = time.monotonic()
lake.write(spark.range(0, 200_000, 1, 2).mapInArrow(hang_once, "id bigint"), "t", mode="append")
told = {"seconds": time.monotonic() - started, "bound": bound}
told["rows"] = lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").rows[0]
told["strays"] = [one.detail for one in lake.fsck(deep=True, storage=True).findings]
print(json.dumps(told))
spark.stop()
"""


CHANGING = """
import json, os, signal, sys, threading, time
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

url, folder = sys.argv[1:]
spark = local_session("changes", master=url, conf={"spark.executor.memory": "700m"})
lake = DuckLake.local(folder, data_inlining_row_limit=0)
tracker = spark.sparkContext.statusTracker()

def executors(batches):
    import pyarrow
    for batch in batches:
        parent = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
        yield pyarrow.RecordBatch.from_pydict({"pid": [parent]})

def while_one_dies(change):
    some = spark.range(0, 8, 1, 8).mapInArrow(executors, "pid bigint").collect()
    killed = []

    def kill():
        while not tracker.getActiveJobsIds():
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(some[0]["pid"], signal.SIGKILL)
        killed.append(bool(tracker.getActiveJobsIds()))

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    change()
    thread.join()
    rows = lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(v)::BIGINT AS v FROM t").rows[0]
    return [killed, rows, [one.detail for one in lake.fsck(deep=True).findings]]

frame = spark.range(0, 400_000, 1, 8).selectExpr("id", "id % 10 AS v")
lake.write(frame, "t", mode="append", distribution="none")
told = {}
told["update"] = while_one_dies(lambda: lake.update("t", {"v": "v + 1"}, "id % 2 = 0", spark=spark, engine="spark"))
told["delete"] = while_one_dies(lambda: lake.delete("t", "id % 4 = 1", spark=spark, engine="spark"))
new = spark.range(300_000, 500_000, 1, 4).selectExpr("id", "CAST(0 AS BIGINT) AS v")
told["merge"] = while_one_dies(lambda: lake.write(new, "t", mode="merge", keys=["id"], engine="spark"))
print(json.dumps(told))
spark.stop()
"""


@pytest.fixture
def cluster(servers: Servers) -> SparkCluster:
    return servers.get(SparkCluster)


def told_by(program: str, cluster: SparkCluster, folder: Path) -> Any:
    """Run a program as a driver of the cluster; return what it tells at its end."""
    command = [sys.executable, "-c", program, cluster.url, str(folder / "lake")]
    env = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_cluster_writes_and_reads(cluster: SparkCluster, tmp_path: Path) -> None:
    told = told_by(PROGRAM, cluster, tmp_path)
    assert (told["engine"], told["flat"]) == ("duckdb", "duckdb")
    for moment in ("written", "killed", "after"):
        assert told[moment] == [200_000, 200_000, []], moment
    assert "does not see the lake's files" in told["unseen"]
    assert "Mount that folder" in told["unseen"]
    assert told["read"] == {"native": 200_000, "duckdb": 200_000}


def test_speculative_attempts_write_each_row_once(cluster: SparkCluster, tmp_path: Path) -> None:
    told = told_by(SPECULATING, cluster, tmp_path)
    assert told["rows"] == {"n": 200_000, "ids": 200_000}
    assert told["strays"] == []
    assert told["bound"] is None  # executors of other machines could not find a driver that listens to this one alone
    assert told["seconds"] < 150  # or nobody overtook the attempt that hung


def test_row_changes_apply_once_when_an_executor_is_killed(cluster: SparkCluster, tmp_path: Path) -> None:
    told = told_by(CHANGING, cluster, tmp_path)
    v = {one: one % 10 + (one % 2 == 0) for one in range(400_000)}
    assert told["update"] == [[True], {"n": 400_000, "ids": 400_000, "v": sum(v.values())}, []]
    left = {one: value for one, value in v.items() if one % 4 != 1}
    assert told["delete"] == [[True], {"n": 300_000, "ids": 300_000, "v": sum(left.values())}, []]
    merged = left | dict.fromkeys(range(300_000, 500_000), 0)
    assert told["merge"] == [[True], {"n": len(merged), "ids": len(merged), "v": sum(merged.values())}, []]
