"""Transactions over several tables: one snapshot or nothing, isolation, conflicts, retries, kills."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import CommitInfo, DuckLake, MaintenancePolicy
from ducklake_orch.engine.fault_points import actions, kill
from ducklake_orch.errors import (
    ConfigError,
    ConflictError,
    DataError,
    DuplicateFileError,
    ObjectNotFoundError,
    SnapshotChangedError,
    SnapshotNotFoundError,
    TableDroppedError,
    TransactionClosedError,
    UnsupportedStatementError,
)
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import dies_at, once_at
from tests.support.stored_tables import files_of, rows

pytestmark = pytest.mark.every_catalog

ORDERS = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"], "price": [10.0, 20.0, 30.0]})


Verb = Callable[[Any], Any]
T = TypeVar("T")


def in_other_thread(work: Callable[[], T]) -> T:
    """Run a rival that has a transaction of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def ids(lake: DuckLake, table: str = "orders") -> list[int]:
    return sorted(lake.read(table)["id"].to_pylist())


def latest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def check(lake: DuckLake) -> None:
    """Check that the lake is sound and that every file in its storage belongs to it."""
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.fixture
def shop(lake: DuckLake) -> DuckLake:
    lake.write(ORDERS, "orders", mode="append", partition_by=["region"])
    return lake


# --- one snapshot or nothing -----------------------------------------------------------------------------------------


@catalogs()
def test_all_verbs_become_one_snapshot(shop: DuckLake, tmp_path: Path) -> None:
    shop.write(ORDERS, "returns", mode="append")
    shop.write(ORDERS, "old", mode="append")
    pq.write_table(ORDERS, tmp_path / "more.parquet")
    before = latest(shop)
    with shop.transaction(commit=CommitInfo(author="ann", message="nightly")) as tx:
        tx.create_table("marts.totals", {"region": "VARCHAR", "total": "DOUBLE"}, partition_by=["region"])
        tx.delete("orders", "id = 1")
        tx.write(pa.table({"id": [4, 5], "region": ["eu", "de"], "price": [4.0, 5.0]}), "orders", mode="append")
        tx.update("orders", {"price": "price + 1"}, "id IN (3, 4)")
        tx.merge(pa.table({"id": [4, 6], "region": ["eu", "eu"], "price": [400.0, 6.0]}), "orders", ["id"])
        tx.truncate("returns")
        tx.add_files("returns", tmp_path / "more.parquet", copy=True)
        tx.write(
            tx.read("orders").group_by("region").aggregate([("price", "sum")]).rename_columns(["region", "total"]),
            "marts.totals",
            mode="append",
        )
        tx.drop_table("old")
        assert (shop.table("orders").count(), shop.exists("marts.totals"), latest(shop)) == (3, False, before)
    assert tx.result is not None
    assert (tx.result.snapshot_id, tx.result.previous_snapshot_id, latest(shop)) == (before + 1, before, before + 1)
    assert [result.snapshot_id for result in tx.result.writes] == [before + 1] * len(tx.result.writes)
    snapshot = shop.snapshots(limit=1)[0]
    assert (snapshot.author, snapshot.message) == ("ann", "nightly")
    prices = {row["id"]: row["price"] for row in shop.read("orders").to_pylist()}
    assert prices == {2: 20.0, 3: 31.0, 4: 400.0, 5: 5.0, 6: 6.0}
    assert dict(rows(shop, "SELECT region, total FROM marts.totals")) == {"us": 20.0, "eu": 437.0, "de": 5.0}
    assert (ids(shop, "returns"), shop.exists("old")) == ([1, 2, 3], False)
    assert shop.read("orders", snapshot=before).num_rows == 3
    check(shop)


@catalogs()
def test_rows_keep_their_ids_and_the_change_feed_shows_net_changes(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        tx.write(pa.table({"id": [4], "region": ["eu"], "price": [4.0]}), "orders", mode="append")
        tx.update("orders", {"price": "price * 10"}, "region = 'eu'")
        tx.delete("orders", "id = 1")
        shop.write(pa.table({"id": [9], "region": ["us"], "price": [9.0]}), "orders", mode="append")
    assert tx.result is not None
    feed = shop.changes("orders", tx.result.snapshot_id, tx.result.snapshot_id)
    changes = [(row["change_type"], row["id"], row["price"]) for row in feed.to_pylist()]
    assert sorted(changes) == [
        ("delete", 1, 10.0),
        ("insert", 4, 40.0),
        ("update_postimage", 3, 300.0),
        ("update_preimage", 3, 30.0),
    ]
    row_ids = shop.execute("SELECT rowid AS row_id FROM orders").raise_for_error().rows
    assert len({row["row_id"] for row in row_ids}) == 4
    check(shop)


@catalogs(quick=[SQLITE])
def test_an_exception_leaves_no_snapshot_and_no_file(shop: DuckLake, tmp_path: Path) -> None:
    pq.write_table(ORDERS, foreign := tmp_path / "foreign.parquet")
    before, files = latest(shop), files_of(shop)

    def fail() -> None:
        with shop.transaction() as tx:
            tx.write(ORDERS, "orders", mode="append")
            tx.delete("orders", "id = 2")
            tx.write(ORDERS, "new.table", mode="append")
            tx.add_files("new.table", foreign)
            raise RuntimeError("the checks failed")

    with pytest.raises(RuntimeError, match="the checks failed"):
        fail()
    assert (latest(shop), files_of(shop)) == (before, files)
    assert foreign.exists()
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_verb_that_fails_changes_nothing_and_the_transaction_goes_on(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        tx.delete("orders", "id = 1")
        with pytest.raises(DataError):
            tx.write(pa.table({"other": [1]}), "orders", mode="append")
        tx.delete("orders", "id = 2")
    assert ids(shop) == [3]
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_transaction_without_changes_makes_no_snapshot(shop: DuckLake) -> None:
    before = latest(shop)
    with shop.transaction() as tx:
        tx.read("orders")
        tx.delete("orders", "id = 99")
        tx.write(ORDERS, "new", mode="append")
        tx.drop_table("new")
    assert tx.result is not None
    assert (tx.result.snapshot_id, latest(shop)) == (before, before)
    check(shop)


@catalogs(quick=[SQLITE], sql_comments=True)
def test_a_transaction_creates_tables_as_the_lake_does(shop: DuckLake) -> None:
    schema = {"id": "BIGINT NOT NULL", "at": "TIMESTAMP", "tags": "STRUCT(a INTEGER)"}
    layout: Any = {"partition_by": ["day(at)"], "sort_by": ["id DESC"], "comment": "It's daily."}
    options: Any = {"parquet_compression": "zstd"}
    shop.create_table("s.outside", schema, options=options, **layout)
    with shop.transaction() as tx:
        with pytest.raises(ConfigError, match="no_such_option"):
            tx.create_table("s.inside", schema, options={"no_such_option": 1})
        tx.create_table("s.inside", schema, options=options, **layout)
        tx.create_table("s.inside", {"other": "VARCHAR"}, comment="ignored", if_not_exists=True)
        with pytest.raises(DataError, match="`id`"):
            tx.write(pa.table({"id": pa.array([None], pa.int64())}), "s.inside", mode="append")
        tx.write(pa.table({"id": [1, 2]}), "s.inside", mode="append")
    described = [
        (
            shop.table(f"s.{name}").schema(),
            [(option.name, option.value) for option in shop.options() if option.entry == f"s.{name}"],
            rows(shop, f"SELECT comment FROM duckdb_tables() WHERE table_name = '{name}'"),
        )
        for name in ("inside", "outside")
    ]
    assert described[0] == described[1]
    assert ids(shop, "s.inside") == [1, 2]
    shop.execute("INSERT INTO s.inside (id) VALUES (3)").raise_for_error()
    check(shop)


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_transaction_rolls_tables_back(shop: DuckLake) -> None:
    shop.execute("INSERT INTO orders VALUES (4, 'us', 40)").raise_for_error()
    row_ids = rows(shop, "SELECT id, rowid FROM orders ORDER BY id")
    target = latest(shop)
    delete_one(shop)
    shop.write(ORDERS.append_column("tax", pa.array([1.0] * 3)), "orders", mode="overwrite", schema_evolution="add")
    before = latest(shop)
    with shop.transaction() as tx:
        append(tx)
        with pytest.raises(SnapshotNotFoundError):
            tx.rollback("orders", 1000)
        with pytest.raises(ObjectNotFoundError, match="did not exist"):
            tx.rollback("orders", 0)
        tx.rollback("orders", target)
        tx.update("orders", {"price": "-1"}, "id = 2")
        tx.write(ORDERS, "other", mode="append")
    assert latest(shop) == before + 1
    assert rows(shop, "SELECT id, rowid FROM orders ORDER BY id") == row_ids
    assert rows(shop, "SELECT price, tax FROM orders ORDER BY id") == [(10, None), (-1, None), (30, None), (40, None)]
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_column_that_a_transaction_adds_can_be_used_by_its_later_verbs(shop: DuckLake) -> None:
    wider = ORDERS.append_column("tax", pa.array([1.0, 2.0, 3.0]))
    with shop.transaction() as tx:
        tx.write(wider, "orders", mode="append", schema_evolution="add")
        tx.update("orders", {"tax": "0"}, "tax IS NULL")
        tx.delete("orders", "tax = 2")
    assert sorted(row["tax"] for row in shop.read("orders").to_pylist()) == [0.0, 0.0, 0.0, 1.0, 3.0]
    check(shop)


@catalogs(sql_writes=True)
def test_inlined_rows_can_be_changed(lake: DuckLake) -> None:
    lake.create_table("t", {"id": "BIGINT", "text": "VARCHAR", "at": "TIMESTAMP", "n": "DECIMAL(20, 3)"})
    lake.execute(
        "INSERT INTO t SELECT i, 'it''s ' || i, TIMESTAMP '2024-01-01' + INTERVAL (i) DAY, i / 8 FROM range(6) r(i)"
    )
    with lake.transaction() as tx:
        tx.delete("t", "id = 0")
        tx.update("t", {"text": "'changed'"}, "id = 1")
        assert tx.read("t").num_rows == 5
    assert rows(lake, 'SELECT id, text, day("at"), n::VARCHAR FROM t ORDER BY id')[:2] == [
        (1, "changed", 2, "0.125"),
        (2, "it's 2", 3, "0.250"),
    ]
    assert ids(lake, "t") == [1, 2, 3, 4, 5]
    check(lake)


@catalogs(quick=[SQLITE])
def test_connect_sees_every_table_as_staged(shop: DuckLake) -> None:
    shop.write(ORDERS, "returns", mode="append")
    with shop.transaction() as tx:
        tx.delete("orders", "id = 1")
        with tx.connect() as con:
            counts = con.sql("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM returns)").fetchone()
        assert counts == (2, 3)


# --- isolation and conflicts -----------------------------------------------------------------------------------------


@catalogs()
def test_a_transaction_reads_the_lake_as_it_was_when_it_began(shop: DuckLake) -> None:
    """Since then, other commits added rows, deleted rows of a shared file, and merged files."""
    many = pa.table({"id": range(100), "value": range(100)})
    for table in ("deleted", "merged"):
        shop.write(many, table, mode="append")
    shop.delete("deleted", "id = 0")

    def transact(*changes: Verb) -> None:
        with shop.transaction() as tx:
            shop.write(ORDERS, "orders", mode="append")
            shop.delete("deleted", f"id < {10 + latest(shop)}")
            for _ in range(6):
                shop.write(many, "merged", mode="append")
            merged = shop.maintain(MaintenancePolicy(), operations=["merge"]).to_dict()["operations"]
            assert [row["files_in"] for row in merged if row["table"] == "main.merged"] == [7], merged
            shop.write(ORDERS, f"late_{latest(shop)}", mode="append")
            assert [tx.read(table).num_rows for table in counts] == [*counts.values()]
            with pytest.raises(ObjectNotFoundError):
                tx.read(f"late_{latest(shop) - 1}")
            for change in changes:
                change(tx)

    counts = {"orders": 3, "deleted": 99, "merged": 100}
    with pytest.raises(ConflictError, match="has other deletions"):
        transact(lambda tx: tx.delete("deleted", "id = 90"), lambda tx: tx.write(ORDERS, "orders", mode="append"))
    assert shop.table("orders").count() == 6
    counts = {name: shop.table(name).count() for name in counts}
    transact(lambda tx: tx.write(many, "merged", mode="append"))
    assert shop.table("merged").count() == 100 * 14
    check(shop)


def append(lake: DuckLake | Any) -> None:
    lake.write(pa.table({"id": [7], "region": ["us"], "price": [7.0]}), "orders", mode="append")


def replace_eu(lake: DuckLake | Any) -> None:
    lake.write(pa.table({"id": [8], "region": ["eu"], "price": [8.0]}), "orders", mode="overwrite_partitions")


def replace_where(lake: DuckLake | Any) -> None:
    lake.write(
        pa.table({"id": [9], "region": ["us"], "price": [9.0]}), "orders", mode="replace_where", where="region = 'us'"
    )


def overwrite(lake: DuckLake | Any) -> None:
    lake.write(pa.table({"id": [6], "region": ["us"], "price": [6.0]}), "orders", mode="overwrite")


def update_eu(lake: DuckLake | Any) -> None:
    lake.update("orders", {"price": "price + 1"}, "region = 'eu'")


def delete_one(lake: DuckLake | Any) -> None:
    lake.delete("orders", "id = 3")


def delete_us(lake: DuckLake | Any) -> None:
    lake.delete("orders", "region = 'us'")


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize(
    ("inside", "rival", "wanted"),
    [
        (append, append, [1, 2, 3, 7, 7]),
        (append, overwrite, [6, 7]),
        (append, delete_us, [1, 3, 7]),
        (replace_eu, append, [2, 7, 8]),
        (replace_eu, replace_where, [8, 9]),
        (replace_eu, replace_eu, [2, 8]),
        (replace_eu, delete_one, [2, 8]),
        (replace_where, append, [1, 3, 9]),
        (overwrite, append, [6]),
        (update_eu, append, [1, 2, 3, 7]),
        (update_eu, delete_us, [1, 3]),
        (update_eu, replace_where, [1, 3, 9]),
        (delete_one, delete_us, [1]),
        (update_eu, replace_eu, None),
        (update_eu, delete_one, None),
        (delete_one, update_eu, None),
        (delete_us, append, None),
        (delete_us, overwrite, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_transaction_and_a_rival_in_between(
    shop: DuckLake, inside: Verb, rival: Verb, wanted: list[int] | None
) -> None:
    def transact() -> None:
        with shop.transaction() as tx:
            inside(tx)
            tx.write(ORDERS, "also", mode="append")
            rival(shop)
            after.append(ids(shop))

    after: list[list[int]] = []
    if wanted is None:
        with pytest.raises(ConflictError, match="Run the transaction again"):
            transact()
        assert (ids(shop), shop.exists("also")) == (after[0], False)
    else:
        transact()
        assert (ids(shop), ids(shop, "also")) == (wanted, [1, 2, 3])
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_table_that_was_dropped_meanwhile_stops_the_transaction(shop: DuckLake) -> None:
    def transact() -> None:
        with shop.transaction() as tx:
            tx.delete("orders", "id = 1")
            tx.write(ORDERS, "also", mode="append")
            shop.drop_table("orders")

    with pytest.raises(TableDroppedError):
        transact()
    assert not shop.exists("also")
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_table_that_was_created_meanwhile_stops_the_transaction(shop: DuckLake) -> None:
    def transact() -> None:
        with shop.transaction() as tx:
            tx.create_table("new", {"id": "BIGINT"})
            tx.delete("orders", "id = 1")
            shop.create_table("new", {"id": "BIGINT"})

    with pytest.raises(ConflictError, match=r"A concurrent commit created the table `main.new`"):
        transact()
    assert ids(shop) == [1, 2, 3]


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize("new", [["tax"], ["tax", "note"]])
def test_a_new_column_does_not_get_the_id_of_one_that_was_dropped_meanwhile(shop: DuckLake, new: list[str]) -> None:
    wider = ORDERS
    for name in new:
        wider = wider.append_column(name, pa.array([1.0] * 3))

    def transact() -> None:
        with shop.transaction() as tx:
            tx.write(wider, "orders", mode="append", schema_evolution="add")
            shop.execute(["ALTER TABLE orders ADD COLUMN x INTEGER", "ALTER TABLE orders DROP COLUMN x"])

    with pytest.raises(ConflictError, match="were added and dropped"):
        transact()
    assert shop.read("orders").column_names == ORDERS.column_names
    check(shop)


@on_sqlite
def test_a_dropped_table_takes_no_ids(shop: DuckLake) -> None:
    shop.create_table("sorted", {"id": "BIGINT"}, sort_by=["id"])
    with shop.transaction() as tx:
        tx.drop_table("sorted")
    with shop.connect_metadata() as con:
        ids = con.execute("SELECT next_catalog_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 2").fetchall()
    assert ids[0] == ids[1]


@catalogs(quick=[SQLITE])
def test_serializable_transactions_cannot_skew_writes(shop: DuckLake) -> None:
    """Each of two transactions reads both tables and, as long as their sum allows it, deletes from one."""
    shop.write(ORDERS, "other", mode="append")

    def withdraw(table: str, isolation: Any, rival: Callable[[], None]) -> None:
        with shop.transaction(isolation=isolation) as tx:
            if tx.read("orders").num_rows + tx.read("other").num_rows >= 6:
                tx.delete(table, "true")
            in_other_thread(rival)

    with pytest.raises(ConflictError, match=r"`main.other` in snapshot"):
        withdraw("orders", "serializable", lambda: withdraw("other", "serializable", lambda: None))
    assert (ids(shop), ids(shop, "other")) == ([1, 2, 3], [])
    shop.write(ORDERS, "other", mode="append")
    withdraw("orders", "snapshot", lambda: withdraw("other", "snapshot", lambda: None))
    assert (ids(shop), ids(shop, "other")) == ([], [])


@catalogs(quick=[SQLITE])
def test_expect_snapshot_covers_what_a_transaction_replaces(shop: DuckLake) -> None:
    seen = latest(shop)
    append(shop)

    def transact(verb: Verb) -> None:
        with shop.transaction(expect_snapshot=seen) as tx:
            verb(tx)

    for verb in (replace_where, overwrite, delete_us):
        with pytest.raises(SnapshotChangedError):
            transact(verb)
    transact(replace_eu)
    transact(append)
    assert ids(shop) == [2, 7, 7, 8]


@catalogs(quick=[SQLITE])
def test_readers_see_all_of_a_transaction_or_nothing(lake: DuckLake) -> None:
    """Four threads move amounts between accounts of two tables; the total is always the same."""
    for table in ("a", "b"):
        lake.write(pa.table({"id": [0, 1, 2, 3], "amount": [100] * 4}), table, mode="append")
    wrong, done = list[Any](), threading.Event()

    def move(number: int) -> None:
        for _ in range(4):
            while True:
                try:
                    with lake.transaction() as tx:
                        tx.update("a", {"amount": "amount - 1"}, f"id = {number}")
                        tx.update("b", {"amount": "amount + 1"}, f"id = {number}")
                    break
                except ConflictError:
                    continue

    def look() -> None:
        while not done.is_set():
            total = rows(lake, "SELECT (SELECT sum(amount) FROM a) + (SELECT sum(amount) FROM b)")
            if total != [(800,)]:
                wrong.append(total)

    reader = threading.Thread(target=look)
    movers = [threading.Thread(target=move, args=(number,)) for number in range(4)]
    for thread in (reader, *movers):
        thread.start()
    for thread in movers:
        thread.join()
    done.set()
    reader.join()
    assert wrong == []
    assert rows(lake, "SELECT sum(amount) FROM a") == [(400 - 16,)]
    check(lake)


# --- retries and kills -----------------------------------------------------------------------------------------------


@catalogs()
def test_a_retry_with_the_same_key_returns_the_first_snapshot(shop: DuckLake) -> None:
    def transact() -> Any:
        with shop.transaction(idempotency_key="run 7") as tx:
            tx.write(ORDERS, "orders", mode="append")
            tx.write(ORDERS, "new", mode="append")
        return tx.result

    first, second = transact(), transact()
    assert (first.replayed, second.replayed, second.snapshot_id) == (False, True, first.snapshot_id)
    assert second.previous_snapshot_id == first.previous_snapshot_id == first.snapshot_id - 1
    assert all(result.replayed for result in second.writes)
    assert (shop.table("orders").count(), shop.table("new").count()) == (6, 3)
    check(shop)


@catalogs(quick=[SQLITE])
def test_the_same_key_in_two_concurrent_transactions_commits_once(
    shop: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transact() -> Any:
        with shop.transaction(idempotency_key="run 7") as tx:
            append(tx)
        return tx.result

    once_at(monkeypatch, "files.written", lambda: None)
    with shop.transaction(idempotency_key="run 7") as tx:
        append(tx)
        first = in_other_thread(transact)
    assert tx.result is not None
    assert (tx.result.replayed, tx.result.snapshot_id) == (True, first.snapshot_id)
    assert ids(shop) == [1, 2, 3, 7]
    check(shop)


@catalogs(quick=[SQLITE])
def test_a_transaction_killed_at_any_statement_of_its_commit_is_atomic(shop: DuckLake) -> None:
    shop.write(ORDERS, "returns", mode="append")
    died = 0
    for number, point in enumerate(["commit.before", "commit.after", *(f"statement.{n}" for n in range(1, 80, 2))]):

        def transact(point: str | None = None) -> None:
            with shop.transaction(idempotency_key=f"run {number}") as tx:  # noqa: B023
                tx.write(pa.table({"id": [100 + number], "region": ["x"], "price": [0.0]}), "orders", mode="append")  # noqa: B023
                tx.update("returns", {"price": "price + 1"}, "id = 2")
                tx.create_table(f"new{number}", {"id": "BIGINT"})  # noqa: B023
                if point is not None:
                    actions[point] = kill

        before = rows(shop, "SELECT price FROM returns WHERE id = 2")[0][0]
        killed = dies_at("never", lambda: transact(point))  # noqa: B023
        orders = 100 + number in ids(shop)
        assert (
            orders
            == shop.exists(f"new{number}")
            == (rows(shop, "SELECT price FROM returns WHERE id = 2")[0][0] > before)
        )
        transact()
        assert ids(shop).count(100 + number) == 1
        assert rows(shop, "SELECT price FROM returns WHERE id = 2") == [(before + 1,)]
        died += killed
        if not killed:
            break
    assert died >= 4  # PostgreSQL gets several statements together
    assert shop.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_file_of_another_table_is_not_added_to_a_new_one(shop: DuckLake, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "file.parquet")
    shop.create_table("first", {"id": "BIGINT", "region": "VARCHAR", "price": "DOUBLE"})
    shop.add_files("first", tmp_path / "file.parquet")

    def transact() -> None:
        with shop.transaction() as tx:
            tx.create_table("second", {"id": "BIGINT", "region": "VARCHAR", "price": "DOUBLE"})
            tx.add_files("second", tmp_path / "file.parquet")

    with pytest.raises(DuplicateFileError):
        transact()
    assert (tmp_path / "file.parquet").exists()
    assert (ids(shop, "first"), shop.exists("second")) == ([1, 2, 3], False)


# --- refusals --------------------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE])
def test_a_transaction_is_used_once_in_its_own_thread(shop: DuckLake) -> None:
    tx = shop.transaction()
    with pytest.raises(TransactionClosedError, match="has not begun"):
        tx.read("orders")
    with tx:
        failures = list[BaseException]()

        def use() -> None:
            try:
                tx.read("orders")
            except TransactionClosedError as error:
                failures.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert "another thread" in str(failures[0])
    with pytest.raises(TransactionClosedError, match="has ended"):
        tx.delete("orders", "id = 1")
    with pytest.raises(TransactionClosedError, match="already been used"), tx:
        pass


@catalogs(quick=[SQLITE])
def test_transactions_of_a_lake_do_not_nest_but_those_of_two_lakes_do(shop: DuckLake, tmp_path: Path) -> None:
    other = DuckLake.local(tmp_path / "other")
    with shop.transaction() as tx:
        with pytest.raises(UnsupportedStatementError, match="is open in this block"), shop.transaction():
            pass
        with other.transaction() as inner:
            inner.write(ORDERS, "orders", mode="append")
        tx.delete("orders", "id = 1")
    assert (ids(shop), ids(other)) == ([2, 3], [1, 2, 3])


@catalogs(quick=[SQLITE])
def test_a_forked_process_can_neither_use_nor_end_a_transaction(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        tx.delete("orders", "id = 1")

        def use() -> None:
            for attempt in (lambda: tx.delete("orders", "id = 2"), lambda: tx.__exit__(None, None, None)):
                with pytest.raises(TransactionClosedError, match="another thread or process"):
                    attempt()

        assert not dies_at("never", use)
        tx.delete("orders", "id = 3")
    assert ids(shop) == [2]


@catalogs(quick=[SQLITE])
def test_arguments_that_apply_to_the_whole_are_refused_by_the_verbs(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        for arguments in ({"idempotency_key": "k"}, {"commit": CommitInfo(author="x")}, {"expect_snapshot": 1}):
            with pytest.raises(ConfigError, match="as a whole"):
                tx.delete("orders", "id = 1", **arguments)
        with pytest.raises(ConfigError, match="inlines no rows"):
            tx.write(ORDERS, "orders", mode="append", inline="auto")
        tx.drop_table("orders")
        with pytest.raises(UnsupportedStatementError, match="has dropped"):
            tx.write(ORDERS, "orders", mode="append")
    with pytest.raises(ConfigError, match="isolation"):
        shop.transaction(isolation="read committed")  # type: ignore[arg-type]


@catalogs(quick=[SQLITE])
def test_a_result_names_no_snapshot_of_the_draft(lake: DuckLake) -> None:
    lake.write(pa.table({"id": [1]}), "t", mode="append")
    (base,) = lake.snapshots(limit=1)
    with lake.transaction() as tx:
        results = [tx.write(pa.table({"id": [2]}), "t", mode="append"), tx.delete("t", "id = 1")]
    assert {(result.snapshot_id, result.previous_snapshot_id) for result in results} == {(base.snapshot_id,) * 2}
    assert tx.result is not None
    assert {result.snapshot_id for result in tx.result.writes} == {base.snapshot_id + 1} == {tx.result.snapshot_id}
