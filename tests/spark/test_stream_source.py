"""A table as the source of a streaming query of Spark: into a copy exactly once, errors, and what tasks get to see."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.data_source import data_source
from ducklake_orch.spark.kept_config import keep
from tests.support.backends import LOCAL, POSTGRES, Backend
from tests.support.lakes import MakeLake
from tests.support.spark_reads import execute
from tests.support.table_steps import rows_of

NESTED = {
    "k": pa.array([1, 2, 3], pa.int64()),
    "d": pa.array([1, None, 3], pa.decimal128(9, 2)),
    "ts": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    "n": pa.array([0, 1, None], pa.timestamp("us")),
    "l": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "m": pa.array([[("a", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
    "s": pa.array([{"x": 1, "y": ["é"]}, None, {"x": None, "y": None}]),
    "b": pa.array([b"x", b"", None], pa.binary()),
}


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def run_all(stream: DataFrame, checkpoint: Path, batch: Callable[[DataFrame, int], Any]) -> None:
    """Run a query until it has delivered everything that there is."""
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(batch)
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_copy_has_every_row_once_across_restarts_and_in_every_type(
    lake: DuckLake, spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table(NESTED)
    lake.write(rows, "t", mode="append")
    write = lake.stream_writer("copy")
    for turn in range(3):
        run_all(lake.read_stream(spark, "t", start="earliest"), tmp_path / "checkpoint", write)
        assert lake.table("copy").count() == lake.table("t").count() == 3 * (turn + 1)
        lake.write(rows, "t", mode="append", inline="auto")
    copied, original = (Counter(map(repr, lake.read(table).to_pylist())) for table in ("copy", "t"))
    assert original - copied == Counter(map(repr, rows.to_pylist()))  # the last turn wrote after the query
    lake.register(spark)
    by_name = spark.readStream.format("ducklake").options(table="t", start="0", maxSnapshotsPerBatch="2").load()
    batches: list[int] = []
    run_all(by_name, tmp_path / "by-name", lambda frame, _: batches.append(frame.count()))
    assert batches == [6, 6]


def test_the_change_feed_keeps_a_replica_up_to_date(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    lake.write(rows_of((1, "a"), (2, "b"), (3, "c")), "t", mode="append")
    merge = lake.stream_writer("replica", "merge", keys=["id"], delete_condition="source.change_type = 'delete'")

    def apply(batch: DataFrame, number: int) -> None:
        newest_first = "row_number() OVER (PARTITION BY rowid ORDER BY snapshot_id DESC) AS n"
        changes = batch.where("change_type <> 'update_preimage'").selectExpr("*", newest_first).where("n = 1")
        merge(changes.selectExpr("rowid AS id", "change_type", "v"), number)

    def follow() -> None:
        run_all(lake.read_stream(spark, "t", start="earliest", changes=True), tmp_path / "checkpoint", apply)

    follow()
    lake.update("t", {"v": "v || '?'"}, "k = 2")
    lake.update("t", {"v": "'b!'"}, "k = 2")
    lake.delete("t", "k = 1")
    execute(lake, "INSERT INTO t VALUES (9, 'i')", "CALL ducklake_flush_inlined_data('lake')")
    lake.maintain(operations=["merge"], tables=["t"])
    follow()
    replica, original = (sorted(lake.read(table)["v"].to_pylist()) for table in ("replica", "t"))
    assert replica == original == ["b!", "c", "i"]


def test_errors_of_a_stream_say_what_to_do(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    stream = lake.read_stream(spark, "t", start=0)
    lake.delete("t", "k = 1")
    with pytest.raises(StreamingQueryException, match='on_update="ignore"'):
        run_all(stream, tmp_path / "deletes", lambda frame, _: frame.count())
    lake.write(pa.table({"k": [1], "w": [1]}), "t", mode="append", schema_evolution="add")
    with pytest.raises(StreamingQueryException, match="Make the DataFrame anew"):
        run_all(stream, tmp_path / "columns", lambda frame, _: frame.count())
    with pytest.raises(ConfigError, match="`on_update` = 'skip' is unknown"):
        lake.read_stream(spark, "t", on_update="skip")
    lake.register(spark)
    with pytest.raises(AnalysisException, match="Did you mean `maxRowsPerBatch`"):
        spark.readStream.format("ducklake").options(table="t", start="0", maxRowPerBatch="2").load()


# What Spark does in a process of its own: it asks a source for a reader or a writer, and then pickles both for tasks.
PLANNER = """
import sys
from pyspark import cloudpickle

source, kind = cloudpickle.loads(sys.stdin.buffer.read()), sys.argv[1]
schema = source.schema()
if kind == "streamWriter":
    source.options["query"] = "q"
made = getattr(source, kind)(schema, *([False] if kind.endswith("riter") else []))
if kind == "streamReader":
    assert made.initialOffset()["snapshot"] > 0
sys.stdout.buffer.write(cloudpickle.dumps((source, made)))
"""


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL)], indirect=True, ids=str)
@pytest.mark.parametrize("kind", ["reader", "streamReader", "writer", "streamWriter"])
def test_tasks_get_no_secret_of_the_catalog(make_lake: MakeLake, kind: str) -> None:
    lake = make_lake()
    lake.write(rows_of((1, "a")), "t", mode="append")
    password = b"canary"  # its first letters, which need no escapes wherever they are stored
    assert lake.config.catalog.password.get_secret_value().startswith(password.decode())  # type: ignore[union-attr]
    kept = keep(lake.config)
    planned = cloudpickle.dumps(data_source(kept, "secretive")(options={"table": "t"}))  # type: ignore[no-untyped-call]
    assert password not in planned  # Spark sends the class of a source to tasks, too
    done = subprocess.run([sys.executable, "-c", PLANNER, kind], input=planned, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert len(done.stdout) > 100_000
    assert password not in done.stdout


# --- killed queries --------------------------------------------------------------------------------------------------

QUERY = """
import sys
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

lake = DuckLake.local(sys.argv[1])
spark = local_session("stream", master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
rows = lake.read_stream(spark, "t", start="earliest", max_rows_per_batch=40, name="copy")
write = lake.stream_writer("copy")

def batch(frame, number):
    write(frame, number)
    print("batch", number, flush=True)

query = rows.writeStream.option("checkpointLocation", sys.argv[2]).foreachBatch(batch)
if len(sys.argv) > 3:
    query = query.trigger(availableNow=True)
query.start().awaitTermination()
"""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_copy_by_repeatedly_killed_queries_has_every_row_once(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(pa.table({"k": range(100)}), "t", mode="append")
    faults = [None, "commit.after", "files.written", None, "commit.after"]
    for turn, fault in enumerate(faults):
        environment = os.environ | ({"DUCKLAKE_ORCH_FAULT": fault} if fault else {})
        command = [sys.executable, "-c", QUERY, str(tmp_path / "lake"), str(tmp_path / "checkpoint")]
        with (tmp_path / "log").open("a") as log:
            query = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
            )
        end = time.monotonic() + 120
        for n in range(3):
            lake.write(
                pa.table({"k": range(1000 * turn + 100 * n + 100, 1000 * turn + 100 * n + 130)}), "t", mode="append"
            )
            lake.maintain({"merge": {"min_files": 2}}, operations=["merge"], tables=["t"])
        assert query.stdout is not None
        while fault is None and not query.stdout.readline().startswith(b"batch") and time.monotonic() < end:
            pass
        if fault is not None:
            query.wait(120)
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
        query.stdout.close()
    command = [sys.executable, "-c", QUERY, str(tmp_path / "lake"), str(tmp_path / "checkpoint"), "to the end"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    copied, original = (sorted(lake.read(table)["k"].to_pylist()) for table in ("copy", "t"))
    assert copied == original
    assert len(original) == 100 + 90 * len(faults)
