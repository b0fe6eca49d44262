"""On a catalog with a clock of its own, that clock says when something was committed, whatever a host's clock says."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import libfaketime
import pytest

from ducklake_orch import DuckLake
from tests.servers.postgres import PostgresServer

PROGRAM = """
import sys
from datetime import UTC, datetime
import pyarrow as pa
from ducklake_orch import DuckLake

lake = DuckLake.from_url("lake", catalog=sys.argv[1], storage={"type": "local", "path": sys.argv[2]})
rows = pa.table({"k": [1, 2]})
lake.write(rows, "t", mode="append", idempotency_key="first")
lake.write(rows, "t", mode="overwrite")
lake.delete("t", "k = 1")
lake.maintain(operations=["merge"])
print(datetime.now(UTC).isoformat())
"""


@pytest.mark.parametrize("wrong", [timedelta(hours=-72), timedelta(hours=72)])
def test_a_host_with_a_wrong_clock_commits_at_the_time_of_the_server(
    postgres: PostgresServer, tmp_path: Path, wrong: timedelta
) -> None:
    database = f"wrong clock {wrong.days}"
    postgres.create_database(database)
    storage = {"type": "local", "path": tmp_path}
    lake = DuckLake.from_url("lake", catalog=postgres.url(database), storage=storage, create_if_missing=True)
    lake.create_table("t", {"k": "BIGINT"})
    began = datetime.now(UTC)
    hours = int(wrong / timedelta(hours=1))
    variables = {**os.environ, **libfaketime.get_reload_information()[1], "FAKETIME": f"{hours:+d}h"}
    command = [sys.executable, "-c", PROGRAM, postgres.url(database), str(tmp_path)]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert abs(datetime.fromisoformat(ended.stdout.splitlines()[-1]) - began - wrong) < timedelta(hours=1)

    with lake.connect_metadata() as con:
        for what, times in {
            "snapshots": "SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id > 1",
            "keys": "SELECT to_timestamp(committed_at) FROM ducklake_orch_commits",
            "runs": "SELECT make_timestamptz(started_at) FROM ducklake_orch_runs",
        }.items():
            found = [row[0] for row in con.execute(times).fetchall()]
            assert found, what
            assert all(abs(time - began) < timedelta(hours=1) for time in found), (what, found)
