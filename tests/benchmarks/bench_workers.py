"""Three workers that each insert 34 rows into one table of a shared PostgreSQL catalog, and the same by the extension.

Run it with `python -m tests.benchmarks.bench_workers` on an idle machine. Every worker is a process that opens the lake
once. The clock runs from when all of them have opened it until the last one has ended.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.engine.extensions import open_database
from tests.benchmarks.bench_plan import database

WORKERS, INSERTS, REPEATS = 3, 34, 5
Insert = Callable[[int, int], object]


def by_execute(url: str, storage: str) -> Insert:
    lake = DuckLake.from_url("lake", catalog=url, storage=storage)
    lake.execute("SELECT 1").raise_for_error()
    return lambda worker, n: lake.execute(f"INSERT INTO t VALUES ({worker}, {n}, 'row {n}')").raise_for_error()


def by_write(url: str, storage: str) -> Insert:
    lake = DuckLake.from_url("lake", catalog=url, storage=storage)
    lake.execute("SELECT 1").raise_for_error()

    def insert(worker: int, n: int) -> None:
        rows = pa.table({"worker": [worker], "n": [n], "name": [f"row {n}"]})
        lake.write(rows, "t", mode="append", idempotency_key=f"{worker}-{n}")

    return insert


def by_extension(url: str, storage: str) -> Insert:
    connection = open_database(["ducklake", "postgres_scanner"], {})
    connection.execute(f"ATTACH 'ducklake:postgres:{url}' AS lake (DATA_PATH '{storage}/')")
    return lambda worker, n: connection.execute(f"INSERT INTO lake.t VALUES ({worker}, {n}, 'row {n}')")


WAYS = {"execute": by_execute, "write": by_write, "INSERT of the extension": by_extension}


def work(way: str, url: str, storage: str, worker: int, barrier: Any, results: Any) -> None:
    insert, taken, failed = WAYS[way](url, storage), [], 0
    barrier.wait(60)
    for n in range(INSERTS):
        began = time.perf_counter()
        try:
            insert(worker, n)
        except duckdb.Error:
            failed += 1
        taken.append(time.perf_counter() - began)
    results.put((taken, failed))


def measure(way: str, folder: str) -> tuple[float, list[float], int]:
    """Return the duration, that of each insert, and how many failed."""
    context = get_context("spawn")
    with database("postgres", Path(folder)) as url:
        lake = DuckLake.from_url("lake", catalog=url, storage=f"{folder}/files", create_if_missing=True)
        lake.create_table("t", {"worker": "BIGINT", "n": "BIGINT", "name": "VARCHAR"})
        barrier, results = context.Barrier(WORKERS + 1), context.Queue()
        given = (url, f"{folder}/files")
        workers = [context.Process(target=work, args=(way, *given, n, barrier, results)) for n in range(WORKERS)]
        for worker in workers:
            worker.start()
        barrier.wait(60)
        began = time.perf_counter()
        answers = [results.get(timeout=300) for _ in workers]
        seconds = time.perf_counter() - began
        for worker in workers:
            worker.join()
        failed = sum(number for _, number in answers)
        assert lake.table("t").count() == WORKERS * INSERTS - failed
    return seconds, [one for taken, _ in answers for one in taken], failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    print(f"{WORKERS} workers of {INSERTS} inserts each, medians of {given.repeats} runs")
    print("| | time | median insert | slowest insert | failed | ours / extension |")
    print("|---|---|---|---|---|---|")
    runs: dict[str, list[tuple[float, list[float], int]]] = {way: [] for way in WAYS}
    for _ in range(given.repeats):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                runs[way].append(measure(way, folder))
    theirs = median(seconds for seconds, _, _ in runs["INSERT of the extension"])
    for way, found in runs.items():
        seconds = median(seconds for seconds, _, _ in found)
        each = [one for _, taken, _ in found for one in taken]
        ratio = "" if way == "INSERT of the extension" else f"{seconds / theirs:.2f}"
        failed = sum(number for _, _, number in found)
        print(
            f"| {way} | {seconds:.2f} s | {1000 * median(each):.0f} ms | {1000 * max(each):.0f} ms | {failed} | {ratio} |"
        )


if __name__ == "__main__":
    main()
