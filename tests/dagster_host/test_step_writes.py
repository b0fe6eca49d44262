"""Writes in the code of a step: they name the step, retries write once, and the sensor skips them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_orch import CommitInfo
from ducklake_orch.dagster import DuckLakeResource, ducklake_snapshot_sensor
from tests.support.dagster_runs import central

ONE = pa.table({"id": [1]})


def ids(resource: DuckLakeResource, table: str) -> list[int]:
    return sorted(row["id"] for row in resource.lake().read(table).to_pylist())


@central
def test_a_retried_step_repeats_none_of_its_distinct_appends(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    attempts: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def events(lake: DuckLakeResource) -> None:
        attempts.append(1)
        lake.write(ONE, "orders", mode="append")
        if len(attempts) == 1:
            raise RuntimeError("after the first append")
        lake.write(ONE, "orders", mode="append")
        lake.write(ONE, "sales.orders", mode="append")
        if len(attempts) == 2:
            raise RuntimeError("after all appends")

    for number in (1, 2):  # another run appends again
        assert dg.materialize([events], resources={"lake": resource}, instance=instance).success
        assert ids(resource, "orders") == [1, 1] * number
        assert ids(resource, "sales.orders") == [1] * number
    assert len(attempts) == 4
    for number in (3, 4):  # outside of steps, each append takes effect
        resource.write(ONE, "orders", mode="append")
        assert ids(resource, "orders") == [1, 1] * 2 + [1] * (number - 2)


def test_a_retried_step_repeats_no_transaction_and_its_tables_change_together(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    attempts: list[int] = []

    @dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("totals")], retry_policy=dg.RetryPolicy(max_retries=2))
    def orders_and_totals(lake: DuckLakeResource) -> Iterator[dg.MaterializeResult[None]]:
        attempts.append(1)
        with lake.transaction() as tx:
            tx.write(ONE, "orders", mode="append")
            tx.write(ONE, "totals", mode="append")
            if len(attempts) == 1:
                raise RuntimeError("within the transaction")
        if len(attempts) == 2:
            raise RuntimeError("after the commit")
        for write in tx.result.writes if tx.result else ():
            yield dg.MaterializeResult(asset_key=write.table.removeprefix("main."))

    result = dg.materialize([orders_and_totals], resources={"lake": resource}, instance=instance)
    assert (result.success, len(attempts)) == (True, 3)
    assert ids(resource, "orders") == ids(resource, "totals") == [1]
    last = resource.lake().snapshots(1)[0]
    assert {change.partition(":")[0] for change in last.changes} == {"created_table", "inserted_into_table"}
    assert (last.author, last.message) == ("dagster", f"transaction, run {result.run_id}")
    assert last.extra["dagster"]["asset"] == "orders, totals"


def test_appends_of_mapped_and_aliased_steps_are_all_written(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.op(out=dg.DynamicOut(int))
    def several() -> Any:
        for number in (1, 2):
            yield dg.DynamicOutput(number, mapping_key=str(number))

    @dg.op(required_resource_keys={"lake"})
    def add(context: dg.OpExecutionContext, given: int) -> int:
        context.resources.lake.write(pa.table({"id": [given]}), "orders", mode="append")
        return given

    @dg.job(resource_defs={"lake": resource, "io_manager": dg.mem_io_manager})
    def adding() -> None:
        several().map(lambda number: add.alias("again")(add(number)))

    assert adding.execute_in_process(instance=instance).success
    assert ids(resource, "orders") == [1, 1, 2, 2]


@dg.op(required_resource_keys={"lake"})
def append(context: dg.OpExecutionContext) -> None:
    """Append; in the first run, fail after it."""
    context.resources.lake.write(ONE, "orders", mode="append")
    if context.run.parent_run_id is None:
        raise RuntimeError("the answer is lost")


@dg.resource(config_schema={"folder": str})
def lake_in(context: dg.InitResourceContext) -> DuckLakeResource:
    folder = context.resource_config["folder"]
    return DuckLakeResource(name="lake", catalog=f"sqlite:///{folder}/c.sqlite", storage=folder, create_if_missing=True)


@dg.job(resource_defs={"lake": lake_in})
def appending() -> None:
    append()


def test_a_re_execution_after_a_failure_appends_no_row_twice(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    resources = {"resources": {"lake": {"config": {"folder": str(tmp_path)}}}}
    config: dict[str, Any] = resources | {"execution": {"config": {"in_process": {}}}}
    with dg.execute_job(dg.reconstructable(appending), instance=instance, run_config=config) as first:
        assert not first.success
    again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    with dg.execute_job(
        dg.reconstructable(appending), instance=instance, run_config=config, reexecution_options=again
    ) as second:
        assert second.success
    lake = DuckLakeResource(name="lake", catalog=f"sqlite:///{tmp_path}/c.sqlite", storage=str(tmp_path)).lake()
    assert lake.table("orders").count() == 1


def test_snapshots_name_the_step_and_the_sensor_skips_them(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["eu"]))
    def orders(lake: DuckLakeResource) -> None:
        lake.write(ONE, "orders", mode="append")
        lake.execute("INSERT INTO orders VALUES (2)")
        lake.execute("INSERT INTO orders VALUES (3)", commit=CommitInfo(author="ann", extra={"dagster": {}}))

    lake, sensor = resource.lake(), ducklake_snapshot_sensor([dg.AssetSpec("orders")])
    lake.ensure_exists()
    cursor = str(lake.snapshots(1)[0].snapshot_id)
    result = dg.materialize([orders], resources={"lake": resource}, instance=instance, partition_key="eu")
    mine, executed, written = lake.snapshots(3)
    assert mine.author == "ann"
    for snapshot, what in ((executed, "execute"), (written, "append to orders")):
        assert (snapshot.author, snapshot.message) == ("dagster", f"{what}, run {result.run_id}")
        about = snapshot.extra["dagster"]
        assert (about["run_id"], about["step"], about["asset"]) == (result.run_id, "orders", "orders")
        assert (about["partitions"], about["job"]) == (["eu"], "__ephemeral_asset_job__")
    with dg.build_sensor_context(instance, cursor, resources={"lake": resource}) as context:
        assert not sensor.evaluate_tick(context).asset_events
