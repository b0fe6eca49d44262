"""Threads that wait for each other: the one whose turn it is can do the work of all that wait. Use `in_turn`."""

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ducklake_orch.engine.phases import phase

W = TypeVar("W")
R = TypeVar("R")
# The most threads whose work is done together.
_MOST = 256
# The pause between two turns, as a part of the first one.
_PAUSE, _LONGEST_PAUSE_S = 0.1, 0.005


@dataclass(eq=False)
class _Waiting(Generic[W, R]):
    """A thread that waits.

    Attributes:
        work: What it wants to be done.
        called: Set when it is the thread's turn, or when another thread has taken its work and ended.
        taken: Whether another thread has taken its work.
        outcome: The outcome, if the other thread has done the work.
    """

    work: W
    called: threading.Event = field(default_factory=threading.Event)
    taken: bool = False
    outcome: R | None = None


@dataclass
class _Queue:
    """The threads that wait for a turn, in order.

    Attributes:
        pause: How long the next thread waits for others, in seconds: threads whose work was done may soon have more.
    """

    threads: list[_Waiting[Any, Any]] = field(default_factory=list)
    pause: float = 0.0


# By what the threads wait for; there is an entry while it is some thread's turn.
_queues: dict[Hashable, _Queue] = {}
_lock = threading.Lock()


def in_turn(
    key: Hashable, work: W, run: Callable[[Sequence[W]], Sequence[R]], *, fits: Callable[[Sequence[W], W], bool]
) -> R | None:
    """Wait for this thread's turn and do the work, or wait until another thread has done it.

    Args:
        key: Names what the threads take turns at.
        work: The work of this thread.
        run: Does the work of this thread, and of waiting threads after it; returns an outcome for each, or None for
            work that is not done.
        fits: Whether work can be done together with what was chosen before.

    Returns:
        The outcome; None if the work is not done.
    """
    mine: _Waiting[W, R] = _Waiting(work)
    with _lock:
        begins = key not in _queues
        if begins:
            _queues[key] = _Queue()
        else:
            _queues[key].threads.append(mine)
    group, started = [mine], time.monotonic()
    try:
        if not begins:
            with phase("wait"):
                mine.called.wait()
                if mine.taken:
                    return mine.outcome
                time.sleep(_queues[key].pause)
        started = time.monotonic()
        with _lock:
            waiting = _queues[key].threads
            for other in list(waiting):
                if len(group) < _MOST and fits([one.work for one in group], other.work):
                    other.taken = True
                    group.append(other)
                    waiting.remove(other)
        for one, outcome in zip(group, run([one.work for one in group]), strict=True):
            one.outcome = outcome
        return mine.outcome
    finally:
        _leave(key, mine, group, started, begins=begins)


def _leave(
    key: Hashable, mine: _Waiting[Any, Any], group: Sequence[_Waiting[Any, Any]], started: float, *, begins: bool
) -> None:
    """End this thread's turn: call the threads whose work was taken, and the next one. Or stop waiting for it."""
    with _lock:
        if mine.taken:
            return
        queue = _queues[key]
        if not (begins or mine.called.is_set()):  # interrupted
            queue.threads.remove(mine)
            return
        for other in group[1:]:
            other.called.set()
        if queue.threads:
            queue.pause = min((time.monotonic() - started) * _PAUSE, _LONGEST_PAUSE_S) if len(group) > 1 else 0.0
            queue.threads.pop(0).called.set()
        else:
            del _queues[key]


def _forget_after_fork() -> None:
    # The child has none of the threads that wait.
    global _lock
    _lock = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
