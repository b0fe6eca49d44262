"""What commits between the plan and the commit of other work: each kind of conflict, and what is none."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.lifecycle import flush_inlined
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import (
    ConfigError,
    ConflictError,
    ObjectExistsError,
    SchemaConflictError,
    StalePlanError,
    TableDroppedError,
)
from tests.support.fault_points import once_at
from tests.support.stored_tables import nothing_left_over, rows


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


@pytest.fixture
def inlining(tmp_path: Path) -> DuckLake:
    """Return a lake that inlines, with rows of two snapshots in the catalog, one of them deleted."""
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=100)
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t VALUES (1), (2)", "INSERT INTO t VALUES (3)")
    run(lake, "DELETE FROM t WHERE i = 1")
    return lake


def run(lake: DuckLake, *statements: str) -> None:
    lake.execute(list(statements), force=True).raise_for_error()


def numbers(*values: int) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int64())})


def latest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def expire(lake: DuckLake, snapshot: int) -> None:
    """Expire a snapshot by the engine, which does not ask whether a write needs it."""
    run(lake, f"CALL ducklake_expire_snapshots('lake', versions => [{snapshot}])")


# --- tables that appear and change -----------------------------------------------------------------------------------


def test_two_writers_that_create_the_same_table_both_add_their_rows(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_at(monkeypatch, "files.written", lambda: lake.write(numbers(1), "t", mode="append"))
    assert lake.write(numbers(2), "t", mode="append").attempts == 1
    assert rows(lake, "FROM t ORDER BY i") == [(1,), (2,)]
    nothing_left_over(lake)


def test_a_writer_does_not_add_its_rows_to_another_table_of_the_same_name(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_at(monkeypatch, "files.written", lambda: lake.create_table("t", {"j": "VARCHAR"}))
    with pytest.raises(SchemaConflictError, match=r"A concurrent write created a different table `main\.t`"):
        lake.write(numbers(2), "t", mode="append")
    assert rows(lake, "FROM t") == []
    nothing_left_over(lake)


def test_a_writer_adds_its_rows_to_a_table_that_the_engine_creates_in_another_folder(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_at(
        monkeypatch, "files.written", lambda: run(lake, 'CREATE TABLE "a b" (i BIGINT); INSERT INTO "a b" VALUES (1)')
    )
    assert lake.write(numbers(2), '"a b"', mode="append").attempts == 2
    assert rows(lake, 'FROM "a b" ORDER BY i') == [(1,), (2,)]
    assert lake.fsck(deep=True, storage=True).findings == []


def test_a_view_that_appears_stops_the_creation_of_a_table(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    once_at(monkeypatch, "files.written", lambda: run(lake, "CREATE VIEW t AS SELECT 1 AS i"))
    with pytest.raises(ObjectExistsError, match=r"`main\.t` is a view"):
        lake.write(numbers(2), "t", mode="append")
    assert rows(lake, "FROM t") == [(1,)]


@pytest.mark.parametrize("again", [False, True])
def test_a_write_does_not_bring_back_a_dropped_table(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    lake.write(numbers(1), "t", mode="append")

    def drop() -> None:
        lake.drop_table("t")
        if again:
            lake.write(numbers(7), "t", mode="append")

    once_at(monkeypatch, "files.written", drop)
    with pytest.raises(TableDroppedError, match="created again during" if again else "was dropped during"):
        lake.write(numbers(2), "t", mode="append")
    assert lake.exists("t") == again
    assert not again or rows(lake, "FROM t") == [(7,)]


def test_two_writers_that_add_the_same_column_both_add_their_rows(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(numbers(1), "t", mode="append")
    wider: dict[str, Any] = {"mode": "append", "schema_evolution": "add"}
    more = numbers(2).append_column("j", pa.array([2]))
    once_at(monkeypatch, "files.written", lambda: lake.write(more, "t", **wider))
    assert lake.write(more, "t", **wider).attempts == 1
    assert rows(lake, "FROM t ORDER BY i") == [(1, None), (2, 2), (2, 2)]
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize(("before", "after"), [([], ["i"]), (["i"], []), (["d"], ["year(d)"])])
def test_a_write_plans_again_if_the_partition_keys_have_changed(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, before: list[str], after: list[str]
) -> None:
    data = numbers(1, 2).append_column("d", [[date(2024, 1, 2), date(2024, 3, 4)]])
    lake.write(data, "t", mode="append", partition_by=before)
    once_at(monkeypatch, "files.written", lambda: lake.alter_table("t", partition_by=after))
    done = lake.write(data, "t", mode="append")
    assert done.attempts == 2
    assert [partition.rows for partition in done.partitions] == {"i": [1, 1], "year(d)": [2]}.get("".join(after), [])
    assert lake.fsck(deep=True, storage=True).findings == []


def test_rows_to_inline_become_a_file_if_the_limit_is_set_to_zero_meanwhile(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", {"i": "BIGINT"})
    lake.set_option("data_inlining_row_limit", 10)

    def rival() -> None:
        lake.set_option("data_inlining_row_limit", 0)
        lake.create_table("other", {"i": "BIGINT"})

    once_at(monkeypatch, "files.written", rival)
    assert lake.write(numbers(1), "t", mode="append", inline="auto").files_added == 1
    assert rows(lake, "FROM t") == [(1,)]


def test_an_alteration_is_not_taken_for_a_concurrent_one_that_does_only_a_part_of_it(lake: DuckLake) -> None:
    lake.write(numbers(1), "t", mode="append")

    def alter() -> None:
        with lake.transaction() as tx:
            tx.alter_table("t", add_columns={"j": "BIGINT"}, sort_by=["i"])
            lake.alter_table("t", add_columns={"j": "BIGINT"})

    with pytest.raises(ConflictError, match=r"columns or partition keys of .* changed"):
        alter()


def test_a_table_that_has_got_files_gets_no_bucket_key(lake: DuckLake) -> None:
    """DuckDB would not find the rows of these files by the new key."""
    lake.create_table("t", {"i": "BIGINT"})

    def alter() -> None:
        with lake.transaction() as tx:
            tx.alter_table("t", partition_by=["bucket(4, i)"])
            lake.write(numbers(1), "t", mode="append")

    with pytest.raises(ConfigError, match="would not find their rows by a new bucket key"):
        alter()
    assert rows(lake, "FROM t") == [(1,)]


def test_a_table_whose_files_are_all_retired_can_get_a_bucket_key(lake: DuckLake) -> None:
    for table in ("other", "t"):
        lake.write(numbers(1), table, mode="append")
    lake.delete("t", "true")
    lake.alter_table("t", partition_by=["bucket(4, i)"])
    lake.write(numbers(1, 2), "t", mode="append")
    lake.alter_table("t", partition_by=["bucket(4, i)", "i"])
    assert rows(lake, "FROM t WHERE i = 2") == [(2,)]
    assert lake.fsck(deep=True, storage=True).findings == []


# --- rows that appear and disappear ----------------------------------------------------------------------------------


def append_file(*values: int) -> Callable[[DuckLake], object]:
    """Return an append of so many rows that they are not inlined."""
    return lambda lake: lake.write(numbers(*values * 101), "t", mode="append")


@pytest.mark.parametrize(
    ("rival", "attempts", "left"),
    [
        ("INSERT INTO t VALUES (20)", 1, [1, 7, 11, 20]),
        ("INSERT INTO t VALUES (9)", 2, [1, 7, 11]),
        ("DELETE FROM t WHERE i = 11", 1, [1, 7]),
        ("DELETE FROM t WHERE i = 10", 2, [1, 7, 11]),
        ("UPDATE t SET i = 21 WHERE i = 11", 1, [1, 7, 21]),
        ("UPDATE t SET i = 21 WHERE i = 10", 2, [1, 7, 11, 21]),
        ("DELETE FROM t WHERE i = 7", 2, [1, 11]),
        ("DELETE FROM t WHERE i = 1", 1, [7, 11]),
        (append_file(30), 1, [1, 7, 11, 30]),
        (append_file(8), 2, [1, 7, 11]),
        (lambda lake: flush(lake), 2, [1, 7, 11]),
        (lambda lake: lake.delete("t", "i IN (7, 8)"), 2, [1, 11]),
        (lambda lake: lake.delete("t", "i = 1"), 1, [7, 11]),
    ],
)
def test_a_deletion_plans_again_only_if_rows_that_it_deletes_have_changed(
    lake: DuckLake,
    monkeypatch: pytest.MonkeyPatch,
    rival: str | Callable[[DuckLake], object],
    attempts: int,
    left: list[int],
) -> None:
    lake.write(numbers(1), "t", mode="append")
    lake.write(numbers(5, 6, 7, 8), "t", mode="append")
    for gone in (5, 6):  # the second delete file replaces the first one
        lake.delete("t", f"i = {gone}")
    lake.set_option("data_inlining_row_limit", 100)
    run(lake, "INSERT INTO t VALUES (10), (11)")
    once_at(monkeypatch, "files.written", lambda: run(lake, rival) if isinstance(rival, str) else rival(lake))
    assert lake.delete("t", "i BETWEEN 8 AND 10").attempts == attempts
    assert sorted({row[0] for row in rows(lake, "FROM t")}) == left
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize(
    ("rival", "event"),
    [
        (lambda lake: lake.delete("t", "i = 2"), "has other deletions"),
        (lambda lake: lake.write(numbers(3), "t", mode="overwrite"), "was retired"),
    ],
)
def test_the_error_says_what_has_become_of_the_file(
    lake: DuckLake, rival: Callable[[DuckLake], object], event: str
) -> None:
    lake.write(numbers(*range(200)), "t", mode="append")

    def delete() -> None:
        with lake.transaction() as tx:
            tx.delete("t", "i = 1")
            rival(lake)

    with pytest.raises(ConflictError, match=rf"the file .* {event}\."):
        delete()


@pytest.mark.parametrize("inlined", [True, False])
def test_a_replacement_counts_the_rows_that_were_live(lake: DuckLake, inlined: bool) -> None:
    data = pa.table({"p": ["a"] * 5 + ["b"] * 5, "i": range(10)})
    for table in ("other", "t"):
        lake.create_table(table, {"p": "VARCHAR", "i": "BIGINT"}, partition_by=["p"])
        assert lake.write(data, table, mode="overwrite").rows_removed == 0
    if inlined:
        lake.set_option("data_inlining_row_limit", 3)
    for table in ("other", "t"):
        for gone in (0, 5, 6):
            if inlined:
                run(lake, f"DELETE FROM {table} WHERE i = {gone}")
            else:  # the second delete file of a data file replaces the first one
                lake.delete(table, f"i = {gone}")
    done = lake.write(data.slice(0, 5), "t", mode="overwrite_partitions")
    assert (done.rows_removed, done.files_removed) == (4, 1)
    done = lake.write(data, "t", mode="overwrite")
    assert (done.rows_removed, done.files_removed) == (8, 2)
    assert lake.fsck(deep=True, storage=True).findings == []


# --- history that has expired ----------------------------------------------------------------------------------------


def test_a_rollback_plans_again_if_snapshots_since_its_plan_have_expired(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(numbers(1), "t", mode="append")
    wanted = latest(lake)
    lake.write(numbers(2), "t", mode="append")

    def rival() -> None:
        lake.write(numbers(3), "t", mode="append")
        lake.write(numbers(4), "other", mode="append")
        expire(lake, wanted + 2)

    once_at(monkeypatch, "files.written", rival)
    lake.rollback("t", wanted)
    assert rows(lake, "FROM t") == [(1,)]


def test_a_serializable_transaction_is_refused_if_snapshots_since_its_begin_have_expired(lake: DuckLake) -> None:
    lake.write(numbers(1), "t", mode="append")

    def transact() -> None:
        with lake.transaction(isolation="serializable") as tx:
            tx.write(numbers(tx.read("t").num_rows), "counts", mode="append")
            lake.write(numbers(2), "t", mode="append")
            lake.write(numbers(3), "other", mode="append")
            expire(lake, latest(lake) - 1)

    with pytest.raises(ConflictError, match=r"Snapshots after \d+ have expired"):
        transact()
    assert not lake.exists("counts")


@pytest.mark.parametrize("limit", [0, 100])
@pytest.mark.parametrize("flushes", [True, False])
def test_a_serializable_transaction_sees_deletions_by_the_engine_but_not_their_flush(
    lake: DuckLake, limit: int, flushes: bool
) -> None:
    lake.write(numbers(1, 2, 3), "t", mode="append")
    lake.set_option("data_inlining_row_limit", limit)
    run(lake, "DELETE FROM t WHERE i = 1")

    def transact() -> None:
        with lake.transaction(isolation="serializable") as tx:
            tx.write(numbers(tx.read("t").num_rows), "counts", mode="append")
            if flushes:
                flush(lake)
            else:
                run(lake, "DELETE FROM t WHERE i = 2")

    if flushes:
        transact()
        assert rows(lake, "FROM counts") == [(2,)]
        return
    with pytest.raises(ConflictError, match=r"A concurrent write changed `main\.t`"):
        transact()
    assert not lake.exists("counts")


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_transaction_whose_key_is_committed_before_its_commit_adds_nothing(lake: DuckLake) -> None:
    lake.create_table("t", {"i": "BIGINT"})

    def transact(rival: Callable[[], object]) -> None:
        with lake.transaction(idempotency_key="nightly") as tx:
            tx.write(numbers(1), "t", mode="append")
            rival()

    def in_other_thread() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(transact, lambda: None).result()

    transact(in_other_thread)
    assert rows(lake, "FROM t") == [(1,)]
    nothing_left_over(lake)


# --- flushes ---------------------------------------------------------------------------------------------------------


def flush(lake: DuckLake) -> None:
    lake.maintain(operations=["flush"], tables=["t"]).raise_for_error()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("INSERT INTO t VALUES (4)", [2, 3, 4]),
        ("DELETE FROM t WHERE i = 3", [2]),
        ("UPDATE t SET i = 9 WHERE i = 2", [3, 9]),
        ("ALTER TABLE t ADD COLUMN j INTEGER", [2, 3]),
    ],
)
def test_a_flush_loses_no_change_of_inlined_rows(
    inlining: DuckLake, monkeypatch: pytest.MonkeyPatch, change: str, left: list[int]
) -> None:
    once_at(monkeypatch, "files.written", lambda: run(inlining, change))
    flush(inlining)
    flush(inlining)
    assert [row[0] for row in rows(inlining, "SELECT i FROM t ORDER BY i")] == left
    assert inlining.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("DELETE FROM t WHERE i = 5", [6, 7, 8]),
        ("DELETE FROM t", []),
        ("CALL ducklake_flush_inlined_data('lake')", [5, 6, 7, 8]),
    ],
)
def test_a_flush_loses_no_change_of_files_with_inlined_deletions(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, change: str, left: list[int]
) -> None:
    lake.write(numbers(*range(9)), "t", mode="append")
    lake.set_option("data_inlining_row_limit", 100)
    run(lake, "DELETE FROM t WHERE i < 5")
    once_at(monkeypatch, "files.written", lambda: run(lake, change))
    flush(lake)
    flush(lake)
    assert rows(lake, "FROM t ORDER BY i") == [(i,) for i in left]
    assert lake.fsck(deep=True, storage=True).findings == []


def test_a_flush_without_further_attempts_names_the_conflict_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=100, retry={"max_attempts": 1})
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t VALUES (1), (2)")
    once_at(monkeypatch, "files.written", lambda: run(lake, "DELETE FROM t WHERE i = 1"))
    with pytest.raises(StalePlanError, match=r"changed the inlined rows of `main.t`.*Run the flush again"):
        flush_inlined(lake.config, TableName("main", "t"), commit=CommitInfo())
    assert rows(lake, "FROM t") == [(2,)]


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_of_a_table_that_is_dropped_changes_nothing(
    inlining: DuckLake, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    def drop() -> None:
        inlining.drop_table("t")
        if again:
            inlining.write(numbers(7), "t", mode="append")

    once_at(monkeypatch, "files.written", drop)
    (step,) = inlining.maintain(operations=["flush"], tables=["t"]).operations
    assert isinstance(step.error, TableDroppedError) if again else step.status == "skipped"
    assert inlining.exists("t") == again
    assert not again or rows(inlining, "FROM t") == [(7,)]
    assert inlining.fsck(deep=True, storage=True).findings == []
