"""Tasks in a process of their own, which is asked to end, or dies as with `kill -9`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ducklake_orch.airflow import DuckLakeExecuteOperator, DuckLakeWriteOperator
from tests.support.airflow_tasks import execute

_REPOSITORY = Path(__file__).parents[2]


def killed_at(point: str, command: str, run_id: str = "run") -> int:
    """Run a command as a task up to a named point, and return how its process ended."""
    environment = os.environ | {"DUCKLAKE_ORCH_FAULT": point}
    return subprocess.run(
        [sys.executable, "-m", __name__, "sql", command, run_id],
        env=environment,
        cwd=_REPOSITORY,
        timeout=120,
        check=False,
    ).returncode


def started_write(begun: Path) -> "subprocess.Popen[bytes]":
    """Start a task that writes with Spark, and goes on for minutes; its tasks leave files in a folder as they begin."""
    return subprocess.Popen([sys.executable, "-m", __name__, "write", str(begun)], cwd=_REPOSITORY)


def _run_command(command: str, run_id: str) -> None:
    execute(DuckLakeExecuteOperator(task_id="sql", command=command), run_id)


def _write(begun: str) -> None:
    """Write slowly, in a session that is not the task's; Airflow ends a task by calling `on_kill`."""
    from ducklake_orch.spark import local_session

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for n in batch["id"].to_pylist():
                Path(begun, str(n)).touch()
                time.sleep(1)
            yield pa.RecordBatch.from_pydict({"n": batch["id"]})

    session = local_session("test", master="local[2]")
    frame = session.range(0, 200, 1, 100).mapInArrow(slowly, "n long")
    task = DuckLakeWriteOperator(task_id="write", table="t", mode="append", python_callable=lambda spark: frame)
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    try:
        execute(task)
    except SystemExit:
        tracker = session.sparkContext.statusTracker()
        deadline = time.monotonic() + 20
        while tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.1)
        still = list(tracker.getActiveJobsIds())
        session.stop()
        sys.exit(f"jobs go on: {still}" if still else 143)


if __name__ == "__main__":
    if sys.argv[1] == "sql":
        _run_command(*sys.argv[2:])
    else:
        _write(*sys.argv[2:])
