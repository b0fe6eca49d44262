"""Named points where a test can kill this process, or act in between, to prove that no row is lost or duplicated."""

import os
import signal
from collections.abc import Callable


def kill() -> None:
    """Kill this process, as `kill -9` would."""
    os.kill(os.getpid(), signal.SIGKILL)


# What happens at a point, by its name. Tests set actions; DUCKLAKE_ORCH_FAULT names the point where the process dies.
actions: dict[str, Callable[[], object]] = {point: kill for point in [os.environ.get("DUCKLAKE_ORCH_FAULT")] if point}


def fault_point(name: str) -> None:
    """Run the action of this point, if a test has set one."""
    if name in actions:
        actions[name]()
