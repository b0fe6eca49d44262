"""`lake.write(mode="merge")` changes the rows with the keys of the data, and no others."""

import threading
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake
from tests.support.numbered_rows import numbers, pairs
from tests.support.row_history import RowHistory, newest, row_ids
from tests.support.stored_tables import files_of, rows

Pairs = dict[Any, Any]


def table_of(values: Pairs) -> pa.Table:
    return pa.table({"id": pa.array(list(values), pa.int64()), "name": pa.array(list(values.values()), pa.string())})


MERGES: dict[str, tuple[dict[str, Any], Pairs]] = {
    "upsert": ({}, {1: "one", 2: "Two", 3: "three", 4: "Four"}),
    "insert only": ({"when_matched": "keep"}, {1: "one", 2: "two", 3: "three", 4: "Four"}),
    "update only": ({"when_not_matched": "ignore"}, {1: "one", 2: "Two", 3: "three"}),
    "delete matching rows": ({"when_matched": "delete", "when_not_matched": "ignore"}, {1: "one", 3: "three"}),
    "delete rows missing from the data": ({"when_not_matched_by_source": "delete"}, {2: "Two", 4: "Four"}),
    "expressions": (
        {"when_matched": {"NAME": "target.name || ' ' || source.id"}},
        {1: "one", 2: "two 2", 3: "three", 4: "Four"},
    ),
    "matched_condition": (
        {"matched_condition": "source.name < target.name AND target.id > 2"},
        {1: "one", 2: "two", 3: "three", 4: "Four"},
    ),
    "delete_condition": ({"delete_condition": "source.name = 'Two'"}, {1: "one", 3: "three", 4: "Four"}),
    "deleted without a match": ({"delete_condition": "source.name = 'Four'"}, {1: "one", 2: "Two", 3: "three"}),
    "deleted by the target": (
        {"delete_condition": "source.name = 'Four' AND target.name IS NULL OR target.name = 'two'"},
        {1: "one", 3: "three"},
    ),
    "neither condition": (
        {"delete_condition": "NULL::BOOLEAN", "matched_condition": "NULL::BOOLEAN"},
        {1: "one", 2: "two", 3: "three", 4: "Four"},
    ),
}


@pytest.mark.parametrize("merge", MERGES)
@catalogs(quick=[SQLITE])
def test_every_merge_clause_changes_the_expected_rows(lake: DuckLake, merge: str) -> None:
    arguments, after = MERGES[merge]
    before = {1: "one", 2: "two", 3: "three"}
    lake.write(table_of(before), "t", mode="append")
    history = RowHistory(lake, "t", list(before.items()))
    ids = row_ids(lake, "t")
    result = lake.write(table_of({2: "Two", 4: "Four"}), "t", mode="merge", keys=["id"], **arguments)
    history.now = list(after.items())
    history.keep()
    now = row_ids(lake, "t")
    assert all(now[key] == ids[key] for key in now if key in ids)
    assert (result.mode, result.rows_written - result.rows_removed) == ("merge", len(after) - len(before))
    history.check()


@catalogs()
def test_merging_rows_spread_over_files_rewrites_no_file(lake: DuckLake) -> None:
    for start in (0, 100, 200):
        lake.write(numbers(start, start + 100), "t", mode="append")
    history = RowHistory(lake, "t", pairs(0, 300))
    ids = row_ids(lake, "t")
    data = {n: f"new {n}" for n in (5, 150, 250, 999)}
    result = lake.write(table_of(data), "t", mode="merge", keys=["id"])
    assert (result.rows_removed, result.rows_written, result.files_removed) == (3, 4, 0)
    history.now = [(n, data.get(n, name)) for n, name in history.now] + [(999, "new 999")]
    history.keep()
    same = lake.write(table_of({700: "x"}), "t", mode="merge", keys=["id"], when_not_matched="ignore")
    assert (same.snapshot_id, same.rows_written, same.rows_removed) == (result.snapshot_id, 0, 0)
    now = row_ids(lake, "t")
    assert {key: now[key] for key in ids} == ids
    history.check()


@catalogs(quick=[SQLITE])
def test_files_without_a_possible_match_are_not_read(lake: DuckLake) -> None:
    """Even a missing file without a possible match does not matter."""
    lake.write(numbers(0, 100), "t", mode="append")
    (first,) = files_of(lake)
    lake.write(numbers(100, 200), "t", mode="append")
    assert lake.config.data_path is not None
    file = Path(lake.config.data_path) / first
    content = file.read_bytes()
    file.unlink()
    lake.write(table_of(dict.fromkeys((150, 300), "few")), "t", mode="merge", keys=["id"])
    lake.write(table_of(dict.fromkeys(range(160, 500), "many")), "t", mode="merge", keys=["id"])
    file.write_bytes(content)
    assert rows(lake, "SELECT name, count(*) FROM t WHERE length(name) > 2 GROUP BY 1 ORDER BY 1") == [
        ("few", 1),
        ("many", 340),
    ]


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_a_merge_includes_inlined_rows_and_deletions(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(numbers(0, 30), "t", mode="append")
    lake.execute(["INSERT INTO t VALUES (100, 'a'), (101, 'it''s'), (102, NULL)", "DELETE FROM t WHERE id IN (3, 102)"])
    history = RowHistory(lake, "t", [*(row for row in pairs(0, 30) if row[0] != 3), (100, "a"), (101, "it's")])
    ids = row_ids(lake, "t")
    data = {3: "again", 4: "four", 101: "x", 102: "y"}
    result = lake.write(
        table_of(data), "t", mode="merge", keys=["id"], when_matched={"name": "concat(target.name, '+', source.name)"}
    )
    assert (result.rows_removed, result.rows_written) == (2, 4)
    changed = {4: "n4+four", 101: "it's+x"}
    history.now = [(n, changed.get(n, name)) for n, name in history.now] + [(3, "again"), (102, "y")]
    history.keep()
    now = row_ids(lake, "t")
    assert {key: now[key] for key in ids} == ids
    lake.execute("CALL ducklake_flush_inlined_data('lake')").raise_for_error()
    history.keep()
    history.check()


@catalogs()
def test_a_merge_creates_a_missing_table(lake: DuckLake) -> None:
    data = pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2)], "n": [1, 2]})
    result = lake.write(data, "s.t", mode="merge", keys=["n"], partition_by=["day"])
    assert (result.mode, result.rows_written, result.files_added) == ("merge", 2, 2)
    lake.write(data.set_column(1, "n", pa.array([2, 3])), "s.t", mode="merge", keys=["n", "day"])
    assert sorted(rows(lake, "SELECT n FROM s.t")) == [(1,), (2,), (2,), (3,)]


@catalogs(quick=[SQLITE])
def test_a_table_created_by_a_merge_has_no_deleted_rows(lake: DuckLake) -> None:
    data = pa.table({"id": [1, 2, 3], "target": ["a", "b", None], "gone": [False, True, None]})
    lake.merge(data, "t", ["id"], delete_condition="source.gone OR target.id = 1")
    assert lake.read("t").column("id").to_pylist() == [1, 3]


@catalogs(quick=[SQLITE])
def test_a_table_created_by_a_merge_has_the_types_of_the_data(lake: DuckLake) -> None:
    kinds = "uuid() AS u, 1::HUGEINT AS h, '[1]'::JSON AS j, [{'a': 1}] AS s, NULL::TIMESTAMPTZ AS z, NULL AS n"
    data = duckdb.connect().sql(f"SELECT 1 AS id, {kinds}")
    lake.write(data, "appended", mode="append")
    lake.write(data, "merged", mode="merge", keys=["id"])
    columns = [[(column.name, column.type) for column in lake.table(name).schema()] for name in ("appended", "merged")]
    assert columns[0] == columns[1]
    lake.write(table_of({1: "a"}), "empty", mode="merge", keys=["id"], when_not_matched="ignore")
    assert rows(lake, "FROM empty") == []


@catalogs()
def test_a_merge_keeps_missing_columns_and_adds_new_ones(lake: DuckLake) -> None:
    lake.create_table("t", {"id": "INTEGER", "kept": "VARCHAR", "v": "INTEGER"})
    types = pa.schema([("id", pa.int32()), ("kept", pa.string()), ("v", pa.int32())])
    lake.write(pa.table({"id": [1, 2], "kept": ["a", "b"], "v": [1, 2]}).cast(types), "t", mode="append")
    data = pa.table({"V": pa.array([2**40, 3], pa.int64()), "id": pa.array([1, 9], pa.int32()), "new": ["x", "y"]})
    with pytest.raises(errors.DataError, match="`new` is not a column"):
        lake.write(data, "t", mode="merge", keys=["id"])
    lake.write(data, "t", mode="merge", keys=["id"], schema_evolution="promote")
    now = sorted(lake.read("t").to_pylist(), key=lambda row: row["id"])
    assert [tuple(row.values()) for row in now] == [(1, "a", 2**40, "x"), (2, "b", 2, None), (9, None, 3, "y")]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE])
def test_null_keys_are_refused_or_matched(lake: DuckLake) -> None:
    lake.write(table_of({1: "one", None: "none"}), "t", mode="append")
    with pytest.raises(errors.DataError, match="NULL in a key column"):
        lake.write(table_of({None: "new"}), "t", mode="merge", keys=["id"])
    lake.write(table_of({None: "new", 2: "two"}), "t", mode="merge", keys=["id"], null_keys="match")
    assert sorted(rows(lake, "FROM t"), key=str) == [(1, "one"), (2, "two"), (None, "new")]


@catalogs(quick=[SQLITE])
def test_single_use_data_are_read_once(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(numbers(0, 40), "t", mode="append")
    if lake.config.catalog.type != "duckdb":
        once_at(monkeypatch, "files.written", lambda: lake.delete("t", "id = 1"))
    result = lake.write(table_of({1: "x", 2: "x"}).to_reader(), "t", mode="merge", keys=["id"])
    assert result.rows_written == 2
    assert rows(lake, "SELECT id FROM t WHERE name = 'x' ORDER BY 1") == [(1,), (2,)]


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_merges_of_the_same_keys_duplicate_no_row(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither existing rows nor rows that both merges insert are duplicated."""
    lake.write(numbers(0, 20), "t", mode="append")
    add: dict[str, Any] = {"when_matched": {"name": "target.name || source.name"}}
    once_at(
        monkeypatch,
        "files.written",
        lambda: lake.write(table_of({1: "A", 50: "A"}), "t", mode="merge", keys=["id"], **add),
    )
    result = lake.write(table_of({1: "B", 50: "B"}), "t", mode="merge", keys=["id"], **add)
    assert result.attempts == 2
    assert sorted(rows(lake, "FROM t WHERE id IN (1, 50)")) == [(1, "n1AB"), (50, "AB")]
    failed: list[BaseException] = []

    def work(letter: str) -> None:
        try:
            lake.write(table_of(dict.fromkeys(range(60, 64), letter)), "t", mode="merge", keys=["id"], **add)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    names = [sorted(name) for _, name in rows(lake, "FROM t WHERE id >= 60")]
    assert names == [["x", "y", "z"]] * 4
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE])
def test_a_merge_that_is_not_repeatable_is_replayed_under_its_key(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(table_of({1: "a", 2: "b", 3: "c"}), "t", mode="append")
    for arguments, after in (
        ({"delete_condition": "source.name = 'gone'"}, {2: "b", 3: "c"}),
        ({"when_matched": "delete"}, {1: "gone", 2: "b", 3: "c"}),
        ({"when_matched": {"name": "target.name || '!'"}}, {1: "gone!", 2: "b", 3: "c"}),
    ):
        options: dict[str, Any] = {
            "mode": "merge",
            "keys": ["id"],
            "idempotency_key": str(arguments),
        } | arguments
        results = [lake.write(table_of({1: "gone"}), "t", **options) for _ in range(2)]
        assert [result.replayed for result in results] == [False, True]
        assert dict(rows(lake, "FROM t")) == after

    def write() -> Any:
        merge: dict[str, Any] = {"keys": ["id"], "when_matched": {"name": "target.name || '?'"}}
        batch: Any = table_of({1: "x"})
        return lake.stream_writer("t", "merge", query="q", **merge)(batch, 7)

    once_at(monkeypatch, "files.written", write)  # a driver that was wrongly considered dead
    assert write().replayed
    assert dict(rows(lake, "FROM t")) == {1: "gone!?", 2: "b", 3: "c"}


@catalogs(quick=[SQLITE])
def test_a_repeatable_merge_runs_again_under_its_key(lake: DuckLake) -> None:
    lake.write(numbers(0, 20), "t", mode="append")
    for text in ("a", "b"):
        result = lake.write(table_of({1: text}), "t", mode="merge", keys=["id"], idempotency_key="k")
        assert (result.replayed, result.rows_written) == (False, 1)
    read = newest(lake)
    lake.delete("t", "id = 1")
    with pytest.raises(errors.SnapshotChangedError):
        lake.write(table_of({1: "c"}), "t", mode="merge", keys=["id"], expect_snapshot=read)


@pytest.mark.parametrize(
    ("data", "arguments", "error", "words"),
    [
        (table_of({1: "x"}), {}, errors.ConfigError, "needs the key columns"),
        (table_of({1: "x"}), {"keys": "id"}, errors.ConfigError, "not a list of names"),
        (table_of({1: "x"}), {"keys": ["id", "ID"]}, errors.ConfigError, "twice"),
        (table_of({1: "x"}), {"keys": ["idd"]}, errors.DataError, "Did you mean `id`"),
        (pa.table({"id": [1], "k": [1]}), {"keys": ["k"]}, errors.ObjectNotFoundError, "no column `k`"),
        (pa.table({"id": [1, 1], "name": ["a", "b"]}), {"keys": ["id"]}, errors.DataError, "2 rows .* id = 1"),
        (pa.table({"id": ["a"]}), {"keys": ["id"]}, errors.DataError, "`id` is VARCHAR"),
        (table_of({1: "x"}), {"keys": ["id"], "when_matched": "updated"}, errors.ConfigError, "Did you mean `update`"),
        (
            table_of({1: "x"}),
            {"keys": ["id"], "when_matched": {"nme": "1"}},
            errors.ObjectNotFoundError,
            "Did you mean `name`",
        ),
        (
            table_of({1: "x"}),
            {"keys": ["id"], "when_matched": {"name": "id"}},
            errors.ObjectNotFoundError,
            "no column `id`",
        ),
        (table_of({1: "x"}), {"keys": ["id"], "matched_condition": "source.nope"}, errors.StatementError, "nope"),
        (
            table_of({1: "x"}),
            {"keys": ["id"], "delete_condition": "source.id"},
            errors.StatementError,
            "not a condition",
        ),
        (table_of({1: "x"}), {"keys": ["id"], "where": "id = 1"}, errors.ConfigError, "cannot be combined"),
        (table_of({1: "x"}), {"keys": ["id"], "engine": "native"}, errors.ConfigError, "is unknown"),
        (table_of({1: "x"}), {"keys": ["id"], "mode": "append"}, errors.ConfigError, "argument of mode `merge`"),
    ],
)
def test_invalid_merges_are_refused(
    tmp_path: Path, data: pa.Table, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(numbers(0, 3), "t", mode="append")
    with pytest.raises(error, match=words):
        lake.write(data, "t", **({"mode": "merge"} | arguments))
    assert newest(lake) == 1


@catalogs(quick=[SQLITE, POSTGRES])
def test_a_merge_replayed_after_a_concurrent_equal_key_leaves_no_file(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(table_of({1: "one"}), "t", mode="append")
    merge: dict[str, Any] = {"mode": "merge", "keys": ["id"], "idempotency_key": "k"}
    merge["when_matched"] = {"name": "target.name || source.name"}  # an expression that is not idempotent
    once_at(monkeypatch, "files.written", lambda: lake.write(table_of({2: "two"}), "t", **merge))
    assert lake.write(table_of({2: "two"}), "t", **merge).replayed
    assert dict(rows(lake, "FROM t")) == {1: "one", 2: "two"}
    assert lake.fsck(deep=True, storage=True).findings == []
