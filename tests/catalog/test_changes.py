"""The change feed is the difference between states, whatever wrote, moved, flushed or altered the rows."""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.errors import ConfigError, HistoryExpiredError, ObjectNotFoundError, SnapshotNotFoundError
from tests.support.backends import SQLITE, Backend, catalogs, on_sqlite
from tests.support.lakes import MakeLake
from tests.support.table_steps import COMMON, MERGES, UPDATES, State, latest, rows_of, run, state, step

Change = tuple[Any, ...]


def feed(lake: DuckLake, *ends: int | None, **wanted: Any) -> list[Change]:
    """Return the changes as tuples, without author and time."""
    table = lake.changes("t", *ends, **wanted).drop_columns(["snapshot_time", "author", "idempotency_key"])
    return [tuple(row.values()) for row in table.to_pylist()]


def kinds(changes: Iterable[Change]) -> list[Change]:
    """Return the change types and values."""
    return [(kind, *values) for _, _, kind, *values in changes]


def difference(at: int, before: State, after: State) -> list[Change]:
    found: list[Change] = []
    for row_id in sorted(before.keys() | after.keys()):
        old, new = before.get(row_id), after.get(row_id)
        if old == new:
            continue
        update = old is not None and new is not None
        if old is not None:
            found.append((at, row_id, "update_preimage" if update else "delete", *old))
        if new is not None:
            found.append((at, row_id, "update_postimage" if update else "insert", *new))
    return found


# --- against a model -------------------------------------------------------------------------------------------------


@catalogs(sql_writes=True)
@pytest.mark.parametrize(
    ("limit", "more"), [(0, UPDATES), (10, UPDATES), (10, MERGES)], ids=["files", "inlined", "merged"]
)
def test_the_feed_of_every_range_equals_the_difference_of_its_states(
    backend: Backend, make_lake: MakeLake, limit: int, more: list[str]
) -> None:
    rng = random.Random(f"{backend} {limit} {len(more)}")
    lake = make_lake(data_inlining_row_limit=limit)
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)")
    first, wanted, before = latest(lake), list[Change](), State()
    for number in range(12):
        step(lake, rng.choice(COMMON + more * 2), number * 20, rng.randrange(5))
        after, at = state(lake), latest(lake)
        wanted += difference(at, before, after)
        before = after
    assert feed(lake) == wanted
    for _ in range(6):
        low, high = sorted(rng.choices(range(first, latest(lake) + 1), k=2))
        assert feed(lake, low, high) == [change for change in wanted if low <= change[0] <= high]
    assert not lake.fsck(deep=True, storage=True).counts


@catalogs()
def test_the_feed_reports_ducklake_orch_writes_on_every_catalog(lake: DuckLake) -> None:
    lake.write(rows_of((1, "a"), (2, "b")), "t", mode="append", commit=CommitInfo(author="ann"), idempotency_key="one")
    lake.write(rows_of((3, "c")), "t", mode="append", idempotency_key="two")
    lake.write(rows_of((4, "d")), "t", mode="overwrite", commit=CommitInfo(author="zoë"))
    found = lake.changes("t").to_pylist()
    assert [(change["change_type"], change["k"], change["author"], change["idempotency_key"]) for change in found] == [
        ("insert", 1, "ann", "one"),
        ("insert", 2, "ann", "one"),
        ("insert", 3, None, "two"),
        ("delete", 1, "zoë", None),
        ("delete", 2, "zoë", None),
        ("delete", 3, "zoë", None),
        ("insert", 4, "zoë", None),
    ]
    times = {snapshot.snapshot_id: snapshot.snapshot_time for snapshot in lake.snapshots()}
    assert all(change["snapshot_time"] == times[change["snapshot_id"]] for change in found)
    assert [change["rowid"] for change in found] == [0, 1, 2, 0, 1, 2, 3]


# --- schema ----------------------------------------------------------------------------------------------------------


@catalogs(sql_writes=True)
@pytest.mark.parametrize("limit", [0, 10])
def test_the_feed_has_the_columns_at_the_end_of_the_range(make_lake: MakeLake, limit: int) -> None:
    lake = make_lake(data_inlining_row_limit=limit)
    run(lake, "CREATE TABLE t (k INTEGER, v VARCHAR, old INTEGER)", "INSERT INTO t VALUES (1, 'a', 5), (2, 'b', 6)")
    begin = latest(lake)
    run(lake, "DELETE FROM t WHERE k = 1")
    run(lake, "ALTER TABLE t RENAME COLUMN v TO word", "ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7")
    run(lake, "UPDATE t SET w = 8 WHERE k = 2")
    run(lake, "ALTER TABLE t ALTER k TYPE BIGINT", "ALTER TABLE t DROP COLUMN old")
    run(lake, "INSERT INTO t VALUES (9000000000, 'big', NULL)")
    table = lake.changes("t", begin)
    assert table.schema.names[6:] == ["k", "word", "w"]
    assert table.schema.field("k").type == pa.int64()
    assert kinds(feed(lake, begin)) == [
        ("insert", 1, "a", 7),
        ("insert", 2, "b", 7),
        ("delete", 1, "a", 7),
        ("update_preimage", 2, "b", 7),
        ("update_postimage", 2, "b", 8),
        ("insert", 9000000000, "big", None),
    ]
    assert kinds(feed(lake, begin, begin + 1)) == [("insert", 1, "a", 5), ("insert", 2, "b", 6), ("delete", 1, "a", 5)]


@on_sqlite
def test_selected_columns_are_returned_for_every_change(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (a INTEGER, b INTEGER)", "INSERT INTO t VALUES (1, 1)", "UPDATE t SET b = 2")
    assert kinds(feed(lake, columns=["A"])) == [("insert", 1), ("update_preimage", 1), ("update_postimage", 1)]
    with pytest.raises(ObjectNotFoundError, match="no column `c`"):
        lake.changes("t", columns=["c"])


@on_sqlite
def test_columns_may_have_the_internal_names_of_the_feed(lake: DuckLake) -> None:
    names = ["pos", "gone", "began", "ended", "path", "file_path", "came", "same"]
    lake.write(pa.table({name: list(range(20)) for name in names}), "t", mode="append")
    lake.delete("t", "pos = 3")
    assert feed(lake)[-1] == (2, 3, "delete", *[3] * len(names))


@on_sqlite
def test_a_column_with_the_name_of_a_feed_column_is_refused(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (a INTEGER, Author VARCHAR)", "INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(ConfigError, match="column `Author`"):
        lake.changes("t")
    assert kinds(feed(lake, columns=["a"])) == [("insert", 1)]


@on_sqlite
def test_the_feed_reports_nested_values_and_added_files(make_lake: MakeLake, tmp_path: Any) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, "CREATE TABLE t (k INTEGER, s STRUCT(a INTEGER, b VARCHAR[]))")
    with lake.connect() as con:
        values = "SELECT 1 AS k, {'a': 2, 'b': ['it''s', NULL]} AS s"
        con.execute(f"COPY ({values}) TO '{tmp_path}/other.parquet' (FORMAT parquet)")
    lake.add_files("t", tmp_path / "other.parquet")
    run(lake, "UPDATE t SET s = {'a': 3, 'b': ['it''s', NULL]}", "ALTER TABLE t RENAME COLUMN s TO r")
    old, new = {"a": 2, "b": ["it's", None]}, {"a": 3, "b": ["it's", None]}
    assert kinds(feed(lake)) == [("insert", 1, old), ("update_preimage", 1, old), ("update_postimage", 1, new)]


@on_sqlite
def test_a_file_that_is_listed_twice_counts_twice(make_lake: MakeLake, tmp_path: Any) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    run(lake, f"COPY (SELECT range AS id FROM range(3)) TO '{tmp_path}/more.parquet' (FORMAT parquet)")
    add = f"CALL ducklake_add_data_files('{lake.config.name}', 't', '{tmp_path}/more.parquet')"
    run(lake, "CREATE TABLE t (id BIGINT)", add, add)
    assert lake.delete("t", "id = 1").rows_removed == 2
    added = [("insert", number) for number in (0, 1, 2)]
    assert kinds(feed(lake)) == [*added, *added, ("delete", 1), ("delete", 1)]
    assert [row["id"] for row in lake.execute("FROM t ORDER BY id").rows] == [0, 0, 2, 2]


# --- ranges ----------------------------------------------------------------------------------------------------------


@on_sqlite
def test_ranges_by_time_include_both_ends(lake: DuckLake) -> None:
    for n in range(3):
        lake.write(rows_of((n, None)), "t", mode="append")
    times = {snapshot.snapshot_id: snapshot.snapshot_time for snapshot in lake.snapshots()}
    first, second, third = sorted(at for at in times if at > 0)
    assert [change[0] for change in feed(lake, from_time=times[second])] == [second, third]
    assert [change[0] for change in feed(lake, to_time=times[second].isoformat())] == [first, second]
    assert feed(lake, from_time=datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert feed(lake, third + 1) == []
    with pytest.raises(SnapshotNotFoundError):
        lake.changes("t", to_time=datetime(2000, 1, 1, tzinfo=UTC))


@on_sqlite
def test_invalid_ranges_are_refused(lake: DuckLake) -> None:
    lake.write(rows_of((1, None)), "t", mode="append")
    with pytest.raises(ConfigError, match="is after"):
        lake.changes("t", 2, 1)
    with pytest.raises(ConfigError, match="cannot be combined"):
        lake.changes("t", 1, from_time=datetime.now(UTC))
    with pytest.raises(ConfigError, match="no time zone"):
        lake.changes("t", from_time="2025-01-01")
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 99"):
        lake.changes("t", 1, 99)
    with pytest.raises(ObjectNotFoundError):
        lake.changes("nothing")


@on_sqlite
def test_the_feed_of_a_recreated_table_excludes_the_dropped_table(lake: DuckLake) -> None:
    lake.write(rows_of((1, "old")), "t", mode="append")
    there = latest(lake)
    lake.drop_table("t")
    lake.write(rows_of((2, "new")), "t", mode="append")
    assert kinds(feed(lake, 0)) == [("insert", 2, "new")]
    assert kinds(feed(lake, 0, there)) == [("insert", 1, "old")]


@catalogs(sql_writes=True, quick=[SQLITE])
def test_a_range_with_expired_snapshots_raises_an_error(lake: DuckLake) -> None:
    for n in range(5):
        lake.write(rows_of((n, None)), "t", mode="overwrite")
    last = latest(lake)
    run(lake, f"CALL ducklake_expire_snapshots('lake', versions => [{last - 3}])")
    with pytest.raises(HistoryExpiredError, match=f"before {last - 1} have expired"):
        lake.changes("t", last - 2)
    with pytest.raises(HistoryExpiredError, match="has expired"):
        lake.changes("t", None, last - 3)
    assert Counter(change[0] for change in feed(lake)) == {last - 1: 2, last: 2}
    assert feed(lake) == feed(lake, last - 1, last)
