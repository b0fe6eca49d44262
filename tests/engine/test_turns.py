"""Threads that take turns: one at a time works, for all that wait and fit."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from ducklake_orch.engine import turns
from ducklake_orch.engine.turns import in_turn


class Works:
    """A first thread that has its turn until `free` is set, and threads that wait behind it."""

    def __init__(self) -> None:
        self.key = uuid4().hex
        self.free = threading.Event()
        self.groups: list[list[str]] = []
        self.pool = ThreadPoolExecutor(20)
        self.first = self.pool.submit(
            in_turn, self.key, "first", lambda _: [self.free.wait()], fits=lambda *_: False, timeout=60
        )
        self.until(lambda: turns._queues[self.key].busy)

    def submit(
        self, work: str, run: Callable[[Sequence[str]], Sequence[Any]] | None = None, timeout: float = 60
    ) -> Future[Any]:
        waiting = len(turns._queues[self.key].waiting)
        future = self.pool.submit(in_turn, self.key, work, run or self.run, fits=self.fits, timeout=timeout)
        self.until(lambda: len(turns._queues[self.key].waiting) > waiting)
        return future

    def run(self, works: Sequence[str]) -> list[str]:
        self.groups.append(list(works))
        return [work.upper() for work in works]

    @staticmethod
    def fits(chosen: Sequence[str], other: str) -> bool:
        return chosen[0][0] == other[0]

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.001)


def test_a_thread_alone_has_its_turn_at_once() -> None:
    assert in_turn(uuid4().hex, 1, lambda works: [work + 1 for work in works], fits=lambda *_: True, timeout=60) == 2


def test_one_thread_works_for_all_that_wait_and_fit() -> None:
    works = Works()
    waiting = [works.submit(work) for work in ("a1", "b1", "a2", "b2", "a3")]
    works.free.set()
    assert [future.result(10) for future in waiting] == ["A1", "B1", "A2", "B2", "A3"]
    assert works.groups == [["a1", "a2", "a3"], ["b1", "b2"]]
    assert not turns._queues[works.key].busy


def test_work_that_is_not_done_has_no_outcome() -> None:
    works = Works()
    waiting = [works.submit(work, lambda works: ["done", *[None] * (len(works) - 1)]) for work in ("a1", "a2")]
    works.free.set()
    assert [future.result(10) for future in waiting] == ["done", None]


def test_a_failure_is_the_working_threads_own() -> None:
    def fail(_: Sequence[str]) -> list[str]:
        raise ValueError("no")

    works = Works()
    waiting = [works.submit("a1", fail), works.submit("a2"), works.submit("b1")]
    works.free.set()
    with pytest.raises(ValueError, match="no"):
        waiting[0].result(10)
    assert [future.result(10) for future in waiting[1:]] == [None, "B1"]


def test_a_thread_does_not_wait_longer_than_its_timeout() -> None:
    works = Works()
    impatient, patient = works.submit("a1", timeout=0.05), works.submit("a2")
    assert impatient.result(10) is None
    works.free.set()
    assert patient.result(10) == "A2"
    assert works.groups == [["a2"]]


def test_threads_that_worked_together_are_waited_for() -> None:
    works, times = Works(), 30

    def repeat(name: str) -> None:
        for _ in range(times):
            in_turn(works.key, name, slow, fits=works.fits, timeout=60)

    def slow(names: Sequence[str]) -> list[str]:
        time.sleep(0.02)
        return works.run(names)

    threads = [works.pool.submit(repeat, f"a{n}") for n in range(8)]
    works.until(lambda: len(turns._queues[works.key].waiting) == 8)
    works.free.set()
    for thread in threads:
        thread.result(30)
    assert sum(map(len, works.groups)) == 8 * times
    assert len(works.groups) < 2 * times


def test_a_forked_child_takes_its_own_turns() -> None:
    works = Works()
    child = os.fork()
    if child == 0:
        os._exit(in_turn(works.key, 7, lambda works: list(works), fits=lambda *_: True, timeout=60) or 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    works.free.set()
    assert works.first.result(10) is True


def test_the_main_thread_works_at_once_and_alone() -> None:
    works = Works()
    waiting = works.submit("a1")
    assert in_turn(works.key, "a2", works.run, fits=works.fits, timeout=60) == "A2"
    assert works.groups == [["a2"]]
    works.free.set()
    assert waiting.result(10) == "A1"
