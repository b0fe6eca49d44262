"""Runs code that kills its process at a fault point."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping


def run_until_killed(
    code: str,
    fault: str,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter that kills itself at the fault point, and check that it reached the point."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        # The same import path as here, whatever folder pytest was started in.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {})}
        | {"DUCKLAKE_ORCH_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == -signal.SIGKILL, (
        f"the child was to be killed at {fault!r} and ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done
