"""Tables that a task group writes become visible together, once its checks have succeeded."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.sql.operators.sql import SQLColumnCheckOperator, SQLExecuteQueryOperator
from airflow.sdk import DAG, task

from ducklake_orch import DuckLake
from ducklake_orch.airflow import (
    DuckLakeExecuteOperator,
    DuckLakeHook,
    DuckLakeWriteOperator,
    ducklake_asset,
    publication_task_group,
)
from ducklake_orch.errors import ConfigError
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
    first = result(run(shop(1, 2), logical_date=DAY, run_after=DAY), "shop.publish")
    second = result(run(shop(3), logical_date=DAY, run_after=DAY), "shop.publish")
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
