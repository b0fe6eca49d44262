"""Partition keys of dates and hours of timestamps with time zone: other programs may compute them in another zone."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage
from tests.support.stored_tables import rows


@pytest.fixture
def tokyo(tmp_path: Path) -> DuckLake:
    """Return a lake that another program partitioned by days in Tokyo, where January 2 begins at 15:00 UTC."""
    lake = DuckLake.local(tmp_path / "tokyo", data_inlining_row_limit=0)
    columns = {"ts": "TIMESTAMPTZ", "i": "INTEGER", "loaded": "TIMESTAMPTZ"}
    lake.create_table("t", columns, partition_by=["year(ts)", "month(ts)", "day(ts)"])
    with lake.connect() as con:
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        for first, second in (
            ("('2024-01-01 16:00:00+00', 1", "('2024-01-02 14:00:00+00', 2"),
            ("('2024-01-02 20:00:00+00', 3", "('2024-01-03 10:00:00+00', 4"),
            ("('2024-01-05 01:00:00+00', 5", "('2024-01-05 02:00:00+00', 6"),
        ):
            loaded = ", '2024-01-02 01:00:00+00')"
            con.execute(f"INSERT INTO t VALUES {first}{loaded}, {second}{loaded}")
    return lake


def row(ts: str, i: int) -> pa.Table:
    sql = f"SELECT TIMESTAMPTZ '{ts}' AS ts, {i} AS i, TIMESTAMPTZ '2024-02-01 00:00:00+00' AS loaded"
    return duckdb.sql(sql).to_arrow_table()


def test_day_partitions_of_another_time_zone_are_matched_by_their_rows(tokyo: DuckLake) -> None:
    done = tokyo.write(row("2024-01-02 12:00:00+00", 7), "t", mode="overwrite_partitions")
    assert done.rows_removed == 2
    assert rows(tokyo, "SELECT i FROM t ORDER BY i") == [(1,), (4,), (5,), (6,), (7,)]


def test_a_day_partition_that_is_equal_in_both_time_zones_is_replaced(tokyo: DuckLake) -> None:
    new = row("2024-01-05 12:00:00+00", 7)
    done = tokyo.write(new, "t", mode="overwrite_partitions")
    assert (done.rows_removed, done.files_removed) == (2, 1)
    tokyo.write(new, "t", mode="overwrite_partitions", expect_snapshot=done.snapshot_id)
    assert rows(tokyo, "SELECT i FROM t ORDER BY i") == [(1,), (2,), (3,), (4,), (7,)]


def test_a_file_is_not_replaced_by_the_key_of_another_zones_day(tokyo: DuckLake) -> None:
    """January 6, 20:00 UTC is in the file of January 7 in Tokyo."""
    with tokyo.connect() as con:
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        con.execute("INSERT INTO t VALUES ('2024-01-06 20:00:00+00', 7, NULL)")
    tokyo.write(row("2024-01-07 12:00:00+00", 8), "t", mode="overwrite_partitions")
    assert rows(tokyo, "SELECT i FROM t WHERE i > 6 ORDER BY i") == [(7,), (8,)]
    tokyo.write(row("2024-01-06 12:00:00+00", 9), "t", mode="overwrite_partitions")
    assert rows(tokyo, "SELECT i FROM t WHERE i > 6 ORDER BY i") == [(8,), (9,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ducklake_file_column_stats WHERE column_id <> 3",  # keep those of `loaded`
        "UPDATE ducklake_file_partition_value SET partition_value = 'no number'",
    ],
    ids=["no statistics", "no keys"],
)
def test_without_proof_the_key_of_another_program_does_not_tell_the_day(statement: str, tokyo: DuckLake) -> None:
    tokyo.delete("t", "i > 2")
    damage(tokyo, statement)
    tokyo.write(row("2024-01-02 12:00:00+00", 7), "t", mode="overwrite_partitions")
    assert rows(tokyo, "SELECT i FROM t ORDER BY i") == [(1,), (7,)]
