"""The cost of a transaction and of a stage over many tables, compared with the same writes one by one.

Run it with `python -m tests.benchmarks.bench_transactions` on an idle machine.

- Tables: one transaction that appends to 1, 10 and 100 tables, and a write of its own for each.
- Files: one transaction over 20 tables with 1, 50 and 500 new files each; the time of its commit should grow with the
  number of files, and not faster.
- Stages: the last of these once more, staged table by table and then published.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.benchmarks.bench_plan import database

ROWS = pa.table({"id": range(1000), "value": [0.5] * 1000})


def single(lake: DuckLake, tables: list[str]) -> float:
    """Return the seconds of a write to each table."""
    started = time.perf_counter()
    for table in tables:
        lake.write(ROWS, table, mode="append")
    return time.perf_counter() - started


def together(lake: DuckLake, tables: list[str], data: pa.Table = ROWS) -> tuple[float, float]:
    """Return the seconds of one transaction over all tables, and those after its last verb: the commit."""
    started = time.perf_counter()
    with lake.transaction() as tx:
        for table in tables:
            tx.write(data, table, mode="append")
        written = time.perf_counter()
    ended = time.perf_counter()
    return ended - started, ended - written


def staged(lake: DuckLake, tables: list[str], data: pa.Table) -> tuple[float, float]:
    """Return the seconds of staging rows for all tables, one by one, and those of publishing them."""
    started = time.perf_counter()
    stage = lake.stage("benchmark")
    for table in tables:
        stage.write(data, table, mode="append")
    written = time.perf_counter()
    stage.publish()
    return time.perf_counter() - started, time.perf_counter() - written


def measure(kind: str, url: str, folder: Path) -> None:
    lake = DuckLake.from_url("lake", catalog=url, storage=f"{folder}/files", create_if_missing=True)
    names = [f"t{number}" for number in range(100)]
    single(lake, names)
    for count in (1, 10, 100):
        alone = single(lake, names[:count])
        whole, commit = together(lake, names[:count])
        print(
            f"| {kind}: {count} tables | {alone:.2f} s | {whole:.2f} s | {commit:.2f} s | {whole / alone:.2f} |",
            flush=True,
        )
    for table in (parted := [f"parted{number}" for number in range(20)]):
        lake.write(pa.table({"p": [0], "id": [0]}), table, mode="append", partition_by=["p"])
    for files in (1, 50, 500):
        data = pa.table({"p": [number % files for number in range(1000)], "id": range(1000)})
        whole, commit = together(lake, parted, data)
        print(f"| {kind}: 20 tables, {files} files each | | {whole:.2f} s | {commit:.2f} s | |", flush=True)
    stage, publish = staged(lake, parted, data)
    print(f"| {kind}: the same in a stage | | {stage:.2f} s | {publish:.2f} s | {stage / whole:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogs", nargs="+", default=["sqlite", "duckdb", "postgres", "mysql"])
    given = parser.parse_args()
    print("| | single writes | one transaction | its commit | times as long |")
    print("|---|---|---|---|---|")
    for kind in given.catalogs:
        folder = Path(tempfile.mkdtemp())
        try:
            with database(kind, folder) as url:
                measure(kind, url, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
