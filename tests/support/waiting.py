"""Waits for a state in another process."""

import time
from collections.abc import Callable
from typing import Any


def waiting(done: Callable[[], Any], what: str, seconds: float) -> Any:
    """Wait until `done` returns a true value, and return it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := done():
            return value
        time.sleep(1)
    raise TimeoutError(f"{what} did not come within {seconds:.0f} s")
