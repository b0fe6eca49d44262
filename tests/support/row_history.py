"""A Python model of a table at each snapshot, and a check that every reader still sees these rows."""

from collections.abc import Sequence
from typing import Any

from ducklake_orch import DuckLake
from tests.support.plan_reader import read_plan

Row = tuple[Any, ...]


class RowHistory:
    """The rows of a table at every snapshot since this object was created.

    Args:
        lake: The lake.
        table: The table.
        rows: The current rows of the table.
    """

    def __init__(self, lake: DuckLake, table: str, rows: Sequence[Row] = ()) -> None:
        self.lake = lake
        self.table = table
        self.now = list(rows)
        self.then: dict[int, list[Row]] = {}
        self.first = newest(lake)
        self.keep()

    def keep(self) -> None:
        """Record the current rows for the newest snapshots."""
        for snapshot in range(max(self.then, default=self.first - 1) + 1, newest(self.lake) + 1):
            self.then[snapshot] = list(self.now)

    def check(self) -> None:
        """Read every snapshot with DuckDB, with `lake.read` and by the plan, and run fsck."""
        for snapshot, rows in self.then.items():
            wanted = sorted(rows, key=repr)
            sql = f"FROM {self.table} AT (VERSION => {snapshot})"
            result = self.lake.execute([sql, f"SELECT count(*) AS n {sql}"], max_rows=None).raise_for_error()
            assert sorted(map(as_row, result.commands[0].rows), key=repr) == wanted, f"DuckDB at {snapshot}"
            assert result.commands[1].rows[0]["n"] == len(wanted), f"count(*) at {snapshot}"
            read = self.lake.read(self.table, snapshot=snapshot).to_pylist()
            assert sorted(map(as_row, read), key=repr) == wanted, f"read at {snapshot}"
            assert read_plan(self.lake, self.table, snapshot=snapshot) == wanted, f"plan at {snapshot}"
        report = self.lake.fsck(deep=True, storage=True)
        assert report.counts == {}, str(report)


def as_row(row: dict[str, Any]) -> Row:
    return tuple(row.values())


def newest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def row_ids(lake: DuckLake, table: str, key: str = "id", snapshot: int | None = None) -> dict[Any, int]:
    """Return the row ids by a unique column."""
    at = "" if snapshot is None else f" AT (VERSION => {snapshot})"
    rows = lake.execute(f"SELECT {key} AS key, rowid AS row_id FROM {table}{at}", max_rows=None).raise_for_error().rows
    return {row["key"]: row["row_id"] for row in rows}
