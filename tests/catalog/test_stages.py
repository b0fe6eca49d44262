"""Stages: changes of several tables that the catalog keeps until they are published together."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    ConfigError,
    ConflictError,
    ObjectNotFoundError,
    TableDroppedError,
    TransactionClosedError,
    UnsupportedStatementError,
)
from ducklake_orch.facade.stage import Stage
from tests.support.backends import backends, catalogs, on_sqlite
from tests.support.other_tasks import elsewhere
from tests.support.worn_lakes import ALL_OF_IT

ORDERS = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"]})


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def orders(*ids: int, region: str = "eu") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "region": pa.array([region] * len(ids), pa.string())})


@pytest.fixture
def shop(lake: DuckLake) -> DuckLake:
    lake.write(ORDERS, "orders", mode="append", partition_by=["region"], inline="never")
    lake.write(orders(4, 5), "orders", mode="append")  # inlined
    lake.write(ORDERS, "returns", mode="append", inline="never")
    return lake


BEFORE = [(1, "eu"), (2, "us"), (3, "eu"), (4, "eu"), (5, "eu")]


@backends()
def test_readers_see_a_stage_when_it_is_published_and_then_all_of_it(shop: DuckLake) -> None:
    stage = shop.stage("nightly", author="me")
    stage.delete("orders", "id = 1")
    stage.write(orders(9), "orders", mode="append")
    stage.update("orders", {"region": "'asia'"}, "id IN (2, 9)")
    stage.merge(orders(3, 7, region="us"), "returns", keys=["id"])
    stage.write(pa.table({"n": [1]}), "new.totals", mode="append")
    assert rows(shop.read("orders")) == BEFORE
    assert not shop.exists("new.totals")
    staged = [(2, "asia"), (3, "eu"), (4, "eu"), (5, "eu"), (9, "asia")]
    other = DuckLake(shop.config).stage("nightly", create=False)
    assert rows(other.read("orders")) == staged
    with other.connect() as con:
        assert con.execute("SELECT count(*) FROM new.totals").fetchall() == [(1,)]
    before = shop.snapshots(limit=1)[0].snapshot_id
    result = other.publish()
    assert (result.snapshot_id, result.previous_snapshot_id) == (before + 1, before)
    assert {write.table for write in result.writes} == {"main.orders", "main.returns", "new.totals"}
    assert rows(shop.read("orders")) == staged
    assert rows(shop.read("returns")) == [(1, "eu"), (2, "us"), (3, "us"), (7, "us")]
    assert not shop.fsck(storage=True).findings
    # Row ids of the rows that stayed are the same, so the feed shows only what changed.
    feed = shop.changes("orders", before + 1).select(["change_type", "id"]).to_pylist()
    assert sorted((row["change_type"], row["id"]) for row in feed) == [
        ("delete", 1),
        ("insert", 9),
        ("update_postimage", 2),
        ("update_preimage", 2),
    ]


@catalogs()
def test_stages_are_listed_with_what_they_would_change(shop: DuckLake) -> None:
    stage = shop.stage("nightly", author="me")
    stage.delete("returns", "true")
    stage.write(orders(9), "orders", mode="append")
    shop.stage("empty")
    nightly, empty = shop.stages()
    assert (nightly.name, nightly.author, nightly.status, nightly.tables) == (
        "nightly",
        "me",
        "open",
        ["main.orders", "main.returns"],
    )
    assert (nightly.rows_added, nightly.rows_removed) == (1, 3)
    assert nightly.bytes > 0
    assert empty.tables == []
    assert [(table.table, table.rows_added, table.rows_removed) for table in stage.tables()] == [
        ("main.orders", 1, 0),
        ("main.returns", 0, 3),
    ]


@on_sqlite
def test_a_diff_shows_the_rows_that_would_come_and_go(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    stage.update("orders", {"region": "'asia'"}, "id = 4")
    stage.delete("orders", "id = 1")
    stage.drop_table("returns")
    assert rows(stage.diff("orders")) == [
        ("delete", 1, "eu"),
        ("update_postimage", 4, "asia"),
        ("update_preimage", 4, "eu"),
    ]
    assert rows(stage.diff("returns", limit=2)) == [("delete", 1, "eu"), ("delete", 2, "us")]
    with pytest.raises(ObjectNotFoundError, match=r"does not change `main\.missing`"):
        stage.diff("missing")


@catalogs()
def test_tasks_stage_different_tables_and_partitions_at_the_same_time(shop: DuckLake) -> None:
    shop.stage("nightly")

    def work(number: int) -> None:
        stage = DuckLake(shop.config).stage("nightly")
        if number < 3:
            stage.write(orders(100 + number, region=f"r{number}"), "orders", mode="overwrite_partitions")
        else:
            stage.write(orders(number), f"t{number}", mode="append")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    shop.stage("nightly").publish()
    assert rows(shop.read("orders")) == [*BEFORE, (100, "r0"), (101, "r1"), (102, "r2")]
    assert [rows(shop.read(f"t{n}")) for n in (3, 4, 5)] == [[(3, "eu")], [(4, "eu")], [(5, "eu")]]
    assert not shop.fsck(storage=True).findings


@on_sqlite
def test_a_task_that_changes_rows_which_another_staged_meanwhile_is_refused(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    other = DuckLake(shop.config).stage("nightly")

    def both() -> None:
        with stage.transaction() as tx:
            tx.delete("orders", "id = 3")
            with ThreadPoolExecutor(1) as pool:
                pool.submit(other.update, "orders", {"id": "30"}, "id = 3").result()

    with pytest.raises(ConflictError, match=r"Another task has staged `main\.orders` meanwhile"):
        both()
    assert (30, "eu") in rows(stage.read("orders"))


@on_sqlite
def test_work_with_an_idempotency_key_is_staged_once(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    assert not stage.write(orders(9), "orders", mode="append", idempotency_key="task 1").replayed
    assert stage.write(orders(9), "orders", mode="append", idempotency_key="task 1").replayed
    stage.write(orders(10), "orders", mode="append", idempotency_key="task 2")
    stage.publish()
    assert rows(shop.read("orders")) == [*BEFORE, (9, "eu"), (10, "eu")]


@catalogs()
def test_a_stage_is_published_once(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    stage.write(orders(9), "orders", mode="append")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: DuckLake(shop.config).stage("nightly").publish(), range(3)))
    outcomes = {(result.snapshot_id, result.previous_snapshot_id) for result in results}
    again = stage.publish()
    assert again.replayed
    assert outcomes == {(again.snapshot_id, again.previous_snapshot_id)} == {(again.snapshot_id, again.snapshot_id - 1)}
    published = shop.stages()[0]
    assert (published.status, published.tables, published.rows_added) == ("published", ["main.orders"], 1)
    assert [table.rows_added for table in stage.tables()] == [1]
    assert rows(shop.read("orders")) == [*BEFORE, (9, "eu")]
    with pytest.raises(TransactionClosedError, match="was published as snapshot"):
        stage.write(orders(9), "orders", mode="append")


CHANGES: dict[str, tuple[Callable[[Stage], object], Callable[[DuckLake], object], bool]] = {
    "append, append": (
        lambda stage: stage.write(orders(9), "orders", mode="append"),
        lambda lake: lake.write(orders(8), "orders", mode="append"),
        True,
    ),
    "replace a partition, append to another": (
        lambda stage: stage.write(orders(9), "orders", mode="overwrite_partitions"),
        lambda lake: lake.write(orders(8, region="us"), "orders", mode="append"),
        True,
    ),
    "delete, delete the same": (
        lambda stage: stage.delete("orders", "id = 3"),
        lambda lake: lake.delete("orders", "id = 3"),
        False,
    ),
    "update, drop": (
        lambda stage: stage.update("orders", {"id": "33"}, "id = 3"),
        lambda lake: lake.drop_table("orders"),
        False,
    ),
    "create, create": (
        lambda stage: stage.write(orders(9), "made", mode="append"),
        lambda lake: lake.write(orders(8), "made", mode="append"),
        False,
    ),
}


@on_sqlite
@pytest.mark.parametrize("case", CHANGES)
def test_a_commit_in_between_is_judged_as_for_a_transaction(case: str, shop: DuckLake) -> None:
    change, rival, passes = CHANGES[case]
    stage = shop.stage("nightly")
    change(stage)
    rival(shop)
    latest = shop.snapshots(limit=1)[0].snapshot_id
    if passes:
        assert stage.publish().snapshot_id == latest + 1
        assert {8, 9} <= {row["id"] for row in shop.read("orders").to_pylist()}
        return
    with pytest.raises((ConflictError, TableDroppedError)):
        stage.publish()
    assert shop.snapshots(limit=1)[0].snapshot_id == latest
    assert shop.stages()[0].status == "open"
    assert not shop.fsck(storage=True).findings


REPLACING: dict[str, Callable[[Stage], object]] = {
    "overwrite_partitions": lambda stage: stage.write(orders(9), "orders", mode="overwrite_partitions"),
    "replace_where": lambda stage: stage.write(orders(9), "orders", mode="replace_where", where="region = 'eu'"),
    "overwrite": lambda stage: stage.write(orders(9), "orders", mode="overwrite"),
    "truncate": lambda stage: stage.truncate("orders"),
    "rollback": lambda stage: stage.rollback("orders", 1),
}
RIVALS: dict[str, Callable[[DuckLake], object]] = {
    "a stage that replaces the same": lambda lake: lake.stage("rival", create=False).publish(),
    "an append": lambda lake: lake.write(orders(8), "orders", mode="append", inline="never"),
    "a delete": lambda lake: lake.delete("orders", "id = 1"),
}


@on_sqlite
@pytest.mark.parametrize(
    ("mode", "rival"),
    [
        *((mode, "a stage that replaces the same") for mode in REPLACING),
        ("overwrite_partitions", "an append"),
        ("replace_where", "a delete"),
    ],
)
def test_a_stage_does_not_replace_rows_that_have_changed_since_it_was_created(
    mode: str, rival: str, shop: DuckLake
) -> None:
    for name in ("nightly", "rival"):
        REPLACING["overwrite_partitions" if name == "rival" else mode](shop.stage(name))
    base = shop.snapshots(limit=1)[0].snapshot_id
    RIVALS[rival](shop)
    after = rows(shop.read("orders"))
    message = (
        rf"`main\.orders` have changed since snapshot {base}, first in snapshot {base + 1}, in the partition region=eu"
    )
    with pytest.raises(ConflictError, match=message):
        shop.stage("nightly").publish()
    assert rows(shop.read("orders")) == after
    shop.stage("nightly").discard()
    REPLACING[mode](shop.stage("nightly"))
    shop.stage("nightly").publish()
    assert rows(shop.read("orders")) != after or rival == "a stage that replaces the same"
    assert not shop.fsck(storage=True).findings


@on_sqlite
def test_a_stage_does_not_log_that_a_lake_was_created(
    shop: DuckLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ducklake_orch.catalog.transactions.draft._EMPTY", {})
    caplog.clear()
    with caplog.at_level("INFO", "ducklake_orch"):
        shop.stage("nightly").write(orders(1), "totals", mode="overwrite")
    assert "overwrite to" in caplog.text
    assert "created lake" not in caplog.text


@on_sqlite
def test_of_two_stages_that_create_a_table_the_second_says_so_and_names_the_remedy(shop: DuckLake) -> None:
    for name in ("first", "second"):
        shop.stage(name).write(orders(1), "totals", mode="overwrite")
    shop.stage("first").publish()
    with pytest.raises(ConflictError, match=r"A concurrent commit created the table `main\.totals`") as refused:
        shop.stage("second").publish()
    assert "Discard it with `ducklake-orch discard`" in str(refused.value)


@on_sqlite
@pytest.mark.parametrize("mode", ["overwrite_partitions", "replace_where"])
def test_stages_that_replace_different_partitions_are_both_published(mode: str, shop: DuckLake) -> None:
    for region in ("eu", "us"):
        where = {"where": f"region = '{region}'"} if mode == "replace_where" else {}
        shop.stage(region).write(orders(9, region=region), "orders", mode=mode, idempotency_key="monthly", **where)
    shop.stage("eu").publish()
    shop.stage("us").publish()
    assert rows(shop.read("orders")) == [(9, "eu"), (9, "us")]


@on_sqlite
def test_a_transaction_replaces_rows_that_were_committed_since_it_began(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        tx.write(orders(9), "orders", mode="overwrite_partitions")
        elsewhere(lambda: shop.write(orders(8), "orders", mode="append"))
    assert rows(shop.read("orders")) == [(2, "us"), (9, "eu")]


@catalogs()
def test_a_discarded_stage_leaves_nothing_behind(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    stage.write(orders(9), "orders", mode="append")
    stage.update("returns", {"region": "'x'"}, "id < 3")
    stage.discard()
    assert shop.stages() == []
    assert not shop.fsck(storage=True).findings
    for use in (stage.publish, stage.tables, lambda: stage.delete("orders", "true")):
        with pytest.raises(TransactionClosedError, match="The stage `nightly` was discarded"):
            use()
    assert shop.stage("nightly").tables() == []


@catalogs()
def test_maintenance_keeps_what_a_stage_needs_and_discards_it_when_its_time_is_over(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    stage.update("orders", {"region": "'asia'"}, "id = 3")
    stage.write(orders(9), "returns", mode="append")
    shop.write(orders(6), "orders", mode="append", inline="never")
    shop.maintain(ALL_OF_IT).raise_for_error()
    stage.publish()
    assert rows(shop.read("orders")) == [(1, "eu"), (2, "us"), (3, "asia"), (4, "eu"), (5, "eu"), (6, "eu")]
    past = shop.stage("past", ttl="0 s")
    assert shop.stages()[-1].status == "expired"
    with pytest.raises(TransactionClosedError, match="The stage `past` ended at"):
        past.write(orders(9), "orders", mode="append")
    plan = shop.plan_maintenance(ALL_OF_IT, ["orphans"])
    assert "the time of 1 stages is over: `past`" in str(plan)
    shop.maintain(plan).raise_for_error()
    assert [stage.name for stage in shop.stages()] == ["nightly"]


@on_sqlite
def test_a_stage_of_a_name_that_does_not_exist_is_created_only_on_request(shop: DuckLake) -> None:
    with pytest.raises(ObjectNotFoundError, match="There is no stage `missing`"):
        shop.stage("missing", create=False)


@on_sqlite
def test_a_stage_within_a_transaction_is_refused(shop: DuckLake) -> None:
    stage = shop.stage("nightly")
    with shop.transaction() as tx:
        tx.delete("orders", "id = 1")
        with pytest.raises(UnsupportedStatementError, match="A transaction of this lake is open"):
            stage.delete("orders", "id = 2")


@catalogs()
def test_the_extension_sees_nothing_of_a_stage(shop: DuckLake) -> None:
    before = shop.snapshots()
    stage = shop.stage("nightly")
    stage.delete("orders", "true")
    stage.write(orders(9), "more", mode="append")
    with shop.connect(read_only=True) as con:
        assert con.execute("SELECT count(*) FROM orders").fetchall() == [(5,)]
        assert {row[0] for row in con.execute("SHOW TABLES").fetchall()} == {"orders", "returns"}
    assert shop.snapshots() == before


@on_sqlite
@pytest.mark.parametrize(
    ("name", "ttl"), [("", "1 day"), ("x" * 251, "1 day"), ("a\0b", "1 day"), ("a", "-1 s"), ("a", "99999999 days")]
)
def test_a_stage_that_cannot_be_kept_is_refused(name: str, ttl: str, lake: DuckLake) -> None:
    with pytest.raises(ConfigError):
        lake.stage(name, ttl=ttl)


def test_a_lake_that_is_still_to_be_created_has_no_stages(tmp_path: Path) -> None:
    lake = DuckLake.local(str(tmp_path / "new"))
    assert lake.stages() == []
    lake.stage("first").write(orders(1), "orders", mode="append")
    assert [stage.name for stage in lake.stages()] == ["first"]


@on_sqlite
@pytest.mark.parametrize(("argument", "remedy"), [("commit", "publish"), ("expect_snapshot", "Leave it out")])
def test_arguments_that_a_verb_of_a_stage_does_not_take_are_refused(argument: str, remedy: str, shop: DuckLake) -> None:
    with pytest.raises(ConfigError, match=rf"`{argument}` applies to the stage as a whole.*{remedy}"):
        shop.stage("nightly").delete("orders", "true", **{argument: 1})
