"""Makes several threads append together: none of them begins before all wait for their turn."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from ducklake_orch import DuckLake
from ducklake_orch.catalog.verbs.append_together import turn_key
from ducklake_orch.engine import turns
from ducklake_orch.engine.quoting import table_name

# What a thread returned or raised.
Outcome = Any


def in_threads(appends: Sequence[Callable[[], Any]], *, to: tuple[DuckLake, str]) -> list[Outcome]:
    """Run appends in threads that all wait until the last one waits, and return their outcomes.

    Args:
        appends: The appends, in the order in which they wait.
        to: The lake and the table that they append to.
    """
    lake, table = to
    key, free = turn_key(lake.config, table_name(table)), threading.Event()
    with ThreadPoolExecutor(len(appends) + 1) as pool:
        pool.submit(turns.in_turn, key, None, lambda _: [free.wait()], fits=lambda *_: False)
        _wait_until(lambda: turns._queues[key].busy)
        running = []
        try:
            for append in appends:
                before = len(turns._queues[key].waiting)
                running.append(pool.submit(_outcome, append))
                _wait_until(partial(_has_begun, key, before, running[-1]))
        finally:
            free.set()
        return [future.result() for future in running]


def _has_begun(key: Hashable, before: int, append: Future[Outcome]) -> bool:
    return len(turns._queues[key].waiting) > before or append.done()


def _outcome(work: Callable[[], Any]) -> Outcome:
    try:
        return work()
    except BaseException as error:
        return error


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)
