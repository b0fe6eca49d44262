"""Every reader of every snapshot of a table, before and after compaction."""

from collections.abc import Iterable
from typing import Any

from ducklake_orch import DuckLake
from ducklake_orch.catalog.lifecycle import Bin
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.engine.quoting import TableName
from tests.support import plan_reader
from tests.support.table_steps import latest


def merges(lake: DuckLake, **policy: Any) -> list[Bin]:
    """Return the bins of files that maintenance plans to merge."""
    plan = lake.plan_maintenance({"merge": {"min_files": 2, "engine": "duckdb"} | policy}, ["merge"])
    return [bin_ for step in plan.operations for bin_ in step.bins]


def rewrites(lake: DuckLake) -> list[Bin]:
    """Return the bins of files to rewrite: all files with a deleted row."""
    plan = lake.plan_maintenance({"rewrite": {"delete_threshold": 1e-9, "engine": "duckdb"}}, ["rewrite"])
    return [bin_ for step in plan.operations for bin_ in step.bins]


class Past:
    """The rows of `t` that every reader sees, at every snapshot."""

    def __init__(self, lake: DuckLake, *, first: int = 1) -> None:
        self.lake = lake
        self.seen = self._read(range(first, latest(lake) + 1))
        self.changes = self._changes(max(self.seen))

    def check(self) -> None:
        """Check that every reader still sees the same rows, and that fsck finds nothing."""
        self.check_readers()
        report = self.lake.fsck(deep=True, storage=True)
        assert report.counts == {}, str(report)

    def check_readers(self) -> None:
        """Check that every reader still sees the same rows."""
        for at, readers in self._read([*self.seen]).items():
            for reader, rows in readers.items():
                assert rows == self.seen[at][reader], f"{reader} at {at}"
        assert self._changes(max(self.seen)) == self.changes

    def _read(self, snapshots: Iterable[int]) -> dict[int, dict[str, list[Any]]]:
        by_snapshot: dict[int, dict[str, list[Any]]] = {}
        with self.lake.connect() as con:
            for at in snapshots:
                sql = f"FROM t AT (VERSION => {at})"
                rows = sorted(con.execute(f"SELECT rowid, * {sql}").fetchall(), key=repr)
                by_snapshot[at] = {"DuckDB": rows, "count": con.execute(f"SELECT count(*) {sql}").fetchall()}
        with self.lake.reading() as session, session.instance.root.cursor() as con:
            metadata = Metadata(con, self.lake.config)
            for at, readers in by_snapshot.items():
                plan = plan_scan(metadata, metadata.table(TableName("main", "t"), at), at)
                readers["plan"] = sorted(plan_reader.rows_of(con, plan), key=repr)
        return by_snapshot

    def _changes(self, to: int) -> list[tuple[Any, ...]]:
        rows = self.lake.changes("t", to_snapshot=to).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)
