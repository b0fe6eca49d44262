"""A write with `expect_snapshot` is refused if the rows that it replaces have changed since that snapshot."""

from collections.abc import Callable
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.catalog.fsck.damage import damage, move_to_end
from tests.support.backends import catalogs, on_sqlite
from tests.support.stored_tables import rows

DAYS = pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2), None], "v": [1, 2, 3]})
PARTS = pa.table({"p": [1, 1, 2, 2], "v": [1, 2, 3, 4]})


def query(sql: str) -> pa.Table:
    return duckdb.sql(sql).to_arrow_table()


@catalogs(sql_writes=True)
def test_expect_snapshot_refuses_a_replacement_of_changed_rows(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    read = lake.write(DAYS, "t", mode="append").snapshot_id
    other, mine = DAYS.slice(0, 1), DAYS.slice(1, 1)
    where = "day = '2024-01-02'"

    def replace(expect: int) -> None:
        lake.write(mine, "t", mode="overwrite_partitions", expect_snapshot=expect)

    lake.write(other, "t", mode="append")  # in another partition
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
    replace(read)
    with pytest.raises(errors.SnapshotChangedError, match="have changed since"):
        replace(read)
    for change in (
        "INSERT INTO t VALUES ('2024-01-02', 5)",
        f"UPDATE t SET v = v + 1 WHERE {where}",
        f"DELETE FROM t WHERE {where}",
    ):
        read = lake.snapshots()[0].snapshot_id
        lake.execute(change).raise_for_error()
        with pytest.raises(errors.SnapshotChangedError):
            replace(read)
        with pytest.raises(errors.SnapshotChangedError):
            lake.write(mine, "t", mode="replace_where", where=where, expect_snapshot=read)
        with pytest.raises(errors.SnapshotChangedError):
            lake.write(mine, "t", mode="overwrite", expect_snapshot=read)
        lake.write(other, "t", mode="overwrite_partitions", expect_snapshot=read)
        replace(lake.snapshots()[0].snapshot_id)
    with pytest.raises(errors.SnapshotNotFoundError):
        replace(999)


@catalogs()
def test_expect_snapshot_allows_changes_of_other_tables_and_of_the_definition(lake: DuckLake) -> None:
    lake.write(DAYS, "u", mode="append")
    read = lake.write(DAYS, "t", mode="append").snapshot_id
    lake.delete("u", "true")
    lake.alter_table("t", add_columns={"note": "VARCHAR"})
    lake.write(DAYS.slice(0, 1), "t", mode="overwrite", expect_snapshot=read)
    assert lake.table("t").count() == 1


@on_sqlite
def test_expect_snapshot_sees_changes_of_partitions_whose_key_a_write_promotes(lake: DuckLake) -> None:
    lake.write(query("SELECT NULL::TINYINT AS p, 1 AS v"), "t", mode="append", partition_by=["p"])
    before = lake.snapshots(limit=1)[0].snapshot_id
    lake.write(query("SELECT NULL::TINYINT AS p, 2 AS v"), "t", mode="append")
    options: Any = {"mode": "overwrite_partitions", "schema_evolution": "promote", "expect_snapshot": before}
    lake.write(query("SELECT 300 AS p, 3 AS v"), "t", **options)
    with pytest.raises(errors.SnapshotChangedError):
        lake.write(query("SELECT NULL::BIGINT AS p, 4 AS v"), "t", **options)
    assert rows(lake, "SELECT v FROM t ORDER BY v") == [(1,), (2,), (3,)]


@on_sqlite
def test_expect_snapshot_before_expired_snapshots_is_refused(lake: DuckLake) -> None:
    for table in ("t", "t", "other"):
        lake.write(query("SELECT 1 AS i"), table, mode="append")
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [2])", force=True).raise_for_error()
    with pytest.raises(errors.SnapshotNotFoundError, match="have expired"):
        lake.write(query("SELECT 9 AS i"), "t", mode="overwrite", expect_snapshot=1)


@on_sqlite
@pytest.mark.parametrize("made_anew", [True, False])
def test_expect_snapshot_refuses_a_dropped_table(lake: DuckLake, made_anew: bool) -> None:
    read = lake.write(query("SELECT 1 AS i"), "t", mode="append").snapshot_id
    lake.drop_table("t")
    if made_anew:
        lake.create_table("t", {"i": "INTEGER"})
    with pytest.raises(errors.SnapshotChangedError, match="dropped"):
        lake.write(query("SELECT 2 AS i"), "t", mode="overwrite", expect_snapshot=read)
    with pytest.raises(errors.SnapshotNotFoundError):
        lake.write(query("SELECT 2 AS i"), "new", mode="overwrite", expect_snapshot=999)
    assert lake.exists("t") == made_anew


@on_sqlite
def test_rows_of_a_table_that_was_created_since_the_expected_snapshot_have_changed(lake: DuckLake) -> None:
    read = lake.write(DAYS, "other", mode="append").snapshot_id
    lake.write(DAYS, "t", mode="append")
    with pytest.raises(errors.SnapshotChangedError, match="have changed"):
        lake.write(DAYS, "t", mode="overwrite", expect_snapshot=read)
    lake.write(DAYS, "new", mode="overwrite", expect_snapshot=read)
    assert lake.table("new").count() == len(DAYS)


def write_to(day: int) -> Callable[[DuckLake], object]:
    return lambda lake: lake.write(DAYS.slice(day - 1, 1), "t", mode="append")


def write_two(lake: DuckLake) -> None:
    lake.write(pa.table({"day": [date(2024, 1, 2)] * 2, "v": [5, 6]}), "t", mode="append")


def inline(lake: DuckLake) -> None:
    lake.execute("INSERT INTO t VALUES ('2024-01-02', 5)").raise_for_error()


def inlined_delete(lake: DuckLake, where: str) -> None:
    lake.execute(f"DELETE FROM t WHERE {where}").raise_for_error()


def delete_in_a_file(lake: DuckLake, where: str) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.execute(f"DELETE FROM t WHERE {where}").raise_for_error()


@on_sqlite
@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ([write_to(1), write_to(2), write_to(2)], "2, in the partition day=2024-01-02"),
        ([write_to(1), inline, write_to(2)], "2"),
        ([inline, inline], "1"),
        ([write_to(2), inline], "1, in the partition day=2024-01-02"),
        ([write_two, lambda lake: inlined_delete(lake, "v = 5")], "1, in the partition day=2024-01-02"),
        (
            [lambda lake: lake.alter_table("t", partition_by=["day", "v"]), write_to(2)],
            "2, in the partition day=2024-01-02, v=2",
        ),
        ([write_to(2), lambda lake: lake.alter_table("t", partition_by=["day", "v"])], "1"),
        ([lambda lake: lake.alter_table("t", partition_by=[]), write_to(2)], "2"),
    ],
    ids=[
        "files",
        "inlined rows, then a file",
        "inlined rows",
        "a file, then inlined rows",
        "a file that then loses a row",
        "more keys",
        "fewer keys",
        "no keys",
    ],
)
def test_the_error_names_the_first_change_of_the_rows(
    changes: list[Callable[[DuckLake], object]], first: str, lake: DuckLake
) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    newest = lake.snapshots(limit=1)[0].snapshot_id
    for change in changes:
        change(lake)
    snapshot, _, partition = first.partition(",")
    message = rf"since snapshot {newest}, first in snapshot {newest + int(snapshot)}{partition and ',' + partition}\.\s"
    with pytest.raises(errors.SnapshotChangedError, match=message):
        lake.write(DAYS.slice(1, 1), "t", mode="replace_where", where="day = '2024-01-02'", expect_snapshot=newest)


@on_sqlite
def test_rows_that_are_gone_with_their_file_have_changed(lake: DuckLake) -> None:
    read = lake.write(DAYS, "t", mode="append", partition_by=["day"]).snapshot_id
    assert lake.delete("t", "day = '2024-01-02'").files_removed == 1
    with pytest.raises(errors.SnapshotChangedError, match="in the partition day=2024-01-02"):
        lake.write(DAYS.slice(1, 1), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_inlined_rows_that_are_gone_have_changed(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    inline(lake)
    read = lake.snapshots(limit=1)[0].snapshot_id
    inlined_delete(lake, "v = 5")
    with pytest.raises(errors.SnapshotChangedError, match=f"first in snapshot {read + 1}"):
        lake.write(DAYS.slice(1, 1), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_rows_of_files_without_keys_are_found_by_their_bounds(lake: DuckLake) -> None:
    for part in (PARTS.slice(0, 2), PARTS.slice(2, 2)):
        lake.write(part, "t", mode="append")
    lake.alter_table("t", partition_by=["p"])
    lake.write(pa.table({"p": [1, 1], "v": [5, 6]}), "t", mode="append")
    damage(lake, "DELETE FROM ducklake_file_column_stats WHERE data_file_id = 2")  # its keys tell what it holds
    read = lake.snapshots(limit=1)[0].snapshot_id
    inlined_delete(lake, "v = 1")
    with pytest.raises(errors.SnapshotChangedError):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)
    inlined_delete(lake, "v = 5")
    assert lake.write(PARTS.slice(2, 2), "t", mode="overwrite_partitions", expect_snapshot=read).rows_removed == 2


@on_sqlite
def test_rows_that_were_merged_with_older_ones_have_changed(lake: DuckLake) -> None:
    read = lake.write(PARTS, "t", mode="append", partition_by=["p"]).snapshot_id
    lake.write(PARTS.slice(0, 2), "t", mode="append")
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
    with pytest.raises(errors.SnapshotChangedError, match=f"first in snapshot {read + 1}, in the partition p=1"):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_the_error_names_the_snapshot_that_deleted_rows_in_a_file(lake: DuckLake) -> None:
    read = lake.write(PARTS, "t", mode="append", partition_by=["p"]).snapshot_id
    lake.write(PARTS.slice(2, 2), "t", mode="append")
    delete_in_a_file(lake, "v = 1")
    with pytest.raises(errors.SnapshotChangedError, match=f"first in snapshot {read + 2}, in the partition p=1"):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_rows_that_an_engine_deleted_in_a_file_with_a_low_id_have_changed(lake: DuckLake) -> None:
    read = lake.write(PARTS, "t", mode="append", partition_by=["p"]).snapshot_id
    delete_in_a_file(lake, "v = 1")
    damage(lake, "UPDATE ducklake_delete_file SET delete_file_id = 0")
    with pytest.raises(errors.SnapshotChangedError, match="in the partition p=1"):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_rows_whose_deletion_was_flushed_without_its_snapshot_have_changed(lake: DuckLake) -> None:
    """Engines that do not write `partial_max` flush so."""
    read = lake.write(PARTS, "t", mode="append", partition_by=["p"]).snapshot_id
    inlined_delete(lake, "v = 1")
    lake.execute("CALL ducklake_flush_inlined_data('lake')", force=True).raise_for_error()
    damage(lake, f"UPDATE ducklake_delete_file SET begin_snapshot = {read}, partial_max = NULL")
    with pytest.raises(errors.SnapshotChangedError, match="in the partition p=1"):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_the_error_names_no_change_of_another_table(lake: DuckLake) -> None:
    for table in ("t", "u"):
        read = lake.write(PARTS, table, mode="append").snapshot_id
    lake.write(PARTS, "u", mode="append")
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 'u')").raise_for_error()
    changed = lake.write(PARTS, "t", mode="append").snapshot_id
    with pytest.raises(errors.SnapshotChangedError, match=rf"first in snapshot {changed}\."):
        lake.write(PARTS, "t", mode="overwrite", expect_snapshot=read)


@on_sqlite
def test_the_error_names_the_keys_in_their_order(lake: DuckLake) -> None:
    read = lake.write(PARTS, "t", mode="append", partition_by=["p", "v"]).snapshot_id
    lake.write(PARTS.slice(1, 1), "t", mode="append")
    move_to_end(lake, "ducklake_file_partition_value", "partition_key_index = 0")
    with pytest.raises(errors.SnapshotChangedError, match=r"in the partition p=1, v=2\."):
        lake.write(PARTS.slice(1, 1), "t", mode="replace_where", where="p = 1", expect_snapshot=read)


@on_sqlite
def test_files_of_another_bucket_may_change(lake: DuckLake) -> None:
    """Only the keys tell which bucket a file holds, and the first file has no key `p`."""
    lake.create_table("t", {"p": "BIGINT", "v": "BIGINT"}, partition_by=["bucket(2, v)"])
    lake.write(PARTS.slice(2, 2), "t", mode="append")
    lake.alter_table("t", partition_by=["p", "bucket(2, v)"])
    buckets = dict[str | None, pa.Table]()
    for number in range(10):
        row = pa.table({"p": [1], "v": [number]})
        (written,) = lake.write(row, "t", mode="append").partitions
        buckets[dict(written.values)["bucket(2, v)"]] = row
    mine, other = buckets.values()
    read = lake.write(other, "t", mode="append").snapshot_id
    lake.write(other, "t", mode="append")
    lake.write(mine, "t", mode="overwrite_partitions", expect_snapshot=read)
    with pytest.raises(errors.SnapshotChangedError):
        lake.write(other, "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
def test_the_error_names_no_snapshot_before_the_expected_one(lake: DuckLake) -> None:
    """A delete file begins at the first deletion that it contains."""
    lake.write(PARTS, "t", mode="append", partition_by=["p"])
    inlined_delete(lake, "v = 1")
    read = lake.snapshots(limit=1)[0].snapshot_id
    inlined_delete(lake, "v = 2")
    lake.maintain(operations=["flush"])
    with pytest.raises(errors.SnapshotChangedError, match=f"first in snapshot {read + 1}"):
        lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)


@on_sqlite
@pytest.mark.parametrize("delete", [delete_in_a_file, inlined_delete])
def test_rows_that_were_deleted_before_the_expected_snapshot_have_not_changed(
    delete: Callable[[DuckLake, str], object], lake: DuckLake
) -> None:
    lake.write(PARTS, "t", mode="append", partition_by=["p"])
    delete(lake, "v = 1")
    read = lake.snapshots(limit=1)[0].snapshot_id
    lake.delete("t", "v = 3")
    lake.write(PARTS.slice(0, 2), "t", mode="overwrite_partitions", expect_snapshot=read)
    assert rows(lake, "SELECT v FROM t ORDER BY v") == [(1,), (2,), (4,)]


@on_sqlite
def test_an_append_replaces_nothing_so_it_is_not_refused(lake: DuckLake) -> None:
    read = lake.write(DAYS, "t", mode="append").snapshot_id
    lake.write(DAYS, "t", mode="append")
    lake.write(DAYS, "t", mode="append", expect_snapshot=read)
    with lake.transaction(expect_snapshot=read) as tx:
        tx.write(DAYS, "t", mode="append")
    assert lake.table("t").count() == 4 * len(DAYS)
