"""Failing, killed and repeated tasks, and killed drivers: every row is written once, and no stray file remains."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake, errors
from tests.support.backends import AZURE, POSTGRES, S3_DISK, Backend
from tests.support.refusals import refused

MakeLake = Callable[..., DuckLake]


@pytest.fixture
def local_lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def with_fault(frame: DataFrame, fault: Callable[[int, int], None], after: int = 60_000) -> DataFrame:
    """Call a function in each task after a number of rows, with the partition id and the attempt number."""

    def watch(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if seen >= after:
                fault(context.partitionId(), context.attemptNumber())

    return frame.mapInArrow(watch, frame.schema)


def assert_written_once(lake: DuckLake, count: int) -> None:
    assert lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").rows == [{"n": count, "ids": count}]
    assert lake.fsck(deep=True, storage=True).findings == []


class TestTaskAttempts:
    def test_a_task_retried_after_writing_writes_each_row_once(self, spark: SparkSession, local_lake: DuckLake) -> None:
        def fail(partition: int, attempt: int) -> None:
            if partition == 1 and attempt == 0:
                raise RuntimeError("the first attempt fails")

        local_lake.create_table("t", {"id": "BIGINT"}, options={"target_file_size": "100KB"})
        frame = with_fault(spark.range(0, 400_000, 1, 2), fail, after=150_000)
        local_lake.write(frame, "t", mode="append", engine="duckdb")
        assert_written_once(local_lake, 400_000)

    def test_a_killed_worker_writes_each_row_once(self, spark: SparkSession, local_lake: DuckLake) -> None:
        def die(partition: int, attempt: int) -> None:
            if partition == 0 and attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        local_lake.create_table("t", {"id": "BIGINT"}, options={"target_file_size": "100KB"})
        frame = with_fault(spark.range(0, 400_000, 1, 2), die, after=150_000)
        local_lake.write(frame, "t", mode="append", engine="duckdb")
        assert_written_once(local_lake, 400_000)

    @pytest.mark.parametrize("engine", ["duckdb", "native"])
    def test_a_write_whose_tasks_all_fail_leaves_no_file(
        self, spark: SparkSession, local_lake: DuckLake, engine: str
    ) -> None:
        def fail(partition: int, attempt: int) -> None:
            if partition == 1:
                time.sleep(0 if attempt else 1)  # the other task has written by then
                raise RuntimeError("every attempt fails")

        local_lake.write(spark.range(5), "t", mode="append")
        before = local_lake.snapshots(limit=1)[0].snapshot_id
        frame = with_fault(spark.range(0, 300_000, 1, 2), fail)
        message = refused(
            errors.StatementError,
            lambda: local_lake.write(frame, "t", mode="append", engine=engine),
            "`main.t`",
            "every attempt fails",
        )
        assert "at org.apache" not in message
        assert local_lake.snapshots(limit=1)[0].snapshot_id == before
        assert_written_once(local_lake, 5)

    @pytest.mark.parametrize("engine", ["duckdb", "native"])
    def test_tasks_still_running_when_a_write_fails_leave_no_file(
        self, spark: SparkSession, local_lake: DuckLake, engine: str
    ) -> None:
        def fail_or_take_long(partition: int, attempt: int) -> None:
            if partition == 1:
                raise RuntimeError("every attempt fails")
            time.sleep(0.1)

        local_lake.write(spark.range(5), "t", mode="append")
        frame = with_fault(spark.range(0, 1_500_000, 1, 2), fail_or_take_long)
        with pytest.raises(errors.StatementError, match="every attempt fails"):
            local_lake.write(frame, "t", mode="append", engine=engine)
        time.sleep(1)
        assert_written_once(local_lake, 5)

    def test_a_data_error_is_not_retried(self, spark: SparkSession, local_lake: DuckLake) -> None:
        attempts = spark.sparkContext.accumulator(0)

        def note(partition: int, attempt: int) -> None:
            attempts.add(1)

        local_lake.execute("CREATE TABLE t (id TINYINT)").raise_for_error()
        frame = with_fault(spark.range(0, 1000, 1, 1).selectExpr("CAST(id % 3 AS TINYINT) AS id"), note, after=0)
        local_lake.write(frame, "t", mode="append")
        local_lake.execute("DELETE FROM t").raise_for_error()
        assert attempts.value == 1
        wide = spark.sql("SELECT IF(id = 700, NULL, id) AS id FROM range(0, 1000, 1, 1)")
        local_lake.execute("CREATE TABLE strict (id BIGINT NOT NULL)").raise_for_error()
        refused(errors.DataError, lambda: local_lake.write(with_fault(wide, note, 0), "strict", mode="append"), "`id`")
        assert attempts.value == 2


class TestStorage:
    @pytest.mark.parametrize("backend", [Backend(POSTGRES, S3_DISK), Backend(POSTGRES, AZURE)], indirect=True, ids=str)
    def test_secrets_appear_in_no_plan_log_or_setting(
        self, spark: SparkSession, make_lake: MakeLake, event_log: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        lake = make_lake(data_inlining_row_limit=0)
        storage = lake.config.storage
        assert storage is not None
        frame = spark.range(0, 100, 1, 2)
        lake.write(frame, "t", mode="append")
        failing = spark.sql("SELECT CAST(raise_error('boo') AS BIGINT) AS id")
        refused(errors.StatementError, lambda: lake.write(failing, "t", mode="append"), "boo")
        secrets = [value for value in storage.secret_values() if len(value) > 3]
        assert secrets
        shown = [text.read_text(errors="replace") for text in event_log.rglob("*") if text.is_file()]
        shown += [str(spark.sparkContext.getConf().getAll()), str(spark.sql("SET").collect()), *capfd.readouterr()]
        assert any("mapInArrow" in text or "MapInArrow" in text for text in shown)
        assert not [secret for secret in secrets if any(secret in text for text in shown)]
        assert_written_once(lake, 100)


PROGRAM = """
import sys
import time
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

folder, mode = sys.argv[1:]
spark = local_session(master="local[1]")
lake = DuckLake.local(folder, data_inlining_row_limit=0)
lake.write(spark.range(0, 10, 1, 2), "t", mode=mode, idempotency_key="run-1")
"""


def run_killed(folder: Path, mode: str, moment: str) -> int:
    env = {**os.environ, "DUCKLAKE_ORCH_FAULT": moment}
    command = [sys.executable, "-c", PROGRAM, str(folder), mode]
    return subprocess.run(command, env=env, capture_output=True, timeout=120, check=False).returncode


class TestKilledDrivers:
    """A writing program is killed around its commit, then run again with the same idempotency key."""

    @pytest.mark.parametrize(
        ("mode", "moment"),
        [
            ("append", "commit.after"),
            ("overwrite", "files.written"),
            *(
                pytest.param(*case, marks=pytest.mark.full)
                for case in (
                    ("append", "files.written"),
                    ("append", "commit.before"),
                    ("overwrite", "commit.before"),
                    ("overwrite", "commit.after"),
                )
            ),
        ],
    )
    def test_a_rerun_after_a_killed_driver_writes_each_row_once(
        self, spark: SparkSession, tmp_path: Path, moment: str, mode: str
    ) -> None:
        lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
        lake.write(spark.range(100, 103), "t", mode="append")
        killed = run_killed(tmp_path / "lake", mode, moment)
        assert killed == -signal.SIGKILL
        findings = {finding.code for finding in lake.fsck(deep=True, storage=True).findings}
        assert findings == ({"stray-file"} if moment != "commit.after" else set())
        lake.write(spark.range(0, 10, 1, 2), "t", mode=mode, idempotency_key="run-1")
        count = 13 if mode == "append" else 10
        rows = lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").rows
        assert rows == [{"n": count, "ids": count}]
        strays = [finding for finding in lake.fsck(deep=True, storage=True).findings if finding.severity == "error"]
        assert strays == []
