"""The cost of a native commit, compared with registration of the same files by the engine in the same run.

Run it with `python -m tests.benchmarks.bench_commit` on an idle machine.

- Bulk: many Parquet files of 20 columns in one snapshot, once with `lake.add_files` (footers, checks, commit; and the
  commit alone), once with `ducklake_add_data_files`.
- One file: repeated `lake.write` of a small table.
- Keys: the lookup of an idempotency key in a lake with many snapshots.
- Parallel: processes that each replace their own partitions, with concurrent appends and compaction. None may fail.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa

from ducklake_orch import DuckLake, LakeConfig
from ducklake_orch.catalog.commit import idempotency
from ducklake_orch.catalog.metadata import Metadata, commit_metadata
from ducklake_orch.engine.session import open_session
from tests.benchmarks.bench_plan import database

COLUMNS = 20
MERGE = "CALL ducklake_merge_adjacent_files('lake', 't')"


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def make_files(folder: Path, count: int) -> list[str]:
    """Write one small file, and create hard links to it under other names."""
    folder.mkdir(parents=True)
    columns = ", ".join(f"i + {n} AS c{n}" for n in range(COLUMNS))
    first = folder / "file-0.parquet"
    duckdb.sql(f"COPY (SELECT {columns} FROM range(100) t(i)) TO '{first}' (FORMAT parquet)")
    for n in range(1, count):
        os.link(first, folder / f"file-{n}.parquet")
    return [str(folder / f"file-{n}.parquet") for n in range(count)]


def bulk(lake: DuckLake, folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds of `add_files`, of its commit alone, and of the engine."""
    columns = {f"c{n}": "BIGINT" for n in range(COLUMNS)}
    alone: list[float] = []

    def measured(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return commit_metadata(*args, **kwargs)
        finally:
            alone.append(time.perf_counter() - started)

    for name in (f"ours_{count}", f"theirs_{count}"):
        lake.create_table(name, columns)
    mine = make_files(folder / f"ours-{count}", count)
    with mock.patch("ducklake_orch.catalog.commit.native_commit.commit_metadata", measured):
        ours = timed(lambda: lake.add_files(f"ours_{count}", mine))
    make_files(folder / f"theirs-{count}", count)
    glob = f"{folder}/theirs-{count}/*.parquet"
    call = f"CALL ducklake_add_data_files('lake', 'theirs_{count}', '{glob}')"
    theirs = timed(lambda: lake.execute(call).raise_for_error()) if lake.config.catalog.type != "mysql" else 0.0
    return ours, alone[-1], theirs


def one_file(lake: DuckLake, times: int = 60) -> list[float]:
    data = pa.table({"p": [1] * 10, "v": list(range(10))})
    lake.write(data, "small", mode="append")
    return sorted(timed(lambda: lake.write(data, "small", mode="append")) for _ in range(times))


def key_look_up(lake: DuckLake, snapshots: int = 100_000) -> float:
    data = pa.table({"v": [1]})
    lake.write(data, "keyed", mode="append", idempotency_key="the key")
    with lake.connect_metadata(read_only=False) as con:
        newest = con.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()[0][0]
        new_snapshots = f"FROM range({newest + 1}, {newest + 1 + snapshots}) t(n)"
        con.execute(
            f"INSERT INTO ducklake_orch_commits SELECT 1000000 + n, 'key ' || n, n, 'w', 0 {new_snapshots}"
            if lake.config.catalog.type != "mysql"
            else f"INSERT INTO ducklake_orch_commits SELECT 1000000 + n, encode('key ' || n), n, 'w', 0 {new_snapshots}"
        )
    with open_session(lake.config, entering=False) as session:
        metadata = Metadata(session.instance.root, lake.config)
        durations = [timed(lambda: idempotency.find_key(metadata, 1, "the key")) for _ in range(30)]
    return statistics.median(durations)


def replace_own(config: LakeConfig, number: int, times: int) -> list[tuple[float, int]]:
    lake, durations = DuckLake(config), []
    for n in range(times):
        data = pa.table({"p": [number] * 10, "v": list(range(n, n + 10))})
        started = time.perf_counter()
        result = lake.write(data, "t", mode="overwrite_partitions")
        durations.append((time.perf_counter() - started, result.attempts))
    return durations


def append_until(config: LakeConfig, number: int, warm: Any, stop: Any) -> int:
    lake, rows = DuckLake(config), 0
    while not stop.is_set():
        lake.write(pa.table({"p": [number], "v": [rows]}), "t", mode="append")
        rows += 1
        warm.release()
    return rows


def compact_until(config: LakeConfig, warm: Any, stop: Any) -> list[float]:
    lake, taken = DuckLake(config), list[float]()
    while not stop.is_set():
        taken.append(timed(lambda: lake.execute(MERGE).raise_for_error()))
        warm.release()
        time.sleep(0.05)
    return taken


def parallel(lake: DuckLake, workers: int, times: int) -> str:
    """Return a result line about concurrent replacements, and check that no row was lost."""
    lake.write(pa.table({"p": list(range(workers)), "v": [0] * workers}), "t", mode="append", partition_by=["p"])
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(workers + 3) as pool:
        stop, warm = manager.Event(), manager.Semaphore(0)
        pool.starmap(replace_own, [(lake.config, n, 1) for n in range(workers)])
        appenders = [pool.apply_async(append_until, (lake.config, 100 + n, warm, stop)) for n in range(2)]
        # The engine's merge does not support this on MySQL; docs/compatibility.md has the details.
        merges = lake.config.catalog.type != "mysql"
        loops = [pool.apply_async(compact_until, (lake.config, warm, stop))] if merges else []
        for _ in range(6):  # warm-up of the processes
            warm.acquire()
        started = time.perf_counter()
        replacements = pool.starmap(replace_own, [(lake.config, n, times) for n in range(workers)])
        seconds = time.perf_counter() - started
        stop.set()
        appended, compactions = (
            sum(appender.get() for appender in appenders),
            [second for loop in loops for second in loop.get()],
        )
    taken = sorted(second for per_worker in replacements for second, _ in per_worker)
    attempts = sum(attempt for per_worker in replacements for _, attempt in per_worker)
    rows = lake.execute("SELECT p, count(*) AS n FROM t GROUP BY p").rows
    counts = {row["p"]: row["n"] for row in rows}
    assert [counts[n] for n in range(workers)] == [10] * workers
    assert counts[100] + counts[101] == appended
    p50, p95 = (1000 * taken[int(len(taken) * share)] for share in (0.5, 0.95))
    rate = (len(taken) + appended + len(compactions)) / seconds
    merged = f"{len(compactions)} in {sum(compactions):.1f} s"
    return (
        f"{len(taken) / seconds:.0f} | {rate:.0f} | {p50:.0f} | {p95:.0f} | {attempts} | {appended} | {merged}"
        f" | {seconds:.1f} s in all"
    )


def measure(kind: str, url: str, folder: Path, given: argparse.Namespace) -> None:
    """Measure on one catalog, small operations first, while the lake is small."""
    fields: dict[str, Any] = {"catalog": url, "storage": f"{folder}/files", "create_if_missing": True}
    lake = DuckLake.from_url("lake", data_inlining_row_limit=0, **fields)
    for size in ("in a new lake", "in a lake of all these files"):
        durations = one_file(lake)
        print(
            f"{kind}: one file {size}: p50 {1000 * durations[len(durations) // 2]:.1f} ms,"
            f" p95 {1000 * durations[int(len(durations) * 0.95)]:.1f} ms",
            flush=True,
        )
        if size == "in a new lake":
            print(
                f"{kind}: parallel: replacements/s | commits/s | p50 ms | p95 ms | attempts | appends | merges:"
                f" {parallel(lake, given.workers, given.times)}",
                flush=True,
            )
            for count in given.files:
                ours, alone, theirs = bulk(lake, folder / "made", count)
                ratio = f"{theirs / ours:.1f}" if theirs else "cannot"
                print(
                    f"{kind}: {count} files: add_files {ours:.2f} s, commit alone {alone:.3f} s,"
                    f" the engine {theirs:.2f} s, ratio {ratio}",
                    flush=True,
                )
    print(f"{kind}: key among 100,000: {1000 * key_look_up(lake):.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogs", nargs="+", default=["sqlite", "duckdb", "postgres", "mysql"])
    parser.add_argument("--files", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    for kind in given.catalogs:
        folder = Path(tempfile.mkdtemp())
        try:
            with database(kind, folder) as url:
                measure(kind, url, folder, given)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
