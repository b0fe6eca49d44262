"""Sensors and the trigger: what they wait for, where they wait, and the events they send."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk import DAG, Asset, AssetWatcher, PokeReturnValue, task
from airflow.triggers.base import TriggerEvent

from ducklake_orch.airflow import (
    DuckLakeHook,
    DuckLakePartitionSensor,
    DuckLakeSnapshotSensor,
    DuckLakeSnapshotTrigger,
    ducklake_asset,
)
from ducklake_orch.airflow.sensors import LakeSensor
from ducklake_orch.errors import CatalogUnreachableError
from tests.support.airflow_connections import Connect
from tests.support.airflow_runs import DagSerialization, result, run, states
from tests.support.airflow_tasks import Ti, execute


def append(*numbers: int, day: str = "2024-01-01") -> int:
    rows = pa.table({"day": [day] * len(numbers), "n": list(numbers)})
    return DuckLakeHook().write(rows, "sales.orders", mode="append").snapshot_id


def poke(sensor: LakeSensor, **context: Any) -> Any:
    found: Any = sensor.poke({"ti": Ti(sensor.task_id), **context})  # type: ignore[typeddict-item]
    assert isinstance(found, PokeReturnValue)
    return found.xcom_value if found.is_done else None


# --- sensors -------------------------------------------------------------------------------------------------------


def test_the_sensor_waits_for_a_table_that_does_not_exist_yet(conn_id: str) -> None:
    sensor = DuckLakeSnapshotSensor(task_id="wait", table="sales.orders")
    assert poke(sensor) is None
    DuckLakeHook().run("CREATE TABLE other (a INTEGER)")
    assert poke(sensor) is None
    first = append(1)
    assert poke(sensor)["snapshot_id"] == first


def test_since_is_a_snapshot_a_time_or_the_last_successful_run(conn_id: str) -> None:
    first = append(1)
    before = datetime.now(UTC)
    sensors = [
        DuckLakeSnapshotSensor(task_id="a", table="sales.orders", since=first),
        DuckLakeSnapshotSensor(task_id="b", table="sales.orders", since=str(first)),
        DuckLakeSnapshotSensor(task_id="c", table="sales.orders", since=before.isoformat()),
        DuckLakeSnapshotSensor(task_id="d", table="sales.orders"),
    ]
    context = {"prev_start_date_success": before}
    assert [poke(sensor, **context) for sensor in sensors] == [None] * 4
    second = append(2)
    assert [poke(sensor, **context)["snapshot_id"] for sensor in sensors] == [second] * 4


def test_compaction_and_other_tables_do_not_count_as_changes(conn_id: str) -> None:
    last = [append(n) for n in range(6)][-1]
    DuckLakeHook().maintain(operations=["merge"])
    DuckLakeHook().run("CREATE TABLE other AS SELECT 1 AS a")
    assert poke(DuckLakeSnapshotSensor(task_id="a", table="sales.orders", since=last)) is None
    assert poke(DuckLakeSnapshotSensor(task_id="b", since=last)) is not None


def test_flushes_and_schema_changes_do_not_count_as_changes(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE SCHEMA sales")
    hook.run("CREATE TABLE sales.orders (n INTEGER)")
    hook.run("INSERT INTO sales.orders VALUES (1), (2)")
    hook.run("DELETE FROM sales.orders WHERE n = 1")
    last = hook.lake().table("sales.orders").history(limit=1, rows=True)[0].snapshot_id
    alias = hook.lake().config.alias
    hook.run(f"CALL ducklake_flush_inlined_data('{alias}', table_name => 'orders', schema_name => 'sales')")
    assert poke(DuckLakeSnapshotSensor(task_id="a", table="sales.orders", since=last)) is None
    hook.run("CREATE TABLE other (a INTEGER)")
    hook.run(["ALTER TABLE sales.orders ADD COLUMN m INTEGER", "INSERT INTO other VALUES (1)"])
    assert poke(DuckLakeSnapshotSensor(task_id="b", table="sales.orders", since=last)) is None
    hook.run("UPDATE sales.orders SET n = 3")
    assert poke(DuckLakeSnapshotSensor(task_id="c", table="sales.orders", since=last))["snapshot_id"] > last


def test_rows_older_than_the_retained_history_are_found(conn_id: str) -> None:
    first = append(1, 2)
    hook = DuckLakeHook()
    hook.run("CREATE TABLE other (a INTEGER)")
    hook.maintain({"expire": {"older_than": "0s", "retain_last": 1}, "force": True}, operations=["expire"])
    assert [snapshot.snapshot_id for snapshot in hook.lake().snapshots()] == [first + 1]
    assert poke(DuckLakeSnapshotSensor(task_id="a", table="sales.orders"))["snapshot_id"] == first
    assert poke(DuckLakeSnapshotSensor(task_id="b", table="sales.orders", since=first)) is None
    partition = DuckLakePartitionSensor(task_id="c", table="sales.orders", partition_expr="day", min_rows=2)
    assert poke(partition, partition_key="2024-01-01")["rows"] == 2


def test_the_partition_sensor_waits_for_min_rows(conn_id: str) -> None:
    sensor = DuckLakePartitionSensor(task_id="wait", table="sales.orders", partition_expr="day", min_rows=2)
    context = {"partition_key": "2024-01-02"}
    assert poke(sensor, **context) is None
    append(1, 2, 3)
    append(1, day="2024-01-02")
    assert poke(sensor, **context) is None
    last = append(2, day="2024-01-02")
    found = poke(sensor, **context)
    assert (found["rows"], found["snapshot_id"], found["partition_keys"]) == (2, last, ["2024-01-02"])


def test_the_partition_sensor_counts_rows_that_match_where(conn_id: str) -> None:
    append(1, 2)
    assert poke(DuckLakePartitionSensor(task_id="a", table="sales.orders", where="n > 2")) is None
    assert poke(DuckLakePartitionSensor(task_id="b", table="sales.orders", where="n > 1"))["rows"] == 1


@pytest.mark.parametrize(
    ("sensor", "message"),
    [
        (DuckLakeSnapshotSensor(task_id="a", table="t", since="yesterday"), "`since` = 'yesterday'"),
        (DuckLakeSnapshotSensor(task_id="a", table="t", since="2024-01-01"), "a time with a zone"),
        (DuckLakePartitionSensor(task_id="a", table="sales.orders", partition_expr="nope", partition_key="x"), "nope"),
        (DuckLakePartitionSensor(task_id="a", table="sales.orders", where="n >"), "syntax error"),
        (DuckLakePartitionSensor(task_id="a", table="a.b.c"), "is not the name of a table"),
    ],
)
def test_invalid_sensor_arguments_fail_without_a_retry(conn_id: str, sensor: LakeSensor, message: str) -> None:
    append(1)
    with pytest.raises(AirflowFailException) as refused:
        poke(sensor)
    assert message in str(refused.value)


def test_wait_when_down_decides_between_waiting_and_failing(connect: Connect) -> None:
    connect(host="127.0.0.1", port=1, login="x", schema="x", extra={"storage": "/x", "retry": {"max_attempts": 1}})
    assert poke(DuckLakeSnapshotSensor(task_id="a", table="t")) is None
    with pytest.raises(CatalogUnreachableError):
        poke(DuckLakeSnapshotSensor(task_id="a", table="t", wait_when_down=False))


@pytest.mark.parametrize("mode", ["poke", "reschedule", "deferrable"])
def test_a_sensor_waits_in_the_worker_or_in_the_triggerer(conn_id: str, mode: str) -> None:
    with DAG(f"waits_{mode}") as dag:
        options: dict[str, Any] = {"deferrable": True} if mode == "deferrable" else {"mode": mode}
        DuckLakeSnapshotSensor(task_id="wait", table="sales.orders", poke_interval=0.2, timeout=60, **options)

    if mode == "poke":
        append(1)
    else:
        with DAG(f"waits_{mode}") as dag:

            @task
            def write() -> None:
                append(1)

            write() >> DuckLakeSnapshotSensor(
                task_id="wait", table="sales.orders", poke_interval=0.2, timeout=60, **options
            )
    done = run(dag)
    assert states(done)["wait"] == "success"
    assert result(done, "wait")["table"] == "sales.orders"


def test_a_deferred_sensor_triggers_after_the_snapshot_it_has_checked(conn_id: str) -> None:
    last = append(1)
    sensor = DuckLakePartitionSensor(
        task_id="wait", table="sales.orders", where="n > 5", deferrable=True, timeout=60, poke_interval=5
    )
    with pytest.raises(TaskDeferred) as deferred:
        execute(sensor)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DuckLakeSnapshotTrigger)
    assert (trigger.table, trigger.after, trigger.poke_interval) == ("sales.orders", last, 5)
    assert deferred.value.timeout is not None
    assert timedelta(0) < deferred.value.timeout <= timedelta(seconds=60)


def test_a_write_between_the_poke_and_the_trigger_is_not_missed(conn_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = append(1)
    sensor = DuckLakePartitionSensor(task_id="wait", table="sales.orders", where="n > 5", deferrable=True)
    original_poke = sensor.poke

    def poke_and_write(context: Any) -> PokeReturnValue:
        found = original_poke(context)
        append(6)
        return found

    monkeypatch.setattr(sensor, "poke", poke_and_write)
    with pytest.raises(TaskDeferred) as deferred:
        execute(sensor)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DuckLakeSnapshotTrigger)

    async def fired() -> dict[str, Any]:
        return await _next(trigger.run())

    assert trigger.after == before
    assert asyncio.run(fired())["snapshot_id"] == before + 1


@pytest.mark.parametrize("kind", [DuckLakePartitionSensor, DuckLakeSnapshotSensor])
def test_wait_when_down_decides_whether_a_deferrable_sensor_fails(connect: Connect, kind: type[LakeSensor]) -> None:
    connect(host="127.0.0.1", port=1, login="x", schema="x", extra={"storage": "/x", "retry": {"max_attempts": 1}})
    with pytest.raises(TaskDeferred):
        execute(kind(task_id="wait", table="t", deferrable=True))
    with pytest.raises(CatalogUnreachableError):
        execute(kind(task_id="wait", table="t", deferrable=True, wait_when_down=False))


# --- the trigger ---------------------------------------------------------------------------------------------------


class Store:
    """A stand-in for Airflow's asset state store."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value


async def _next(events: AsyncIterator[TriggerEvent], seconds: float = 20) -> dict[str, Any]:
    found = await asyncio.wait_for(anext(events), seconds)
    payload: dict[str, Any] = found.payload
    return payload


def test_a_watcher_fires_for_changes_after_its_first_check(conn_id: str) -> None:
    append(1)
    store = Store()

    async def watch() -> tuple[int, dict[str, Any]]:
        trigger = DuckLakeSnapshotTrigger(table="sales.orders", poke_interval=0.1)
        trigger.asset_state_store = store  # type: ignore[assignment]
        events = trigger.run()
        waiting = asyncio.create_task(_next(events))
        await asyncio.sleep(1)
        assert not waiting.done()
        return await asyncio.to_thread(append, 2), await waiting

    written, event = asyncio.run(watch())
    assert (event["snapshot_id"], event["table"], event["previous_snapshot_id"]) == (written, "sales.orders", 1)


def test_a_restarted_trigger_resumes_at_its_stored_snapshot(conn_id: str) -> None:
    first = append(1)
    store = Store()
    store.values["ducklake/ducklake_default/sales.orders"] = first
    second = append(2)

    async def next_event() -> dict[str, Any]:
        trigger = DuckLakeSnapshotTrigger(table="sales.orders", poke_interval=0.1)
        trigger.asset_state_store = store  # type: ignore[assignment]
        events = trigger.run()
        event = await _next(events)
        with pytest.raises(asyncio.TimeoutError):
            await _next(events, 0.5)
        return event

    assert asyncio.run(next_event())["snapshot_id"] == second
    assert store.values == {"ducklake/ducklake_default/sales.orders": second}


def test_a_trigger_is_serialised_without_secrets(conn_id: str) -> None:
    trigger = DuckLakeSnapshotTrigger(table="sales.orders", poke_interval=5)
    path, arguments = trigger.serialize()
    assert path == "ducklake_orch.airflow.triggers.DuckLakeSnapshotTrigger"
    assert DuckLakeSnapshotTrigger(**arguments).serialize() == trigger.serialize()
    watched: Asset = ducklake_asset("sales.orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])
    dag = DAG("watched", schedule=[watched])
    stored = DagSerialization.to_dict(dag)
    assert path in str(stored)
    DagSerialization.from_dict(stored)
