"""The files of one commit: their ids, and the delete files that it writes for the data files that it replaces."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import lose_the_answer, once_at
from tests.support.stored_tables import files_of

MANY = pa.table({"id": range(1000)})


def file_ids(lake: DuckLake) -> list[int]:
    """Return the ids of all files and mappings, and the next one, in order."""
    with lake.connect_metadata() as con:
        found = con.execute(
            """SELECT data_file_id FROM ducklake_data_file UNION ALL SELECT delete_file_id FROM ducklake_delete_file
            UNION ALL SELECT mapping_id FROM ducklake_column_mapping
            UNION ALL SELECT max(next_file_id) FROM ducklake_snapshot ORDER BY 1"""
        ).fetchall()
    return [row[0] for row in found]


@catalogs(quick=[SQLITE])
def test_mappings_data_files_and_delete_files_of_a_commit_have_different_ids(lake: DuckLake, tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        pq.write_table(pa.table({"id": [1000, 1001]}), path)
    lake.write(MANY, "t", mode="append")
    with lake.transaction() as tx:
        tx.add_files("t", paths)
        tx.delete("t", "id = 1")
    ids = file_ids(lake)
    assert ids == list(range(6))  # two data files share a mapping
    assert lake.read("t").num_rows == 1003


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_replaced_file_with_inlined_deletions_gets_a_delete_file_that_ends_with_it(lake: DuckLake) -> None:
    lake.write(MANY, "t", mode="append")
    lake.execute("DELETE FROM t WHERE id < 5").raise_for_error()
    lake.write(MANY, "t", mode="overwrite")
    with lake.connect_metadata() as con:
        ends = con.execute("SELECT begin_snapshot, end_snapshot FROM ducklake_delete_file").fetchall()
    assert ends == [(2, 3)]
    assert [lake.read("t", snapshot=snapshot).num_rows for snapshot in (1, 2, 3)] == [1000, 995, 1000]
    assert lake.fsck(deep=True).findings == []


@on_sqlite
def test_a_commit_that_fails_deletes_the_delete_files_of_the_files_that_it_replaces(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(MANY, "t", mode="append")
    lake.execute("DELETE FROM t WHERE id < 5").raise_for_error()
    before = files_of(lake)
    during = list[str]()

    def fail() -> None:
        during.extend(files_of(lake))
        raise RuntimeError("planted")

    once_at(monkeypatch, "statement.3", fail)  # the first after the files, and before the COMMIT
    with pytest.raises(RuntimeError, match="planted"):
        lake.write(MANY, "t", mode="overwrite")
    assert len(during) == len(before) + 2
    assert files_of(lake) == before
    assert lake.read("t").num_rows == 995


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_repeated_attempt_deletes_the_delete_files_of_the_first(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(MANY, "t", mode="append")
    lake.execute("DELETE FROM t WHERE id < 5").raise_for_error()

    attempts = list[int]()

    def lose() -> None:
        attempts.append(1)
        lose_the_answer()

    once_at(monkeypatch, "commit.before", lose)
    lake.write(MANY, "t", mode="overwrite")
    assert attempts
    assert len(files_of(lake)) == 3
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(quick=[SQLITE])
def test_delete_files_for_a_snapshot_that_another_commit_took_are_deleted(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(MANY, "t", mode="append")
    once_at(monkeypatch, "files.written", lambda: lake.write(MANY, "other", mode="append"))
    assert lake.delete("t", "id = 1").attempts == 1
    assert len(files_of(lake)) == 3
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_replaced_file_and_its_delete_file_end_together(lake: DuckLake) -> None:
    lake.write(MANY, "t", mode="append")
    lake.delete("t", "id < 5")
    lake.write(MANY, "t", mode="overwrite")
    with lake.connect_metadata() as con:
        ends = [
            con.execute(f"SELECT end_snapshot FROM {table} ORDER BY begin_snapshot").fetchall()
            for table in ("ducklake_data_file", "ducklake_delete_file")
        ]
    assert ends == [[(3,), (None,)], [(3,)]]
    assert [lake.read("t", snapshot=snapshot).num_rows for snapshot in (1, 2, 3)] == [1000, 995, 1000]


@on_sqlite
def test_a_commit_with_delete_files_records_that_it_deletes_inlined_rows(lake: DuckLake) -> None:
    lake.write(MANY, "t", mode="append")
    lake.delete("t", "id < 5")
    assert "inlined_delete:1" in lake.snapshots()[0].changes


@on_sqlite
def test_a_commit_that_leaves_inlined_rows_records_no_deletion_of_them(lake: DuckLake) -> None:
    lake.write(MANY, "t", mode="append")
    lake.write(pa.table({"id": [2000]}), "t", mode="append", inline="auto")
    with lake.transaction() as tx:
        tx.delete("t", "id < 900")
    assert sorted(lake.snapshots()[0].changes) == ["deleted_from_table:1", "inserted_into_table:1"]


@on_sqlite
def test_a_delete_file_that_has_ended_conflicts_with_no_deletion(lake: DuckLake) -> None:
    """A delete file of DuckLake 0.3 ended when the next deletion replaced it."""
    lake.write(MANY, "t", mode="append")
    lake.delete("t", "id = 1")
    damage(
        lake,
        "CREATE TABLE former AS SELECT * FROM ducklake_delete_file",
        "UPDATE former SET delete_file_id = 99, end_snapshot = 2",
        "INSERT INTO ducklake_delete_file SELECT * FROM former",
        "DROP TABLE former",
    )
    assert lake.delete("t", "id = 3").attempts == 1
    done = lake.write(MANY, "t", mode="overwrite")
    assert (done.files_removed, done.rows_removed) == (1, 998)


@on_sqlite
def test_commits_without_files_take_a_file_id(lake: DuckLake) -> None:
    """Readers take their cached statistics for current as long as the next file id is the same."""
    one = pa.table({"id": [1]})
    lake.write(one, "t", mode="append", inline="auto")
    lake.write(one, "t", mode="append", inline="auto")
    lake.delete("t", "true")
    lake.maintain(operations=["flush"])
    damage(lake, "INSERT INTO ducklake_inlined_data_1_1 VALUES (50, 4, 4, 1)")  # updated twice in one transaction
    lake.maintain(operations=["flush"])
    lake.write(pa.table({"id": range(5)}), "u", mode="append")
    lake.execute(["DELETE FROM u WHERE id < 3", "DELETE FROM u WHERE id >= 3"]).raise_for_error()
    lake.maintain(operations=["rewrite"])
    with lake.connect_metadata() as con:
        sql = """SELECT changes_made, next_file_id - lag(next_file_id) OVER (ORDER BY snapshot_id)
            FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id) ORDER BY snapshot_id"""
        steps = con.execute(sql).fetchall()[1:]
    found = [(changes.partition(":")[0], step) for changes, step in steps if changes != "inlined_delete:2"]
    assert found == [
        ("created_table", 1),
        ("inlined_insert", 1),
        ("inserted_into_table", 1),
        ("inline_flush", 2),  # a file and its delete file
        ("inline_flush", 1),
        ("created_table", 1),
        ("rewrite_delete", 1),
        ("rewrite_delete", 1),
    ]
