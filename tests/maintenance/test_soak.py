"""All of maintenance in a loop beside writers and readers: nobody loses, misses or waits for anything."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from ducklake_orch import DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.catalog.commit import active_writes
from ducklake_orch.engine import session
from ducklake_orch.engine.locks import Check
from ducklake_orch.errors import DuckLakeOrchError
from tests.backends import POSTGRES, SQLITE, catalogs
from tests.catalog.row_worker import KEPT, WORKERS, Model, Worker, rows_by_id, state_at
from tests.conftest import MakeLake
from tests.maintenance.worn import metadata, whole

_WRITERS, _READERS = 3, 1
# Seconds: days and hours of real life.
_EXPIRE_S, _CLEANUP_S = 4, 6
POLICY = MaintenancePolicy.model_validate(
    {
        "rewrite": {"delete_threshold": 0.1},
        "merge": {"min_files": 2},
        "expire": {"older_than": _EXPIRE_S, "retain_last": 5, "keep": [KEPT]},
        "cleanup": {"older_than": _CLEANUP_S},
        "orphans": {"older_than": _CLEANUP_S, "action": "delete", "unknown": "delete"},
        "force": True,
    }
)


def measure_waits() -> list[float]:
    """Have this process write down how long it waits for its turns."""
    waits: list[float] = []
    real = session.Session.queue

    @contextmanager
    def measured(self: session.Session, purpose: str) -> Iterator[Check]:
        started = time.monotonic()
        with real(self, purpose) as still_held:
            waits.append(time.monotonic() - started)
            yield still_held

    session.Session.queue = measured  # type: ignore[method-assign]
    return waits


def hurry() -> None:
    """Let writes of this process note themselves as early as ages are short here."""
    active_writes._BRIEF_S, active_writes._CHECK_S = 1.0, 0.5


def write(config: LakeConfig, number: int, seed: int, seconds: float) -> tuple[dict[int, Model], Counter[str], float]:
    """Change rows for so long; return the states they were in, what was done how often, and the longest wait."""
    hurry()
    waits = measure_waits()
    worker, end = Worker(config, number, seed, engine_writes=False), time.monotonic() + seconds
    while time.monotonic() < end:
        worker.step()
    return worker.states, worker.done, max(waits)


def read(config: LakeConfig, stop: Any) -> tuple[int, int]:
    """Read what is new, and again when it may have been compacted; return how often, and how often too late."""
    lake, times, late = DuckLake(config), 0, 0
    while not stop.is_set():
        started = time.monotonic()
        try:
            snapshot = lake.snapshots(limit=1)[0].snapshot_id
            first = rows_by_id(lake.read("t", snapshot=snapshot))
            time.sleep(0.5)
            assert rows_by_id(lake.read("t", snapshot=snapshot)) == first
            times += 1
        except DuckLakeOrchError:
            # Readers are protected by age only.
            if time.monotonic() - started < _EXPIRE_S:
                raise
            late += 1
    return times, late


def maintain(config: LakeConfig, stop: Any) -> Counter[str]:
    """Do all that there is to do until told to stop; return how often each operation did something."""
    hurry()
    lake, done = DuckLake(config), Counter[str]()
    while not stop.is_set():
        report = lake.maintain(POLICY)
        assert report.status == "ok", str(report)
        done.update(step.operation for step in report.operations if step.status == "done")
        time.sleep(0.2)
    return done


def soak(lake: DuckLake, seconds: float, seed: int = 1) -> tuple[Counter[str], float]:
    """Let them run beside each other; return what was maintained, and how long a writer has waited for its turn."""
    lake.create_table("t", {"id": "BIGINT", "v": "BIGINT"})
    options = metadata(lake)["ducklake_metadata"]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(_WRITERS + _READERS + 1) as pool:
        stop = manager.Event()
        upkeep = pool.apply_async(maintain, (lake.config, stop))
        reading = [pool.apply_async(read, (lake.config, stop)) for _ in range(_READERS)]
        try:
            run = partial(write, lake.config, seed=seed, seconds=seconds)
            found = pool.map(run, range(_WRITERS), chunksize=1)
        finally:
            stop.set()
        maintained, read_times = upkeep.get(), [result.get() for result in reading]
    done = sum((counts for _, counts, _ in found), Counter[str]())
    longest = max(wait for *_, wait in found)
    print(f"\n{lake.config.catalog.type}, seed {seed}: {dict(sorted(done.items()))}; maintained {dict(maintained)};")
    print(f"read {read_times} (times, too late); the longest wait of a writer was {longest:.3f} s")
    _check(lake, [states for states, *_ in found])
    lake.maintain(POLICY).raise_for_error()
    _check(lake, [states for states, *_ in found])
    assert metadata(lake)["ducklake_metadata"] == options
    assert not metadata(lake).get(active_writes.TABLE.name)
    return maintained, longest


def _check(lake: DuckLake, workers: list[dict[int, Model]]) -> None:
    """Compare every snapshot that is left with what the workers know."""
    snapshots = [snapshot.snapshot_id for snapshot in lake.snapshots()]
    for snapshot in snapshots[:-1]:  # at the first one, the table may not have been there
        assert rows_by_id(lake.read("t", snapshot=snapshot)) == state_at(workers, snapshot), snapshot
    now = state_at(workers, snapshots[0])
    assert {row["id"]: row["v"] for row in lake.execute("FROM t", max_rows=None).rows} == now
    assert lake.table("t").count() == len(now)
    assert all(id_ % WORKERS < _WRITERS for id_ in now)
    whole(lake)


@catalogs(quick=[SQLITE, POSTGRES])
def test_maintenance_takes_nothing_that_writers_or_readers_need(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 30)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@catalogs()
def test_maintenance_takes_nothing_that_writers_or_readers_need_for_minutes(make_lake: MakeLake) -> None:
    maintained, longest = soak(make_lake("lake"), 300)
    assert maintained.keys() >= {"rewrite", "merge", "expire", "cleanup"}
    assert longest < 2
