"""`writeStream.format("ducklake")`: each batch once, appended, merged or complete; options and errors."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.data_source_steps import write_partition
from ducklake_orch.spark.stream_sink import finish_batch, plan_batch, query_of
from tests.support.backends import LOCAL, MYSQL, POSTGRES, S3_DISK, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.table_steps import rows_of

BACKENDS = [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK), Backend(MYSQL, LOCAL)]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.register(spark)
    return lake


def run(frame: DataFrame, checkpoint: Path, output: str = "append", **options: str) -> None:
    """Run a query until it has written everything that there is."""
    options |= {"checkpointLocation": str(checkpoint)}
    writer = frame.writeStream.format("ducklake").outputMode(output).options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def forget_last_batch(checkpoint: Path) -> None:
    """Make the query run its last batch again, as after a kill between the commit and Spark's record of it."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()


def written_batches(lake: DuckLake) -> list[int]:
    """Return the numbers of the batches that were committed, and assert that no batch was twice."""
    extras = [snapshot.extra or {} for snapshot in lake.snapshots()]
    batches = [extra["stream"]["batch"] for extra in extras if "stream" in extra]
    assert len(set(batches)) == len(batches)
    return batches


def values(lake: DuckLake, table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in lake.read(table).to_pylist())


@pytest.mark.parametrize("backend", BACKENDS, indirect=True, ids=str)
def test_each_batch_is_appended_once_across_restarts(make_lake: MakeLake, spark: SparkSession, tmp_path: Path) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.register(spark)
    for turn in range(3):
        lake.write(rows_of((turn, "a"), (turn + 10, None)), "t", mode="append")
        stream = lake.read_stream(spark, "t", start="earliest")
        run(stream, tmp_path / "checkpoint", table="copy", author="me")
        forget_last_batch(tmp_path / "checkpoint")
        run(lake.read_stream(spark, "t", start="earliest"), tmp_path / "checkpoint", table="copy", author="me")
        assert sorted(lake.read("copy")["k"].to_pylist()) == sorted(lake.read("t")["k"].to_pylist())
    assert len(written_batches(lake)) == 3
    assert lake.snapshots(1)[0].author == "me"
    assert not lake.fsck(deep=True, storage=True).counts


def test_the_sink_goes_on_where_a_stream_writer_stopped(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    stream = lake.read_stream(spark, "t", start="earliest")
    query = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.foreachBatch(lake.stream_writer("copy")).trigger(availableNow=True).start().awaitTermination()
    forget_last_batch(tmp_path / "checkpoint")
    lake.write(rows_of((2, "b")), "t", mode="append")
    run(stream, tmp_path / "checkpoint", table="copy")
    assert values(lake, "copy") == [(1, "a"), (2, "b")]


def test_batches_are_merged_by_keys_and_a_replay_keeps_later_changes(
    lake: DuckLake, spark: SparkSession, tmp_path: Path
) -> None:
    def follow() -> None:
        changes = lake.read_stream(spark, "t", start="earliest", changes=True)
        newest = changes.where("change_type <> 'update_preimage'").selectExpr(
            "k", "change_type", "v", "NULL AS nothing"
        )
        run(
            newest,
            tmp_path / "checkpoint",
            table="replica",
            mode="merge",
            keys="k",
            delete_condition="source.change_type = 'delete'",
        )

    lake.create_table("replica", {"k": "BIGINT", "change_type": "VARCHAR", "v": "VARCHAR", "nothing": "DATE"})
    lake.write(rows_of((1, "a"), (2, "b"), (3, "c")), "t", mode="append")
    follow()
    lake.update("t", {"v": "'b!'"}, "k = 2")
    lake.delete("t", "k = 1")
    follow()
    assert lake.read("replica", columns=["k", "v"]).sort_by("k").to_pylist() == [
        {"k": 2, "v": "b!"},
        {"k": 3, "v": "c"},
    ]
    lake.update("replica", {"v": "'later'"}, "k = 2")
    forget_last_batch(tmp_path / "checkpoint")
    follow()
    assert lake.read("replica", where="k = 2")["v"].to_pylist() == ["later"]
    assert not lake.fsck(deep=True, storage=True).counts


def test_batches_of_changes_keep_the_history_of_rows(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    def follow() -> None:
        changes = lake.read_stream(spark, "t", start="earliest", changes=True)
        newest = changes.where("change_type <> 'update_preimage'").selectExpr(
            "k", "v", "snapshot_id AS valid_from", "change_type = 'delete' AS gone"
        )
        merging = {"mode": "merge", "keys": "k", "strategy": "scd2", "boundary": "valid_from", "hard_delete": "gone"}
        run(newest, tmp_path / "checkpoint", table="history", **merging)

    first = lake.write(rows_of((1, "a"), (2, "b"), (3, "c")), "t", mode="append").snapshot_id
    follow()
    second = lake.update("t", {"v": "'b!'"}, "k = 2").snapshot_id
    third = lake.delete("t", "k = 1").snapshot_id
    follow()
    forget_last_batch(tmp_path / "checkpoint")
    follow()
    versions = lake.read("history").sort_by([("k", "ascending"), ("valid_from", "ascending")]).to_pylist()
    assert [tuple(row.values()) for row in versions] == [
        (1, "a", first, third),
        (2, "b", first, second),
        (2, "b!", second, None),
        (3, "c", first, None),
    ]


def test_complete_output_replaces_the_table_with_each_batch(
    lake: DuckLake, spark: SparkSession, tmp_path: Path
) -> None:
    def follow() -> None:
        stream = lake.read_stream(spark, "t", start="earliest")
        run(stream.groupBy("v").count(), tmp_path / "checkpoint", "complete", table="totals")

    lake.write(rows_of((1, "a"), (2, "a")), "t", mode="append")
    follow()
    lake.write(rows_of((3, "b"), (4, "a")), "t", mode="append")
    follow()
    forget_last_batch(tmp_path / "checkpoint")
    follow()
    assert values(lake, "totals") == [("a", 3), ("b", 1)]
    assert len(written_batches(lake)) >= 2


def test_a_failed_batch_leaves_no_file_and_its_repetition_writes_it(
    lake: DuckLake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.write(pa.table({"k": range(10)}), "t", mode="append")
    lake.write(pa.table({"k": [99]}), "t", mode="append")
    stream, mark = lake.read_stream(spark, "t", start="earliest"), tmp_path / "mark"

    def fail_at_99(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            if 99 in batch.column(0).to_pylist() and not mark.exists():
                raise RuntimeError("boo")
            yield batch

    with pytest.raises(StreamingQueryException, match="boo"):
        run(stream.mapInArrow(fail_at_99, "k long"), tmp_path / "checkpoint", table="copy")
    assert not lake.exists("copy")
    mark.touch()
    run(stream.mapInArrow(fail_at_99, "k long"), tmp_path / "checkpoint", table="copy")
    assert values(lake, "copy") == values(lake, "t")
    assert {finding.code for finding in lake.fsck(deep=True, storage=True).findings} <= {"stray-file"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option `table`"),
        ({"table": "t", "tablo": "t"}, "Did you mean `table`"),
        ({"table": "t", "mode": "upsert"}, "`mode` = 'upsert' is unknown"),
        ({"table": "t", "mode": "merge"}, "is not a list of names"),
        ({"table": "t", "keys": "k"}, "`keys` needs `mode` = `merge`"),
        ({"table": "t", "schema_evolution": "drop"}, "'drop' is unknown"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, str], words: str) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(rows_of((1, "a")), "t", mode="append")
    schema = StructType([StructField("k", LongType()), StructField("v", StringType())])
    with pytest.raises(ConfigError, match=words):
        plan_batch(lake.config, ({"query": "q"} | options, schema, False))
    with pytest.raises(ConfigError, match="`complete` replaces the whole table"):
        plan_batch(lake.config, ({"query": "q", "table": "t", "mode": "merge", "keys": "k"}, schema, True))


@pytest.mark.parametrize("mode", ["append", "merge", "complete"])
def test_a_late_commit_of_an_old_batch_changes_nothing(tmp_path: Path, mode: str) -> None:
    """A commit runs in a process of its own, which can outlive the query that started it."""
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    schema = StructType([StructField("k", LongType()), StructField("v", StringType())])
    options = {"table": "t", "query": "q"} | ({"mode": "merge", "keys": "k"} if mode == "merge" else {})
    given = (options, schema, mode == "complete")

    def written(value: str) -> tuple[bytes, list[bytes]]:
        planned, task = plan_batch(lake.config, given)
        return planned, write_partition((task, iter(rows_of((1, value)).to_batches())))

    def commit(number: int, batch: tuple[bytes, list[bytes]]) -> None:
        finish_batch(lake.config, (*given, batch[0], number, batch[1]))

    late = written("first")
    commit(0, written("first"))
    commit(0, written("first"))  # repeated, as after a kill
    commit(1, written("second"))
    with pytest.raises(ConfigError, match="Batches 0 and 1 of the streaming query `q` are in"):
        commit(0, late)
    expected = [(1, "first"), (1, "second")] if mode == "append" else [(1, "second")]
    assert values(lake, "t") == expected
    assert written_batches(lake) == [1, 0]
    assert not lake.fsck(deep=True, storage=True).counts


@pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "number#2", "question?mark"])
def test_the_id_of_a_query_is_that_of_its_own_checkpoint(tmp_path: Path, name: str) -> None:
    for folder in {name, name[:6], "per cent"}:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "metadata").write_text(json.dumps({"id": folder}))
    for prefix in ("", "file:", "file://"):
        assert query_of({"checkpointlocation": f"{prefix}{tmp_path / name}"}) == name


def test_a_query_whose_id_is_unknown_needs_a_name(
    lake: DuckLake, new_session: Callable[[], SparkSession], tmp_path: Path
) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    session = new_session()
    session.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    lake.register(session)  # under the name that it has in the other session
    writer = lake.read_stream(session, "t", start="earliest").writeStream.format("ducklake").queryName("follow")
    query = writer.option("table", "copy").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="Give the option `query`"):
        query.awaitTermination()
    for _ in range(2):
        writer.options(table="copy", query="copy of t").trigger(availableNow=True).start().awaitTermination()
    assert values(lake, "copy") == [(1, "a")]


# --- killed queries --------------------------------------------------------------------------------------------------

QUERY = """
import sys
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

lake = DuckLake.local(sys.argv[1])
spark = local_session("stream", master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
lake.register(spark)
rows = lake.read_stream(spark, "t", start="earliest", max_rows_per_batch=40)
options = {"table": sys.argv[3], "checkpointLocation": sys.argv[2]}
if sys.argv[3] == "merged":
    options |= {"mode": "merge", "keys": "k"}
query = rows.writeStream.format("ducklake").options(**options)
if len(sys.argv) > 4:
    query = query.trigger(availableNow=True)
query.start().awaitTermination()
"""


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("table", ["copy", "merged"])
def test_queries_that_are_killed_at_any_time_write_every_row_once(tmp_path: Path, table: str) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(pa.table({"k": range(100)}), "t", mode="append")
    command = [sys.executable, "-c", QUERY, str(tmp_path / "lake"), str(tmp_path / "checkpoint"), table]
    for turn in range(5):
        with (tmp_path / "log").open("a") as log:
            query = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        for n in range(4):
            first = 1000 * turn + 100 * n + 100
            lake.write(pa.table({"k": range(first, first + 60)}), "t", mode="append")
            time.sleep(2.5 + 0.7 * turn)
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    done = subprocess.run([*command, "to the end"], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert values(lake, table) == values(lake, "t")
    assert len(values(lake, "t")) == 100 + 5 * 240
