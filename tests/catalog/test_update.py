"""`lake.update` changes the values of rows that meet a condition and keeps their row ids; all others stay."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.results import WriteResult
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake
from tests.support.numbered_rows import numbers, pairs
from tests.support.row_history import RowHistory, newest, row_ids
from tests.support.stored_tables import rows


@catalogs(quick=[SQLITE, POSTGRES])
def test_updated_rows_keep_their_row_ids(lake: DuckLake) -> None:
    lake.write(numbers(0, 100), "t", mode="append", partition_by=["name"])
    history = RowHistory(lake, "t", pairs(0, 100))
    before = row_ids(lake, "t")
    for set_, where, change in (
        ({"NAME": "name || '!'"}, "id < 3", lambda row: (row[0], row[1] + "!") if row[0] < 3 else row),
        ({"name": "'it''s'"}, "id % 10 = 3", lambda row: (row[0], "it's") if row[0] % 10 == 3 else row),
        ({"name": "NULL"}, "name = 'n4'", lambda row: (row[0], None) if row[1] == "n4" else row),
        ({"name": "'all ' || id"}, None, lambda row: (row[0], f"all {row[0]}")),
    ):
        after = [change(row) for row in history.now]
        changed = sum(old != new for old, new in zip(history.now, after, strict=True))
        result = lake.update("t", set_, where)
        assert (result.mode, result.rows_removed, result.rows_written) == ("update", changed, changed)
        history.now = after
        history.keep()
        assert row_ids(lake, "t") == before
    history.check()


@catalogs(sql_writes=True)
def test_a_file_with_only_deleted_rows_is_not_updated(make_lake: MakeLake) -> None:
    lake = make_lake()
    for number in (1, 2):
        lake.write(numbers(number, number + 1), "t", mode="append", inline="never")
    lake.execute("DELETE FROM t WHERE id = 1").raise_for_error()  # an inlined deletion, so the file stays live
    done = lake.update("t", {"name": "'x'"}, "id = 1")
    assert (done.rows_removed, done.rows_written, done.snapshot_id) == (0, 0, done.previous_snapshot_id)
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
@pytest.mark.parametrize("inlining", [0, 10])
def test_updates_by_ducklake_orch_and_the_engine_interleave(make_lake: MakeLake, inlining: int) -> None:
    """Rows and deletions are also inlined, and the engine's change feed shows the updates."""
    lake = make_lake(data_inlining_row_limit=inlining)
    lake.write(numbers(0, 40), "t", mode="append")
    history = RowHistory(lake, "t", pairs(0, 40))

    def engine(*statements: str) -> None:
        for statement in statements:
            lake.execute(statement, force=True).raise_for_error()
            history.now = [(id_, name) for id_, name in rows(lake, "FROM t")]
            history.keep()

    def update(where: str, changed: set[int]) -> None:
        snapshot = lake.update("t", {"name": "upper(name) || id"}, where).snapshot_id
        history.now = [(i, f"{name.upper()}{i}" if i in changed else name) for i, name in history.now]
        history.keep()
        feed = f"ducklake_table_changes('lake', 'main', 't', {snapshot}, {snapshot})"
        # Unchanged rows of a rewritten file have two equal images in the engine's feed, as after its own rewrite.
        same = f"SELECT id FROM {feed} GROUP BY id HAVING count(DISTINCT name) = 1"
        images = rows(lake, f"SELECT change_type, id FROM {feed} WHERE id NOT IN ({same})")
        assert sorted(images) == sorted((f"update_{image}image", i) for image in ("pre", "post") for i in changed)

    engine("INSERT INTO t VALUES (100, 'a'), (101, 'it''s')", "DELETE FROM t WHERE id = 5")
    update("id IN (4, 5, 6, 101)", {4, 6, 101})
    engine("UPDATE t SET name = 'engine' WHERE id IN (4, 7, 100)")
    update("name = 'engine' AND id > 4", {7, 100})
    engine("DELETE FROM t WHERE id IN (7, 101, 8)", "CALL ducklake_flush_inlined_data('lake')")
    update("id BETWEEN 6 AND 9", {6, 9})
    history.check()
    engine("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.0)")
    engine("CALL ducklake_merge_adjacent_files('lake')")
    history.check()


@catalogs(quick=[SQLITE])
def test_values_are_cast_as_duckdb_assigns_them(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table(
        "t", {"a": "INTEGER", "b": "TIMESTAMPTZ", "c": "DECIMAL(5,2)", "d": "VARCHAR NOT NULL", "e": "INTEGER[]"}
    )
    lake.execute("INSERT INTO t VALUES (1, NULL, 1.5, 'x', [1])").raise_for_error()
    set_ = {"a": "'7'", "b": "'2024-01-01 00:00:00+00'", "c": "a / 3.0", "d": "a", "e": "list_append(e, a + 1)"}
    lake.update("t", set_)
    (row,) = lake.read("t").to_pylist()
    assert row["b"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert (row["a"], str(row["c"]), row["d"], row["e"]) == (7, "0.33", "1", [1, 2])
    before = newest(lake)
    for set_, words in (
        ({"d": "NULL"}, "does not allow NULL"),
        ({"a": "d || 'x'"}, "does not fit"),
        ({"c": "1e9"}, "does not fit"),
    ):
        with pytest.raises(errors.DataError, match=words):
            lake.update("t", set_)
    assert newest(lake) == before
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs()
def test_now_is_the_same_for_all_rows_of_an_update(lake: DuckLake) -> None:
    lake.write(pa.table({"id": range(3), "ts": pa.array([None] * 3, pa.timestamp("us", "UTC"))}), "t", mode="append")
    lake.write(pa.table({"id": range(3), "ts": pa.array([None] * 3, pa.timestamp("us", "UTC"))}), "t", mode="append")
    lake.update("t", {"ts": "now()"}, "id < 2")
    assert rows(lake, "SELECT count(DISTINCT ts), count(ts) FROM t") == [(1, 4)]


@catalogs()
def test_an_update_that_is_not_repeatable_is_replayed_under_its_key(lake: DuckLake) -> None:
    lake.write(pa.table({"id": [1, 2]}), "t", mode="append")
    first = lake.update("t", {"id": "id + 10"}, idempotency_key="k")
    again = lake.update("t", {"id": "id + 10"}, idempotency_key="k")
    assert (again.replayed, again.snapshot_id, again.rows_written) == (True, first.snapshot_id, 0)
    assert sorted(rows(lake, "FROM t")) == [(11,), (12,)]
    for _ in range(2):
        assert not lake.update("t", {"id": "5"}, "id = 11 OR id = 5", idempotency_key="constant").replayed
    assert sorted(rows(lake, "FROM t")) == [(5,), (12,)]


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_a_concurrent_engine_update_of_an_inlined_row_is_not_lost(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row keeps its id and its table. Only the begin snapshot distinguishes the two versions."""
    lake = make_lake(data_inlining_row_limit=10)
    lake.execute(["CREATE TABLE t (id INT, n INT)", "INSERT INTO t VALUES (1, 0), (2, 0)"]).raise_for_error()
    row = pa.table({"id": pa.array([1], pa.int32())})
    changes: tuple[Callable[[], WriteResult], ...] = (
        lambda: lake.update("t", {"n": "n + 1"}, "id = 1"),
        lambda: lake.write(row, "t", mode="merge", keys=["id"], when_matched={"n": "target.n + 1"}),
    )
    for change in changes:
        lake.execute(["DELETE FROM t", "INSERT INTO t VALUES (1, 0), (2, 0)"]).raise_for_error()
        once_at(
            monkeypatch, "files.written", lambda: lake.execute("UPDATE t SET n = 100 WHERE id = 1").raise_for_error()
        )
        assert change().attempts == 2
        assert sorted(rows(lake, "FROM t")) == [(1, 101), (2, 0)]


@catalogs(sql_writes=True, quick=[SQLITE])
def test_inlined_lists_of_times_keep_their_time_zones(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    statements = ["CREATE TABLE t (id INT, times TIMETZ[])", "INSERT INTO t VALUES (1, ['12:00:00+01'::TIMETZ])"]
    lake.execute(statements).raise_for_error()
    lake.update("t", {"id": "2"})
    assert rows(lake, "SELECT id, times = ['11:00:00+00'::TIMETZ] FROM t") == [(2, True)]


@catalogs(quick=[SQLITE])
def test_expect_snapshot_refuses_changes_of_rows_that_no_longer_match(lake: DuckLake) -> None:
    lake.write(numbers(0, 10), "t", mode="append")
    read = newest(lake)
    lake.update("t", {"name": "'x'"}, "id = 3")
    merge: dict[str, Any] = {"mode": "merge", "keys": ["id"], "matched_condition": "target.name = 'n3'"}
    changes: tuple[Callable[[], WriteResult], ...] = (
        lambda: lake.update("t", {"name": "'y'"}, "id = 3 AND name = 'n3'", expect_snapshot=read),
        lambda: lake.delete("t", "id = 3 AND name = 'n3'", expect_snapshot=read),
        lambda: lake.write(numbers(3, 4), "t", expect_snapshot=read, **merge),
    )
    for change in changes:
        with pytest.raises(errors.SnapshotChangedError):
            change()
    assert lake.delete("t", "id = 30", expect_snapshot=read).rows_removed == 0
    assert newest(lake) == read + 1


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_updates_of_one_row_both_apply(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(pa.table({"id": range(40), "n": [0] * 40}), "t", mode="append")
    once_at(monkeypatch, "files.written", lambda: lake.update("t", {"n": "n + 1"}, "id IN (1, 2)"))
    assert lake.update("t", {"n": "n + 1"}, "id IN (2, 3)").attempts == 2
    assert rows(lake, "SELECT id, n FROM t WHERE n > 0 ORDER BY id") == [(1, 1), (2, 2), (3, 1)]
    assert lake.fsck(deep=True, storage=True).counts == {}


@pytest.mark.parametrize(
    ("set_", "where", "error", "words"),
    [
        ({}, None, errors.ConfigError, "not a mapping of columns"),
        ({"id": 1}, None, errors.ConfigError, "not a mapping of columns"),
        ({"id": "1", "ID": "2"}, None, errors.ConfigError, "twice"),
        ({"idd": "1"}, None, errors.ObjectNotFoundError, "Did you mean `id`"),
        ({"id": "nme"}, None, errors.ObjectNotFoundError, "Did you mean `name`"),
        ({"id": "1, 2"}, None, errors.StatementError, "more than one expression"),
        ({"id": "nope(1)"}, None, errors.StatementError, "nope"),
        ({"id": "sum(id)"}, None, errors.StatementError, "aggregate"),
        ({"id": "1"}, "random() > 0.5", errors.StatementError, "`random` can return another value"),
        ({"id": "1"}, " ", errors.ConfigError, "update all rows"),
    ],
)
def test_invalid_updates_are_refused(
    tmp_path: Path, set_: dict[str, str], where: str | None, error: type[Exception], words: str
) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(numbers(0, 3), "t", mode="append")
    with pytest.raises(error, match=words):
        lake.update("t", set_, where)
    assert newest(lake) == 1
