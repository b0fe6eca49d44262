"""Maintenance plan, health report and report page of a large lake, and how their durations grow.

Run it with `make bench-large` on an idle machine. The lake is on SQLite; the files of a table are links to one file.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.servers.browser import browsing

_PLANNED = ("flush", "rewrite", "merge", "layout", "expire", "cleanup")
_OPENED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def make(folder: Path, tables: int, files: int) -> DuckLake:
    """Create a lake with a number of tables, and a number of files in each."""
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    lake.write(pa.table({"id": [0]}), "seed", mode="append")
    path = lake.table("seed").files()[0].path
    for number in range(tables):
        links = folder / "links" / str(number)
        links.mkdir(parents=True)
        copies = [str(links / f"{n}.parquet") for n in range(files)]
        shutil.copyfile(path, copies[0])  # a file can have at most 65,000 links
        for copy in copies[1:]:
            Path(copy).hardlink_to(copies[0])
        lake.create_table(f"t{number}", {"id": "BIGINT"})
        lake.add_files(f"t{number}", copies)
    return lake


def measure(folder: Path, tables: int, files: int) -> None:
    """Print one line of figures for a lake."""
    lake = make(folder, tables, files)
    page = folder / "lake.html"
    works: list[Callable[[], object]] = [
        partial(lake.plan_maintenance, operations=_PLANNED),
        lake.health,
        lambda: page.write_text(lake.report().to_html(), "utf-8"),
    ]
    seconds = []
    for work in works:
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    with browsing(folder / "profile", width=1280, height=1600) as browser:
        browser.open(page.as_uri(), f"t{tables - 1}")
        seconds.append(float(browser.value(_OPENED)))
    shown = " | ".join(f"{second:.2f} s" for second in seconds)
    size = page.stat().st_size / 1e6
    print(f"| {tables:,} | {tables * files:,} | {shown} | {size:.1f} MB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", type=int, default=[100, 1_000])
    parser.add_argument("--files", type=int, default=100, help="of each table")
    given = parser.parse_args()
    print("| Tables | Files | Plan of maintenance | Health | Report made | Report opened | Report |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for tables in given.tables:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), tables, given.files)


if __name__ == "__main__":
    main()
