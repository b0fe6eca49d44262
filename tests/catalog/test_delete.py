"""`lake.delete` deletes exactly the rows that meet a condition, at every snapshot and for every reader."""

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from tests.support.backends import LOCAL, POSTGRES, S3_MEMORY, SQLITE, Backend, catalogs
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake
from tests.support.numbered_rows import numbers, pairs
from tests.support.row_history import RowHistory, newest, row_ids
from tests.support.stored_tables import files_of, rows


@catalogs()
def test_delete_writes_delete_files_retires_files_or_rewrites_them(lake: DuckLake) -> None:
    lake.write(numbers(0, 100), "t", mode="append")
    lake.write(numbers(100, 200), "t", mode="append")
    history = RowHistory(lake, "t", pairs(0, 200))
    before = row_ids(lake, "t")
    steps = [
        ("id < 10 AND name <> 'n3'", (0, 0)),  # a delete file
        ("id = 3 OR id = 150", (0, 0)),  # a delete file that replaces the previous one
        ("id % 2 = 0 AND id < 100", (1, 1)),  # more than 30 % of the rows are deleted in total: the file is rewritten
        ("id BETWEEN 100 AND 200", (0, 1)),  # a whole file
    ]
    for where, files in steps:
        deleted = {
            row[0]
            for row in duckdb.sql(
                f"SELECT id FROM (SELECT range AS id, 'n' || (range % 7) AS name FROM range(200)) WHERE {where}"
            ).fetchall()
        }
        kept = [row for row in history.now if row[0] not in deleted]
        result = lake.delete("t", where)
        assert (result.mode, result.rows_removed, result.rows_written) == ("delete", len(history.now) - len(kept), 0)
        assert (result.files_added, result.files_removed) == files
        assert result.snapshot_id == result.previous_snapshot_id + 1
        history.now = kept
        history.keep()
        now = row_ids(lake, "t")
        assert now == {key: before[key] for key in now}
    history.check()


def test_rows_are_found_and_stay_deleted_in_folders_with_unusual_names(tmp_path: Path) -> None:
    (tmp_path / "we[i]rd").mkdir()
    for folder in (f"{tmp_path}/we[i]rd/x *{{0}}?", f"{tmp_path}/./we[i]rd/it's é", f"{tmp_path}//we[i]rd/y"):
        lake = DuckLake.local(folder, data_inlining_row_limit=0)
        for start in (0, 100, 200):
            lake.write(numbers(start, start + 100), "t", mode="append")
        lake.delete("t", "id % 10 = 1")
        assert lake.delete("t", "id % 5 = 1").rows_removed == 30
        assert lake.update("t", {"name": "'new'"}, "id % 10 < 3").rows_removed == 60
        assert {row["id"] for row in lake.execute("FROM t", max_rows=None).rows} == {
            n for n in range(300) if n % 5 != 1
        }
        kinds = [row["change_type"] for row in lake.changes("t").to_pylist()]
        assert [kinds.count(kind) for kind in ("insert", "delete", "update_postimage")] == [300, 60, 60]
        assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
@pytest.mark.parametrize("inlining", [0, 10])
def test_deletes_by_ducklake_orch_and_the_engine_interleave(make_lake: MakeLake, inlining: int) -> None:
    """Mix deletions in files and in the catalog, by us and by the engine, and then run the engine's maintenance."""
    lake = make_lake(data_inlining_row_limit=inlining)
    lake.write(numbers(0, 100), "t", mode="append")
    history = RowHistory(lake, "t", pairs(0, 100))

    def expect_deleted(*ids: int) -> None:
        history.now = [row for row in history.now if row[0] not in ids]
        history.keep()

    def engine(*statements: str) -> None:
        lake.execute(list(statements), force=True).raise_for_error()

    engine("DELETE FROM t WHERE id < 12")
    expect_deleted(*range(12))
    engine("DELETE FROM t WHERE id = 50")
    expect_deleted(50)
    lake.delete("t", "id IN (51, 52)")
    expect_deleted(51, 52)
    engine("DELETE FROM t WHERE id = 53")
    expect_deleted(53)
    lake.delete("t", "id = 54")
    expect_deleted(54)
    engine("INSERT INTO t VALUES (200, 'n'), (201, 'n')")
    history.now += [(200, "n"), (201, "n")]
    history.keep()
    assert lake.delete("t", "id = 200 OR id = 55").rows_removed == 2
    expect_deleted(200, 55)
    engine("DELETE FROM t WHERE id = 56", "CALL ducklake_flush_inlined_data('lake')")
    expect_deleted(56)
    lake.delete("t", "id = 57")
    expect_deleted(57)
    engine("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.05)")
    history.keep()
    lake.delete("t", "id = 60")
    expect_deleted(60)
    history.check()
    engine("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    history.keep()
    history.check()


@catalogs(sql_writes=True, quick=[SQLITE])
def test_the_engines_change_feed_lists_the_deleted_rows(lake: DuckLake) -> None:
    lake.write(numbers(0, 100), "t", mode="append")
    first = lake.delete("t", "id < 3").snapshot_id
    second = lake.delete("t", "id IN (50, 51)").snapshot_id
    feed = f"SELECT snapshot_id, change_type, id FROM ducklake_table_changes('lake', 'main', 't', {first}, {second})"
    assert sorted(rows(lake, feed)) == [
        *((first, "delete", n) for n in range(3)),
        *((second, "delete", n) for n in (50, 51)),
    ]


@catalogs(sql_writes=True, quick=[SQLITE])
def test_delete_matches_rows_written_under_earlier_schemas(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table("t", {"id": "INTEGER", "old": "VARCHAR", "gone": "INTEGER"})
    lake.write(
        pa.table({"id": [1, 2, 3], "old": ["a", None, "c"]}).cast(
            pa.schema([("id", pa.int32()), ("old", pa.string())])
        ),
        "t",
        mode="append",
    )
    lake.execute(
        [
            "ALTER TABLE t RENAME old TO label",
            "ALTER TABLE t ALTER id SET DATA TYPE BIGINT",
            "ALTER TABLE t ADD COLUMN kind VARCHAR DEFAULT 'it''s'",
            "ALTER TABLE t DROP COLUMN gone",
        ]
    ).raise_for_error()
    lake.write(pa.table({"id": [2**40], "label": ["z"], "kind": ["new"]}), "t", mode="append")
    history = RowHistory(lake, "t", [(1, "a", "it's"), (2, None, "it's"), (3, "c", "it's"), (2**40, "z", "new")])
    assert lake.delete("t", "kind = 'it''s' AND label IS NULL").rows_removed == 1
    history.now = [(1, "a", "it's"), (3, "c", "it's"), (2**40, "z", "new")]
    history.keep()
    assert lake.delete("t", "LABEL > 'b' OR id > 2000000000").rows_removed == 2
    history.now = [(1, "a", "it's")]
    history.keep()
    history.check()


@catalogs(quick=[SQLITE])
def test_delete_matches_rows_of_added_files(lake: DuckLake, tmp_path: Path) -> None:
    """The columns of these files have no field ids, and only the path holds their partition key."""
    duckdb.sql(
        f"COPY (SELECT range AS ID, range % 2 AS p FROM range(20)) TO '{tmp_path}/x' (FORMAT parquet, PARTITION_BY (p))"
    )
    lake.create_table("t", {"id": "BIGINT", "p": "BIGINT"}, partition_by=["p"])
    lake.add_files("t", f"{tmp_path}/x/**/*.parquet")
    history = RowHistory(lake, "t", [(n, n % 2) for n in range(20)])
    for where in ("p = 1 AND id < 5", "id = 19", "p = 0"):
        lake.delete("t", where)
    history.then |= {
        newest(lake) - 2: [(n, n % 2) for n in range(20) if n % 2 == 0 or n >= 5],
        newest(lake) - 1: [(n, n % 2) for n in range(19) if n % 2 == 0 or n >= 5],
        newest(lake): [(n, 1) for n in range(5, 19, 2)],
    }
    history.check()


VALUES: dict[str, tuple[str, list[Any], list[str]]] = {
    "date": (
        "DATE",
        [date(2024, 1, 1), date(1, 1, 1), None],
        ["v = '2024-01-01'", "v < DATE '1970-01-01'", "v IS NULL"],
    ),
    "moment": (
        "TIMESTAMPTZ",
        [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC), None],
        ["v = '2024-01-01 13:00:00+01'", "v < TIMESTAMPTZ '1970-01-01 00:00:00+00'", "v IS NULL"],
    ),
    "decimal": ("DECIMAL(10,2)", [Decimal("1.10"), Decimal("-0.01"), None], ["v = 1.1", "v < 0", "v IS NULL"]),
    "text": ("VARCHAR", ["it's", 'q"q', None], ["v = 'it''s'", "v LIKE '%\"%'", "v IS NULL"]),
    "double": ("DOUBLE", [0.5, float("nan"), None], ["v = 0.5", "isnan(v)", "v IS NULL"]),
    "list": ("BIGINT[]", [[1, None], [], None], ["list_contains(v, 1)", "len(v) = 0", "v IS NULL"]),
}


@pytest.mark.parametrize("kind", VALUES)
@catalogs(quick=[SQLITE])
def test_conditions_on_every_type_have_the_meaning_of_duckdb(make_lake: MakeLake, kind: str) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    sql_type, values, conditions = VALUES[kind]
    lake.create_table("t", {"n": "BIGINT", "v": sql_type})
    for n, where in enumerate(conditions):
        lake.write(pa.table({"n": [0, 1, 2], "v": values}), "t", mode="overwrite")
        assert lake.delete("t", f"{where} -- {kind}").rows_removed == 1
        assert sorted(rows(lake, "SELECT n FROM t")) == [(m,) for m in range(3) if m != n]


@catalogs()
def test_a_delete_without_matches_commits_no_snapshot(lake: DuckLake) -> None:
    lake.write(numbers(0, 10), "t", mode="append")
    result = lake.delete("t", "id > 100 OR name = 'nobody'", idempotency_key="k")
    assert (result.rows_removed, result.snapshot_id, result.previous_snapshot_id) == (0, 1, 1)
    dry = lake.delete("t", "id > 5", dry_run=True)
    assert (dry.rows_removed, dry.snapshot_id) == (4, 1)
    assert len(files_of(lake)) == 1


@catalogs()
def test_a_delete_with_a_committed_key_runs_again(lake: DuckLake) -> None:
    lake.write(numbers(0, 10), "t", mode="append")
    first = lake.delete("t", "id < 2", idempotency_key="k", commit=CommitInfo(author="me", message="why"))
    lake.write(numbers(0, 2), "t", mode="append")
    again = lake.delete("t", "id < 2", idempotency_key="k")
    assert (first.rows_removed, again.rows_removed, again.replayed) == (2, 2, False)
    assert [
        (snapshot.author, snapshot.message)
        for snapshot in lake.snapshots()
        if snapshot.snapshot_id == first.snapshot_id
    ] == [("me", "why")]


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ("id <", errors.StatementError, "syntax error"),
        ("nme = 'a'", errors.ObjectNotFoundError, "Did you mean `name`"),
        ("id = 1; DROP TABLE t", errors.StatementError, "Only SELECT"),
        ("id + 1", errors.StatementError, "not a condition"),
        ("id IN (SELECT 1)", errors.StatementError, "subquery"),
        ("random() < 0.5", errors.StatementError, "`random` can return another value each time"),
        ("id < 5 AND now() > '2024-01-01'", errors.StatementError, "`now` can return"),
        ("ago(INTERVAL '1 day') > '2024-01-01'", errors.StatementError, "`ago` can return"),
        ("current_localtimestamp() > '2024-01-01'", errors.StatementError, "`current_localtimestamp` can return"),
        ("age(TIMESTAMP '2024-01-01') > INTERVAL '1 day'", errors.StatementError, "`age` can return"),
        ("", errors.ConfigError, "truncate"),
    ],
)
def test_invalid_conditions_are_refused(tmp_path: Path, where: str, error: type[Exception], words: str) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(numbers(0, 3), "t", mode="append")
    with pytest.raises(error, match=words):
        lake.delete("t", where)
    with pytest.raises(errors.ObjectNotFoundError, match="Did you mean"):
        lake.delete("tt", "id = 1")
    with pytest.raises(errors.ConfigError, match="engine"):
        lake.delete("t", "id = 1", engine="spark")
    assert len(rows(lake, "FROM t")) == 3


@catalogs(quick=[SQLITE])
def test_expect_snapshot_refuses_a_delete_of_changed_rows(lake: DuckLake) -> None:
    lake.write(numbers(0, 10), "t", mode="append")
    read = newest(lake)
    lake.write(numbers(100, 110), "t", mode="append")
    with pytest.raises(errors.SnapshotChangedError):
        lake.delete("t", "id >= 5", expect_snapshot=read)
    assert lake.delete("t", "id < 5", expect_snapshot=read).rows_removed == 5


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_deletes_on_different_files_do_not_conflict(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delete file of the later delete names the snapshot that it committed, not the one that it planned."""
    lake.write(numbers(0, 100), "t", mode="append")
    lake.write(numbers(100, 200), "t", mode="append")
    history = RowHistory(lake, "t", pairs(0, 200))
    once_at(monkeypatch, "files.written", lambda: lake.delete("t", "id = 150"))
    result = lake.delete("t", "id = 50")
    assert result.attempts == 1
    first = result.snapshot_id - 1
    history.then |= {first: [row for row in pairs(0, 200) if row[0] != 150]}
    history.now = [row for row in pairs(0, 200) if row[0] not in (50, 150)]
    history.keep()
    history.check()
    feed = f"SELECT snapshot_id, id FROM ducklake_table_changes('lake', 'main', 't', {first}, {result.snapshot_id})"
    assert sorted(rows(lake, feed)) == [(first, 150), (result.snapshot_id, 50)]


CONCURRENT_COMMITS: dict[str, tuple[Callable[[DuckLake], Any], Callable[[list[Any]], list[Any]], int]] = {
    "delete in the same file": (
        lambda lake: lake.delete("t", "id = 1"),
        lambda now: [row for row in now if row[0] != 1],
        2,
    ),
    "append of rows that match": (
        lambda lake: lake.write(numbers(0, 5), "t", mode="append"),
        lambda now: [*now, *pairs(1, 5)],
        2,
    ),
    "append of rows that do not": (
        lambda lake: lake.write(numbers(500, 505), "t", mode="append"),
        lambda now: [*now, *pairs(500, 505)],
        1,
    ),
    "merge of files": (
        lambda lake: lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')", force=True).raise_for_error(),
        lambda now: now,
        2,
    ),
    "other columns": (
        lambda lake: lake.execute("ALTER TABLE t RENAME name TO label").raise_for_error(),
        lambda now: now,
        2,
    ),
}


@pytest.mark.parametrize("concurrent", CONCURRENT_COMMITS)
@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_a_delete_is_replanned_only_after_a_conflicting_concurrent_commit(
    lake: DuckLake, concurrent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, change_rows, attempts = CONCURRENT_COMMITS[concurrent]
    if concurrent in ("merge of files", "other columns") and lake.config.catalog.type == "mysql":
        pytest.skip("the engine cannot do that there")
    lake.write(numbers(0, 40), "t", mode="append")
    lake.write(numbers(40, 80), "t", mode="append")
    once_at(monkeypatch, "files.written", lambda: commit(lake))
    result = lake.delete("t", "id IN (0, 50)")
    assert result.attempts == attempts
    wanted = change_rows([row for row in pairs(0, 80) if row[0] not in (0, 50)])
    assert sorted(rows(lake, "FROM t")) == sorted(wanted)
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(shared=True, sql_writes=True, quick=[SQLITE, POSTGRES])
def test_an_earlier_engine_transaction_conflicts_with_a_committed_delete(lake: DuckLake) -> None:
    """The engine's DELETE, in a file or in the catalog, is on a data file that has a delete file already."""
    lake.write(numbers(0, 100), "t", mode="append")
    lake.delete("t", "id < 3")
    for engine_where, our_where in (("id = 50", "id = 51"), ("id BETWEEN 20 AND 35", "id = 60")):
        history = RowHistory(lake, "t", rows(lake, "FROM t"))
        with lake.connect() as con:
            con.execute("BEGIN")
            con.execute(f"DELETE FROM t WHERE {engine_where}")
            lake.delete("t", our_where)
            with pytest.raises(duckdb.Error, match=r"conflict|locked"):
                con.execute("COMMIT")
        history.now = [row for row in history.now if row[0] != int(our_where.rpartition(" ")[2])]
        history.keep()
        history.check()


@catalogs(shared=True, quick=[SQLITE, POSTGRES])
def test_concurrent_deletes_on_one_file_all_succeed(lake: DuckLake) -> None:
    lake.write(numbers(0, 100), "t", mode="append")
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            lake.delete("t", f"id = {n}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(rows(lake, "FROM t")) == pairs(4, 100)
    assert lake.fsck(deep=True, storage=True).counts == {}


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL)], indirect=True)
def test_every_row_verb_works_with_a_pool_of_one_connection(make_lake: MakeLake) -> None:
    lake = make_lake(pool={"size": 1, "wait": "1s"})
    lake.write(numbers(0, 10), "t", mode="append")
    lake.delete("t", "id = 1")
    lake.update("t", {"name": "'x'"}, "id = 2")
    lake.write(numbers(3, 4), "t", mode="merge", keys=["id"])
    lake.write(numbers(4, 5), "t", mode="replace_where", where="id = 4")
    assert len(rows(lake, "FROM t")) == 9


@pytest.mark.parametrize("backend", [Backend(POSTGRES, S3_MEMORY)], indirect=True)
def test_delete_works_on_files_in_an_object_store(lake: DuckLake) -> None:
    lake.write(numbers(0, 100), "t", mode="append")
    lake.delete("t", "id = 7")
    lake.delete("t", "id BETWEEN 0 AND 60")
    assert sorted(rows(lake, "FROM t")) == pairs(61, 100)
    assert lake.fsck(deep=True, storage=True).counts == {}
