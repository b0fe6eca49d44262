"""Parallel processes replace their own partitions during appends and compactions; none fails, none retries."""

import multiprocessing
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, LakeConfig
from tests.support.backends import catalogs


def replace_own(config: LakeConfig, number: int, times: int) -> int:
    """Replace one partition repeatedly; return the number of attempts."""
    lake = DuckLake(config)
    rows = [pa.table({"p": [number] * 3, "v": [n, n + 1, n + 2]}) for n in range(times)]
    return sum(lake.write(data, "t", mode="overwrite_partitions").attempts for data in rows)


def append_until(config: LakeConfig, number: int, stop: Any) -> int:
    """Append to another partition until told to stop; return the number of rows."""
    lake, rows = DuckLake(config), 0
    while rows == 0 or not stop.is_set():
        lake.write(pa.table({"p": [number], "v": [rows]}), "t", mode="append")
        rows += 1
    return rows


def compact_until(config: LakeConfig, stop: Any) -> int:
    """Merge files until told to stop; return the number of merges."""
    lake, times = DuckLake(config), 0
    while times == 0 or not stop.is_set():
        lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
        times += 1
    return times


def check(lake: DuckLake, workers: int, times: int) -> None:
    lake.write(pa.table({"p": list(range(workers)), "v": [0] * workers}), "t", mode="append", partition_by=["p"])
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(workers + 3) as pool:
        stop = manager.Event()
        appending = [pool.apply_async(append_until, (lake.config, 100 + n, stop)) for n in range(2)]
        # On MySQL, the engine cannot merge files with deletions.
        merging = [pool.apply_async(compact_until, (lake.config, stop))] if lake.config.catalog.type != "mysql" else []
        attempts = pool.starmap(replace_own, [(lake.config, n, times) for n in range(workers)])
        stop.set()
        appended, merged = [result.get() for result in appending], [result.get() for result in merging]
    assert attempts == [times] * workers
    assert merged != [0]
    found = lake.execute("SELECT p, count(*) AS n, max(v) AS last FROM t GROUP BY p ORDER BY p").rows
    own = [{"p": n, "n": 3, "last": times + 1} for n in range(workers)]
    others = [{"p": 100 + n, "n": count, "last": count - 1} for n, count in enumerate(appended)]
    assert found == own + others
    assert lake.fsck(storage=True).findings == []


@catalogs()
def test_parallel_replacements_all_succeed(lake: DuckLake) -> None:
    check(lake, 3, 3)


@pytest.mark.soak
@catalogs()
def test_many_parallel_replacements_all_succeed(lake: DuckLake) -> None:
    check(lake, 8, 20)
