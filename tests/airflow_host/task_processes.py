"""Tasks in their own process, which a test ends with SIGTERM or SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ducklake_orch.airflow import DuckLakeExecuteOperator, DuckLakeMaintenanceOperator, DuckLakeWriteOperator
from tests.support.airflow_tasks import execute

_REPOSITORY = Path(__file__).parents[2]


def killed_at(point: str, command: str, run_id: str = "run") -> int:
    """Run a command as a task, killed at a fault point, and return the exit code of its process."""
    return _run_until(point, "sql", command, run_id)


def killed_maintenance(point: str, operation: str) -> int:
    """Run a maintenance operation as a task, killed at a fault point, and return the exit code of its process."""
    return _run_until(point, "maintain", operation)


def _run_until(point: str, *arguments: str) -> int:
    command = [sys.executable, "-m", __name__, *arguments]
    environment = os.environ | {"DUCKLAKE_ORCH_FAULT": point}
    return subprocess.run(command, env=environment, cwd=_REPOSITORY, check=False).returncode


def started_write(begun: Path) -> "subprocess.Popen[bytes]":
    """Start a Spark write that runs for minutes; each row it starts on leaves a file in a folder."""
    return subprocess.Popen([sys.executable, "-m", __name__, "write", str(begun)], cwd=_REPOSITORY)


def _run_command(command: str, run_id: str) -> None:
    execute(DuckLakeExecuteOperator(task_id="sql", command=command), run_id)


def _maintain(operation: str) -> None:
    execute(DuckLakeMaintenanceOperator(task_id="maintain", operations=[operation]))


def _write(begun: str) -> None:
    """Write slowly, in a session that the task does not own; Airflow ends a task by calling `on_kill`."""
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
        active = list(tracker.getActiveJobsIds())
        session.stop()
        sys.exit(f"jobs still run: {active}" if active else 143)


if __name__ == "__main__":
    if sys.argv[1] == "sql":
        _run_command(*sys.argv[2:])
    elif sys.argv[1] == "maintain":
        _maintain(*sys.argv[2:])
    else:
        _write(*sys.argv[2:])
