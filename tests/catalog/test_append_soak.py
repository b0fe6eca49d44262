"""Threads of several processes append, with and without keys, during maintenance: each append is one snapshot, once."""

import multiprocessing
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, LakeConfig
from tests.catalog.test_row_soak import maintain
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.stored_tables import rows

PROCESSES, THREADS = 2, 6


@dataclass(frozen=True)
class Appended:
    """What an append returned.

    Attributes:
        values: The values that it appended, or that an earlier append with its key did.
    """

    values: tuple[int, ...]
    snapshot: int
    replayed: bool


def append(config: LakeConfig, thread: int, process: int, seconds: float) -> list[Appended]:
    """Append for some seconds; some appends are repeated with their key, also by the same thread of other processes."""
    lake, choose, done = DuckLake(config), random.Random(f"{process} {thread}"), list[Appended]()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        shared = choose.random() < 0.2
        first = (thread * 100_000 + number) * 1000 + (0 if shared else 100 * (process + 1))
        values = tuple(range(first, first + (3 if shared else choose.randint(1, 12))))
        key = f"{thread} {number}" if shared else choose.choice([None, f"{process} {thread} {number}"])
        data = pa.table({"i": pa.array(values, pa.int64()), "p": [f"p{value % 3}" for value in values]})
        for _ in range(choose.choice([1, 1, 2]) if key else 1):
            inline = choose.choice(["auto", "auto", "never"])
            result = lake.write(data, "t", mode="append", inline=inline, idempotency_key=key)
            assert result.rows_written == (0 if result.replayed else len(values))
            done.append(Appended(values, result.snapshot_id, result.replayed))
    return done


def work(config: LakeConfig, process: int, seconds: float) -> list[Appended]:
    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(append, config, thread, process, seconds) for thread in range(THREADS)]
        return [one for future in running for one in future.result()]


def soak(lake: DuckLake, seconds: float, *, partition_by: list[str] | None) -> None:
    types = pa.schema({"i": pa.int64(), "p": pa.string()})
    lake.write(types.empty_table(), "t", mode="append", partition_by=partition_by)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(PROCESSES + 1) as pool:
        stop = manager.Event()
        upkeep = pool.apply_async(maintain, (lake.config, stop))
        try:
            run = partial(work, lake.config, seconds=seconds)
            done = [one for found in pool.map(run, range(PROCESSES), chunksize=1) for one in found]
        finally:
            stop.set()
        upkeep.get()
    check(lake, done)


def check(lake: DuckLake, done: list[Appended]) -> None:
    committed = {one.snapshot: one.values for one in done if not one.replayed}
    assert len(committed) == sum(not one.replayed for one in done)
    for one in done:
        assert committed[one.snapshot] == one.values
    wanted = Counter(value for values in committed.values() for value in values)
    assert max(wanted.values()) == 1
    assert Counter(row[0] for row in rows(lake, "SELECT i FROM t")) == wanted
    changes = lake.changes("t", min(committed)).to_pylist()
    added: dict[int, Any] = {}
    for change in changes:
        assert change["change_type"] == "insert", change
        added.setdefault(change["snapshot_id"], []).append(change["i"])
    assert {snapshot: tuple(sorted(values)) for snapshot, values in added.items()} == committed
    assert len({row[0] for row in rows(lake, "SELECT rowid FROM t")}) == len(wanted)
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(quick=[SQLITE, POSTGRES])
@pytest.mark.parametrize("partition_by", [None, ["p"]], ids=["one folder", "partitions"])
def test_appends_of_many_threads_are_snapshots_of_their_own(
    make_lake: MakeLake, partition_by: list[str] | None
) -> None:
    soak(make_lake("lake"), 6, partition_by=partition_by)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@catalogs()
def test_appends_of_many_threads_are_snapshots_of_their_own_for_minutes(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 240, partition_by=["p"])
