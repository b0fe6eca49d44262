"""Runs work in a forked child process that dies, as by `kill -9`, at a named point."""

import os
import signal
import traceback
from collections.abc import Callable

import pytest

from ducklake_orch.engine import fault_points


def dies_at(point: str, work: Callable[[], object]) -> bool:
    """Return whether the child reached the point and died there; otherwise it has finished."""
    child = os.fork()
    if child == 0:
        try:
            fault_points._ACTIVE = point
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
        pytest.fail(f"the child failed before it came to {point}")
    return False
