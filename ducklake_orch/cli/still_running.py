"""Shows on a terminal that a command still runs, once it takes longer than two seconds."""

import os
import sys
import threading
import time

_QUIET_S = 2.0
_CLEARED = "\r\x1b[K"


class StillRunning:
    """A line on stderr that counts the seconds, and disappears before anything else is printed."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to count, if stderr is a terminal."""
        self.stop()
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(self._ended, time.monotonic()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _count(self, ended: threading.Event, started: float) -> None:
        pause = _QUIET_S
        while not ended.wait(pause):
            sys.stderr.write(f"{_CLEARED}running, {time.monotonic() - started:.0f} s; Ctrl-C ends it")
            sys.stderr.flush()
            pause = 1.0
        if pause != _QUIET_S:
            sys.stderr.write(_CLEARED)
            sys.stderr.flush()


still_running = StillRunning()
