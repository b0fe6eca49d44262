"""Everything that writers, maintainers and readers of a lake do, for tests of the permissions that they need."""

import pyarrow as pa

from ducklake_orch import DuckLake, MaintenancePolicy

# A policy that maintains everything regardless of age.
_NOW = MaintenancePolicy(
    rewrite={"delete_threshold": 0.01},
    merge={"min_files": 2},
    expire={"older_than": "0s", "retain_last": 1},
    cleanup={"older_than": "0s"},
    orphans={"action": "delete", "older_than": "0s"},
    force=True,
)


def write_and_maintain(lake: DuckLake) -> None:
    """Create a lake, change its rows and columns in every way, and run all maintenance operations."""
    rows = pa.table({"id": list(range(100)), "day": [n % 3 for n in range(100)]})
    for n in range(4):
        lake.write(rows, "sales.orders", mode="append", partition_by=["day"], idempotency_key=f"load {n}")
    lake.write(rows.slice(0, 3), "sales.orders", mode="append", inline="auto")
    lake.write(
        rows, "sales.orders", mode="overwrite_partitions", expect_snapshot=lake.snapshots(limit=1)[0].snapshot_id
    )
    lake.write(
        rows.append_column("note", pa.array(["new"] * 100)), "sales.orders", mode="append", schema_evolution="add"
    )
    lake.delete("sales.orders", "id = 7")
    lake.update("sales.orders", {"note": "'seen'"}, "id < 20")
    lake.write(rows.slice(0, 5), "sales.items", mode="append")
    lake.write(rows.slice(2, 9), "sales.items", mode="merge", keys=["id"])
    before = lake.snapshots(limit=1)[0].snapshot_id
    lake.delete("sales.items", "day = 1")
    lake.rollback("sales.items", before)
    lake.set_option("target_file_size", "64MB")
    lake.execute(["CREATE TABLE scratch (i INTEGER)", "INSERT INTO scratch VALUES (1)"]).raise_for_error()
    lake.drop_table("scratch")
    for _ in range(3):
        lake.write(rows, "sales.orders", mode="append")
    report = lake.maintain(_NOW)
    report.raise_for_error()
    assert {step.operation for step in report.operations if step.status == "done"} >= {"merge", "expire", "cleanup"}
    assert lake.fsck(deep=True, storage=True).findings == []
    assert lake.health().grade == "ok"


def read_everything(lake: DuckLake) -> None:
    """Read a lake in every way."""
    assert lake.table("sales.orders").count() == lake.read("sales.orders").num_rows > 0
    assert lake.execute("SELECT count(*) FROM sales.items").raise_for_error().rows
    assert all([lake.tables(), lake.snapshots(), lake.options()])
    assert lake.changes("sales.orders") is not None
    assert lake.health().grade
    assert lake.fsck().findings == []
