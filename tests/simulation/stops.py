"""Stop a process at each statement and file operation that others may see, until another lets it go on or fail."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import duckdb

from tests.simulation.clocks import set_clock

T = TypeVar("T")
# What a process that has stopped may do next: go on, or meet one of the faults.
GO = "go"
REFUSE = "refuse"  # the statement or file operation fails
LOSE = "lose"  # the statement takes effect, but its answer is lost
DISK_FULL = "disk full"  # COPY fails, and leaves half of a file
TORN = "torn write"  # the process dies while COPY writes
CLOCK = "clock"  # the clock of the process jumps before the statement
SLEEP = "sleep"
# How far a clock can be ahead, in hours.
_AHEAD = (0, 0, -72, -2, 2, 72)
# Words of the statements that reach the catalog or the storage. Others cannot fail, and no process sees them.
_REACHES = ("__ducklake_metadata", "_query(", "_execute(", "parquet", "FROM ducklake_", '"lake".')
_COPY = re.compile(r"^COPY .* TO '((?:[^']|'')+)'", re.DOTALL)
_FILE_OPERATIONS = ("unlink", "remove", "rename", "replace", "rmdir")


class Stops:
    """Stops the main thread of this process, and tells the scheduler where.

    Args:
        scheduler: The connection to the scheduler: it gets the place, and answers what happens next.
        seed: Decides what the process draws at random, such as the names of files.
        folder: The folder whose files count.
    """

    def __init__(self, scheduler: Connection, seed: str, folder: Path) -> None:
        self._scheduler = scheduler
        self._folder = f"{folder}{os.sep}"
        self._random = Random(seed)
        self._thread = threading.get_ident()

    def install(self) -> None:
        """Replace what runs statements, changes files, and waits. There is no way back."""
        execute = duckdb.DuckDBPyConnection.execute

        def stopping(con: duckdb.DuckDBPyConnection, query: Any, *arguments: Any, **named: Any) -> Any:
            place = str(query)
            if place.startswith("DETACH ") or not (
                place.startswith(("ATTACH ", "COMMIT", "USE ")) or any(word in place for word in _REACHES)
            ):
                return execute(con, query, *arguments, **named)
            return self.stop(place, lambda: execute(con, query, *arguments, **named))

        duckdb.DuckDBPyConnection.execute = stopping  # type: ignore[method-assign, assignment]
        for name in _FILE_OPERATIONS:
            setattr(os, name, self._stopping_file_operation(name, getattr(os, name)))
        setattr(time, "sleep", self._stopping_sleep(time.sleep))  # noqa: B010
        os.urandom = self._random.randbytes

    def stop(self, place: str, work: Callable[[], T]) -> T:
        """Tell the scheduler the place, and do the work, unless the answer is a fault."""
        if threading.get_ident() != self._thread:
            return work()
        self._scheduler.send(("at", place))
        answer = self._scheduler.recv()
        if answer == REFUSE:
            raise duckdb.IOException("server closed the connection unexpectedly")
        if answer == CLOCK:
            self.change_clock()
        before = _files_at_target(place) if answer in (DISK_FULL, TORN) else set()
        done = work()
        if answer == LOSE:
            raise duckdb.IOException("server closed the connection unexpectedly")
        if answer in (DISK_FULL, TORN):
            for file in sorted(_files_at_target(place) - before)[:1]:
                os.truncate(file, file.stat().st_size // 2)
            if answer == TORN:
                os.kill(os.getpid(), signal.SIGKILL)
            raise duckdb.IOException(f"Could not write all bytes to file: No space left on device ({place[-40:]})")
        return done

    def change_clock(self) -> None:
        """Set the clock of this process right or wrong."""
        set_clock(self._random.choice(_AHEAD))

    def _stopping_file_operation(self, name: str, operation: Callable[..., T]) -> Callable[..., T]:
        def stopping(*arguments: Any, **named: Any) -> T:
            if not str(arguments[0]).startswith(self._folder):
                return operation(*arguments, **named)
            try:
                return self.stop(f"os.{name} {arguments[0]}", lambda: operation(*arguments, **named))
            except duckdb.IOException as error:
                raise OSError(5, "Input/output error") from error

        return stopping

    def _stopping_sleep(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        def stopping(seconds: float) -> None:
            if threading.get_ident() != self._thread:
                sleep(seconds)
            else:
                self.stop(SLEEP, lambda: None)

        return stopping


def _files_at_target(copy: str) -> set[Path]:
    """Return the files at the target of a COPY, which is a file or a folder."""
    found = _COPY.match(copy)
    target = Path(found[1].replace("''", "'")) if found else Path(os.devnull)
    return {target} if target.is_file() else {path for path in target.rglob("*") if path.is_file()}
