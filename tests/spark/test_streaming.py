"""Streams into a table: every row exactly once, although the query is killed and restarted."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.errors import ConfigError
from tests.support.spark_reads import execute

QUERY = """
import sys
from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.spark import local_session

lake, batches = DuckLake.local(sys.argv[1]), int(sys.argv[3])
spark = local_session("stream", master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=40, numPartitions=2).load()
write = lake.stream_writer("t", commit=CommitInfo(author="stream"))

def batch(frame, number):
    if number == batches:
        print("done", flush=True)
        query.stop()
        return
    write(frame, number)
    print("batch", number, flush=True)

query = rows.writeStream.option("checkpointLocation", sys.argv[2]).foreachBatch(batch).start()
try:
    query.awaitTermination()
except Exception as error:
    print(error, file=sys.stderr)
"""


def start(folder: Path, batches: int, fault: str | None = None) -> subprocess.Popen[str]:
    environment = os.environ | ({"DUCKLAKE_ORCH_FAULT": fault} if fault else {})
    command = [sys.executable, "-c", QUERY, str(folder / "lake"), str(folder / "checkpoint"), str(batches)]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
        )


def kill(query: subprocess.Popen[str]) -> None:
    """Kill the query and its JVM, which would otherwise keep running for a while."""
    with suppress(ProcessLookupError):  # the processes have ended already
        os.killpg(query.pid, signal.SIGKILL)
    query.wait()
    assert query.stdout is not None
    query.stdout.close()


def lines(query: subprocess.Popen[str], until: str, seconds: float = 120) -> list[str]:
    assert query.stdout is not None
    found, end = [], time.monotonic() + seconds
    for line in query.stdout:
        found.append(line.strip())
        if line.startswith(until) or time.monotonic() > end:
            break
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.full)])
def test_a_repeatedly_killed_query_writes_every_row_once(tmp_path: Path, times: int) -> None:
    for number in range(times):
        if number % 3 == 0:  # killed after the commit, before Spark records the batch
            query = start(tmp_path, 1000, fault="commit.after")
            query.wait(120)
            assert query.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
        elif number % 3 == 1:  # killed before the commit, after the files are written
            query = start(tmp_path, 1000, fault="files.written")
            query.wait(120)
        else:
            query = start(tmp_path, 1000)
            assert lines(query, "batch")[-1:] != []
        kill(query)
    lake = DuckLake.local(tmp_path / "lake")
    done = lake.table("t").count() // 40
    query = start(tmp_path, done + 3)
    output = lines(query, "done")
    assert output[-1] == "done", (tmp_path / "log").read_text()[-3000:]
    kill(query)
    values = lake.read("t", columns=["value"]).column("value").to_pylist()
    assert sorted(values) == list(range(40 * (done + 3)))
    streamed = [snapshot for snapshot in lake.snapshots() if snapshot.author == "stream"]
    assert len(streamed) == done + 3
    extra = streamed[0].extra
    assert isinstance(extra, dict)
    assert json.loads(json.dumps(extra))["stream"]["batch"] == done + 2
    assert {finding.code for finding in lake.fsck(storage=True).findings} <= {"stray-file"}


def test_a_replayed_batch_writes_no_row_twice(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    write = lake.stream_writer("t", query="orders", commit=CommitInfo(message="m"))
    frame = spark.range(10)
    first = write(frame, 0)
    assert first is not None
    again = write(frame, 0)
    assert again is not None
    assert (first.rows_written, again.replayed) == (10, True)
    write(frame, 1)
    with pytest.raises(ConfigError, match="its checkpoint was made anew"):
        write(frame, 0)
    lake.stream_writer("t", query="others")(frame, 0)
    assert lake.table("t").count() == 30


def test_a_replayed_overwrite_batch_keeps_later_writes(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    write = lake.stream_writer("t", "overwrite", query="totals")
    assert write(spark.range(3), 0) is not None
    execute(lake, "INSERT INTO t VALUES (7)")
    assert write(spark.range(3), 0) is None
    assert lake.table("t").count() == 4
    assert write(spark.range(2), 1) is not None
    assert lake.table("t").count() == 2


def test_a_stream_of_changes_is_merged_batch_by_batch(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    write = lake.stream_writer("customers", "merge", query="changes", keys=["id"])
    for batch, (start, end) in enumerate([(0, 4), (2, 6), (2, 6)]):
        for _ in range(2):  # the second call replays the batch, as after a restart
            write(spark.range(start, end).selectExpr("id", f"{batch} AS batch"), batch)
    assert sorted(map(tuple, (row.values() for row in lake.read("customers").to_pylist()))) == [
        (0, 0), (1, 0), (2, 2), (3, 2), (4, 2), (5, 2)
    ]  # fmt: skip
    assert len(lake.snapshots()) == 4


def test_a_batch_outside_a_streaming_query_needs_a_query_name(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    with pytest.raises(ConfigError, match="not a batch of a streaming query"):
        lake.stream_writer("t")(spark.range(3), 0)


def test_arguments_are_checked_before_the_query_starts(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    with pytest.raises(ConfigError, match="no argument `inlined`"):
        lake.stream_writer("t", inlined="auto")
    with pytest.raises(ConfigError, match="no argument `idempotency_key`"):
        lake.stream_writer("t", idempotency_key="mine")
    with pytest.raises(ConfigError, match="`query`"):
        lake.stream_writer("t", query=" ")
