"""Duration and memory of planning a scan, and how both grow with the number of files.

Run it with `python -m tests.benchmarks.bench_plan`. The files are rows in the metadata tables of a lake without data,
because planning reads no data files. Every figure is measured in a new process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ducklake_orch import DuckLake
from tests.servers.base import Server
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

COLUMNS = 20
REGIONS = 50
# The plans: all rows; one partition and a range in it; a range that only statistics prune; the newest rows.
PLANS: dict[str, dict[str, Any]] = {
    "all files": {},
    "partition and range": {"where": "region = 'r7' AND c1 BETWEEN 1000 AND 20000"},
    "range": {"where": "c1 < 5000 AND c2 IS NOT NULL"},
    "top 100": {"order_by": ["c1 DESC NULLS LAST"], "limit": 100},
}
INDEXED = "partition and range, with indexes"
CHILD = """
import json, resource, sys, time
from ducklake_orch import DuckLake
from ducklake_orch.catalog.scan.table_summary import reading_table
from ducklake_orch.catalog.scan.scan_plan import plan_scan
from ducklake_orch.engine.quoting import table_name

job = json.loads(sys.argv[1])
lake = DuckLake.from_url("lake", catalog=job["catalog"], storage=job["storage"])
with lake.reading(entering=False) as session, reading_table(session, table_name("t")) as (metadata, table, at):
    started = time.perf_counter()
    plan = plan_scan(metadata, table, at, **job["plan"])
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024, "files": len(plan.files)}))
"""


def make(url: str, storage: str, files: int) -> None:
    """Create a lake with a partitioned table of many files, with statistics of every column."""
    lake = DuckLake.from_url("lake", catalog=url, storage=storage, create_if_missing=True)
    numbers = ", ".join(f"c{n} BIGINT" for n in range(1, COLUMNS))
    lake.execute(
        [f"CREATE TABLE t (region VARCHAR, {numbers})", "ALTER TABLE t SET PARTITIONED BY (region)"]
    ).raise_for_error()
    with lake.connect_metadata(read_only=False) as con:
        numbers = f"FROM range({files}) x(n)"
        partition = con.execute("SELECT max(partition_id) FROM ducklake_partition_info").fetchone()
        con.execute(f"""
            INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
                record_count, file_size_bytes, footer_size, row_id_start, partition_id)
            SELECT n, 1, 2, 'region=r' || n % {REGIONS} || '/ducklake-01a1ff17-0476-7892-8b00-' || n || '.parquet',
                true, 'parquet', 1000, 100000, 2000, n * 1000, {partition[0] if partition else 0} {numbers}""")
        con.execute(f"""
            INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value)
            SELECT n, 1, 0, 'r' || n % {REGIONS} {numbers}""")
        con.execute(f"""
            INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count,
                null_count, min_value, max_value)
            SELECT n, 1, c, 5000, 1000, 0, CASE c WHEN 1 THEN 'r' || n % {REGIONS} ELSE n::VARCHAR END,
                CASE c WHEN 1 THEN 'r' || n % {REGIONS} ELSE (n + 999)::VARCHAR END
            {numbers}, range(1, {COLUMNS + 1}) y(c)""")


def measure(url: str, storage: str, plan: dict[str, Any]) -> dict[str, Any]:
    job = json.dumps({"catalog": url, "storage": storage, "plan": plan})
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    completed = subprocess.run([sys.executable, "-c", CHILD, job], env=env, capture_output=True, text=True, timeout=600)
    if completed.returncode:
        raise RuntimeError(completed.stderr)
    result: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return result


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a new catalog."""
    servers: dict[str, type[Server]] = {"postgres": PostgresServer, "mysql": MariaDBServer}
    if kind not in servers:
        yield f"{kind}:///{folder}/catalog.{kind}"
        return
    server = servers[kind].start(folder / "server")
    try:
        assert isinstance(server, PostgresServer | MariaDBServer)
        server.create_database("bench")
        yield server.url("bench")
    finally:
        server.stop()


def bench(kind: str, sizes: list[int]) -> None:
    last: dict[str, dict[str, Any]] = {}
    for files in sizes:
        with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as url:
            make(url, f"{name}/files", files)
            plans = dict(PLANS)
            if kind in ("sqlite", "postgres"):
                plans[INDEXED] = PLANS["partition and range"]
            for plan_name, plan in plans.items():
                if plan_name == INDEXED:
                    DuckLake.from_url("lake", catalog=url, storage=f"{name}/files").create_indexes()
                measured, before = measure(url, f"{name}/files", plan), last.get(plan_name)
                growth = [f"{measured[key] / before[key]:.1f}" if before else "" for key in ("seconds", "peak_mb")]
                print(
                    f"| {kind} | {files} | {plan_name} | {measured['files']} | {measured['seconds']:.2f} | {growth[0]}"
                    f" | {measured['peak_mb']:.0f} | {growth[1]} |",
                    flush=True,
                )
                last[plan_name] = measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalogs", nargs="+", default=["sqlite", "duckdb", "postgres", "mysql"])
    parser.add_argument("--files", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    given = parser.parse_args()
    print("| catalog | files | plan | kept | seconds | growth | peak MB | growth |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in given.catalogs:
        bench(kind, given.files)


if __name__ == "__main__":
    main()
