"""`lake.merge(strategy="scd2")`: a table that keeps all versions of its rows, compared with a model of timelines."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, zip_longest
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import POSTGRES, SQLITE, Backend, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake
from tests.support.stored_tables import rows

D1, D2, D3, D4 = (date(2026, 1, day) for day in (1, 2, 3, 4))


def prices(values: Mapping[str, float | None], **more: Any) -> pa.Table:
    table = pa.table(
        {"sku": pa.array(list(values), pa.string()), "price": pa.array(list(values.values()), pa.float64())}
    )
    for name, column in more.items():
        table = table.append_column(name, pa.array(column))
    return table


def versions(lake: DuckLake, columns: str = "sku, price, valid_from, valid_to") -> list[tuple[Any, ...]]:
    return rows(lake, f"SELECT {columns} FROM t ORDER BY ALL")


def merge(lake: DuckLake, data: pa.Table, **arguments: Any) -> Any:
    return lake.merge(data, "t", **{"keys": ["sku"], "strategy": "scd2", **arguments})


@catalogs()
def test_a_row_that_changes_ends_and_its_new_version_begins(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1, "b": 1, "c": None}), boundary=D1)
    result = merge(lake, prices({"a": 1, "b": 2, "d": 4}), boundary=D2)
    assert versions(lake) == [
        ("a", 1, D1, None),
        ("b", 1, D1, D2),
        ("b", 2, D2, None),
        ("c", None, D1, D2),
        ("d", 4, D2, None),
    ]
    assert (result.mode, result.rows_written, result.rows_removed) == ("merge", 4, 2)
    again = merge(lake, prices({"a": 1, "b": 2, "d": 4}), boundary=D2)
    assert (again.snapshot_id, again.rows_written) == (result.snapshot_id, 0)
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE])
def test_by_default_versions_begin_at_the_time_of_the_run(lake: DuckLake) -> None:
    before = datetime.now(UTC)
    merge(lake, prices({"a": 1, "b": 1}))
    between = datetime.now(UTC)
    merge(lake, prices({"a": 2}))
    after = datetime.now(UTC)
    old, new, gone = versions(lake)
    assert before <= old[2] <= between <= old[3] == new[2] == gone[3] <= after
    assert new[3] is None
    same = merge(lake, prices({"a": 2}))
    assert (same.rows_written, len(versions(lake))) == (0, 3)


@catalogs(quick=[SQLITE])
def test_a_clock_that_is_behind_puts_no_version_before_the_current_one(lake: DuckLake) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    merge(lake, prices({"a": 1, "b": 1}), boundary=ahead)
    merge(lake, prices({"a": 2}))
    later = ahead + timedelta(microseconds=1)
    assert versions(lake) == [("a", 1, ahead, later), ("a", 2, later, None), ("b", 1, ahead, later)]
    merge(lake, prices({"a": 2, "b": 2}))
    assert versions(lake)[2:] == [("b", 1, ahead, later), ("b", 2, later, None)]


@catalogs()
def test_late_data_are_put_in_their_place(lake: DuckLake) -> None:
    data = {"boundary": "at", "retire_absent": False}
    merge(lake, prices({"a": 1}, at=[D1]), **data)
    merge(lake, prices({"a": 4}, at=[D4]), **data)
    merge(lake, prices({"a": 2}, at=[D2]), **data)
    assert versions(lake) == [("a", 1, D1, D2), ("a", 2, D2, D4), ("a", 4, D4, None)]
    merge(lake, prices({"a": 2}, at=[D3]), **data)  # as it was
    merge(lake, prices({"a": 9}, at=[D4]), **data)  # a correction
    merge(lake, prices({"a": 0}, at=[date(2025, 1, 1)]), **data)
    assert versions(lake) == [
        ("a", 0, date(2025, 1, 1), D1),
        ("a", 1, D1, D2),
        ("a", 2, D2, D4),
        ("a", 9, D4, None),
    ]


@catalogs(quick=[SQLITE])
def test_data_can_have_several_changes_of_a_key(lake: DuckLake) -> None:
    changes = pa.table(
        {
            "sku": ["a", "a", "a", "b", "b"],
            "price": [1.0, 2.0, 2.0, 5.0, None],
            "at": [D1, D3, D4, D1, D2],
            "gone": [False, False, False, False, True],
        }
    )
    arguments: dict[str, Any] = {"boundary": "at", "hard_delete": "gone", "retire_absent": False}
    merge(lake, changes, **arguments)
    expected = [("a", 1, D1, D3), ("a", 2, D3, None), ("b", 5, D1, D2)]
    assert versions(lake) == expected
    for row in reversed(range(len(changes))):
        lake.merge(changes.slice(row, 1), "u", ["sku"], strategy="scd2", **arguments)
    assert [row[:4] for row in rows(lake, "SELECT sku, price, valid_from, valid_to FROM u ORDER BY ALL")] == [
        # A version for each event that was a change when it arrived.
        ("a", 1, D1, D3),
        ("a", 2, D3, D4),
        ("a", 2, D4, None),
        # Nothing was valid that could have ended.
        ("b", 5, D1, None),
    ]


@catalogs(quick=[SQLITE])
def test_versions_that_come_back_begin_anew(lake: DuckLake) -> None:
    for day, values in ((D1, {"a": 1}), (D2, {"b": 1}), (D4, {"a": 1, "b": 1})):
        merge(lake, prices(values), boundary=day)
    assert versions(lake) == [("a", 1, D1, D2), ("a", 1, D4, None), ("b", 1, D2, None)]


@catalogs(quick=[SQLITE])
def test_only_rows_of_a_merge_key_can_be_absent(lake: DuckLake) -> None:
    for day, (skus, shops) in ((D1, (["a", "b", "c"], [1, 1, 2])), (D2, (["a"], [1]))):
        data = pa.table({"sku": skus, "shop": shops})
        merge(lake, data, boundary=day, merge_key=["shop"])
    assert versions(lake, "sku, valid_to") == [("a", None), ("b", D2), ("c", None)]


@catalogs(quick=[SQLITE])
def test_current_versions_can_end_at_a_chosen_value(lake: DuckLake) -> None:
    never = date(9999, 12, 31)
    for day, price in ((D1, 1), (D2, 2)):
        merge(lake, prices({"a": price}), boundary=day, active=never)
    assert versions(lake) == [("a", 1, D1, D2), ("a", 2, D2, never)]
    names: dict[str, Any] = {"valid_from": "since", "valid_to": "until"}
    lake.merge(prices({"a": 1}), "u", ["sku"], strategy="scd2", active="9999-12-31", **names)
    lake.merge(prices({"a": 2}), "u", ["sku"], strategy="scd2", active="9999-12-31", **names)
    assert rows(lake, "SELECT price FROM u WHERE until = TIMESTAMPTZ '9999-12-31'") == [(2,)]


@catalogs(quick=[SQLITE])
def test_a_hash_tells_whether_a_row_has_changed(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1, "b": 1}, h=["x", "y"]), boundary=D1, row_hash="h")
    merge(lake, prices({"a": 2, "b": 2}, h=["x", "z"]), boundary=D2, row_hash="h")
    assert versions(lake) == [("a", 1, D1, None), ("b", 1, D1, D2), ("b", 2, D2, None)]
    # Without keys, the hash is the key.
    lake.merge(prices({"a": 1}, h=["x"]), "u", strategy="scd2", boundary=D1, row_hash="h")
    lake.merge(prices({"b": 1}, h=["x"]), "u", strategy="scd2", boundary=D2, row_hash="h")
    assert rows(lake, "SELECT sku, valid_to FROM u") == [("a", None)]


@catalogs(quick=[SQLITE])
def test_without_keys_a_row_is_identified_by_its_values(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1, "b": None}), boundary=D1, keys=())
    merge(lake, prices({"a": 2, "b": None}), boundary=D2, keys=())
    assert versions(lake) == [("a", 1, D1, D2), ("a", 2, D2, None), ("b", None, D1, None)]


@catalogs(quick=[SQLITE])
def test_a_table_without_history_gets_one(lake: DuckLake) -> None:
    lake.write(prices({"a": 1, "b": 1}), "t", mode="append")
    with pytest.raises(errors.ObjectNotFoundError, match=r"`valid_from`: table .* has no column"):
        merge(lake, prices({"a": 2}))
    lake.alter_table("t", add_columns={"valid_from": "DATE", "valid_to": "DATE"})
    merge(lake, prices({"a": 2, "b": 1}), boundary=D1)
    assert versions(lake) == [("a", 1, None, D1), ("a", 2, D1, None), ("b", 1, None, None)]


@on_sqlite
def test_new_columns_are_part_of_new_versions(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1, "b": 1}), boundary=D1)
    merge(lake, prices({"a": 1, "b": 1}, colour=["red", None]), boundary=D2, schema_evolution="add")
    assert versions(lake, "sku, colour, valid_from, valid_to") == [
        ("a", "red", D2, None),
        ("a", None, D1, D2),
        ("b", None, D1, None),
    ]


@on_sqlite
def test_a_row_keeps_its_id_when_it_ends(lake: DuckLake) -> None:
    first = merge(lake, prices({"a": 1, "b": 1}), boundary=D1).snapshot_id
    merge(lake, prices({"a": 2, "b": 1}), boundary=D2)
    kinds = sorted(row["change_type"] for row in lake.changes("t", first + 1).to_pylist())
    assert kinds == ["insert", "update_postimage", "update_preimage"]


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_changes_of_a_key_leave_one_current_version(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(lake, prices({"a": 1}), boundary=D1)
    once_at(monkeypatch, "files.written", lambda: merge(lake, prices({"a": 2, "b": 2}), boundary=D2))
    merge(lake, prices({"a": 3, "b": 3}), boundary=D3)
    assert versions(lake) == [
        ("a", 1, D1, D2),
        ("a", 2, D2, D3),
        ("a", 3, D3, None),
        ("b", 2, D2, D3),
        ("b", 3, D3, None),
    ]


@on_sqlite
def test_times_finer_than_the_columns_are_refused(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1}), boundary=D1)
    noon = [datetime(2026, 1, 2, 12, tzinfo=UTC)]
    with pytest.raises(errors.DataError, match=r"which is no time that `valid_from` \(DATE\) can hold"):
        merge(lake, prices({"a": 2}, at=noon), boundary="at", retire_absent=False, schema_evolution="add")


@catalogs(quick=[SQLITE])
def test_no_data_end_all_rows_unless_absent_rows_stay(lake: DuckLake) -> None:
    merge(lake, prices({}), boundary=D1)
    merge(lake, prices({"a": 1}), boundary=D1)
    merge(lake, prices({}), boundary=D2, retire_absent=False)
    assert versions(lake) == [("a", 1, D1, None)]
    merge(lake, prices({}), boundary=D2)
    assert versions(lake) == [("a", 1, D1, D2)]


@catalogs(quick=[SQLITE])
def test_null_keys_are_refused_or_are_keys(lake: DuckLake) -> None:
    data = pa.table({"sku": pa.array([None, "a"], pa.string()), "price": [1.0, 1.0]})
    with pytest.raises(errors.DataError, match="NULL in a key column"):
        merge(lake, data)
    for day, price in ((D1, 1.0), (D2, 2.0)):
        merge(lake, data.set_column(1, "price", [[price, 1.0]]), boundary=day, null_keys="match")
    assert versions(lake) == [("a", 1, D1, None), (None, 1, D1, D2), (None, 2, D2, None)]


@catalogs(quick=[SQLITE])
def test_columns_can_have_any_name(lake: DuckLake) -> None:
    names = ["source", "target", "file", "n", "k0", "moment"]
    for day, value in ((D1, 1), (D2, 2)):
        data = pa.table({name: [1 if name in names[:2] else value] for name in names})
        lake.merge(data, "t", ["Source", "TARGET"], strategy="scd2", boundary=day)
        lake.merge(data, "u", ["Target"], merge_key=["source"], strategy="delete-insert")
    assert versions(lake, "source, target, n, valid_to") == [(1, 1, 1, D2), (1, 1, 2, None)]
    assert rows(lake, "SELECT file, n FROM u") == [(2, 2)]


@catalogs(quick=[SQLITE])
def test_versions_are_kept_in_their_partitions(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1, "b": 1}, shop=[1, 2]), boundary=D1, partition_by=["shop"])
    merge(lake, prices({"a": 2, "b": 1}, shop=[2, 2]), boundary=D2)  # a moves to another shop
    assert versions(lake, "sku, shop, valid_to") == [("a", 1, D2), ("a", 2, None), ("b", 2, None)]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(shared=True, quick=[SQLITE])
def test_columns_that_change_during_a_merge_are_matched_again(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(lake, prices({"a": 1}), boundary=D1)
    once_at(monkeypatch, "files.written", lambda: lake.alter_table("t", rename_columns={"price": "cost"}))
    with pytest.raises(errors.DataError, match="`price` is not a column"):
        merge(lake, prices({"a": 2}), boundary=D2)
    once_at(monkeypatch, "files.written", lambda: lake.alter_table("t", add_columns={"more": "BIGINT"}))
    merge(lake, prices({"a": 2}).rename_columns(["sku", "cost"]), boundary=D2)
    assert versions(lake, "sku, cost, more, valid_to") == [("a", 1, None, D2), ("a", 2, None, None)]


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_runs_without_a_boundary_leave_one_current_version(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if both create the table."""
    once_at(monkeypatch, "files.written", lambda: merge(lake, prices({"a": 1})))
    merge(lake, prices({"a": 2}))
    once_at(monkeypatch, "files.written", lambda: merge(lake, prices({"a": 3, "b": 3})))
    merge(lake, prices({"a": 4, "b": 4}))
    found = versions(lake)
    assert [(sku, price) for sku, price, _, _ in found] == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 3), ("b", 4)]
    for (sku, _, _, until), (after, _, since, _) in pairwise(found):
        assert until == (since if sku == after else None)


@catalogs(quick=[SQLITE])
def test_a_merge_with_a_key_is_not_repeated(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1}), idempotency_key="run 1")
    merge(lake, prices({"a": 2}), idempotency_key="run 2")
    merge(lake, prices({"a": 3}))
    assert merge(lake, prices({"a": 2}), idempotency_key="run 2").replayed
    assert versions(lake, "price") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        ({"valid_to": "VALID_FROM"}, {}, "are the same column"),
        ({"boundary": 7}, {}, "is not a time"),
        ({"valid_from": None}, {}, "`valid_from` = None is not the name of a column"),
        ({"row_hash": ["h"]}, {}, "is not the name of a column"),
        ({"keys": [5]}, {}, "is not a list of names"),
        ({"retire_absent": "no"}, {}, "is not true or false"),
        ({"boundary": datetime(2026, 1, 1, 12, tzinfo=UTC)}, {"valid_from": "DATE"}, "is no time that `valid_from`"),
        ({"active": "never"}, {}, "`active` = never is no time"),
        ({"merge_key": ["shop"]}, {}, "no column `shop`"),
        ({"hard_delete": "SKU"}, {}, "`hard_delete` and `keys` name the same column"),
        ({"boundary": "when"}, {}, "no column `when`"),
        ({"boundary": "at"}, {"at": [None]}, "Column `at` of the data has None"),
        ({"retire_absent": False, "merge_key": ["sku"]}, {}, "cannot be combined"),
        ({}, {"valid_to": [D1]}, "have a column `valid_to`, which the merge sets"),
        ({"boundary": "n"}, {"n": [1]}, "is no time"),
        ({"keys": ["skew"]}, {}, "no column `skew`"),
    ],
)
@on_sqlite
def test_arguments_that_cannot_work_are_refused(
    lake: DuckLake, arguments: dict[str, Any], data: dict[str, Any], message: str
) -> None:
    only_on_tables = data.pop("valid_from", None) is not None
    at = {name: pa.array(column, pa.date32()) if column == [None] else column for name, column in data.items()}
    kinds = dict.fromkeys(("valid_from", "valid_to"), "BIGINT" if "n" in data else "DATE")
    kinds |= {name: "BIGINT" if name == "n" else "DATE" for name in data if name != "valid_to"}
    for is_new in (True, False):
        if not (is_new and only_on_tables):
            with pytest.raises(errors.DuckLakeOrchError, match=message):
                merge(lake, prices({"a": 1}, **at), **arguments)
        lake.create_table("t", {"sku": "VARCHAR", "price": "DOUBLE", **kinds}, if_not_exists=True)


@on_sqlite
def test_two_current_rows_of_a_key_are_refused(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1}), boundary=D1)
    lake.execute("INSERT INTO t VALUES ('a', 5, DATE '2026-01-02', NULL)").raise_for_error()
    with pytest.raises(errors.DataError, match="valid at the same time: sku = 'a'"):
        merge(lake, prices({"b": 1}), boundary=D3)


@catalogs(quick=[SQLITE])
def test_rows_that_were_never_valid_are_left_alone(lake: DuckLake) -> None:
    """Also if another row of their key begins at the same time, in any order."""
    values = [("x", 7.0, D1, None), ("a", 0.0, D2, D2), ("a", 1.0, D2, None), ("b", 8.0, D3, D1), ("y", 9.0, D1, None)]
    for order in (values, values[::-1]):
        lake.create_table("t", {"sku": "VARCHAR", "price": "DOUBLE", "valid_from": "DATE", "valid_to": "DATE"})
        names = ["sku", "price", "valid_from", "valid_to"]
        columns = {name: [row[n] for row in order] for n, name in enumerate(names)}
        table = pa.table(columns).cast(lake.read("t").schema)
        lake.write(table.slice(0, 2), "t", mode="append")
        lake.write(table.slice(2), "t", mode="append")
        merge(lake, prices({"a": 2, "b": 3}, gone=[False, True]), boundary=D2, retire_absent=False, hard_delete="gone")
        assert versions(lake) == sorted([*(row for row in values if row[1] != 1.0), ("a", 2, D2, None)], key=str)
        merge(lake, prices({"a": 3, "b": 3}), boundary=D4, retire_absent=False)
        assert versions(lake)[:3] == [("a", 0, D2, D2), ("a", 2, D2, D4), ("a", 3, D4, None)]
        assert ("b", 8, D3, D1) in versions(lake)
        lake.drop_table("t")


@on_sqlite
def test_rows_without_a_key_are_left_alone(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1}), boundary=D1)
    lake.execute("INSERT INTO t VALUES (NULL, 1, DATE '2026-01-01', NULL), (NULL, 2, DATE '2026-01-01', NULL)")
    merge(lake, prices({"b": 1}), boundary=D2)
    assert versions(lake, "sku, valid_to") == [("a", D2), ("b", None), (None, None), (None, None)]


@on_sqlite
def test_both_times_have_one_type(lake: DuckLake) -> None:
    lake.create_table("t", {"sku": "VARCHAR", "price": "DOUBLE", "valid_from": "TIMESTAMP", "valid_to": "DATE"})
    with pytest.raises(errors.DataError, match="`valid_from` is TIMESTAMP, and `valid_to` is DATE"):
        merge(lake, prices({"a": 1}), boundary=D1)
    kinds: dict[str, Any] = {"retire_absent": False, "boundary": "valid_from", "schema_evolution": "promote"}
    for kind, moment in ((pa.int32(), 1), (pa.int64(), 2**40), (pa.int64(), 2**41)):
        data = pa.table({"sku": ["a"], "price": [float(moment)], "valid_from": pa.array([moment], kind)})
        lake.merge(data, "u", ["sku"], strategy="scd2", **kinds)
    assert rows(lake, "SELECT valid_from, valid_to FROM u ORDER BY 1") == [(1, 2**40), (2**40, 2**41), (2**41, None)]


@on_sqlite
def test_times_that_are_no_moments_are_refused(lake: DuckLake) -> None:
    merge(lake, prices({"a": 1}), boundary=D1, active="9999-12-31")
    with pytest.raises(errors.DataError, match="valid until 9999-12-31"):
        lake.merge(prices({"a": 2}), "t", ["sku"], strategy="scd2")
    with pytest.raises(errors.DataError, match=r"which is not before `active` = 2026-01-03"):
        merge(lake, prices({"a": 2}), boundary=D3, active=D3)
    endless = pa.table({"sku": ["a"], "price": [2.0], "at": ["infinity"]})
    with pytest.raises(errors.DataError, match="Column `at` of the data has infinity"):
        merge(lake, endless, boundary="at", retire_absent=False, schema_evolution="add")
    with pytest.raises(errors.DataError, match="NULL in a column of `merge_key`"):
        merge(lake, prices({"a": 2, "b": None}), boundary=D2, merge_key=["price"], active="9999-12-31")


# --- the model -----------------------------------------------------------------------------------------------------


@dataclass
class Timelines:
    """Versions by key: from when to when a value is valid (until None if it still is)."""

    kept: dict[int, list[tuple[int, int | None, str]]] = field(default_factory=dict)

    def at(self, key: int, time: int) -> str | None:
        """Return the value that is valid at a time."""
        return next(
            (v for since, until, v in self.kept.get(key, []) if since <= time and (until is None or time < until)), None
        )

    def tell(self, key: int, time: int, value: str | None) -> None:
        """Let a key have a value from a time on, until the next moment that is known."""
        now = self.kept.get(key, [])
        begun = {since: found for since, _, found in now}
        moments: dict[int, str | None] = {until: None for _, until, _ in now if until is not None} | begun
        if value != self.at(key, time - 1) or time in begun:
            moments[time] = value
        else:  # it stays as it was, and if it ended then, it did not end after all
            moments.pop(time, None)
        times = sorted(moments)
        self.kept[key] = [
            (since, until, found)
            for since, until in zip_longest(times, times[1:])
            if (found := moments[since]) is not None
        ]

    def rows(self) -> list[tuple[int, str, int, int | None]]:
        return sorted(
            ((key, value, since, until) for key, kept in self.kept.items() for since, until, value in kept),
            key=str,
        )


def stored(lake: DuckLake) -> list[tuple[Any, ...]]:
    return sorted(rows(lake, "SELECT id, v, valid_from, valid_to FROM t"), key=str)


@pytest.mark.parametrize("seed", range(6))
@catalogs(quick=[SQLITE])
def test_random_events_in_any_order_make_the_timelines_of_the_model(
    make_lake: MakeLake, backend: Backend, seed: int
) -> None:
    lake = make_lake(data_inlining_row_limit=5 if seed % 2 and backend.catalog.sql_writes else 0)
    rng, model = random.Random(seed), Timelines()
    lake.create_table("t", {"id": "INTEGER", "v": "VARCHAR", "valid_from": "BIGINT", "valid_to": "BIGINT"})
    for key in range(3 if backend.catalog.sql_writes else 0):  # inlined in some runs
        lake.execute(f"INSERT INTO t VALUES ({key}, 'x', 10, 20), ({key}, 'y', 20, NULL)").raise_for_error()
        model.kept[key] = [(10, 20, "x"), (20, None, "y")]
    for number in range(12):
        events: dict[tuple[int, int], str | None] = {
            (rng.randrange(6), rng.randrange(1, 40)): rng.choice(["x", "y", "z", None])
            for _ in range(rng.randint(1, 8))
        }
        data = pa.table(
            {
                "id": pa.array([key for key, _ in events], pa.int32()),
                "v": pa.array([value or "-" for value in events.values()]),
                "valid_from": pa.array([time for _, time in events], pa.int64()),
                "gone": pa.array([value is None for value in events.values()]),
            }
        )
        for (key, time), value in sorted(events.items(), key=lambda event: event[0][1]):
            model.tell(key, time, value)
        arguments: dict[str, Any] = {"boundary": "valid_from", "hard_delete": "gone", "retire_absent": False}
        for _ in range(1 + (number % 4 == 0)):  # some are repeated
            lake.merge(data, "t", ["id"], strategy="scd2", **arguments)
            assert stored(lake) == model.rows()
        if number % 5 == 4:
            lake.maintain(operations=["rewrite", "merge"])
    assert lake.fsck(deep=True, storage=True).counts == {}


@pytest.mark.parametrize("seed", range(4))
@catalogs(quick=[SQLITE])
def test_random_extracts_in_any_order_make_the_timelines_of_the_model(lake: DuckLake, seed: int) -> None:
    rng, model, keys = random.Random(seed), Timelines(), set[int]()
    for _ in range(10):
        day = rng.randrange(1, 28)
        extract = {key: rng.choice("xyz") for key in range(6) if rng.random() < 0.7}
        keys |= set(extract)
        data = pa.table({"id": pa.array(list(extract), pa.int32()), "v": pa.array(list(extract.values()), pa.string())})
        for key in keys:
            model.tell(key, day, extract.get(key))
        for _ in range(2):
            lake.merge(data, "t", ["id"], strategy="scd2", boundary=date(2026, 1, day))
            now = [(*row[:2], row[2].day, row[3] and row[3].day) for row in stored(lake)]
            assert sorted(now, key=str) == model.rows()


@pytest.mark.parametrize("seed", range(3))
@catalogs(quick=[SQLITE])
def test_random_extracts_without_a_boundary_keep_every_state(lake: DuckLake, seed: int) -> None:
    rng, states = random.Random(seed), list[tuple[datetime, dict[int | None, str]]]()
    arguments: dict[str, Any] = {"active": "9999-12-31", "null_keys": "match"} if seed else {}
    for _ in range(8):
        extract: dict[int | None, str] = {key: rng.choice("xyz") for key in range(6) if rng.random() < 0.7}
        if seed and rng.random() < 0.5:
            extract[None] = rng.choice("xyz")
        data = pa.table({"id": pa.array(list(extract), pa.int32()), "v": pa.array(list(extract.values()), pa.string())})
        for _ in range(rng.randint(1, 2)):
            lake.merge(data, "t", ["id"], strategy="scd2", **arguments)
        states.append((datetime.now(UTC), extract))
    for time, state in states:
        then = f"valid_from <= '{time}' AND (valid_to IS NULL OR valid_to > '{time}')"
        assert dict(rows(lake, f"SELECT id, v FROM t WHERE {then}")) == state


@pytest.mark.parametrize("seed", range(3))
@catalogs(quick=[SQLITE])
def test_a_history_made_from_the_change_feed_has_every_snapshot_of_the_table(lake: DuckLake, seed: int) -> None:
    rng = random.Random(seed)
    first = lake.write(_numbers(range(20), rng), "source", mode="append").snapshot_id
    for _ in range(8):
        keys = rng.sample(range(30), 6)
        change = rng.choice(("delete", "merge", "overwrite"))
        if change == "delete":
            lake.delete("source", f"id IN ({', '.join(map(str, keys))})")
        elif change == "merge":
            lake.merge(_numbers(keys, rng), "source", ["id"])
        else:
            lake.write(_numbers(range(10, 25), rng), "source", mode="overwrite")
    last = max(snapshot.snapshot_id for snapshot in lake.snapshots())
    pieces = [*sorted(rng.sample(range(first + 1, last + 1), min(2, last - first))), last + 1]
    start = first
    for end in pieces:
        feed = lake.changes("source", start, end - 1)
        kinds = feed["change_type"].to_pylist()
        kept = feed.filter(pa.array([kind != "update_preimage" for kind in kinds]))
        gone = pa.array([kind == "delete" for kind in kept["change_type"].to_pylist()])
        data = pa.table({"id": kept["id"], "v": kept["v"], "valid_from": kept["snapshot_id"], "gone": gone})
        more: dict[str, Any] = {"retire_absent": False, "deduplicate_by": ["gone"]}
        lake.merge(data, "t", ["id"], strategy="scd2", boundary="valid_from", hard_delete="gone", **more)
        start = end
    for snapshot in range(first, last + 1):
        then = f"valid_from <= {snapshot} AND (valid_to IS NULL OR valid_to > {snapshot})"
        was = sorted(tuple(row.values()) for row in lake.read("source", snapshot=snapshot).to_pylist())
        assert sorted(rows(lake, f"SELECT id, v FROM t WHERE {then}")) == was


def _numbers(keys: Sequence[int], rng: random.Random) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "v": pa.array([rng.randrange(4) for _ in keys], pa.int64())})
