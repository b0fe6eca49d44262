"""How many small appends a second one process commits, beside the INSERT of DuckDB's extension in the same run.

Run it with `python -m tests.benchmarks.bench_appends` on an idle machine. Each append has ten rows and is a snapshot of
its own. Ours have idempotency keys. A reader counts the rows meanwhile: it never sees a part of an append.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa

from ducklake_orch import DuckLake
from tests.benchmarks.bench_plan import database

ROWS = 10


def rows(thread: int, number: int) -> pa.Table:
    return pa.table(
        {
            "id": [thread * 1_000_000 + number * ROWS + n for n in range(ROWS)],
            "name": [f"sensor {thread}"] * ROWS,
            "value": [0.5] * ROWS,
        }
    )


def repeated(threads: int, seconds: float, append: Callable[[int, int], object]) -> tuple[float, float, int]:
    """Append in threads for some time; return appends per second, the 95th percentile of one, and their number."""
    end, taken = time.monotonic() + seconds, list[float]()

    def work(thread: int) -> None:
        number = 0
        while time.monotonic() < end:
            began = time.perf_counter()
            append(thread, number)
            taken.append(time.perf_counter() - began)
            number += 1

    began = time.perf_counter()
    running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return len(taken) / (time.perf_counter() - began), sorted(taken)[int(len(taken) * 0.95)], len(taken)


def watched(lake: DuckLake, table: str, work: Callable[[], tuple[float, float, int]]) -> tuple[float, float]:
    """Run appends while a reader counts the rows, and check the counts."""
    counts, stop = list[int](), threading.Event()

    def watch() -> None:
        while not stop.wait(0.5):
            counts.append(lake.table(table).count())

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        rate, late, number = work()
    finally:
        stop.set()
        reader.join()
    assert counts == sorted(counts)
    assert all(count % ROWS == 0 for count in counts), counts
    assert lake.table(table).count() == ROWS * number
    return rate, late


def ours(lake: DuckLake, threads: int, seconds: float, inline: str) -> tuple[float, float]:
    table = f"{inline}_{threads}"
    lake.write(rows(0, 0).slice(0, 0), table, mode="append")
    lake.write(rows(0, 0).slice(0, 0), table, mode="append", inline=inline)

    def append(thread: int, number: int) -> None:
        lake.write(rows(thread, number), table, mode="append", inline=inline, idempotency_key=f"{thread}-{number}")

    return watched(lake, table, lambda: repeated(threads, seconds, append))


def theirs(lake: DuckLake, threads: int, seconds: float) -> tuple[float, float, int]:
    """Append by INSERT of the extension, in a connection of each thread; return also how many had to be repeated."""
    table, failures = f"theirs_{threads}", list[str]()
    lake.write(rows(0, 0).slice(0, 0), table, mode="append")
    with lake.connect() as con:
        cursors = [con.cursor() for _ in range(threads)]

        def append(thread: int, number: int) -> None:
            given = rows(thread, number)
            cursors[thread].register("given", given)
            while True:
                try:
                    cursors[thread].execute(f"INSERT INTO {lake.config.alias}.main.{table} FROM given")
                except duckdb.Error as error:  # the extension gives up after its own retries
                    failures.append(str(error))
                else:
                    return

        rate, late, _ = repeated(threads, seconds, append)
    return rate, late, len(failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogs", nargs="+", default=["sqlite", "duckdb", "postgres"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=8)
    given = parser.parse_args()
    print("appends of ten rows per second, and the 95th percentile of one; the ratio is that of the time")
    print("| | ours, inlined | p95 | ours, files | p95 | INSERT of the extension | p95 | failed | ours / INSERT |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in given.catalogs:
        for threads in given.threads:
            with tempfile.TemporaryDirectory() as folder, database(kind, Path(folder)) as url:
                lake = DuckLake.from_url("lake", catalog=url, storage=f"{folder}/files", create_if_missing=True)
                mine, files = (ours(lake, threads, given.seconds, inline) for inline in ("auto", "never"))
                rate, late, failed = theirs(lake, threads, given.seconds)
                cells = [f"{number:.0f} | {1000 * p95:.0f} ms" for number, p95 in (mine, files, (rate, late))]
                many = "1 thread" if threads == 1 else f"{threads} threads"
                print(f"| {kind}, {many} | {' | '.join(cells)} | {failed} | {rate / mine[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
