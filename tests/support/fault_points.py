"""Acts at the fault points of ducklake-orch: runs other work there, or kills a child process."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping

import duckdb
import pytest

from ducklake_orch.engine.fault_points import actions, kill


def once_at(monkeypatch: pytest.MonkeyPatch, point: str, work: Callable[[], object]) -> None:
    """Run work once, when this process reaches the point: between a plan and its commit, for example."""

    def act() -> None:
        monkeypatch.delitem(actions, point)
        work()

    monkeypatch.setitem(actions, point, act)


def lose_the_answer() -> None:
    """Fail as a statement does whose connection is lost before its answer arrives."""
    raise duckdb.IOException("server closed the connection unexpectedly")


def dies_at(point: str, work: Callable[[], object]) -> bool:
    """Run work in a forked child, and return whether it reached the point and died there, as by `kill -9`."""
    child = os.fork()
    if child == 0:
        try:
            actions[point] = kill
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    if os.WEXITSTATUS(status):
        pytest.fail(f"The child failed before it reached {point}.")
    return False


def run_until_killed(
    code: str,
    fault: str,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter that kills itself at the fault point, and check that it reached the point."""
    completed = subprocess.run(
        [sys.executable, "-c", code],
        # The same import path as here, whatever folder pytest was started in.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {})}
        | {"DUCKLAKE_ORCH_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert completed.returncode == -signal.SIGKILL, (
        f"The child should die at {fault!r}, and ended with {completed.returncode}.\n"
        f"{completed.stdout}\n{completed.stderr}"
    )
    return completed
