"""Kills the processes of a test that outlasts its time limit by far.

At the limit, pytest-timeout raises an exception in the test, which may then wait for its processes for ever.
"""

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import suppress

import psutil
import pytest

# In seconds: how long a test may take to end after its time limit.
_GRACE_S = 60.0
# The start times of processes are known to a second.
_CLOCK_S = 2.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    timer = threading.Timer(limit + _GRACE_S, _kill_started_since, [time.time() - _CLOCK_S, item.nodeid])
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _kill_started_since(start: float, test: str) -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.create_time() >= start:
                os.write(2, f"{test} hangs: killing {' '.join(process.cmdline())[:200]}\n".encode())
                process.send_signal(signal.SIGKILL)
