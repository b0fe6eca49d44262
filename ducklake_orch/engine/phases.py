"""Measures where the time of a verb goes: planning, waiting for other writers, files, the commit."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal

from ducklake_orch.results import Timings, WriteResult

log = logging.getLogger("ducklake_orch")
Phase = Literal["plan", "wait", "files", "commit"]


class Stopwatch:
    """Adds up the seconds of each phase. A phase within another one interrupts it."""

    def __init__(self) -> None:
        self._started = self._since = time.monotonic()
        self._phase: Phase | None = None
        self._seconds: dict[Phase | None, float] = defaultdict(float)

    def change_to(self, phase: Phase | None) -> Phase | None:
        """Begin a phase, and return the one that it interrupts."""
        now, interrupted = time.monotonic(), self._phase
        self._seconds[interrupted] += now - self._since
        self._since, self._phase = now, phase
        return interrupted

    @property
    def duration_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def timings(self) -> Timings:
        """The seconds of each phase."""
        return Timings(*(self._seconds[phase] for phase in ("plan", "wait", "files", "commit")))


_running: ContextVar[Stopwatch | None] = ContextVar("ducklake_orch_stopwatch", default=None)


@contextmanager
def measured() -> Iterator[Stopwatch]:
    """Measure the phases of a verb for a block."""
    watch = Stopwatch()
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)


def timed(result: WriteResult, watch: Stopwatch) -> WriteResult:
    """Return a result with its times, and log them."""
    result = replace(result, duration_s=watch.duration_s, timings=watch.timings)
    log.info("%s (%s)", result, result.timings)
    return result


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count a block as a phase of the running verb, if there is one."""
    watch = _running.get()
    if watch is None:
        yield
        return
    interrupted = watch.change_to(name)
    try:
        yield
    finally:
        watch.change_to(interrupted)
