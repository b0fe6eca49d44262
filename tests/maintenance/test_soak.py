"""All maintenance operations in a loop with concurrent writers and readers: no lost rows, no long waits."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from ducklake_orch import DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.catalog.commit import active_writes
from ducklake_orch.engine import session
from ducklake_orch.engine.locks import Check
from ducklake_orch.errors import DuckLakeOrchError
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.row_worker import KEPT, WORKERS, Model, Worker, rows_by_id, state_at
from tests.support.worn_lakes import metadata, whole

_WRITERS, _READERS = 3, 1
# Seconds, in place of days and hours.
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
# Files that are not merged are clustered, however small they are.
CLUSTERING = MaintenancePolicy.model_validate(
    POLICY.model_dump() | {"merge": {"enabled": False, "target_file_size": 400}, "layout": {"max_depth": 1}}
)


def measure_waits() -> list[float]:
    """Record how long this process waits for the write lock."""
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


def shorten_intervals() -> None:
    """Shorten the intervals at which writes register themselves, because retention is short here."""
    active_writes._BRIEF_S, active_writes._CHECK_S = 1.0, 0.5


def write(config: LakeConfig, number: int, seed: int, seconds: float) -> tuple[dict[int, Model], Counter[str], float]:
    """Change rows for some seconds; return the states of the rows, the operations by count, and the longest wait."""
    shorten_intervals()
    waits = measure_waits()
    worker, end = Worker(config, number, seed, engine_writes=False), time.monotonic() + seconds
    while time.monotonic() < end:
        worker.step()
    return worker.states, worker.done, max(waits)


def read(config: LakeConfig, stop: Any) -> tuple[int, int]:
    """Read each new snapshot twice, half a second apart; return the number of reads, and of reads after expiry."""
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
            # Only the age of a snapshot protects its readers.
            if time.monotonic() - started < _EXPIRE_S:
                raise
            late += 1
    return times, late


def maintain(config: LakeConfig, stop: Any) -> Counter[str]:
    """Run maintenance until `stop` is set; return how often each operation had work."""
    shorten_intervals()
    lake, done = DuckLake(config), Counter[str]()
    for policy in cycle((POLICY, CLUSTERING)):
        if stop.is_set():
            break
        report = lake.maintain(policy)
        assert report.status == "ok", str(report)
        done.update(step.operation for step in report.operations if step.status == "done")
        time.sleep(0.2)
    return done


def soak(lake: DuckLake, seconds: float, seed: int = 1) -> tuple[Counter[str], float]:
    """Run writers, readers and maintenance concurrently; return the maintenance counts and the longest wait."""
    lake.create_table("t", {"id": "BIGINT", "v": "BIGINT"}, cluster_by=["v"])
    options = metadata(lake)["ducklake_metadata"]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(_WRITERS + _READERS + 1) as pool:
        stop = manager.Event()
        upkeep = pool.apply_async(maintain, (lake.config, stop))
        reading = [pool.apply_async(read, (lake.config, stop)) for _ in range(_READERS)]
        try:
            run = partial(write, lake.config, seed=seed, seconds=seconds)
            results = pool.map(run, range(_WRITERS), chunksize=1)
        finally:
            stop.set()
        maintained, read_times = upkeep.get(), [result.get() for result in reading]
    done = sum((counts for _, counts, _ in results), Counter[str]())
    longest = max(wait for *_, wait in results)
    print(f"\n{lake.config.catalog.type}, seed {seed}: {dict(sorted(done.items()))}; maintained {dict(maintained)};")
    print(f"read {read_times} (times, too late); the longest wait of a writer was {longest:.3f} s")
    _check(lake, [states for states, *_ in results])
    lake.maintain(POLICY).raise_for_error()
    _check(lake, [states for states, *_ in results])
    assert metadata(lake)["ducklake_metadata"] == options
    assert not metadata(lake).get(active_writes.LEASES.name)
    return maintained, longest


def _check(lake: DuckLake, workers: list[dict[int, Model]]) -> None:
    """Compare every retained snapshot with the states of the workers."""
    snapshots = [snapshot.snapshot_id for snapshot in lake.snapshots()]
    for snapshot in snapshots[:-1]:  # the first snapshot may precede the table
        assert rows_by_id(lake.read("t", snapshot=snapshot)) == state_at(workers, snapshot), snapshot
    state = state_at(workers, snapshots[0])
    assert {row["id"]: row["v"] for row in lake.execute("FROM t", max_rows=None).rows} == state
    assert lake.table("t").count() == len(state)
    assert all(id_ % WORKERS < _WRITERS for id_ in state)
    whole(lake)


@catalogs(quick=[SQLITE, POSTGRES])
def test_maintenance_with_concurrent_writers_and_readers_loses_nothing(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 15)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@catalogs()
def test_maintenance_with_concurrent_writers_and_readers_for_minutes(make_lake: MakeLake) -> None:
    maintained, longest = soak(make_lake("lake"), 300)
    assert maintained.keys() >= {"rewrite", "merge", "layout", "expire", "cleanup"}
    assert longest < 2
