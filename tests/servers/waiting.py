"""Wait for what takes its time in another process."""

import time
from collections.abc import Callable
from typing import Any


def waiting(done: Callable[[], Any], what: str, seconds: float) -> Any:
    """Wait until something is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := done():
            return found
        time.sleep(1)
    raise TimeoutError(f"{what} did not come within {seconds:.0f} s")
