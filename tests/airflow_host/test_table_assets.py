"""Assets of tables: their names, and which tasks have them as outlets and inlets, mapped tasks included."""

from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, Asset, task

from ducklake_orch.airflow import DuckLakeExecuteOperator, DuckLakeHook, DuckLakeWriteOperator, ducklake_asset
from tests.support.airflow_runs import DagSerialization, run, states

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


def names(assets: Any) -> list[str]:
    return [asset.name for asset in assets]


def events_of(dag_id: str) -> dict[str | None, dict[str, Any]]:
    """Return the extra of a DAG's asset events by partition."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter_by(source_dag_id=dag_id).all()
        return {getattr(event, "partition_key", None): event.extra for event in events}


@pytest.mark.parametrize(
    ("table", "lake", "name"),
    [
        ("orders", "ducklake_default", "ducklake_default.main.orders"),
        ("sales.orders", "Prod", "prod.sales.orders"),
        ('sales."a.b c"', "prod", "prod.sales.a%2Eb%20c"),
        ("sales.größe", "prod", "prod.sales.gr%C3%B6%C3%9Fe"),
    ],
)
def test_an_asset_is_named_after_lake_schema_and_table(table: str, lake: str, name: str) -> None:
    asset = ducklake_asset(table, lake=lake)
    assert (asset.name, asset.group) == (name, "ducklake")


def test_a_name_and_a_group_can_be_given() -> None:
    asset = ducklake_asset("orders", name="orders of the shop", group="shop")
    assert (asset.name, asset.group, asset.uri) == ("orders of the shop", "shop", ducklake_asset("orders").uri)


def test_decorated_tasks_produce_their_table_and_consume_those_of_their_arguments() -> None:
    with DAG("asset_graph") as dag:

        @task.ducklake(table="raw.orders")
        def orders() -> pa.Table: ...

        @task.ducklake(table="daily")
        def daily(orders: pa.Table, factor: int, more: list[pa.Table]) -> pa.Table: ...

        raw = orders()
        daily(raw, 2, more=[raw, orders.override(task_id="others", table="raw.others")()])
    consumer = dag.get_task("daily")
    assert names(consumer.inlets) == ["ducklake_default.raw.orders", "ducklake_default.raw.others"]
    assert names(consumer.outlets) == ["ducklake_default.main.daily"]
    assert names(dag.get_task("others").outlets) == ["ducklake_default.raw.others"]
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("daily").inlets


def test_a_query_consumes_its_views() -> None:
    views = {"o": "sales.orders", "t": "{{ params.table }}"}
    operator = DuckLakeWriteOperator(task_id="w", table="daily", sql="FROM o", views=views)
    assert names(operator.inlets) == ["ducklake_default.sales.orders"]
    inlets = [Asset("x://y")]
    assert DuckLakeWriteOperator(task_id="w", table="t", sql="FROM o", views=views, inlets=inlets).inlets == inlets


def test_mapped_tasks_produce_and_consume_tables() -> None:
    with DAG("mapped_assets", default_args={"ducklake_conn_id": "sales"}) as dag:

        @task.ducklake(table="raw")
        def raw() -> pa.Table: ...

        @task.ducklake(table="clean", ducklake_conn_id="other")
        def clean(rows: pa.Table, n: int) -> pa.Table: ...

        @task.ducklake(table="days")
        def days(partition_keys: list[str]) -> pa.Table: ...

        clean.partial(rows=raw()).expand(n=[1, 2])
        days.override(task_id="hours", table="hours").expand(partition_keys=DAYS)
        days.expand(partition_keys=DAYS)
        writer = DuckLakeWriteOperator.partial(task_id="write", table="written", partition_expr="day")
        writer.expand(partition_key=DAYS)
        named = DuckLakeWriteOperator.partial(task_id="named", table="{{ params.t }}", outlets=[Asset("x://y")])
        named.expand(partition_key=DAYS)
        DuckLakeWriteOperator.partial(task_id="unnamed", partition_expr="day").expand(table=["a", "b"])
    outlets = {task.task_id: names(task.outlets) for task in dag.tasks}
    assert outlets == {
        "raw": ["sales.main.raw"],
        "clean": ["other.main.clean"],
        "hours": ["sales.main.hours"],
        "days": ["sales.main.days"],
        "write": ["sales.main.written"],
        "named": ["x://y"],
        "unnamed": [],
    }
    assert {task.task_id: names(task.inlets) for task in dag.tasks if task.inlets} == {"clean": ["sales.main.raw"]}


def test_each_mapped_task_replaces_the_partition_it_is_called_with(conn_id: str) -> None:
    DuckLakeHook().write(pa.table({"day": [*DAYS, "2024-01-04"], "n": [-1] * 4}), "t", mode="append")
    with DAG("mapped_days") as dag:

        @task.ducklake(table="t", partition_expr="day")
        def replace(partition_keys: list[str], factor: int) -> pa.Table:
            (day,) = partition_keys
            return pa.table({"day": [day], "n": [int(day[-1]) * factor]})

        replace.partial(factor=10).expand(partition_keys=DAYS)
    done = run(dag)
    assert str(done.state) == "success"
    assert DuckLakeHook().get_records("FROM t ORDER BY ALL") == [
        *zip(DAYS, [10, 20, 30], strict=True),
        ("2024-01-04", -1),
    ]
    events = events_of("mapped_days")
    if None not in events:  # Airflow 3.3
        assert {key: extra["ducklake/rows_written"] for key, extra in events.items()} == dict.fromkeys(DAYS, 1)


def test_partitions_chosen_by_another_task_are_mapped(conn_id: str) -> None:
    with DAG("mapped_lists") as dag:

        @task
        def late() -> list[list[str]]:
            return [DAYS[:2], DAYS[2:]]

        @task.ducklake(table="t", partition_expr="day")
        def replace(partition_keys: list[str]) -> pa.Table:
            return pa.table({"day": partition_keys})

        replace.expand(partition_keys=late())
    assert str(run(dag).state) == "success"
    assert DuckLakeHook().get_records("FROM t ORDER BY ALL") == [(day,) for day in DAYS]
    assert [snapshot.snapshot_id for snapshot in DuckLakeHook().snapshots()] == [2, 1, 0]


@pytest.mark.parametrize(("keys", "key"), [(None, None), ("", None), ([], None), (["2024-01-01"], "2024-01-01")])
def test_an_empty_or_doubled_choice_of_partitions_is_refused(conn_id: str, keys: Any, key: str | None) -> None:
    given: Any = {"partition_key": key} if key else {}
    with DAG("refused_choice") as dag:

        @task.ducklake(table="t", partition_expr="day", **given)
        def replace(partition_keys: list[str]) -> pa.Table:
            return pa.table({"day": ["2024-01-01"]})

        replace(partition_keys=keys)
    assert states(run(dag)) == {"replace": "failed"}
    assert not DuckLakeHook().lake().exists("t")


def test_events_of_sql_commands_name_the_snapshot(conn_id: str) -> None:
    with DAG("events_of_commands") as dag:
        DuckLakeExecuteOperator(
            task_id="make",
            commands=["CREATE TABLE t AS SELECT 1 AS n", "FROM t"],
            outlets=[ducklake_asset("t"), ducklake_asset("t", lake="other")],
        )
    assert states(run(dag)) == {"make": "success"}
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter_by(source_dag_id="events_of_commands").all()
        extra = {event.asset.name: event.extra.get("ducklake/snapshot_id") for event in events}
    assert extra == {"ducklake_default.main.t": 1, "other.main.t": None}
