"""Runs the command line in a process of its own: in a terminal, and with signals."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.command_line import REPOSITORY

_PATIENCE_S = 60


class Terminal:
    """The command line with a terminal as stdin, stdout and stderr.

    Args:
        arguments: Of the command line.
        environ: Variables, such as COLUMNS.
    """

    def __init__(self, *arguments: str, **environ: str) -> None:
        self._primary, secondary = pty.openpty()
        self.process = start(*arguments, stdin=secondary, stdout=secondary, stderr=secondary, **environ)
        os.close(secondary)
        self.shown = ""

    def read_until(self, words: str) -> None:
        """Read until the terminal has shown some words."""
        ends = time.monotonic() + _PATIENCE_S
        while words not in self.shown:
            assert time.monotonic() < ends, self.shown
            assert self._read(), self.shown

    def finish(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        os.close(self._primary)
        return self.process.wait(_PATIENCE_S)

    def _read(self) -> bool:
        if not select.select([self._primary], [], [], _PATIENCE_S)[0]:
            return False
        try:
            data = os.read(self._primary, 65536)
        except OSError:  # the process has ended
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return bool(data)


def start(*arguments: str, prepare: str = "", **how: object) -> "subprocess.Popen[str]":
    """Start the command line in a process that Ctrl-C ends, even if this one was started in the background.

    Args:
        arguments: Of the command line.
        prepare: Code to run first.
        how: Streams of the process, and variables in upper case.
    """
    streams = {name: value for name, value in how.items() if name.islower()}
    environ = {name: str(value) for name, value in how.items() if name not in streams}
    begin = "import sys\nfrom ducklake_orch.cli import main\n"
    code = f"{begin}{prepare}\nsys.argv = {['ducklake-orch', *arguments]!r}\nmain()"
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", code],
        env=inherited | {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color"} | environ,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **streams,  # type: ignore[call-overload]
    )
    return process


def wait_for(path: Path) -> None:
    """Wait until a process has made a file."""
    ends = time.monotonic() + _PATIENCE_S
    while not path.exists():
        assert time.monotonic() < ends, f"{path} was not made"
        time.sleep(0.02)
