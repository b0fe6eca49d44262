"""Tasks in a process of their own, which dies as with `kill -9` at a named point."""

import os
import subprocess
import sys
from pathlib import Path

from ducklake_orch.airflow import DuckLakeExecuteOperator
from tests.airflow_host.test_write import execute

_REPOSITORY = Path(__file__).parents[2]


def killed_at(point: str, *arguments: str) -> int:
    """Run a task up to a point, and return how its process ended."""
    command = [sys.executable, "-m", "tests.airflow_host.killed", *arguments]
    environment = os.environ | {"DUCKLAKE_ORCH_FAULT": point}
    return subprocess.run(command, env=environment, cwd=_REPOSITORY, timeout=120, check=False).returncode


def main(task_id: str, command: str, run_id: str = "run") -> None:
    """Run a command as a task."""
    execute(DuckLakeExecuteOperator(task_id=task_id, command=command), run_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
