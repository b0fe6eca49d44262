"""Makes several threads append together: none of them begins before all wait for their turn."""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from ducklake_orch import DuckLake
from ducklake_orch.catalog.verbs.commit_together import commit_key
from ducklake_orch.catalog.verbs.table_writer import turn_key
from ducklake_orch.engine import turns
from ducklake_orch.engine.quoting import table_name

# What a thread returned or raised.
Outcome = Any


def in_threads(lake: DuckLake, table: str, *appends: Callable[[], Any], inlined: bool = True) -> list[Outcome]:
    """Run appends in threads that all wait until the last one waits, and return their outcomes.

    Args:
        lake: The lake.
        table: The table that they append to.
        *appends: The appends, in the order in which they wait.
        inlined: Whether the catalog stores the rows; if not, the threads wait after they have written their files.
    """
    names = turn_key if inlined else commit_key
    key, free = names(lake.config, table_name(table)), threading.Event()
    with ThreadPoolExecutor(len(appends) + 1) as pool:
        pool.submit(turns.in_turn, key, None, lambda _: [free.wait()], fits=lambda *_: False, timeout=60)
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
