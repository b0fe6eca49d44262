"""`lake.merge(strategy=…)`: `insert-only`, `delete-insert`, marks of deleted rows, and several rows of a key."""

from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import POSTGRES, SQLITE, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake
from tests.support.row_history import RowHistory
from tests.support.stored_tables import rows

Items = list[tuple[int, str, str]]


def items(values: Items) -> pa.Table:
    ids, days, names = zip(*values, strict=True) if values else ((), (), ())
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.string()), "name": pa.array(names, pa.string())}
    )


BEFORE: Items = [(1, "mon", "a"), (2, "mon", "b"), (2, "mon", "b2"), (3, "tue", "c")]


def filled(lake: DuckLake) -> RowHistory:
    lake.write(items(BEFORE), "t", mode="append")
    return RowHistory(lake, "t", list(BEFORE))


@catalogs()
def test_insert_only_leaves_rows_of_the_table_as_they_are(lake: DuckLake) -> None:
    history = filled(lake)
    result = lake.merge(items([(2, "wed", "x"), (4, "wed", "d")]), "t", ["id"], strategy="insert-only")
    assert (result.rows_written, result.rows_removed) == (1, 0)
    history.now = [*BEFORE, (4, "wed", "d")]
    history.keep()
    assert lake.merge(items([(4, "thu", "again")]), "t", ["id"], strategy="insert-only").rows_written == 0
    history.check()


@catalogs()
def test_delete_insert_replaces_all_rows_of_each_key(lake: DuckLake) -> None:
    history = filled(lake)
    new: Items = [(2, "wed", "x"), (2, "wed", "y"), (2, "wed", "y"), (4, "wed", "d")]
    result = lake.merge(items(new), "t", ["id"], strategy="delete-insert")
    assert (result.rows_written, result.rows_removed) == (4, 2)
    history.now = [BEFORE[0], BEFORE[3], *new]
    history.keep()
    lake.merge(items(new), "t", ["id"], strategy="delete-insert")  # a retry without a key
    history.keep()
    history.check()


@catalogs(quick=[SQLITE])
def test_delete_insert_replaces_rows_by_a_merge_key_too(lake: DuckLake) -> None:
    filled(lake)
    lake.merge(items([(3, "mon", "new")]), "t", ["id"], merge_key=["day"], strategy="delete-insert")
    assert rows(lake, "FROM t") == [(3, "mon", "new")]
    lake.merge(items([(7, "tue", "x"), (8, "tue", "y")]), "t", merge_key=["day"], strategy="delete-insert")
    assert sorted(rows(lake, "SELECT id FROM t")) == [(3,), (7,), (8,)]
    assert lake.merge(items([]), "t", ["id"], strategy="delete-insert").rows_removed == 0


@catalogs(quick=[SQLITE])
def test_delete_insert_refuses_null_keys_or_replaces_their_rows(lake: DuckLake) -> None:
    lake.write(pa.table({"id": pa.array([None, 1], pa.int64()), "name": ["a", "b"]}), "t", mode="append")
    data = pa.table({"id": pa.array([None, None], pa.int64()), "name": ["c", "d"]})
    with pytest.raises(errors.DataError, match="NULL in a key column"):
        lake.merge(data, "t", ["id"], strategy="delete-insert")
    lake.merge(data, "t", ["id"], strategy="delete-insert", null_keys="match")
    assert sorted(rows(lake, "SELECT name FROM t")) == [("b",), ("c",), ("d",)]


@catalogs(quick=[SQLITE])
def test_delete_insert_with_a_key_is_not_repeated(lake: DuckLake) -> None:
    filled(lake)
    merge: dict[str, Any] = {"strategy": "delete-insert", "idempotency_key": "day 1"}
    first = lake.merge(items([(2, "wed", "x")]), "t", ["id"], **merge)
    lake.write(items([(2, "thu", "later")]), "t", mode="append")
    again = lake.merge(items([(2, "wed", "x")]), "t", ["id"], **merge)
    assert (again.replayed, again.snapshot_id) == (True, first.snapshot_id)
    assert sorted(rows(lake, "SELECT name FROM t WHERE id = 2")) == [("later",), ("x",)]


@catalogs(sql_writes=True, quick=[SQLITE])
def test_delete_insert_replaces_inlined_rows(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(items(BEFORE), "t", mode="append")
    lake.execute("INSERT INTO t VALUES (2, 'wed', 'inlined'), (9, 'wed', 'stays')").raise_for_error()
    lake.merge(items([(2, "thu", "new")]), "t", ["id"], strategy="delete-insert")
    assert sorted(rows(lake, "SELECT id, name FROM t")) == [(1, "a"), (2, "new"), (3, "c"), (9, "stays")]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_replacements_of_a_key_leave_the_rows_of_one(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    other: Items = [(2, "a", "A"), (5, "a", "A")]
    merge: dict[str, Any] = {"keys": ["id"], "strategy": "delete-insert"}
    once_at(monkeypatch, "files.written", lambda: lake.merge(items(other), "t", **merge))
    lake.merge(items([(2, "b", "B"), (5, "b", "B")]), "t", **merge)
    assert sorted(rows(lake, "SELECT id, name FROM t WHERE id IN (2, 5)")) == [(2, "B"), (5, "B")]


MARKS = {
    "BOOLEAN": pa.array([True, None, False]),
    "a time": pa.array(["2026-01-01", None, None]),
}


@pytest.mark.parametrize("strategy", ["upsert", "delete-insert"])
@pytest.mark.parametrize("kind", MARKS)
@catalogs(quick=[SQLITE])
def test_marked_rows_of_the_data_delete_rows(lake: DuckLake, strategy: str, kind: str) -> None:
    lake.write(items([(1, "mon", "a"), (2, "mon", "b"), (3, "tue", "c")]), "t", mode="append")
    data = items([(1, "wed", "x"), (2, "wed", "y"), (4, "wed", "z")]).append_column("gone", MARKS[kind])
    for _ in range(2):  # a retry changes nothing more
        lake.merge(data, "t", ["id"], strategy=strategy, hard_delete="gone")
    assert sorted(rows(lake, "FROM t")) == [(2, "wed", "y"), (3, "tue", "c"), (4, "wed", "z")]
    lake.merge(data, "new", ["id"], strategy=strategy, hard_delete="gone")
    assert sorted(rows(lake, "FROM new")) == [(2, "wed", "y"), (4, "wed", "z")]


@on_sqlite
def test_marks_are_stored_only_if_the_table_has_their_column(lake: DuckLake) -> None:
    data = items([(1, "mon", "a"), (2, "mon", "b")]).append_column("gone", pa.array([False, True]))
    lake.create_table("t", {"id": "BIGINT", "day": "VARCHAR", "name": "VARCHAR", "gone": "BOOLEAN"})
    lake.merge(data, "t", ["id"], hard_delete="gone")
    assert rows(lake, "FROM t") == [(1, "mon", "a", False)]
    lake.write(items([]), "without", mode="append")
    lake.merge(data, "without", ["id"], hard_delete="gone", schema_evolution="add")
    assert [column.name for column in lake.table("without").schema()] == ["id", "day", "name"]


@pytest.mark.parametrize("strategy", ["upsert", "insert-only", "delete-insert"])
@on_sqlite
def test_the_first_of_the_rows_with_the_same_keys_is_taken(lake: DuckLake, strategy: str) -> None:
    lake.write(items([(1, "0", "old")]), "t", mode="append")
    data = items([(2, "1", "first"), (2, "3", "last"), (2, "2", "second"), (1, "1", "x")])
    arguments: dict[str, Any] = {"strategy": strategy, "keys": ["id"]}
    if strategy != "delete-insert":
        with pytest.raises(errors.DataError, match="3 rows of the data have the same keys"):
            lake.merge(data, "t", **arguments)
    lake.merge(data, "t", **arguments, deduplicate_by=["day DESC"])
    assert rows(lake, "SELECT name FROM t WHERE id = 2") == [("last",)]
    lake.merge(data, "new", **arguments, deduplicate_by=["day"])
    assert rows(lake, "SELECT name FROM new WHERE id = 2") == [("first",)]


@on_sqlite
def test_rows_that_the_order_does_not_tell_apart_are_chosen_the_same_way_every_time(lake: DuckLake) -> None:
    tied: Items = [(1, "mon", name) for name in "cab"]
    for number, values in enumerate((tied, tied[::-1], tied[1:] + tied[:1])):
        lake.merge(items(values), f"t{number}", ["id"], deduplicate_by=["day"])
        assert rows(lake, f"SELECT name FROM t{number}") == [("a",)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "scd1"}, "`strategy` = 'scd1' is unknown"),
        ({"strategy": "upsert", "merge_key": ["day"]}, "Strategy `upsert` and `merge_key` cannot be combined"),
        ({"strategy": "insert-only", "when_matched": "delete"}, "`insert-only` and `when_matched`"),
        ({"strategy": "insert-only", "hard_delete": "day"}, "`insert-only` and `hard_delete`"),
        ({"hard_delete": "ID"}, "`hard_delete` and `keys` name the same column, `ID`"),
        (
            {"strategy": "delete-insert", "keys": (), "merge_key": ["day"], "deduplicate_by": ["id"]},
            "`deduplicate_by` needs `keys`",
        ),
        ({"strategy": "delete-insert", "boundary": "day"}, "`delete-insert` and `boundary`"),
        ({"strategy": "delete-insert", "keys": ()}, r"`keys` = \(\) is not a list of names"),
        ({"strategy": "delete-insert", "merge_key": "day"}, "`merge_key` = 'day' is not a list of names"),
        ({"hard_delete": "dya"}, "The data have no column `dya`"),
        ({"deduplicate_by": ["dya"]}, "uses `dya`, which is not a column"),
    ],
)
@on_sqlite
def test_arguments_that_do_not_fit_the_strategy_are_refused(
    lake: DuckLake, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.DuckLakeOrchError, match=message):
        lake.merge(items(BEFORE[:2]), "t", **{"keys": ["id"], **arguments})
