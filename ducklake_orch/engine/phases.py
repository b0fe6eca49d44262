"""Measures where the time of a verb goes: planning, waiting for other writers, files, the commit."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal, TypeVar

from ducklake_orch.config.lake import RetryPolicy
from ducklake_orch.engine.retry import by_plan, retrying
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Timings, WriteResult

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")
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


def timed_attempts(
    policy: RetryPolicy,
    what: str,
    work: Callable[[int], WriteResult],
    *,
    attempts_for: Callable[[DuckLakeOrchError], int] = by_plan,
) -> WriteResult:
    """Run the attempts of a verb as `retrying` does; return the result with their number and times, and log these."""
    attempts = 0

    def attempt(number: int) -> WriteResult:
        nonlocal attempts
        attempts = number
        return work(number)

    with measured() as watch:
        result = retrying(policy, what, attempt, attempts_for=attempts_for)
    result = replace(result, attempts=attempts, duration_s=watch.duration_s, timings=watch.timings)
    log.info("%s (%s)", result, result.timings)
    return result


@contextmanager
def waiting(lock: AbstractContextManager[T]) -> Iterator[T]:
    """Hold a lock for a block, and count the time until it is held as waiting."""
    with ExitStack() as held:
        with phase("wait"):
            entered = held.enter_context(lock)
        yield entered


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
