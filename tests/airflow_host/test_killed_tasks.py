"""Killed tasks: which files remain of a Spark write or a maintenance run, and what the retry does."""

import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch.airflow import DuckLakeHook, DuckLakeMaintenanceOperator, DuckLakeWriteOperator
from tests.airflow_host.task_processes import killed_maintenance, started_write
from tests.support.airflow_tasks import execute
from tests.support.waiting import waiting


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_killed_spark_write_is_written_once_by_the_retry(
    conn_id: str, tmp_path: Path, signal_number: signal.Signals
) -> None:
    DuckLakeHook().write(pa.table({"n": [-1]}), "t", mode="append")
    begun = tmp_path / "begun"
    begun.mkdir()
    process = started_write(begun)
    try:
        waiting(lambda: len(list(begun.iterdir())) >= 6, "running Spark tasks", 120)
        process.send_signal(signal_number)
        assert process.wait(60) == (143 if signal_number == signal.SIGTERM else -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    lake = DuckLakeHook().lake()
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()] == [1, 0]
    if signal_number == signal.SIGTERM:
        started = len(list(begun.iterdir()))
        time.sleep(3)
        assert len(list(begun.iterdir())) == started
        assert lake.fsck(deep=True, storage=True).findings == []
    retry = DuckLakeWriteOperator(
        task_id="write", table="t", mode="append", python_callable=lambda: pa.table({"n": range(200)})
    )
    assert not execute(retry, try_number=2)["replayed"]
    assert DuckLakeHook().get_records("SELECT count(*), count(DISTINCT n) FROM t") == [(201, 201)]
    # A killed process leaves orphaned files. Fsck reports them, and cleanup deletes them after the retention floor.
    assert {finding.severity for finding in lake.fsck(deep=True, storage=True).findings} <= {"info"}


@pytest.mark.parametrize("point", ["files.written", "commit.after"])
def test_a_killed_merge_blocks_no_other_operation_and_its_retry_completes_it(conn_id: str, point: str) -> None:
    hook = DuckLakeHook()
    for number in range(6):
        hook.write(pa.table({"n": [number]}), "t", mode="append")
    assert killed_maintenance(point, "merge") == -signal.SIGKILL
    for operation in ("expire", "cleanup", "orphans", "merge"):
        done = execute(DuckLakeMaintenanceOperator(task_id="maintain", operations=[operation]), try_number=2)
        assert done["status"] == "ok"
    lake = hook.lake()
    assert lake.tables()[0].file_count == 1
    assert hook.get_records("SELECT n FROM t ORDER BY n") == [(number,) for number in range(6)]
    assert {finding.severity for finding in lake.fsck(deep=True, storage=True).findings} <= {"info"}
