"""Delete files and inlined deletions: corruption by concurrent transactions of the engine, and its repair."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, path_of, repaired, rows, value
from tests.support.backends import DUCKDB, LOCAL, POSTGRES, Backend
from tests.support.lakes import MakeLake

# A catalog that allows two concurrent transactions of one process.
concurrently = pytest.mark.parametrize("backend", [Backend(DUCKDB, LOCAL)], indirect=True, ids=str)


@contextmanager
def two_connections(lake: DuckLake) -> Iterator[tuple[Any, Any]]:
    with lake.connect() as first:
        yield first, first.cursor()


def history(lake: DuckLake) -> list[Any]:
    """Return count and sum of `t` at every snapshot."""
    last = value(lake, "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
    counted = "SELECT len(list(i)), sum(i) FROM t AT (VERSION => {})"
    with lake.connect() as con:
        return [con.execute(counted.format(n)).fetchone() for n in range(1, last + 1)]


@pytest.mark.parametrize(
    "backend",
    [Backend(DUCKDB, LOCAL), pytest.param(Backend(POSTGRES, LOCAL), marks=pytest.mark.full)],
    indirect=True,
    ids=str,
)
def test_two_concurrent_delete_files_restore_rows_until_they_are_merged(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute(["CREATE TABLE t AS SELECT range AS i FROM range(100)", "DELETE FROM t WHERE i < 10"])
    with two_connections(lake) as (first, second):
        for con, condition in ((first, "i BETWEEN 20 AND 29"), (second, "i BETWEEN 40 AND 59")):
            con.execute("BEGIN")
            con.execute(f"DELETE FROM t WHERE {condition}")
        first.execute("COMMIT")
        second.execute("COMMIT")
    assert value(lake, "SELECT len(list(i)) FROM t") > 100
    assert [finding[:2] for finding in repaired(lake, deep=True)] == [("two-live-delete-files", "main.t")]
    remaining = [i for i in range(100) if not (i < 10 or 20 <= i < 30 or 40 <= i < 60)]
    assert [i for (i,) in rows(lake, "FROM t ORDER BY i")] == remaining
    assert [count for count, _ in history(lake)][:2] == [100, 90]
    lake.execute(["DELETE FROM t WHERE i < 20", "CALL ducklake_rewrite_data_files('lake')"]).raise_for_error()
    assert value(lake, "SELECT len(list(i)) FROM t") == 50


@concurrently
@pytest.mark.parametrize("first", ["small", "large"])
def test_a_row_deleted_inline_and_in_a_file_restores_other_rows(make_lake: MakeLake, first: str) -> None:
    lake = make_lake()
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)").raise_for_error()
    with two_connections(lake) as (small, large):
        small.execute("BEGIN; DELETE FROM t WHERE i IN (25, 26)")
        large.execute("BEGIN; DELETE FROM t WHERE i BETWEEN 20 AND 39")
        for con in (small, large) if first == "small" else (large, small):
            con.execute("COMMIT")
    assert (value(lake, "SELECT count(*) FROM t"), value(lake, "SELECT len(list(i)) FROM t")) == (78, 94)
    assert lake.fsck().findings == []  # the catalog does not know the positions in files
    assert [finding[:2] for finding in repaired(lake, deep=True)] == [("deleted-twice", "main.t")]
    assert (value(lake, "SELECT count(*) FROM t"), value(lake, "SELECT len(list(i)) FROM t")) == (80, 80)
    assert history(lake)[1] == ((98, 4899) if first == "small" else (80, 4360))


@concurrently
@pytest.mark.parametrize(
    ("before", "conditions", "deleted"),
    [
        ("false", ("i < 5", "i < 20"), set(range(20))),
        ("i < 20", ("i BETWEEN 20 AND 30", "i BETWEEN 31 AND 41"), set(range(42))),
    ],
    ids=["inlined and in a file", "in two files"],
)
def test_a_delete_keeps_the_remaining_rows_of_a_file_with_double_deletions(
    make_lake: MakeLake, before: str, conditions: tuple[str, str], deleted: set[int]
) -> None:
    """The catalog's count of remaining rows is too low for such a file."""
    lake = make_lake(data_inlining_row_limit=10)
    lake.execute(["CREATE TABLE t AS SELECT range AS i FROM range(100)", f"DELETE FROM t WHERE {before}"])
    with two_connections(lake) as (first, second):
        for con, condition in zip((first, second), conditions, strict=True):
            con.execute(f"BEGIN; DELETE FROM t WHERE {condition}")
        first.execute("COMMIT")
        second.execute("COMMIT")
    assert lake.delete("t", f"i BETWEEN {len(deleted)} AND 97").rows_removed == 98 - len(deleted)
    assert sorted(i for (i,) in rows(lake, "FROM t")) == [98, 99]


@concurrently
@pytest.mark.parametrize(
    ("compaction", "code"),
    [
        ("CALL ducklake_merge_adjacent_files('lake', 't')", "delete-on-missing-file"),
        ("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)", "delete-on-ended-file"),
    ],
)
def test_an_inlined_delete_concurrent_with_a_compaction_is_lost(
    make_lake: MakeLake, compaction: str, code: str
) -> None:
    lake = make_lake()
    lake.execute(
        [
            "CREATE TABLE t AS SELECT range AS i FROM range(100)",
            *(["DELETE FROM t WHERE i >= 50"] if "rewrite" in compaction else []),
            *(["INSERT INTO t SELECT range + 100 FROM range(100)"] if "merge" in compaction else []),
        ]
    ).raise_for_error()
    with two_connections(lake) as (first, second):
        first.execute("BEGIN; DELETE FROM t WHERE i = 7")
        second.execute(compaction)
        first.execute("COMMIT")
        assert first.execute("SELECT len(list(i)) FROM t WHERE i = 7").fetchone() == (1,)
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.table, finding.repairable) == (code, "main.t", False)


def test_inlined_deletions_of_expired_files_have_no_finding(own: DuckLake) -> None:
    own.execute(
        [
            "CREATE TABLE t AS SELECT range AS i FROM range(100)",
            "DELETE FROM t WHERE i = 7",
            "DELETE FROM t",
            "INSERT INTO t SELECT range FROM range(100)",
        ]
    ).raise_for_error()
    assert own.fsck(deep=True, storage=True).findings == []
    own.execute("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2])", force=True).raise_for_error()
    assert own.fsck(deep=True, storage=True).findings == []
    with own.connect_metadata() as con:
        assert con.execute("SELECT count(*) FROM ducklake_inlined_delete_1").fetchone() == (1,)


def test_a_flush_after_a_rewrite_corrupts_history_until_it_is_repaired(own: DuckLake) -> None:
    own.execute(
        [
            "CREATE TABLE t AS SELECT range AS i FROM range(200)",
            "DELETE FROM t WHERE i < 100",
            "DELETE FROM t WHERE i BETWEEN 120 AND 122",
            "DELETE FROM t WHERE i BETWEEN 150 AND 179",
        ]
    ).raise_for_error()
    before = history(own)
    rewrite = "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)"
    own.execute([rewrite, "CALL ducklake_flush_inlined_data('lake')"]).raise_for_error()
    assert [count for count, _ in before] == [200, 100, 97, 67]
    assert [count for count, _ in history(own)] == [200, 100, 297, 267, 67, 67]
    assert repaired(own, deep=True, storage=True) == [("delete-files-overlap", "main.t", path_of(own, 0))]
    assert history(own)[:4] == before


def test_a_live_delete_file_of_an_ended_data_file_has_no_finding(own: DuckLake) -> None:
    sql = ["CREATE TABLE t AS SELECT range AS i FROM range(50)", "DELETE FROM t WHERE i < 30", "DELETE FROM t"]
    own.execute(sql).raise_for_error()
    assert own.fsck(deep=True, storage=True).findings == []


class TestManualDamage:
    def test_a_delete_file_without_its_data_file_is_removed(self, lake: DuckLake) -> None:
        path = path_of(lake, 2, "delete")
        damage(lake, "UPDATE ducklake_delete_file SET data_file_id = 77")
        report = lake.fsck(repair=True)
        assert [(finding.code, finding.file) for finding in report.repaired] == [("delete-without-data-file", path)]
        # Its deleted rows are restored, which has no repair.
        assert found(report) == [("deletion-without-delete-file", "main.t", None)]

    def test_a_delete_file_of_another_table_is_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_delete_file SET table_id = 2")
        assert ("delete-of-other-table", "main.t", path_of(lake, 0)) in found(lake.fsck())
        assert value(lake, "SELECT len(list(i)) FROM t WHERE i < 20") == 20

    def test_more_deletes_than_rows_are_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_delete_file SET delete_count = 60")
        assert found(lake.fsck()) == [("more-deletes-than-rows", "main.t", path_of(lake, 0))]
        assert value(lake, "SELECT count(*) FROM t") < value(lake, "SELECT len(list(i)) FROM t")

    def test_an_inlined_delete_of_a_position_beyond_the_file_is_found(self, lake: DuckLake) -> None:
        damage(lake, "INSERT INTO ducklake_inlined_delete_1 VALUES (1, 70, 5)")
        assert found(lake.fsck()) == [("deleted-position-out-of-range", "main.t", path_of(lake, 1))]
        assert value(lake, "SELECT count(*) FROM t") < value(lake, "SELECT len(list(i)) FROM t")

    def test_a_duplicate_inlined_delete_is_counted_twice_until_it_is_repaired(self, lake: DuckLake) -> None:
        damage(lake, "INSERT INTO ducklake_inlined_delete_1 VALUES (1, 0, 7), (1, 0, 5)")
        assert value(lake, "SELECT count(*) FROM t") < value(lake, "SELECT len(list(i)) FROM t")
        assert repaired(lake) == [("deleted-twice-in-catalog", "main.t", path_of(lake, 1))]
        assert value(lake, "SELECT count(*) FROM t") == value(lake, "SELECT len(list(i)) FROM t") == 80
        assert value(lake, "SELECT count(*) FROM t AT (VERSION => 4)") == 80
