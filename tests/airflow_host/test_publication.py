"""Tables that a task group writes become visible together, once its checks have succeeded."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.sql.operators.generic_transfer import GenericTransfer
from airflow.providers.common.sql.operators.sql import (
    SQLColumnCheckOperator,
    SQLExecuteQueryOperator,
    SQLInsertRowsOperator,
)
from airflow.sdk import DAG, task, task_group

from ducklake_orch import DuckLake
from ducklake_orch.airflow import (
    DuckLakeExecuteOperator,
    DuckLakeHook,
    DuckLakePublishOperator,
    DuckLakeWriteOperator,
    ducklake_asset,
    publication_task_group,
    read_reference,
)
from ducklake_orch.catalog.transactions import stage_rows
from ducklake_orch.errors import ConfigError, ObjectNotFoundError, TransactionClosedError
from tests.support.airflow_runs import result, run, states

DAY = datetime(2025, 1, 8, tzinfo=UTC)
TABLES = ["shop.customers", "shop.events", "shop.orders", "shop.totals"]


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def shop(*orders: int, **arguments: Any) -> DAG:
    """A DAG that writes four tables, and checks that no order is negative."""
    with DAG("shop", schedule=None, start_date=DAY) as dag, publication_task_group("shop", **arguments):

        @task.ducklake(table="shop.orders")
        def write_orders() -> pa.Table:
            return numbers(*orders)

        @task.ducklake(table="shop.totals")
        def totals(orders: pa.Table) -> pa.Table:
            return numbers(sum(orders.column("n").to_pylist()))

        @task
        def seen_by_readers() -> list[str]:
            lake = DuckLakeHook().lake()
            return [table for table in TABLES if lake.exists(table)]

        written = write_orders()
        DuckLakeWriteOperator(task_id="customers", table="shop.customers", python_callable=lambda: numbers(1))
        DuckLakeWriteOperator(
            task_id="events", table="shop.events", mode="append", python_callable=lambda: numbers(len(orders))
        )
        check = SQLColumnCheckOperator(
            task_id="check",
            conn_id="ducklake_default",
            table="shop.orders",
            column_mapping={"n": {"min": {"geq_to": 0}}},
        )
        totals(written) >> seen_by_readers()
        written >> check
    return dag


def visible(lake: DuckLake) -> dict[str, list[int]]:
    return {name: sorted(lake.read(name).column("n").to_pylist()) for name in TABLES if lake.exists(name)}


def test_a_failed_check_publishes_nothing_and_the_cleared_run_all_tables_in_one_snapshot(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    before = lake.write(numbers(0), "shop.orders", mode="overwrite").snapshot_id
    failed = run(shop(1, -2), logical_date=DAY, run_after=DAY)
    assert states(failed)["shop.check"] == "failed"
    assert states(failed)["shop.publish"] == "upstream_failed"
    (stage,) = lake.stages()
    assert (stage.status, sorted(stage.tables)) == ("open", TABLES)
    assert visible(lake) == {"shop.orders": [0]}
    cleared = run(shop(1, 2), logical_date=DAY, run_after=DAY)
    assert cleared.run_id == failed.run_id
    assert set(states(cleared).values()) == {"success"}
    assert result(cleared, "shop.seen_by_readers") == ["shop.orders"]
    assert result(cleared, "shop.publish")["snapshot_id"] == before + 1
    assert lake.snapshots(1)[0].snapshot_id == before + 1
    # The event of the first attempt is in the stage already.
    assert visible(lake) == dict(zip(TABLES, ([1], [2], [1, 2], [3]), strict=True))
    assert not lake.fsck().findings


def test_a_run_that_is_cleared_after_its_publication_replaces_what_it_replaced_and_appends_nothing_twice(
    conn_id: str,
) -> None:
    lake = DuckLakeHook().existing_lake()
    first = result(run(shop(1, 2, tag="shop {{ ds }}"), logical_date=DAY, run_after=DAY), "shop.publish")
    assert [(tag.name, tag.snapshot_id) for tag in lake.tags()] == [("shop 2025-01-08", first["snapshot_id"])]
    second = result(run(shop(3, tag="shop {{ ds }}"), logical_date=DAY, run_after=DAY), "shop.publish")
    assert [tag.snapshot_id for tag in lake.tags()] == [second["snapshot_id"]]
    assert second["stage"] == f"{first['stage']} (2)"
    assert second["previous_snapshot_id"] == first["snapshot_id"]
    assert visible(lake) == dict(zip(TABLES, ([1], [2], [3], [3]), strict=True))


def test_a_run_that_fails_can_discard_its_stage(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    failed = run(shop(-1, on_failure="discard"), logical_date=DAY, run_after=DAY)
    assert failed.state == "failed"
    assert states(failed)["shop.discard"] == "success"
    assert not lake.stages()
    published = run(shop(1, on_failure="discard"), logical_date=DAY, run_after=DAY)
    assert published.state == "success"
    assert visible(lake)["shop.orders"] == [1]


def test_mapped_tasks_stage_their_partitions_and_readers_see_them_together(conn_id: str) -> None:
    days = ["2025-01-01", "2025-01-02", "2025-01-03"]
    with DAG("mapped", schedule=None, start_date=DAY) as dag, publication_task_group("days"):

        @task.ducklake(table="shop.orders", partition_expr="day")
        def orders(partition_keys: list[str]) -> pa.Table:
            day = pa.array(partition_keys).cast(pa.date32())
            return numbers(1).append_column("day", day)

        count = SQLExecuteQueryOperator(
            task_id="count", conn_id="ducklake_default", sql="SELECT count(DISTINCT day) FROM shop.orders"
        )
        orders.expand(partition_keys=days) >> count
    lake = DuckLakeHook().existing_lake()
    before = lake.snapshots(1)[0].snapshot_id
    done = run(dag)
    assert "3" in str(result(done, "days.count"))
    assert lake.snapshots(1)[0].snapshot_id == before + 1
    assert lake.table("shop.orders").count() == 3


def test_the_events_of_the_tables_come_from_the_publication(conn_id: str) -> None:
    dag = shop(1)
    assert all(not dag.get_task(f"shop.{name}").outlets for name in ("write_orders", "totals", "customers", "events"))
    outlets = {asset.uri for asset in dag.get_task("shop.publish").outlets}
    assert outlets == {ducklake_asset(table).uri for table in TABLES}


def test_a_check_cannot_write_to_the_stage(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    lake.stage("work").write(numbers(1), "t", mode="append")
    hook = DuckLakeHook(stage="work")
    assert hook.get_first("SELECT n FROM t") == (1,)
    with pytest.raises(Exception, match="read-only"):
        hook.run("DELETE FROM t")
    assert lake.stage("work").read("t").num_rows == 1


def test_a_custom_task_reads_and_writes_the_stage_by_the_hook(conn_id: str, tmp_path: Path) -> None:
    hook = DuckLakeHook(stage="work")
    hook.existing_lake()
    assert hook.write(numbers(1), "t", mode="append").rows_written == 1
    assert hook.read("t", "pandas")["n"].tolist() == [1]
    assert not hook.lake().exists("t")


def test_sql_in_the_lake_itself_is_refused_in_a_publication(conn_id: str) -> None:
    with (
        DAG("sql", schedule=None, start_date=DAY),
        pytest.raises(ConfigError, match=r"Task `sql\.delete` runs SQL in the lake"),
        publication_task_group("sql"),
    ):
        DuckLakeExecuteOperator(task_id="delete", command="DELETE FROM t")


def test_a_stage_is_not_published_without_rows_that_were_staged_in_one_that_is_gone(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    with DAG("parts", schedule=None, start_date=DAY) as dag:

        @task.ducklake(table="shop.orders", stage="work")
        def orders() -> pa.Table:
            return numbers(1)

        @task
        def discard() -> None:
            DuckLakeHook().lake().stage("work", create=False).discard()

        @task.ducklake(table="shop.totals", stage="work")
        def totals() -> pa.Table:
            return numbers(2)

        publish = DuckLakePublishOperator(task_id="publish", stage="work", writers=["orders", "totals"])
        orders() >> discard() >> totals() >> publish
    assert states(run(dag))["publish"] == "failed"
    assert visible(lake) == {}


def test_a_stage_that_has_ended_is_not_published(conn_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLakeHook().existing_lake()
    lake.stage("work").write(numbers(1), "shop.orders", mode="overwrite")
    now = stage_rows._now
    monkeypatch.setattr(stage_rows, "_now", lambda metadata: now(metadata) + timedelta(days=8))
    with DAG("late", schedule=None, start_date=DAY) as dag:
        DuckLakePublishOperator(task_id="publish", stage="work")
    assert states(run(dag))["publish"] == "failed"
    assert visible(lake) == {}


def test_an_attempt_that_outlives_the_publication_stages_nothing_more(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    late = DuckLakeHook(stage="work")
    assert late.staging.name == "work"
    DuckLakeHook(stage="work").write(numbers(1), "shop.orders", mode="overwrite")
    lake.stage("work").publish()
    with pytest.raises(TransactionClosedError, match="was published as snapshot"):
        late.write(numbers(2), "shop.orders", mode="overwrite")
    assert [stage.name for stage in lake.stages()] == ["work"]


def test_a_hook_with_a_stage_changes_nothing_in_the_lake_itself(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    lake.write(numbers(1), "shop.orders", mode="overwrite")
    hook = DuckLakeHook(stage="work")
    with pytest.raises(ObjectNotFoundError, match="Nothing is staged as `work`"):
        hook.run("DELETE FROM shop.orders")
    with hook.transaction() as tx:
        tx.delete("shop.orders", "true")
    assert hook.read("shop.orders").num_rows == 0
    for call in (lambda: hook.insert_rows("shop.orders", [(2,)]), lambda: hook.execute("DELETE FROM shop.orders")):
        with pytest.raises(ConfigError, match="writes to the lake itself"):
            call()
    assert visible(lake) == {"shop.orders": [1]}


def test_a_stage_is_read_as_it_was_published(conn_id: str) -> None:
    hook = DuckLakeHook(stage="work")
    lake = hook.existing_lake()
    hook.write(numbers(1), "shop.orders", mode="overwrite")
    lake.stage("work").publish()
    lake.write(numbers(2), "shop.orders", mode="overwrite")
    assert hook.read("shop.orders").column("n").to_pylist() == [1]
    assert hook.get_first("SELECT n FROM shop.orders") == (1,)


def test_a_name_that_was_not_rendered_is_no_stage(conn_id: str) -> None:
    DuckLakeHook().existing_lake()
    with pytest.raises(ConfigError, match="was not rendered"):
        DuckLakeHook(stage="{{ run_id }}").read("shop.orders")


@pytest.mark.parametrize(
    "operator",
    [
        lambda: SQLInsertRowsOperator(task_id="t", conn_id="ducklake_default", table_name="a", rows=[(1,)]),
        lambda: GenericTransfer(
            task_id="t", source_conn_id="x", destination_conn_id="ducklake_default", sql="", destination_table="a"
        ),
    ],
    ids=["insert", "transfer"],
)
def test_operators_that_cannot_be_given_the_stage_are_refused(operator: Callable[[], object]) -> None:
    with (
        DAG("sql", schedule=None, start_date=DAY),
        pytest.raises(ConfigError, match=r"Task `group\.t` uses the lake itself"),
        publication_task_group("group"),
    ):
        operator()


def test_a_writer_with_a_stage_of_its_own_is_not_part_of_the_publication() -> None:
    with DAG("own", schedule=None, start_date=DAY) as dag, publication_task_group("group"):
        DuckLakeWriteOperator(task_id="t", table="a", stage="other", sql="SELECT 1", outlets=[ducklake_asset("b")])
    assert [asset.uri for asset in dag.get_task("group.t").outlets] == [ducklake_asset("b").uri]
    publish = dag.get_task("group.publish")
    assert isinstance(publish, DuckLakePublishOperator)
    assert (publish.outlets, publish.writers) == ([], [])


def test_the_next_tasks_read_a_table_to_which_rows_were_appended(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    lake.write(numbers(1), "shop.orders", mode="append")
    with DAG("appends", schedule=None, start_date=DAY) as dag, publication_task_group("group"):

        @task.ducklake(table="shop.orders", mode="append")
        def orders() -> pa.Table:
            return numbers(2)

        @task.ducklake(table="shop.totals")
        def totals(task: Any = None) -> pa.Table:
            seen = DuckLakeHook(stage=task.stage).read("shop.orders")
            return numbers(sum(seen.column("n").to_pylist()))

        @task
        def check(orders: Any) -> None:
            with pytest.raises(ConfigError, match=r"Read the whole table: DuckLakeHook\(stage=…\).read") as refused:
                read_reference(orders)
            assert 'read("shop.orders"), where the stage is `task.stage`' in str(refused.value)
            assert DuckLakeHook(stage=orders["stage"]).read("shop.orders").num_rows == 2

        written = orders()
        written >> totals()
        check(written)
    assert set(states(run(dag)).values()) == {"success"}
    assert visible(lake) == {"shop.orders": [1, 2], "shop.totals": [3]}


def test_a_task_outside_of_the_group_gets_no_rows_that_are_not_published(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    with DAG("outside", schedule=None, start_date=DAY) as dag:
        with publication_task_group("group"):

            @task.ducklake(table="shop.orders")
            def orders() -> pa.Table:
                return numbers(-1)

            @task
            def check() -> None:
                raise ValueError("A number is negative.")

            written = orders()
            written >> check()

        @task.ducklake(table="shop.totals")
        def totals(orders: pa.Table) -> pa.Table:
            return orders

        totals(written)
    assert states(run(dag))["totals"] == "failed"
    assert visible(lake) == {}


def test_each_copy_of_a_mapped_group_is_published_by_itself(conn_id: str) -> None:
    lake = DuckLakeHook().existing_lake()
    with DAG("copies", schedule=None, start_date=DAY) as dag:

        @task_group
        def shop_of(number: int) -> None:
            with publication_task_group("group"):

                @task.ducklake(table="shop.orders", mode="append")
                def orders(number: int) -> pa.Table:
                    return numbers(number)

                @task
                def check(number: int) -> None:
                    assert number > 0

                orders(number) >> check(number)

        shop_of.expand(number=[1, -2])
    run(dag)
    assert visible(lake) == {"shop.orders": [1]}


def test_a_writer_that_returns_nothing_is_refused() -> None:
    with (
        DAG("silent", schedule=None, start_date=DAY),
        pytest.raises(ConfigError, match="`publish` needs what it returns"),
        publication_task_group("group"),
    ):
        DuckLakeWriteOperator(task_id="t", table="a", sql="SELECT 1", do_xcom_push=False)
