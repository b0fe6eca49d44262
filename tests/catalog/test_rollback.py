"""A rollback restores the exact rows of a snapshot with their row ids, whatever happened to them since."""

import random
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.verbs import rollback
from ducklake_orch.catalog.writing import write_known_rows
from ducklake_orch.errors import (
    ConfigError,
    DataError,
    HistoryExpiredError,
    ObjectNotFoundError,
    ReadOnlyError,
    SnapshotNotFoundError,
    TableDroppedError,
)
from tests.support.backends import SQLITE, Backend, catalogs, on_sqlite
from tests.support.lakes import MakeLake
from tests.support.retained_files import check_retained_files
from tests.support.table_steps import COMMON, UPDATES, State, latest, rows_of, run, state, step


def values(lake: DuckLake) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake.read("t").to_pylist()), key=repr)


def check_past(lake: DuckLake, states: dict[int, State]) -> None:
    """Compare the rows at every snapshot with their recorded state."""
    for at, wanted in states.items():
        found = sorted(map(repr, (tuple(row.values()) for row in lake.read("t", snapshot=at).to_pylist())))
        assert found == sorted(map(repr, wanted.values())), f"at snapshot {at}"


# --- the restored rows -----------------------------------------------------------------------------------------------


@catalogs(sql_writes=True)
@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_a_rollback_restores_every_state_with_its_row_ids(backend: Backend, make_lake: MakeLake, limit: int) -> None:
    rng = random.Random(f"back {backend} {limit}")
    lake = make_lake(data_inlining_row_limit=limit)
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)")
    states = {latest(lake): state(lake)}
    for number in range(12):
        if number % 3 == 2:
            at = rng.choice([*states])
            before = state(lake)
            planned = lake.rollback("t", at, dry_run=True)
            assert latest(lake) == max(states)
            done = lake.rollback("t", at)
            assert state(lake) == states[at], f"rolled back to {at}"
            gone = sum(states[at].get(key) != value for key, value in before.items())
            back = sum(before.get(key) != value for key, value in states[at].items())
            assert (done.rows_back, done.rows_gone) == (back, gone) == (planned.rows_back, planned.rows_gone)
        else:
            step(lake, rng.choice(COMMON + UPDATES * 2), number * 20, rng.randrange(5))
        states[latest(lake)] = state(lake)
    check_past(lake, states)
    assert not lake.fsck(deep=True, storage=True).counts
    # Flushes, rewrites and the engine's own changes work on the files that the rollback wrote.
    run(lake, "CALL ducklake_flush_inlined_data('lake')", "DELETE FROM t WHERE k % 2 = 0", "UPDATE t SET v = 'x'")
    run(lake, "CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_rewrite_data_files('lake')")
    end, wanted = latest(lake), state(lake)
    lake.rollback("t", max(states))
    assert state(lake) == states[max(states)]
    lake.rollback("t", end)
    assert state(lake) == wanted


@catalogs()
def test_a_rollback_restores_our_writes_on_every_catalog(lake: DuckLake) -> None:
    lake.write(rows_of((1, "a"), (2, "b")), "t", mode="append")
    restored = latest(lake)
    lake.write(rows_of((3, "c")), "t", mode="append")
    lake.write(rows_of((4, "d")), "t", mode="overwrite")
    result = lake.rollback("t", restored, commit=CommitInfo(author="ann", message="undo"))
    assert (result.rows_back, result.rows_gone, result.files_kept, result.files_removed) == (2, 1, 0, 1)
    assert (result.snapshot_id, result.previous_snapshot_id) == (restored + 3, restored + 2)
    assert values(lake) == [(1, "a"), (2, "b")]
    snapshot = lake.snapshots(limit=1)[0]
    assert (snapshot.author, snapshot.message) == ("ann", "undo")
    assert {change.partition(":")[0] for change in snapshot.changes} == {"inserted_into_table", "deleted_from_table"}
    kinds = [(row["change_type"], row["rowid"], row["k"]) for row in lake.changes("t", restored + 3).to_pylist()]
    assert kinds == [("insert", 0, 1), ("insert", 1, 2), ("delete", 3, 4)]
    lake.write(rows_of((5, "e")), "t", mode="append")
    assert lake.changes("t", restored + 4).to_pylist()[0]["rowid"] == 4
    assert not lake.fsck(deep=True, storage=True).counts


@on_sqlite
def test_a_rollback_keeps_unchanged_files(lake: DuckLake) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    restored = latest(lake)
    lake.write(rows_of((2, "b")), "t", mode="append")
    result = lake.rollback("t", restored)
    assert (result.files_kept, result.files_added, result.files_removed, result.rows_copied) == (1, 0, 1, 0)
    assert values(lake) == [(1, "a")]
    again = lake.rollback("t", restored)
    assert (again.snapshot_id, again.rows_back, again.rows_gone) == (latest(lake), 0, 0)
    assert again.snapshot_id == again.previous_snapshot_id


@on_sqlite
def test_a_rollback_of_a_rewrite_commits_no_snapshot(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(50)", "DELETE FROM t WHERE k < 20")
    restored = latest(lake)
    run(lake, "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)")
    assert latest(lake) == restored + 1
    assert lake.rollback("t", restored).snapshot_id == restored + 1


@catalogs(sql_writes=True, quick=[SQLITE])
def test_expiry_and_cleanup_after_a_rollback_keep_its_files(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(50)")
    restored = latest(lake)
    run(lake, "DELETE FROM t WHERE k % 2 = 0", "DELETE FROM t WHERE k = 1")
    lake.rollback("t", restored)
    older = ", ".join(map(str, range(latest(lake))))
    run(lake, f"CALL ducklake_expire_snapshots('lake', versions => [{older}])")
    run(lake, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert values(lake) == sorted([(k,) for k in range(50)], key=repr)
    assert not lake.fsck(deep=True, storage=True).counts


@catalogs(sql_writes=True)
def test_a_rollback_that_copies_no_rows_keeps_its_own_delete_files(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(pa.table({"id": list(range(40))}), "t", mode="append")
    good = latest(lake)
    lake.write(pa.table({"id": list(range(100, 140))}), "t", mode="append")
    bad = latest(lake)
    run(lake, "DELETE FROM t WHERE id = 100")  # three rows or fewer are deleted in the catalog
    deleted = latest(lake)
    assert lake.rollback("t", good).files_added == 0
    check_retained_files(lake)
    rows = {at: lake.execute(f"SELECT count(*) AS n FROM t AT (VERSION => {at})").rows for at in (good, bad, deleted)}
    assert rows == {good: [{"n": 40}], bad: [{"n": 80}], deleted: [{"n": 79}]}
    assert lake.changes("t", deleted, deleted).num_rows == 1
    lake.rollback("t", deleted)
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 79}]
    check_retained_files(lake)


# --- a table that has changed since ----------------------------------------------------------------------------------


@catalogs(sql_writes=True)
@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_restored_rows_have_the_current_columns_and_partitions(make_lake: MakeLake, limit: int) -> None:
    lake = make_lake(data_inlining_row_limit=limit)
    run(lake, "CREATE TABLE t (k INTEGER, v VARCHAR, old INTEGER)")
    run(lake, "INSERT INTO t VALUES (1, 'a', 5), (2, NULL, 6), (3, 'c', 7)", "DELETE FROM t WHERE k = 3")
    restored = latest(lake)
    run(lake, "DELETE FROM t WHERE k = 1", "ALTER TABLE t RENAME COLUMN v TO word", "ALTER TABLE t DROP COLUMN old")
    run(lake, "ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7", "ALTER TABLE t ADD COLUMN n DOUBLE")
    run(lake, "ALTER TABLE t ALTER k TYPE BIGINT", "ALTER TABLE t SET PARTITIONED BY (word)")
    run(lake, "INSERT INTO t VALUES (9000000000, 'big', 1, 1.5)")
    lake.rollback("t", restored)
    assert values(lake) == [(1, "a", 7, None), (2, None, 7, None)]
    assert set(state(lake)) == {0, 1}
    files = lake.table("t").files()
    if limit == 0:
        assert sorted(str(file.partition["word"]) for file in files) == ["None", "a"]
    run(lake, "UPDATE t SET word = 'A' WHERE k = 1")
    assert values(lake) == [(1, "A", 7, None), (2, None, 7, None)]
    assert not lake.fsck(deep=True, storage=True).counts


@on_sqlite
def test_rows_are_restored_into_partitions_of_several_transforms(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (k INTEGER, day DATE, s STRUCT(a INTEGER))")
    run(lake, "INSERT INTO t SELECT range, DATE '2025-01-01' + range::INTEGER, {'a': range} FROM range(60)")
    restored, wanted = latest(lake), state(lake)
    run(lake, "DELETE FROM t", "ALTER TABLE t SET PARTITIONED BY (bucket(2, k), year(day), month(day))")
    lake.rollback("t", restored)
    assert state(lake) == wanted
    assert len(lake.table("t").partitions()) == 5
    assert not lake.fsck(deep=True, storage=True).counts


@on_sqlite
def test_restoring_a_null_into_a_not_null_column_is_refused(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t VALUES (NULL)")
    restored = latest(lake)
    run(lake, "DELETE FROM t", "ALTER TABLE t ALTER k SET NOT NULL")
    with pytest.raises(DataError, match="`k`"):
        lake.rollback("t", restored)
    assert not lake.fsck(deep=True, storage=True).counts


# --- concurrent writers ----------------------------------------------------------------------------------------------


@catalogs()
def test_a_rollback_is_replanned_after_a_concurrent_write(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    restored = latest(lake)
    lake.write(rows_of((2, "b")), "t", mode="overwrite")
    times = []

    def write_after_a_concurrent_transaction(*arguments: Any) -> Any:
        times.append(1)
        if len(times) == 1:
            with lake.transaction() as tx:
                for table in ("t", "other"):
                    tx.write(rows_of((3, "c")), table, mode="append")
        return real(*arguments)

    real = write_known_rows
    monkeypatch.setattr(rollback, "write_known_rows", write_after_a_concurrent_transaction)
    result = lake.rollback("t", restored)
    assert (len(times), result.attempts) == (2, 2)
    assert values(lake) == [(1, "a")]
    assert not lake.fsck(deep=True, storage=True).counts


@on_sqlite
def test_concurrent_writes_to_other_tables_do_not_conflict(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(rows_of((1, "a")), "t", mode="append")
    restored = latest(lake)
    lake.write(rows_of((2, "b")), "t", mode="overwrite")

    def write_after_an_append_to_another_table(*arguments: Any) -> Any:
        lake.write(rows_of((3, "c")), "other", mode="append")
        return real(*arguments)

    real = write_known_rows
    monkeypatch.setattr(rollback, "write_known_rows", write_after_an_append_to_another_table)
    assert lake.rollback("t", restored).attempts == 1


# --- refusals --------------------------------------------------------------------------------------------------------


@on_sqlite
def test_snapshots_without_the_table_are_refused(lake: DuckLake) -> None:
    lake.execute("SELECT 1").raise_for_error()  # this creates the lake
    start = latest(lake)
    lake.write(rows_of((1, "a")), "t", mode="append")
    restored = latest(lake)
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 99"):
        lake.rollback("t", 99)
    with pytest.raises(ObjectNotFoundError, match="did not exist at snapshot"):
        lake.rollback("t", start)
    with pytest.raises(ConfigError, match="not a snapshot id"):
        lake.rollback("t", -1)
    lake.drop_table("t")
    with pytest.raises(ObjectNotFoundError):
        lake.rollback("t", restored)
    lake.write(rows_of((2, "b")), "t", mode="append")
    with pytest.raises(TableDroppedError, match="another table now has its name"):
        lake.rollback("t", restored)
    run(lake, f"CALL ducklake_expire_snapshots('lake', versions => [{restored}])")
    with pytest.raises(HistoryExpiredError, match="has expired"):
        lake.rollback("t", restored)


@on_sqlite
def test_a_read_only_lake_allows_only_a_dry_run(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.write(rows_of((1, "a")), "t", mode="append")
    restored = latest(lake)
    lake.write(rows_of((2, "b")), "t", mode="append")
    guarded = make_lake(read_only=True)
    assert guarded.rollback("t", restored, dry_run=True).rows_gone == 1
    with pytest.raises(ReadOnlyError):
        guarded.rollback("t", restored)


@on_sqlite
def test_a_renamed_table_is_rolled_back_under_its_new_name(lake: DuckLake) -> None:
    lake.write(rows_of((1, "a")), "before", mode="append")
    restored = latest(lake)
    lake.write(rows_of((2, "b")), "before", mode="overwrite")
    run(lake, "ALTER TABLE before RENAME TO t")
    lake.rollback("t", restored)
    assert values(lake) == [(1, "a")]


@on_sqlite
def test_variants_of_different_types_with_equal_text_are_different(make_lake: MakeLake) -> None:
    """The change feed distinguishes them, too. A change that it omits would never reach its consumers."""
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (i INTEGER, v VARIANT)")
    run(lake, "INSERT INTO t VALUES (1, 1::VARIANT), (2, NULL), (3, DATE '2024-01-01'::VARIANT), (4, 'x'::VARIANT)")
    restored, kinds = latest(lake), "SELECT i, variant_typeof(v) FROM t ORDER BY i"
    before = lake.execute(kinds).rows
    lake.update("t", {"v": "CASE i WHEN 1 THEN '1' WHEN 2 THEN 'NULL' WHEN 3 THEN '2024-01-01' ELSE 'x' END::VARIANT"})
    seen = lake.changes("t", restored + 1, columns=["i"]).to_pylist()
    assert sorted({(row["i"], row["change_type"]) for row in seen}) == [
        (i, f"update_{image}image") for i in (1, 2, 3) for image in ("post", "pre")
    ]
    result = lake.rollback("t", restored)
    assert (result.rows_back, result.rows_gone) == (3, 3)
    assert lake.execute(kinds).rows == before
