"""Plans that use the indexes of the catalog list the same files as plans that read all files of a table."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.catalog.scan.indexed_files import ids_by_index
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import UnsupportedStatementError
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend, catalogs
from tests.support.lakes import MakeLake

LONG = ["x" * 200, "x" * 199 + "é" * 2000, "x" * 250 + "a", "x" * 250 + "b"]
REGIONS = [*(f"r{n}" for n in range(8)), "it's", "back\\slash", "日本", "", None, *LONG]
CONDITIONS = [
    "region = 'r3'",
    "region IN ('r1', 'it''s', 'back\\slash', '日本')",
    "region IS NULL",
    "region = ''",
    *(f"region = '{text}'" for text in LONG),
    "starts_with(region, 'xxxx')",
    "region > 'r6'",
    "region = 'nowhere'",
    "region = 'r2' AND n < 100",
    "region = 'r2' OR n < 3",
    "NOT (region <> 'r5')",
    "ts >= TIMESTAMP '2024-03-01' AND ts < TIMESTAMP '2024-03-15'",
    "ts = TIMESTAMP '2024-03-05 00:00:00' AND region = 'r5'",
    "year(ts) = 2025",
    "month(ts) = 2",
    "n = 7",
    "n % 2 = 0",
]


class Plans:
    """Plans of the table `t` of a lake, and how many of them the indexes have narrowed."""

    def __init__(self, lake: DuckLake) -> None:
        self.lake = lake
        self.narrowed = 0

    def files(self, where: str | None = None, snapshot: int | None = None, **order: Any) -> list[Any]:
        def counted(*args: Any) -> str | None:
            found = ids_by_index(*args)
            self.narrowed += found is not None
            return found

        with (
            mock.patch("ducklake_orch.catalog.scan.live_files.ids_by_index", counted),
            self.lake.reading(entering=False) as session,
            reading(session, "Planning") as metadata,
        ):
            at = metadata.latest().snapshot_id if snapshot is None else snapshot
            plan = plan_scan(metadata, metadata.table(table_name("t"), at), at, where=where, **order)
            return [*sorted(map(repr, plan.files)), repr(sorted(plan.certain))]


@contextmanager
def indexed(lake: DuckLake) -> Iterator[None]:
    lake.create_indexes()
    try:
        yield
    finally:
        lake.drop_indexes()


def write_days(lake: DuckLake, first: int) -> None:
    """Write a file for each region, with a day and numbers of its own."""
    pick = random.Random(first)
    days = [f"{pick.choice([2023, 2024, 2025])}-{pick.randint(1, 4):02}-{pick.randint(1, 28):02}" for _ in REGIONS]
    columns = {"region": REGIONS, "ts": days, "n": list(range(first, first + len(REGIONS)))}
    rows = pa.table(columns)
    lake.write(rows.set_column(1, "ts", rows["ts"].cast(pa.timestamp("us"))), "t", mode="append")


LAYOUTS: tuple[list[str], ...] = (["region", "bucket(4, n)"], [], ["region"], ["year(ts)", "month(ts)", "day(ts)"])


@catalogs()
def test_indexes_change_no_plan_and_are_refused_where_none_uses_them(make_lake: MakeLake, backend: Backend) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    if backend.catalog not in (SQLITE, POSTGRES):
        with pytest.raises(UnsupportedStatementError, match="PostgreSQL and SQLite"):
            lake.create_indexes()
        return
    lake.create_table("t", {"region": "VARCHAR", "ts": "TIMESTAMP", "n": "BIGINT"})
    for number, layout in enumerate(LAYOUTS):
        lake.alter_table("t", partition_by=layout)
        for turn in range(3):
            write_days(lake, 100 * number + 20 * turn)
    lake.delete("t", "n % 5 = 1")
    before = lake.snapshots(limit=1)[0].snapshot_id
    lake.write(
        pa.table({"region": ["r3"], "ts": [None], "n": [1000]}), "t", mode="replace_where", where="region = 'r3'"
    )
    cases = [(where, at) for where in CONDITIONS for at in (None, before)]
    plans = Plans(lake)
    expected = [plans.files(where, at) for where, at in cases]
    first = plans.files("region > 'r4'", order_by=["n DESC"], limit=3)
    assert not plans.narrowed
    with indexed(lake):
        lake.create_indexes()  # again, which changes nothing
        assert [plans.files(where, at) for where, at in cases] == expected
        assert plans.files("region > 'r4'", order_by=["n DESC"], limit=3) == first
        assert plans.narrowed >= len(CONDITIONS)
        # Commits keep the indexes up to date, ours and the engine's.
        write_days(lake, 2000)
        if backend.catalog.sql_writes:
            lake.execute("INSERT INTO t SELECT 'new', NULL, 5000 FROM range(3)").raise_for_error()
        lake.maintain(operations=["merge"], tables=["t"])
        after = [plans.files(where) for where in [*CONDITIONS, "region = 'new'"]]
    assert [plans.files(where) for where in [*CONDITIONS, "region = 'new'"]] == after


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL)], ids=str, indirect=True)
def test_postgres_knows_the_statistics_of_indexed_tables_at_once(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table("t", {"region": "VARCHAR", "ts": "TIMESTAMP", "n": "BIGINT"}, partition_by=["region"])
    write_days(lake, 0)
    lake.create_indexes()
    sql = "SELECT tablename FROM pg_stats WHERE attname = 'partition_value'"
    with lake.connect() as con:
        found = con.execute(f"FROM postgres_query('{lake.config.metadata_alias}', $${sql}$$)").fetchall()
    assert found == [("ducklake_file_partition_value",)]


@catalogs(quick=[SQLITE])
def test_files_without_a_partition_value_are_not_left_out(make_lake: MakeLake, backend: Backend) -> None:
    if backend.catalog not in (SQLITE, POSTGRES):
        return
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table("t", {"region": "VARCHAR", "ts": "TIMESTAMP", "n": "BIGINT"}, partition_by=["region"])
    write_days(lake, 0)
    plans = Plans(lake)
    with indexed(lake):
        assert len(plans.files("region = 'r3'")) == 2
        assert plans.narrowed == 1
        for change in (
            "DELETE FROM ducklake_file_partition_value WHERE partition_value = 'r3'",
            "UPDATE ducklake_data_file SET partition_id = 99 WHERE data_file_id % 2 = 0",
        ):
            with lake.connect_metadata(read_only=False) as con:
                con.execute(change)
            with mock.patch("ducklake_orch.catalog.scan.live_files.ids_by_index", return_value=None):
                expected = plans.lake.table("t").files(where="region = 'r3'")
            assert lake.table("t").files(where="region = 'r3'") == expected
