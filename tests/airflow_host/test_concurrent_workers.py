"""Three concurrent workers run lists of commands through the hook on one Postgres catalog."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ducklake_orch import DuckLake
from tests.benchmarks.bench_connect import INSERT, finish, job_for, start
from tests.support.airflow_connections import Connect
from tests.support.backends import POSTGRES
from tests.support.lakes import Servers, catalog_fields

WORKERS, TIMES = 3, 34
WORKER = """
import json, sys, time
from ducklake_orch.airflow import DuckLakeHook
hook, worker, took = DuckLakeHook(), int(sys.argv[1]), []
for n in range(int(sys.argv[2])):
    begin = time.perf_counter()
    result = hook.execute([
        f"INSERT INTO results VALUES ({worker}, {n}, now())",
        f"SELECT count(*) AS mine FROM results WHERE worker = {worker}",
    ])
    took.append(time.perf_counter() - begin)
    assert result.status == "ok", result
    assert result.rows == [{"mine": n + 1}], result
print(json.dumps({"took": took, "result": result.to_dict()}))
"""


def test_three_concurrent_workers_share_a_catalog_without_errors(
    servers: Servers, tmp_path: Path, connect: Connect
) -> None:
    url = catalog_fields(POSTGRES, servers, tmp_path, "shared")["url"]
    connect(extra={"catalog": url, "storage": str(tmp_path / "files"), "create_if_missing": True})
    lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path / "files"), create_if_missing=True)
    lake.create_table("results", {"worker": "integer", "n": "integer", "at": "timestamptz"})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(worker), str(TIMES)], env=environment, text=True, stdout=subprocess.PIPE
        )
        for worker in range(WORKERS)
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    rows = lake.execute("SELECT worker, n FROM results ORDER BY ALL").raise_for_error().rows
    assert rows == [{"worker": worker, "n": n} for worker in range(WORKERS) for n in range(TIMES)]
    result: dict[str, Any] = found[0]["result"]
    assert (result["status"], result["command_count"], result["executed"]) == ("ok", 2, 2)
    insert, query = result["commands"]
    assert (insert["index"], insert["affected_rows"], insert["status"]) == (0, 1, "ok")
    assert query["columns"] == [{"name": "mine", "type": "BIGINT"}]
    assert (query["row_count"], query["rows"]) == (1, [{"mine": TIMES}])
    assert result["lake"]["name"] == "ducklake_default"

    # Plain DuckDB on the same rows, for comparison in the output (`-s`); `make bench` measures it.
    job = job_for(catalog_fields(POSTGRES, servers, tmp_path, "plain")["url"], tmp_path / "plain", TIMES)
    plain = [finish(popen) for popen in [start("plain", INSERT["plain"], job) for _ in range(WORKERS)]]
    hook_ms = statistics.median(seconds for worker in found for seconds in worker["took"]) * 1000
    plain_ms = statistics.median(seconds for worker in plain for seconds in worker["again"]) * 1000
    print(f"median of two commands {hook_ms:.0f} ms, of a plain INSERT {plain_ms:.0f} ms")
    errors = sum(worker["errors"] for worker in plain)
    print(f"plain DuckDB failed {errors} of {WORKERS * TIMES} times, this package never")
