"""Wrong clocks: libfaketime is loaded into this process before it starts, and then obeys an environment variable."""

import os
import sys
from collections.abc import Sequence

import libfaketime


def start_with_clock(arguments: Sequence[str]) -> None:
    """Start this program again with libfaketime, unless it is loaded. Servers that are started later do not load it."""
    missing, variables = libfaketime.get_reload_information()
    if missing:
        started = {**os.environ, **variables, "FAKETIME_DID_REEXEC": "true"}
        os.execve(sys.executable, [sys.executable, "-m", __package__, *arguments], started)
    for name in variables:
        os.environ.pop(name, None)


def set_clock(hours: int) -> None:
    """Set the clock of this process so many hours ahead; below 0, behind."""
    os.environ["FAKETIME"] = f"{hours:+d}h"
