"""What a rewrite or merge commits: a snapshot in the words of other engines, and no file that is not in it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.lifecycle import Way, compact
from tests.catalog.fsck.damage import damage
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.readers_of_the_past import Past, merges, rewrites
from tests.support.row_history import newest

ROWS = pa.table({"i": list(range(20))})


def numbers(lake: DuckLake, sql: str) -> list[Any]:
    with lake.connect_metadata() as con:
        return [row[0] for row in con.execute(sql).fetchall()]


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize(("way", "kind"), [("rewrite", "rewrite_delete"), ("merge", "merge_adjacent")])
def test_a_compaction_is_a_snapshot_with_its_author_and_what_it_did(lake: DuckLake, way: Way, kind: str) -> None:
    for _ in range(2):
        lake.write(ROWS, "t", mode="append")
    lake.execute("DELETE FROM t WHERE i > 3").raise_for_error()
    bins = merges(lake) if way == "merge" else rewrites(lake)
    done = compact(lake.config, way, bins, commit=CommitInfo(author="ann", message="nightly", extra={"run": 1}))
    snapshot = lake.snapshots(limit=1)[0]
    assert snapshot.snapshot_id == done.snapshot_id
    # A flush would move deletions of the compacted files at the same time: the second change makes the two conflict.
    assert sorted(snapshot.changes) == sorted([f"{kind}:1", "inline_flush:1"])
    assert (snapshot.author, snapshot.message, snapshot.extra["run"]) == ("ann", "nightly", 1)


@on_sqlite
def test_a_rewrite_that_leaves_no_file_shows_readers_that_statistics_have_changed(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.execute(["DELETE FROM t WHERE i > 9", "DELETE FROM t WHERE i < 10"]).raise_for_error()
    compact(lake.config, "rewrite", rewrites(lake))
    assert numbers(lake, "SELECT data_file_id FROM ducklake_data_file WHERE end_snapshot IS NULL") == []
    after, before = numbers(lake, "SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 2")
    assert after > before


@on_sqlite
def test_merged_files_leave_no_statistics_of_their_variants(lake: DuckLake) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    insert = "INSERT INTO t SELECT {'a': range} FROM range(20)"
    lake.execute(["CREATE TABLE t (v VARIANT)", insert, insert]).raise_for_error()
    statistics = "SELECT DISTINCT data_file_id FROM ducklake_file_variant_stats"
    assert len(numbers(lake, statistics)) == 2
    compact(lake.config, "merge", merges(lake))
    assert numbers(lake, statistics) == numbers(lake, "SELECT data_file_id FROM ducklake_data_file")


def two_files_with_deletions(lake: DuckLake) -> None:
    """Make a table of two files, each with a delete file."""
    for start in (0, 20):
        lake.write(pa.table({"i": list(range(start, start + 20))}), "t", mode="append")
    lake.set_option("data_inlining_row_limit", 0)
    lake.execute("DELETE FROM t WHERE i % 5 = 0").raise_for_error()
    assert len(numbers(lake, "SELECT delete_file_id FROM ducklake_delete_file")) == 2


@on_sqlite
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_a_compaction_that_a_concurrent_change_makes_stale_leaves_no_file(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    two_files_with_deletions(lake)
    bins = merges(lake) if way == "merge" else rewrites(lake)
    once_at(monkeypatch, "files.written", lambda: lake.delete("t", "i = 1"))
    before = newest(lake)
    done = compact(lake.config, way, bins)
    assert (done.changed, done.snapshot_id, newest(lake)) == (1, None, before + 1)
    known = [
        *numbers(lake, "SELECT path FROM ducklake_data_file UNION ALL SELECT path FROM ducklake_delete_file"),
        *numbers(lake, "SELECT path FROM ducklake_files_scheduled_for_deletion"),
    ]
    stored = {path.name for path in Path(str(lake.config.data_path)).rglob("*.parquet")}
    assert stored == {Path(path).name for path in known}


@on_sqlite
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_files_whose_delete_file_has_ended_are_compacted(lake: DuckLake, way: Way) -> None:
    """A delete file of DuckLake 0.3 ended when the next deletion replaced it."""
    two_files_with_deletions(lake)
    damage(lake, "CREATE TABLE former AS SELECT * FROM ducklake_delete_file")
    lake.execute("DELETE FROM t WHERE i % 5 = 1").raise_for_error()
    damage(
        lake,
        f"UPDATE ducklake_delete_file SET begin_snapshot = {newest(lake)}, partial_max = NULL",
        f"UPDATE former SET end_snapshot = {newest(lake)}",
        "INSERT INTO ducklake_delete_file SELECT * FROM former",
        "DELETE FROM ducklake_files_scheduled_for_deletion",
        "DROP TABLE former",
    )
    past = Past(lake)
    done = compact(lake.config, way, merges(lake) if way == "merge" else rewrites(lake))
    assert (done.bins, done.changed) == (1, 0)
    past.check()
    if way == "rewrite":
        assert numbers(lake, "SELECT delete_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL") == []
