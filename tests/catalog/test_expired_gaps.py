"""Expiry in the middle of a history leaves exactly what the retained snapshots see."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import record_lease
from ducklake_orch.catalog.lifecycle import Retention, expire, expiry, plan_expire
from ducklake_orch.catalog.search import planning
from ducklake_orch.engine.exactly_once import Write
from tests.catalog.fsck.damage import move_to_end
from tests.support.backends import SQLITE, catalogs, on_sqlite

LATER = datetime.now(UTC) + timedelta(days=1)
# Snapshots that expire, of eight that each replace what the one before has made.
GAPS = [(3, 5), (1, 2, 5, 6), (2, 4, 6)]


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def begins(lake: DuckLake, table: str) -> list[int]:
    """Return when the rows of a metadata table begin, but for what begins with the lake."""
    with lake.connect_metadata() as con:
        found = con.execute(f"SELECT begin_snapshot FROM {table} WHERE begin_snapshot > 0 ORDER BY 1").fetchall()
    return [row[0] for row in found]


def expire_gaps(lake: DuckLake, expiring: Sequence[int]) -> list[int]:
    """Expire snapshots, and return those of the eight that stay."""
    assert expire(lake.config, Retention(LATER), only=expiring).snapshots == expiring
    return [snapshot for snapshot in range(1, 9) if snapshot not in expiring]


@on_sqlite
@pytest.mark.parametrize("expiring", GAPS)
@pytest.mark.parametrize("in_one_condition", [1, 1000])
def test_only_files_that_a_retained_snapshot_sees_stay(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, expiring: Sequence[int], in_one_condition: int
) -> None:
    monkeypatch.setattr(expiry, "_GAPS_IN_ONE_CONDITION", in_one_condition)
    for number in range(8):
        lake.write(rows(number), "t", mode="overwrite")
    assert begins(lake, "ducklake_data_file") == list(range(1, 9))
    retained = expire_gaps(lake, expiring)
    assert begins(lake, "ducklake_data_file") == retained


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("expiring", GAPS)
def test_only_views_that_a_retained_snapshot_sees_stay(lake: DuckLake, expiring: Sequence[int]) -> None:
    lake.execute([f"CREATE OR REPLACE VIEW v AS SELECT {number}" for number in range(8)]).raise_for_error()
    retained = expire_gaps(lake, expiring)
    assert begins(lake, "ducklake_view") == retained


@on_sqlite
@pytest.mark.parametrize("expiring", GAPS)
def test_only_macros_that_a_retained_snapshot_sees_stay(lake: DuckLake, expiring: Sequence[int]) -> None:
    lake.execute([f"CREATE OR REPLACE MACRO m(a) AS a + {number}" for number in range(8)]).raise_for_error()
    retained = expire_gaps(lake, expiring)
    assert begins(lake, "ducklake_macro") == retained
    with lake.connect_metadata() as con:
        macros = con.execute("SELECT macro_id FROM ducklake_macro").fetchall()
        for table in ("ducklake_macro_impl", "ducklake_macro_parameters"):
            assert sorted(con.execute(f"SELECT macro_id FROM {table}").fetchall()) == sorted(macros)


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize("expiring", GAPS)
def test_only_inlined_rows_that_a_retained_snapshot_sees_stay(lake: DuckLake, expiring: Sequence[int]) -> None:
    first = ["BEGIN", "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (0)", "COMMIT"]
    lake.execute([*first, *(f"UPDATE t SET a = {number}" for number in range(1, 8))]).raise_for_error()
    retained = expire_gaps(lake, expiring)
    with lake.connect_metadata() as con:
        ((table,),) = con.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall()
    assert begins(lake, table) == retained


@on_sqlite
def test_expiry_of_a_dropped_table_removes_the_names_of_its_columns(lake: DuckLake, tmp_path: Path) -> None:
    pq.write_table(rows(1), tmp_path / "a.parquet")
    lake.create_table("t", {"a": "BIGINT"})
    lake.add_files("t", tmp_path / "a.parquet")
    with lake.connect_metadata() as con:
        assert con.execute("SELECT count(*) FROM ducklake_name_mapping").fetchall() == [(1,)]
    lake.drop_table("t")
    lake.write(rows(1), "other", mode="append")
    expire(lake.config, Retention(LATER))
    with lake.connect_metadata() as con:
        for table in ("ducklake_name_mapping", "ducklake_column_mapping"):
            assert con.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


@on_sqlite
def test_expiry_of_a_dropped_table_removes_the_statistics_of_its_files(lake: DuckLake) -> None:
    of_files = ("ducklake_file_column_stats", "ducklake_file_variant_stats", "ducklake_file_partition_value")

    def counts() -> list[int]:
        with lake.connect_metadata() as con:
            return [con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in of_files]

    lake.create_table("t", {"a": "BIGINT", "v": "VARIANT"}, partition_by=["a"])
    lake.write([{"a": number, "v": {"x": number}} for number in range(200)], "t", mode="append")
    assert all(counts())
    lake.drop_table("t")
    expire(lake.config, Retention(LATER))
    assert counts() == [0, 0, 0]


@on_sqlite
def test_a_snapshot_of_the_time_itself_is_retained(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="append")
    times = {snapshot.snapshot_id: snapshot.snapshot_time for snapshot in lake.snapshots()}
    with planning(lake.config, "Planning") as metadata:
        assert plan_expire(metadata, Retention(times[2])).snapshots == (0, 1)
        assert plan_expire(metadata, Retention(times[2] + timedelta(microseconds=1))).snapshots == (0, 1, 2)


@on_sqlite
def test_the_newest_snapshots_are_those_with_the_highest_ids(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="append")
    move_to_end(lake, "ducklake_snapshot", "snapshot_id = 1")
    with planning(lake.config, "Planning") as metadata:
        assert plan_expire(metadata, Retention(LATER)).snapshots == (0, 1, 2)
        assert plan_expire(metadata, Retention(LATER, keep=("none",))).snapshots == (0, 1, 2)


@on_sqlite
def test_a_write_that_needs_no_expiring_snapshot_is_not_named(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="append")
    record_lease(lake.config, Write("a long write"), 3)
    with planning(lake.config, "Planning") as metadata:
        plan = plan_expire(metadata, Retention(LATER))
    assert (plan.snapshots, plan.needed_by_writes, plan.needed_by) == ((0, 1, 2), 0, None)


@on_sqlite
def test_expiry_removes_the_schema_that_began_with_the_lake(lake: DuckLake) -> None:
    lake.execute(["CREATE SCHEMA s", "DROP SCHEMA main"]).raise_for_error()
    expire(lake.config, Retention(LATER))
    with lake.connect_metadata() as con:
        assert con.execute("SELECT schema_name FROM ducklake_schema").fetchall() == [("s",)]
