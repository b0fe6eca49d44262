"""Threads that wait for each other: the one whose turn it is can do the work of all that wait. Use `in_turn`."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ducklake_orch.engine.phases import phase

W = TypeVar("W")
R = TypeVar("R")
# The most threads whose work is done together.
_MOST = 256
# The longest pause between two turns, as a part of the first one, and how often to look for more threads.
_PATIENCE, _STEP_S = 1.0, 0.001


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
    """The threads that take turns at something.

    Attributes:
        waiting: The threads that wait, in order.
        busy: Whether it is some thread's turn.
        size: How many threads worked together in the last turn.
        patience: How long the next thread waits for as many, in seconds. Threads whose work was just done may soon have
            more; while they prepare it, they would also slow down the thread that works.
        ended: When the last turn ended, on the monotonic clock.
    """

    waiting: list[_Waiting[Any, Any]] = field(default_factory=list)
    busy: bool = False
    size: int = 1
    patience: float = 0.0
    ended: float = 0.0


# By what the threads take turns at.
_queues: dict[Hashable, _Queue] = defaultdict(_Queue)
_lock = threading.Lock()


def in_turn(
    key: Hashable,
    work: W,
    run: Callable[[Sequence[W]], Sequence[R]],
    *,
    fits: Callable[[Sequence[W], W], bool],
    timeout: float,
) -> R | None:
    """Wait for this thread's turn and do the work, or wait until another thread has done it.

    The main thread takes no turns: it works at once, and alone.

    Args:
        key: Names what the threads take turns at.
        work: The work of this thread.
        run: Does the work of this thread, and of waiting threads after it; returns an outcome for each, or None for
            work that is not done.
        fits: Whether work can be done together with what was chosen before.
        timeout: How long to wait for a turn, in seconds.

    Returns:
        The outcome; None if the work is not done, also because no other thread has begun it in time.
    """
    if threading.current_thread() is threading.main_thread():
        # An interrupt can hit this thread at any moment. It must not do the work of others, nor leave it to them.
        return run([work])[0]
    mine: _Waiting[W, R] = _Waiting(work)
    with _lock:
        queue = _queues[key]
        if queue.busy:
            queue.waiting.append(mine)
        else:
            queue.busy = True
            mine.called.set()
    group, started = [mine], time.monotonic()
    try:
        with phase("wait"):
            if not mine.called.wait(timeout) and _withdrawn(queue, mine):
                return None
            mine.called.wait()
            if mine.taken:
                return mine.outcome
            _gather(queue)
        started = time.monotonic()
        with _lock:
            for other in list(queue.waiting):
                if len(group) < _MOST and fits([one.work for one in group], other.work):
                    other.taken = True
                    group.append(other)
                    queue.waiting.remove(other)
        for one, outcome in zip(group, run([one.work for one in group]), strict=True):
            one.outcome = outcome
        return mine.outcome
    finally:
        _leave(queue, mine, group, started)


def _withdrawn(queue: _Queue, mine: _Waiting[Any, Any]) -> bool:
    """Stop waiting, unless it is this thread's turn or another thread has taken its work."""
    with _lock:
        if mine in queue.waiting:
            queue.waiting.remove(mine)
            return True
    return False


def _gather(queue: _Queue) -> None:
    """Wait a moment for as many threads as worked together just before."""
    end = queue.ended + queue.patience
    while len(queue.waiting) + 1 < queue.size and time.monotonic() < end:
        time.sleep(_STEP_S)


def _leave(queue: _Queue, mine: _Waiting[Any, Any], group: Sequence[_Waiting[Any, Any]], started: float) -> None:
    """End this thread's turn: call the threads whose work was taken, and the next one. Or stop waiting for it."""
    with _lock:
        if mine in queue.waiting:  # interrupted
            queue.waiting.remove(mine)
        if mine.taken or not mine.called.is_set():
            return
        for other in group[1:]:
            other.called.set()
        queue.ended = time.monotonic()
        queue.size, queue.patience = len(group), (queue.ended - started) * _PATIENCE
        queue.busy = bool(queue.waiting)
        if queue.busy:
            queue.waiting.pop(0).called.set()


def _forget_after_fork() -> None:
    # The child has none of the threads that wait.
    global _lock
    _lock = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
