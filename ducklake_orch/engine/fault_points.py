"""Named points where a test can kill this process, to prove that a crash there neither loses nor duplicates rows."""

import os
import signal

_ACTIVE = os.environ.get("DUCKLAKE_ORCH_FAULT")


def fault_point(name: str) -> None:
    """Kill this process, as `kill -9` would, if the environment variable DUCKLAKE_ORCH_FAULT names this point."""
    if _ACTIVE is not None and name == _ACTIVE:
        os.kill(os.getpid(), signal.SIGKILL)
