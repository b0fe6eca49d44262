"""A standalone cluster whose executors have DuckDB and pyarrow; tasks ship the code of this package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
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
report = {}

def state_of(table):
    rows = lake.execute(f"SELECT count(*) AS n, count(DISTINCT id) AS ids FROM {table}").rows[0]
    strays = [finding.detail for finding in lake.fsck(deep=True, storage=True).findings]
    return [rows["n"], rows["ids"], strays]

report["engine"] = lake.write(frame, "t", mode="append", partition_by=["region"]).engine
report["flat"] = lake.write(frame, "flat", mode="append").engine
report["written"] = state_of("t")

def kill_executor_once(batches):
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
lake.write(small.mapInArrow(kill_executor_once, columns), "killed", mode="append")
report["killed"] = state_of("killed")

def hide_marker(batches):
    for batch in batches:
        for marker in glob.glob(f"{folder}.files/*.driver"):
            os.unlink(marker)
        yield batch

try:
    lake.write(frame.mapInArrow(hide_marker, columns), "t", mode="append")
except errors.StorageError as error:
    report["unseen"] = str(error)
report["after"] = state_of("t")
report["read"] = {engine: lake.read("t", spark, engine=engine).count() for engine in ("native", "duckdb")}
copied = lake.read_stream(spark, "t", start="earliest").writeStream.format("ducklake")
lake.register(spark)
copied = copied.options(table="copy", checkpointLocation=f"{folder}-checkpoint").trigger(availableNow=True)
for _ in range(2):
    assert copied.start().awaitTermination(120), "the query goes on"
report["copied"] = state_of("copy")
lake.sql(spark, "MERGE INTO copy USING t ON copy.id = t.id WHEN MATCHED AND copy.id < 5 THEN DELETE")
lake.sql(spark, "INSERT INTO copy SELECT id, region FROM t WHERE id < 5")
report["by SQL"] = state_of("copy")
print(json.dumps(report))
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

def hang_first_attempt(batches):
    from pyspark import TaskContext
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        yield batch
        if context.partitionId() == 1 and context.attemptNumber() == 0 and number == 3:
            time.sleep(150)

lake.create_table("t", {"id": "BIGINT"}, options={"target_file_size": "50KB"})
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
started = time.monotonic()
lake.write(spark.range(0, 200_000, 1, 2).mapInArrow(hang_first_attempt, "id bigint"), "t", mode="append")
report = {"seconds": time.monotonic() - started, "bound": bound}
report["rows"] = lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").rows[0]
report["strays"] = [finding.detail for finding in lake.fsck(deep=True, storage=True).findings]
print(json.dumps(report))
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

def losing_executor(change):
    pids = spark.range(0, 8, 1, 8).mapInArrow(executors, "pid bigint").collect()
    killed = []

    def kill():
        while not tracker.getActiveJobsIds():
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(pids[0]["pid"], signal.SIGKILL)
        killed.append(bool(tracker.getActiveJobsIds()))

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    change()
    thread.join()
    rows = lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(v)::BIGINT AS v FROM t").rows[0]
    return [killed, rows, [finding.detail for finding in lake.fsck(deep=True).findings]]

frame = spark.range(0, 400_000, 1, 8).selectExpr("id", "id % 10 AS v")
lake.write(frame, "t", mode="append", distribution="none")
report = {}
report["update"] = losing_executor(lambda: lake.update("t", {"v": "v + 1"}, "id % 2 = 0", spark=spark, engine="spark"))
report["delete"] = losing_executor(lambda: lake.delete("t", "id % 4 = 1", spark=spark, engine="spark"))
new = spark.range(300_000, 500_000, 1, 4).selectExpr("id", "CAST(0 AS BIGINT) AS v")
report["merge"] = losing_executor(lambda: lake.write(new, "t", mode="merge", keys=["id"], engine="spark"))
print(json.dumps(report))
spark.stop()
"""


@pytest.fixture
def cluster(servers: Servers) -> SparkCluster:
    return servers.get(SparkCluster)


def report_of(program: str, cluster: SparkCluster, folder: Path, start: list[str] | None = None) -> Any:
    """Run a program as a driver on the cluster and return the report that it prints last.

    Args:
        program: The program.
        cluster: The cluster.
        folder: The folder of the lake `lake`.
        start: What starts the program, if it is not Python.
    """
    (script := folder / "program.py").write_text(program)
    command = [*(start or [sys.executable]), str(script), cluster.url, str(folder / "lake")]
    env = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_submitted_program_writes_and_reads_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    report = report_of(PROGRAM, cluster, tmp_path, submit)
    assert (report["engine"], report["flat"]) == ("duckdb", "duckdb")
    for moment in ("written", "killed", "after", "copied", "by SQL"):
        assert report[moment] == [200_000, 200_000, []], moment
    assert "does not see the lake's files" in report["unseen"]
    assert "Mount that folder" in report["unseen"]
    assert report["read"] == {"native": 200_000, "duckdb": 200_000}


def test_speculative_attempts_write_each_row_once(cluster: SparkCluster, tmp_path: Path) -> None:
    report = report_of(SPECULATING, cluster, tmp_path)
    assert report["rows"] == {"n": 200_000, "ids": 200_000}
    assert report["strays"] == []
    assert report["bound"] is None  # a driver bound to localhost is unreachable from other machines
    assert report["seconds"] < 150  # the speculative attempt finished before the hanging one


def test_row_changes_apply_once_when_an_executor_is_killed(cluster: SparkCluster, tmp_path: Path) -> None:
    report = report_of(CHANGING, cluster, tmp_path)
    updated = {n: n % 10 + (n % 2 == 0) for n in range(400_000)}
    assert report["update"] == [[True], {"n": 400_000, "ids": 400_000, "v": sum(updated.values())}, []]
    retained = {n: value for n, value in updated.items() if n % 4 != 1}
    assert report["delete"] == [[True], {"n": 300_000, "ids": 300_000, "v": sum(retained.values())}, []]
    merged = retained | dict.fromkeys(range(300_000, 500_000), 0)
    assert report["merge"] == [[True], {"n": len(merged), "ids": len(merged), "v": sum(merged.values())}, []]
