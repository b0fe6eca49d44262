"""Lakes that need maintenance, and what must be the same before and after it."""

from collections.abc import Sequence
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.maintenance.results import MaintenanceReport

Rows = list[tuple[Any, ...]]
# All operations regardless of age, which is safe only without concurrent readers and writers.
ALL_OF_IT = MaintenancePolicy(
    expire={"older_than": 0, "retain_last": 1},
    cleanup={"older_than": 0},
    orphans={"older_than": 0, "action": "delete", "unknown": "delete"},
    force=True,
)
KEEPING = ALL_OF_IT.model_copy(update={"expire": ALL_OF_IT.expire.model_copy(update={"enabled": False})})
TABLES = ("t", "d", "i")


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"k": pa.array(numbers, pa.int64()), "v": pa.array([f"row {number}" for number in numbers])})


def small_files(lake: DuckLake, table: str = "t", files: int = 5, each: int = 20) -> None:
    """Append a number of small files."""
    for number in range(files):
        lake.write(rows(number * each, each), table, mode="append")


def worn(lake: DuckLake) -> None:
    """Create tables that give every operation work: `t`, `d` with deletions, `i` with inlined rows."""
    small_files(lake, "t")
    small_files(lake, "d", files=1, each=100)
    lake.delete("d", "k < 25")  # below the threshold of a rewrite, so a delete file is written
    lake.write(rows(0, 3), "i", mode="append", inline="auto")


def worn_at_random(lake: DuckLake, seed: int, steps: int = 18) -> None:
    """Create three tables with random changes; `p` is partitioned, and `gone` may be dropped."""
    rng = Random(seed)
    for name in ("p", "q", "gone"):
        data = rows(0, 60).append_column("part", [[key % 3 for key in range(60)]])
        lake.write(data, name, mode="append", partition_by=["part"] if name == "p" else None)
    for number in range(1, steps):
        name, start, count = rng.choice(("p", "p", "q", "gone")), rng.randrange(0, 300), rng.randrange(1, 40)
        data = rows(start, count).append_column("part", [[rng.randrange(3) for _ in range(count)]])
        where = f"k % {rng.randrange(2, 12)} = 0"
        change = rng.choice(("append", "append", "inline", "delete", "update", "replace", "merge", "overwrite"))
        match change:
            case "append":
                lake.write(data, name, mode="append")
            case "inline":
                lake.write(data.slice(0, 3), name, mode="append", inline="auto")
            case "delete":
                lake.delete(name, where)
            case "update":
                lake.update(name, {"v": f"'{number}'"}, where)
            case "replace":
                lake.write(data, name, mode="replace_where", where=where, outside="drop")
            case "merge":
                lake.write(data, name, mode="merge", keys=["k"])
            case "overwrite":
                lake.write(data, name, mode="overwrite")
    if rng.random() < 0.5:
        lake.drop_table("gone")


def contents(lake: DuckLake, tables: Sequence[str] = ("t",)) -> dict[str, Rows]:
    with lake.connect() as con:
        return {name: sorted(con.execute(f"FROM {name}").fetchall()) for name in tables}


def row_ids(lake: DuckLake, table: str = "t") -> dict[int, int]:
    with lake.connect() as con:
        return dict(con.execute(f"SELECT k, rowid FROM {table}").fetchall())


def history(lake: DuckLake, tables: Sequence[str] = ("t",)) -> dict[int, dict[str, Rows]]:
    """Return the contents at every snapshot in which all tables exist, as the engine reads them."""
    snapshots = [snapshot.snapshot_id for snapshot in lake.snapshots()]
    with lake.connect() as con:

        def at(name: str, snapshot: int) -> Rows | None:
            try:
                return sorted(con.execute(f"FROM {name} AT (VERSION => {snapshot})").fetchall())
            except duckdb.CatalogException:
                return None

        states = {snapshot: {name: at(name, snapshot) for name in tables} for snapshot in snapshots}
    return {
        snapshot: {name: rows for name, rows in state.items() if rows is not None}
        for snapshot, state in states.items()
        if None not in state.values()
    }


def metadata(lake: DuckLake) -> dict[str, Rows]:
    """Return every row of the metadata database."""
    with lake.connect_metadata() as con:
        names = con.execute(
            "SELECT table_schema, table_name FROM information_schema.tables"
            f" WHERE table_catalog = '{lake.config.metadata_alias}' AND starts_with(table_name, 'ducklake_')"
        ).fetchall()
        return {name: sorted(con.execute(f'FROM "{schema}"."{name}"').fetchall(), key=repr) for schema, name in names}


def whole(lake: DuckLake) -> None:
    """Check that fsck finds nothing in the catalog, the files and the storage."""
    report = lake.fsck(deep=True, storage=True)
    assert not report.counts, str(report)


def statuses(report: MaintenanceReport) -> dict[tuple[str, str | None], str]:
    return {(step.operation, step.table): step.status for step in report.operations}
