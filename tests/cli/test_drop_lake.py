"""`ducklake-orch drop-lake` shows what would be dropped, and drops it with `--yes`."""

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.support.command_line import run


def test_drop_lake_drops_only_with_yes(lake: DuckLake) -> None:
    lake.write(pa.table({"k": range(100)}), "t", mode="append")
    assert "would be dropped" in run("drop-lake").out
    assert lake.read("t").num_rows == 100
    assert run("drop-lake", "--yes", "--json").json["dry_run"] is False
    failed = run("tables")
    assert failed.code != 0
