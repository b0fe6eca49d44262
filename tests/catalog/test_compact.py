"""Compactions move rows and change none: every snapshot, every row id and the change feed stay the same."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.lifecycle import Retention, Way, compact, delete_orphans, expire
from ducklake_orch.catalog.lifecycle.compaction import Compaction, DuckDBCompactor
from ducklake_orch.errors import ObjectNotFoundError, StatementError
from tests.support.backends import MYSQL, POSTGRES, SQLITE, Backend, catalogs, on_sqlite
from tests.support.fault_points import dies_at, once_at
from tests.support.lakes import MakeLake
from tests.support.metadata_dump import dump
from tests.support.numbered_rows import wide_rows
from tests.support.readers_of_the_past import Past, merges, rewrites
from tests.support.table_steps import COMMON, UPDATES, latest, rows_of, run, state, step

FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def merge(lake: DuckLake) -> Compaction:
    return compact(lake.config, "merge", merges(lake))


def rewrite(lake: DuckLake) -> Compaction:
    return compact(lake.config, "rewrite", rewrites(lake))


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
@pytest.mark.parametrize("way", ["merge", "rewrite", "both"])
def test_a_compaction_keeps_every_state_and_the_change_feed(backend: Backend, make_lake: MakeLake, way: str) -> None:
    rng = random.Random(f"compact {backend} {way}")
    lake = make_lake()
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)")
    # The engine's own time travel is wrong after a rewrite, so there would be nothing to compare with.
    steps = [statement for statement in COMMON + UPDATES if "rewrite" not in statement]
    for round_ in range(2):
        for number in range(5):
            step(lake, rng.choice(steps), (round_ * 8 + number) * 20, rng.randrange(5))
        run(lake, FLUSH)
        past = Past(lake)
        if way in ("rewrite", "both"):
            if planned := rewrites(lake):
                compact(lake.config, "rewrite", planned)
        if way in ("merge", "both"):
            if planned := merges(lake):
                done = compact(lake.config, "merge", planned)
                assert done.changed == 0
                assert done.files_out == len(planned)
        past.check()
    # The engine continues with the compacted files.
    run(lake, "DELETE FROM t WHERE k % 3 = 0", "UPDATE t SET v = 'x' WHERE k % 4 = 0", FLUSH)
    run(lake, "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
    now = state(lake)
    run(lake, "CALL ducklake_merge_adjacent_files('lake')")
    assert sorted(state(lake).values(), key=repr) == sorted(now.values(), key=repr)
    run(lake, f"CALL ducklake_expire_snapshots('lake', versions => {list(range(latest(lake)))})")
    run(lake, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert sorted(state(lake).values(), key=repr) == sorted(now.values(), key=repr)
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs()
def test_our_writes_are_compacted_on_every_catalog(lake: DuckLake) -> None:
    for number in range(6):
        lake.write(rows_of(*((number * 10 + k, "a") for k in range(10))), "t", mode="append")
    lake.delete("t", "k IN (2, 12, 13)")
    lake.update("t", {"v": "'new'"}, "k IN (34, 55)")
    past, before = Past(lake), dump(lake)
    planned = merges(lake)
    assert dump(lake) == before
    (bin_,) = planned
    done = compact(lake.config, "merge", [bin_], commit=CommitInfo(author="night", message="merge"))
    assert (done.files_in, done.rows_in, done.bytes_in) == (len(bin_.files), bin_.rows, bin_.bytes)
    assert (done.bins, done.files_out, done.delete_files_in, done.delete_files_out) == (1, 1, bin_.delete_files, 1)
    assert (lake.snapshots(limit=1)[0].author, done.snapshot_id) == ("night", latest(lake))
    past.check()
    assert merges(lake) == []
    (bin_,) = rewrites(lake)
    done = compact(lake.config, "rewrite", [bin_])
    assert (done.files_in, done.rows_in, done.rows_out, done.files_out) == (1, bin_.rows, bin_.rows - bin_.deleted, 1)
    past.check()
    assert rewrites(lake) == []
    lake.delete("t", "k = 0")
    lake.write(rows_of((1, "merged"), (99, "new")), "t", mode="merge", keys=["k"])
    assert lake.table("t").count() == 57
    past.check()


@catalogs(sql_writes=True, quick=[SQLITE])
def test_a_rewrite_applies_inlined_deletions(make_lake: MakeLake) -> None:
    lake = make_lake()
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)")
    for number in range(3):
        run(lake, f"INSERT INTO t SELECT range, 'x' FROM range({number * 100}, {number * 100 + 100})")
        run(lake, f"DELETE FROM t WHERE k = {number * 100 + 7}", f"DELETE FROM t WHERE k < {number * 100 - 50}")
    for way in (merge, rewrite):
        past = Past(lake)
        assert way(lake).bins == 1
        past.check()
        run(lake, "DELETE FROM t WHERE k IN (150, 250)", FLUSH)
        past.check()
        run(lake, "DELETE FROM t WHERE k IN (151, 251)")
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE])
def test_rows_that_no_snapshot_sees_are_dropped(lake: DuckLake) -> None:
    lake.write(rows_of(*((k, "a") for k in range(10))), "t", mode="append")
    lake.delete("t", "k < 3")
    lake.write(rows_of((50, "b")), "t", mode="append")
    expire(lake.config, Retention(datetime.now(UTC) + timedelta(days=1)))
    past = Past(lake, first=latest(lake))
    done = merge(lake)
    assert (done.rows_in, done.rows_out, done.delete_files_in, done.delete_files_out) == (11, 8, 1, 0)
    past.check()


@catalogs(sql_writes=True, quick=[SQLITE])
def test_files_are_merged_within_a_schema_version_and_rewritten_across_versions(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    insert = "INSERT INTO t SELECT {} FROM range(20)"
    run(lake, "CREATE TABLE t (k BIGINT, path VARCHAR)", insert.format("range, 'a'"), insert.format("range, 'b'"))
    run(lake, "ALTER TABLE t ADD COLUMN pos INTEGER DEFAULT 7", "ALTER TABLE t RENAME path TO began")
    run(lake, insert.format("range, 'c', 1"), insert.format("range, 'd', 2"))
    run(lake, "ALTER TABLE t DROP COLUMN k")
    run(lake, insert.format("'e', range"), insert.format("'f', 4"))
    run(lake, "DELETE FROM t WHERE rowid IN (3, 44, 85, 102)")
    past = Past(lake)
    planned = merges(lake)
    assert [len(bin_.files) for bin_ in planned] == [2, 2, 2]
    assert compact(lake.config, "merge", planned).files_out == 3
    past.check()
    (bin_,) = rewrites(lake)
    assert compact(lake.config, "rewrite", [bin_]).files_out == 1
    past.check()


@catalogs(quick=[SQLITE])
def test_each_partition_is_compacted_in_its_own_folder(lake: DuckLake, tmp_path: Path) -> None:
    keys = ["a b", "é/=%", "", None]
    data = pa.table({"p": keys * 10, "k": list(range(40))})
    for _ in range(2):
        lake.write(data, "t", mode="append", partition_by=["p"])
    odd = f"{lake.config.data_path}main/t/odd/p=a%20b/file.parquet"
    Path(odd).parent.mkdir(parents=True)
    pq.write_table(pa.table({"p": ["a b"], "k": [99]}), odd)
    lake.add_files("t", odd)
    lake.delete("t", "k IN (0, 2)")
    past = Past(lake)
    planned = merges(lake)
    assert sorted(len(bin_.files) for bin_ in planned) == [2, 2, 2, 3]
    folders = {str(Path(file.path).parent) for file in lake.table("t").files() if file.path != odd}
    assert compact(lake.config, "merge", planned).files_out == 4
    past.check()
    files = lake.table("t").files()
    assert {str(Path(file.path).parent) for file in files} == folders
    assert sorted(str(file.partition) for file in files) == sorted(str({"p": key}) for key in keys)
    assert len(rewrites(lake)) == 2
    assert rewrite(lake).files_out == 2
    past.check()
    lake.write(pa.table({"p": ["a b"], "k": [1]}), "t", mode="overwrite_partitions")
    assert lake.table("t").count() == 1 + 58


@on_sqlite
def test_the_sort_order_of_a_table_is_kept(lake: DuckLake) -> None:
    for numbers in ([3, 1, 2], [9, 7, 8]):
        lake.write(rows_of(*((k, str(-k)) for k in numbers)), "t", mode="append", sort_by=["k DESC"])
    merge(lake)
    assert lake.read("t").column("k").to_pylist() == [9, 8, 7, 3, 2, 1]


def digests(lake: DuckLake, to: int) -> list[Any]:
    with lake.connect() as con:
        sql = "SELECT count(*), sum(hash(rowid, k, c0, c4)::HUGEINT) FROM t AT (VERSION => {})"
        return [con.execute(sql.format(at)).fetchall() for at in range(1, to + 1)]


@on_sqlite
@pytest.mark.parametrize(("way", "memory"), [("merge", "64MB"), ("rewrite", "48MB")])
@pytest.mark.parametrize("sort_by", [None, ["k"]], ids=["unsorted", "sorted"])
def test_bins_larger_than_memory_are_compacted_in_parts(
    lake: DuckLake, way: Way, memory: str, sort_by: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        lake.write(wide_rows(number * 30_000, 30_000), "t", mode="append", sort_by=sort_by)
    lake.delete("t", "k % 10 = 0")
    at = latest(lake)
    past, planned = digests(lake, at), merges(lake) if way == "merge" else rewrites(lake)
    tight = lake.config.model_copy(update={"memory_limit": memory, "threads": 1})
    done = compact(tight, way, planned)
    assert (done.files_in, done.changed, done.unfit) == (6, 0, 0)
    assert done.rows_out == (180_000 if way == "merge" else lake.table("t").count())
    assert 1 < done.files_out < 6
    assert "Out of Memory" in caplog.text
    assert digests(lake, at) == past
    if sort_by:
        for file in lake.table("t").files():
            keys = pq.read_table(file.path, columns=["k"]).column("k").to_pylist()
            assert keys == sorted(keys)
    assert lake.fsck(deep=True, storage=True).counts == {}


@on_sqlite
def test_a_compaction_without_enough_memory_for_one_file_changes_nothing(lake: DuckLake) -> None:
    for number in range(2):
        lake.write(wide_rows(number * 30_000, 30_000), "t", mode="append")
    tight = lake.config.model_copy(update={"memory_limit": "16MB", "threads": 1})
    with pytest.raises(StatementError, match="Raise `memory_limit`"):
        compact(tight, "merge", merges(lake))
    assert latest(lake) == 2
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE, MYSQL])
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_concurrent_commits_are_not_lost_by_a_compaction(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    for start in (0, 100):
        keys = [*range(start + 10, start + 19), *range(start + 20, start + 29)]
        lake.write(pa.table({"p": [1] * 9 + [2] * 9, "k": keys}), "t", mode="append", partition_by=["p"])
    lake.delete("t", "k % 100 IN (10, 20)")
    planned = merges(lake) if way == "merge" else rewrites(lake)
    assert len(planned) == 2
    written = DuckDBCompactor.write

    def write(*arguments: Any) -> Any:
        found = written(*arguments)
        lake.delete("t", "k = 12")  # in one of the two files of its bin
        lake.write(pa.table({"p": [3], "k": [30]}), "t", mode="append")
        return found

    monkeypatch.setattr(DuckDBCompactor, "write", write)
    done = compact(lake.config, way, planned)
    assert (done.bins, done.changed) == (1, 1)
    monkeypatch.undo()
    wanted = {start + k for start in (0, 100) for k in (*range(11, 19), *range(21, 29))} - {12} | {30}
    assert sorted(lake.read("t").column("k").to_pylist()) == sorted(wanted)
    assert lake.fsck(deep=True, storage=True).counts == {}
    past = Past(lake)
    again = merge(lake) if way == "merge" else rewrite(lake)
    assert (again.bins, again.changed) == (1, 0)
    past.check()


@on_sqlite
@pytest.mark.parametrize(
    ("change", "rewritten"),
    [
        (["ALTER TABLE t ADD COLUMN n INTEGER"], False),
        (["ALTER TABLE t SET PARTITIONED BY (k)"], False),
        (["ALTER TABLE t RENAME TO u", "CREATE TABLE t (k BIGINT, v VARCHAR)"], False),
        (["CREATE TABLE u (i BIGINT)"], True),
    ],
    ids=["columns", "partition keys", "name", "other table"],
)
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_files_are_not_rewritten_if_their_table_changes_meanwhile_but_are_merged(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, way: Way, change: list[str], rewritten: bool
) -> None:
    for number in range(2):
        lake.write(rows_of((number, "a"), (number + 10, "b")), "t", mode="append")
    lake.execute("DELETE FROM t WHERE k > 9").raise_for_error()
    planned = merges(lake) if way == "merge" else rewrites(lake)
    once_at(monkeypatch, "files.written", lambda: lake.execute(change).raise_for_error())
    done = compact(lake.config, way, planned)
    compacted = rewritten or way == "merge"
    assert (done.bins, done.changed) == ((1, 0) if compacted else (0, 1))
    now = "u" if "RENAME" in change[0] else "t"
    assert sorted(lake.read(now).column("k").to_pylist()) == [0, 1]
    assert lake.fsck(deep=True, storage=True).counts == {}


@on_sqlite
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_compacted_files_are_counted_and_have_ids_of_their_own(lake: DuckLake, way: Way) -> None:
    for number in range(2):
        lake.write(rows_of((number, "a"), (number + 10, "b")), "t", mode="append")
    lake.execute("DELETE FROM t WHERE k > 9").raise_for_error()
    assert (merge if way == "merge" else rewrite)(lake).bins == 1
    with lake.connect_metadata() as con:
        live = "SELECT sum(record_count), sum(file_size_bytes) FROM ducklake_data_file WHERE end_snapshot IS NULL"
        (counted,) = con.execute("SELECT record_count, file_size_bytes FROM ducklake_table_stats").fetchall()
        assert con.execute(live).fetchall() == [counted]
        ids = "SELECT data_file_id FROM ducklake_data_file UNION ALL SELECT delete_file_id FROM ducklake_delete_file"
        found = con.execute(ids).fetchall()
        assert len(set(found)) == len(found)


@on_sqlite
def test_a_bin_with_retired_files_is_skipped(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows_of((number, "a")), "t", mode="append")
    planned = merges(lake)
    merge(lake)
    done = compact(lake.config, "merge", planned)
    assert (done.bins, done.changed, done.snapshot_id) == (0, 1, None)
    lake.drop_table("t")
    with pytest.raises(ObjectNotFoundError):
        compact(lake.config, "merge", planned)


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_a_compaction_killed_at_any_statement_is_atomic(lake: DuckLake, way: Way) -> None:
    for number in range(3):
        lake.write(rows_of(*((number * 10 + k, "a") for k in range(10))), "t", mode="append")
    lake.delete("t", "k IN (3, 13)")
    planned, past = merges(lake) if way == "merge" else rewrites(lake), Past(lake)
    for point in ("files.written", "statement.1", "statement.4", "statement.6", "commit.before", "commit.after"):
        assert dies_at(point, lambda: compact(lake.config, way, planned))
        assert latest(lake) == max(past.seen) + (point == "commit.after")
    assert lake.fsck(deep=True).findings == []
    delete_orphans(lake.config, datetime.now(UTC) + timedelta(days=1))
    past.check()


@on_sqlite
@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE ducklake_data_file SET record_count = record_count + 1",
        "UPDATE ducklake_data_file SET row_id_start = NULL",
        "UPDATE ducklake_data_file SET row_id_start = 0, begin_snapshot = 1",
    ],
)
@pytest.mark.parametrize("way", ["merge", "rewrite"])
def test_files_that_contradict_the_catalog_are_not_compacted(lake: DuckLake, spoil: str, way: Way) -> None:
    for number in range(3):
        lake.write(rows_of(*((number * 10 + k, "a") for k in range(10))), "t", mode="append")
    lake.delete("t", "k IN (3, 13)")
    with lake.connect_metadata(read_only=False) as con:
        con.execute(spoil)
    before, files = latest(lake), sorted(Path(lake.config.data_path or "").rglob("*.parquet"))
    planned = merges(lake) if way == "merge" else rewrites(lake)
    if way == "rewrite" and "begin_snapshot" in spoil:
        return  # a rewrite does not need to distinguish live rows
    done = compact(lake.config, way, planned)
    assert (done.bins, done.unfit, done.changed, latest(lake)) == (0, 1, 0, before)
    assert sorted(Path(lake.config.data_path or "").rglob("*.parquet")) == files
