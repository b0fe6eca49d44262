"""The cost of opening a lake and of small writes, compared with plain DuckDB on the same servers.

Run it with `make bench`. Every figure is measured in a new process, alternating between plain DuckDB and ducklake-orch,
so that changes in the speed of the machine affect both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ducklake_orch import DuckLake
from tests.servers.base import Server
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

# Both child processes print one JSON line. `plain` has the statements of careful hand-written code.
PLAIN = """
import json, sys, time
started = time.perf_counter()
import duckdb
from ducklake_orch.engine.extensions import find_wheel
imported = time.perf_counter()
job = json.loads(sys.argv[1])
def connect():
    con = duckdb.connect()
    for name in job["extensions"]:
        con.execute(f"LOAD '{find_wheel(name).file}'")
    for statement in job["statements"]:
        con.execute(statement)
    return con
"""
OURS = """
import json, sys, time
started = time.perf_counter()
import duckdb
from ducklake_orch import DuckLake
from ducklake_orch.engine import session
imported = time.perf_counter()
job = json.loads(sys.argv[1])
lake = DuckLake.from_url("lake", catalog=job["catalog"], storage=job["storage"])
"""
CONNECT = {
    "plain": """
con = connect()
con.execute("SELECT count(*) FROM t").fetchall()
con.execute("USE memory"); con.execute("DETACH lake"); con.close()
first = time.perf_counter()
""",
    "ours": """
with lake.connect() as con:
    con.execute("SELECT count(*) FROM t").fetchall()
first = time.perf_counter()
""",
}
AGAIN = {
    "plain": """
times = []
for _ in range(job["repeat"]):
    begin = time.perf_counter()
    con = connect()
    con.execute("SELECT count(*) FROM t").fetchall()
    con.execute("USE memory"); con.execute("DETACH lake"); con.close()
    times.append(time.perf_counter() - begin)
print(json.dumps({"import": imported - started, "cold": first - imported, "again": times}))
""",
    "ours": """
times = []
for _ in range(job["repeat"]):
    begin = time.perf_counter()
    with lake.connect() as con:
        con.execute("SELECT count(*) FROM t").fetchall()
    times.append(time.perf_counter() - begin)
print(json.dumps({"import": imported - started, "cold": first - imported, "again": times}))
""",
}
INSERT = {
    "plain": """
con, times, errors = connect(), [], 0
for i in range(job["repeat"]):
    begin = time.perf_counter()
    try:
        con.execute(f"INSERT INTO t VALUES ({i})")
    except duckdb.Error:
        errors += 1
    times.append(time.perf_counter() - begin)
con.execute("USE memory"); con.execute("DETACH lake"); con.close()
print(json.dumps({"total": time.perf_counter() - imported, "again": times, "errors": errors}))
""",
    "connect": """
times, errors = [], 0
with lake.connect() as con:
    for i in range(job["repeat"]):
        begin = time.perf_counter()
        try:
            con.execute(f"INSERT INTO t VALUES ({i})")
        except duckdb.Error:
            errors += 1
        times.append(time.perf_counter() - begin)
print(json.dumps({"total": time.perf_counter() - imported, "again": times, "errors": errors}))
""",
    "execute": """
times, errors = [], 0
for i in range(job["repeat"]):
    begin = time.perf_counter()
    errors += lake.execute(f"INSERT INTO t VALUES ({i})").status != "ok"
    times.append(time.perf_counter() - begin)
print(json.dumps({"total": time.perf_counter() - imported, "again": times, "errors": errors}))
""",
}


def start(kind: str, body: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    code = (PLAIN if kind == "plain" else OURS) + body
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, json.dumps(job)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=300)
    if process.returncode:
        raise RuntimeError(errors)
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


@contextmanager
def running(kind: type[Server], folder: Path) -> Iterator[Server]:
    server = kind.start(folder)
    try:
        yield server
    finally:
        server.stop()


def job_for(url: str, folder: Path, repeat: int) -> dict[str, Any]:
    """Create a lake, and describe it for both kinds of child processes."""
    from ducklake_orch.engine.attach import Access, attach_statements, secret_statements, setting_statements

    storage = str(folder / "data")
    lake = DuckLake.from_url("lake", catalog=url, storage=storage, create_if_missing=True)
    lake.create_table("t", {"i": "int"}, if_not_exists=True)
    config = DuckLake.from_url("lake", catalog=url, storage=storage).config
    statements = [*setting_statements(config), *secret_statements(config, reveal=True)]
    statements += [*attach_statements(config, Access(), create=False, reveal=True), 'USE "lake"']
    extensions = config.required_extensions
    return {"catalog": url, "storage": storage, "extensions": extensions, "statements": statements, "repeat": repeat}


def catalogs(folder: Path) -> Iterator[tuple[str, str]]:
    yield "sqlite", f"sqlite:///{folder}/c.sqlite"
    yield "duckdb", f"duckdb:///{folder}/c.ducklake"
    for name, kind in (("postgres", PostgresServer), ("mysql", MariaDBServer)):
        with running(kind, folder / f"server-{name}") as server:
            assert isinstance(server, PostgresServer | MariaDBServer)
            server.create_database("bench")
            yield name, server.url("bench")


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def bench_connect(folder: Path, runs: int) -> None:
    print("\n## Connect and first query (ms, medians)\n")
    print("| catalog | import plain / ours | cold plain | cold ours | ratio | again plain | again ours | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name, url in catalogs(folder):
        job = job_for(url, folder / name, 10)
        results: dict[str, list[dict[str, Any]]] = {"plain": [], "ours": []}
        for _ in range(runs):
            for kind, measured in results.items():
                measured.append(finish(start(kind, CONNECT[kind] + AGAIN[kind], job)))
        imported, cold = (
            {kind: statistics.median(child[key] for child in measured) for kind, measured in results.items()}
            for key in ("import", "cold")
        )
        again = {kind: statistics.median(t for r in measured for t in r["again"]) for kind, measured in results.items()}
        pairs = [o["cold"] / p["cold"] for p, o in zip(results["plain"], results["ours"], strict=True)]
        print(
            f"| {name} | {ms(imported['plain'])} / {ms(imported['ours'])} | {ms(cold['plain'])}"
            f" | {ms(cold['ours'])} | {statistics.median(pairs):.2f} | {ms(again['plain'])}"
            f" | {ms(again['ours'])} | {again['ours'] / again['plain']:.2f} |"
        )


def bench_inserts(folder: Path, runs: int) -> None:
    """Compare `connect` (the same work) and `execute` (lock, exactly once, structured result) with plain DuckDB."""
    print("\n## 34 one-row inserts per worker, Postgres catalog\n")
    print("| workers | way | total (s) | ratio to plain | median insert (ms) | errors |")
    print("|---|---|---|---|---|---|")
    with running(PostgresServer, folder / "server-inserts") as server:
        assert isinstance(server, PostgresServer)
        for workers in (1, 3):
            results: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in INSERT}
            for run in range(runs):
                for kind, body in INSERT.items():
                    database = f"inserts_{workers}_{run}_{kind}"
                    server.create_database(database)
                    job = job_for(server.url(database), folder / database, 34)
                    results[kind].append([finish(p) for p in [start(kind, body, job) for _ in range(workers)]])
            totals = {kind: [max(d["total"] for d in done) for done in each] for kind, each in results.items()}
            for kind, each in results.items():
                ratio = statistics.median(a / b for a, b in zip(totals[kind], totals["plain"], strict=True))
                insert = statistics.median(t for done in each for d in done for t in d["again"])
                errors = sum(d["errors"] for done in each for d in done)
                total = statistics.median(totals[kind])
                print(f"| {workers} | {kind} | {total:.2f} | {ratio:.2f} | {ms(insert)} | {errors} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # Compiled modules are kept, as in most environments.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        bench_connect(Path(folder), runs)
        bench_inserts(Path(folder), runs)
    print(f"\n{runs} runs in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
