"""Outputs of a run wait in a stage, and become visible together: after their checks, or when all are there."""

from pathlib import Path
from typing import cast

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    ducklake_publication,
    ducklake_sql_assets,
)
from tests.dagster_host.published_job import five_tables, numbers

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
TABLES = ["shop.customers", "shop.events", "shop.orders", "shop.places", "shop.totals"]


def visible(lake: DuckLake) -> dict[str, list[int]]:
    return {name: sorted(lake.read(name).column("n").to_pylist()) for name in TABLES if lake.exists(name)}


def test_a_failed_check_publishes_nothing_and_the_repeated_run_all_five_tables_in_one_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, files = f"sqlite:///{tmp_path / 'lake.sqlite'}", str(tmp_path / "files")
    for name, value in {"LAKE_CATALOG": catalog, "LAKE_FILES": files, "IS_GOOD": str(tmp_path / "good")}.items():
        monkeypatch.setenv(name, value)
    lake = DuckLake.from_url("lake", catalog=catalog, storage=files, create_if_missing=True)
    before = lake.write(numbers(0), "shop.orders", mode="overwrite").snapshot_id
    (tmp_path / "home").mkdir()
    job = dg.reconstructable(five_tables)
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        with dg.execute_job(job, instance=instance) as first:
            assert not first.success
            event = first.asset_materializations_for_node("shop__orders")[0].metadata
        (stage,) = lake.stages()
        assert (stage.status, set(stage.tables)) == ("open", set(TABLES) - {"shop.totals"})
        assert event["ducklake/stage"].value == stage.name
        assert "ducklake/snapshot_id" not in event
        assert visible(lake) == {"shop.orders": [0]}
        assert lake.snapshots(1)[0].snapshot_id == before
        (tmp_path / "good").touch()
        again = dg.ReexecutionOptions(first.run_id, ["shop__orders*"])
        with dg.execute_job(job, instance=instance, reexecution_options=again) as second:
            assert second.success
            (published,) = second.asset_materializations_for_node("published")
    assert visible(lake) == dict(zip(TABLES, ([1], [7], [1, 2, 3], [2], [6]), strict=True))
    assert lake.snapshots(1)[0].snapshot_id == before + 1
    assert published.metadata["ducklake/snapshot_id"].value == before + 1
    assert sorted(cast("list[str]", published.metadata["ducklake/tables"].value)) == TABLES
    assert not lake.fsck().findings


def test_a_run_without_a_publication_is_visible_when_all_of_its_tables_are_written(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    lake = resource.existing_lake()
    before = lake.snapshots(1)[0].snapshot_id

    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        return numbers(1)

    @dg.asset(key_prefix="shop")
    def totals(orders: pa.Table) -> pa.Table:
        assert not lake.exists("shop.orders")
        return orders

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="run")}
    assert dg.materialize([orders, totals], resources=resources, instance=instance).success
    assert visible(lake) == {"shop.orders": [1], "shop.totals": [1]}
    assert lake.snapshots(1)[0].snapshot_id == before + 1
    assert dg.materialize([orders, totals], resources=resources, instance=instance, selection=[orders]).success
    assert lake.snapshots(1)[0].snapshot_id == before + 2


def test_each_partition_is_published_by_its_own_run(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = resource.existing_lake()

    @dg.asset(key_prefix="shop", partitions_def=DAYS, metadata={"partition_expr": "day"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        day = pa.array([context.partition_key], pa.string()).cast(pa.date32())
        return numbers(1).append_column("day", day)

    published = ducklake_publication("published", [orders], tag=lambda context: f"orders {context.partition_key}")
    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="after_checks"), "lake": resource}
    for key in ("2024-01-01", "2024-01-02", "2024-01-01"):
        result = dg.materialize([orders, published], partition_key=key, resources=resources, instance=instance)
        assert result.success
        event = result.asset_materializations_for_node("published")[0].metadata
        assert event["ducklake/tag"].value == f"orders {key}"
    first, second = (snapshot.snapshot_id for snapshot in lake.snapshots(2))
    assert {tag.name: tag.snapshot_id for tag in lake.tags()} == {
        "orders 2024-01-01": first,
        "orders 2024-01-02": second,
    }
    assert lake.table("shop.orders").count() == 2
    assert {stage.status for stage in lake.stages()} == {"published"}


def test_an_unknown_time_of_publication_is_refused(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    @dg.asset
    def orders() -> pa.Table:
        return numbers(1)

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="after_check")}
    with pytest.raises(dg.DagsterResourceFunctionError) as caught:
        dg.materialize([orders], resources=resources, instance=instance)
    assert "Did you mean `after_checks`" in str(caught.value.user_exception)


def failure(result: dg.ExecuteInProcessResult, step: str) -> str:
    (event,) = [event for event in result.get_step_failure_events() if event.step_key == step]
    error = event.step_failure_data.error
    assert error is not None
    return error.to_string()


def test_a_publication_refuses_to_publish_outputs_that_it_does_not_name(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="shop")
    def totals() -> pa.Table:
        return numbers(2)

    @dg.asset(key_prefix="shop", deps=[totals])
    def orders() -> pa.Table:
        return numbers(1)

    published = ducklake_publication("published", [orders])
    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="after_checks"), "lake": resource}
    result = dg.materialize([totals, orders, published], resources=resources, instance=instance, raise_on_error=False)
    assert "does not name `shop/totals`" in failure(result, "published")
    assert visible(resource.lake()) == {}


def test_a_publication_in_a_run_that_staged_nothing_fails(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    published = ducklake_publication("published", ["shop/orders"])
    result = dg.materialize([published], resources={"lake": resource}, instance=instance, raise_on_error=False)
    assert "has nothing to publish: this run staged nothing" in failure(result, "published")


def test_comments_and_options_of_tables_are_published(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = resource.existing_lake()
    schema = dg.TableSchema([dg.TableColumn("n", "int", description="A number")])
    metadata = {"comment": "All orders", "table_options": {"target_file_size": "1MB"}, "dagster/column_schema": schema}

    @dg.asset(key_prefix="shop", metadata=metadata)
    def orders() -> pa.Table:
        return numbers(1)

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="run")}
    assert dg.materialize([orders], resources=resources, instance=instance).success
    (table,) = [table for table in lake.tables() if table.table == "orders"]
    assert table.comment == "All orders"
    assert [column.comment for column in lake.table("shop.orders").schema()] == ["A number"]
    assert [option.value for option in lake.options() if option.entry == "shop.orders"] == ["1000000"]


def test_a_sql_asset_reads_what_the_run_has_staged(
    tmp_path: Path, resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        return numbers(1, 2)

    (tmp_path / "sql" / "shop").mkdir(parents=True)
    (tmp_path / "sql" / "shop" / "totals.sql").write_text("SELECT sum(n)::BIGINT AS n FROM shop.orders")
    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="run"), "lake": resource}
    assets = [orders, *ducklake_sql_assets(tmp_path / "sql")]
    assert dg.materialize(assets, resources=resources, instance=instance).success
    assert visible(resource.lake()) == {"shop.orders": [1, 2], "shop.totals": [3]}


def test_the_asset_that_published_a_table_owns_it(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        return numbers(1)

    @dg.asset(name="other", metadata={"schema": "shop", "table": "orders"})
    def other() -> pa.Table:
        return numbers(2)

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="run")}
    assert dg.materialize([orders], resources=resources, instance=instance).success
    result = dg.materialize([other], resources=resources, instance=instance, raise_on_error=False)
    assert "shop/orders" in failure(result, "other")
    assert visible(resource.lake()) == {"shop.orders": [1]}


def test_an_output_after_the_publication_of_its_run_is_refused(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        return numbers(1)

    published = ducklake_publication("published", [orders])

    @dg.asset(key_prefix="shop", deps=[published])
    def totals() -> pa.Table:
        return numbers(2)

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="after_checks"), "lake": resource}
    result = dg.materialize([orders, published, totals], resources=resources, instance=instance, raise_on_error=False)
    assert "was computed after the outputs of its run were published" in failure(result, "shop__totals")
    assert visible(resource.lake()) == {"shop.orders": [1]}


def test_io_managers_that_publish_at_other_times_have_other_stages(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="shop", io_manager_key="checked")
    def orders() -> pa.Table:
        return numbers(-1)

    @dg.asset_check(asset=orders, blocking=True)
    def is_positive() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset(key_prefix="shop")
    def events() -> pa.Table:
        return numbers(1)

    @dg.asset(key_prefix="shop", io_manager_key="other", deps=[events])
    def totals() -> pa.Table:
        return numbers(2)

    published = ducklake_publication("published", [orders])
    managers = {"io_manager": "run", "other": "run", "checked": "after_checks"}
    resources = {key: DuckLakeIOManager(lake=resource, publish=publish) for key, publish in managers.items()}
    assets = [orders, events, totals, is_positive, published]
    result = dg.materialize(assets, resources={**resources, "lake": resource}, instance=instance, raise_on_error=False)
    assert not result.success
    assert visible(resource.lake()) == {"shop.events": [1], "shop.totals": [2]}


def test_an_asset_that_stores_nothing_does_not_hold_back_the_others(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        return numbers(1)

    @dg.asset
    def notified() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult()

    resources = {"io_manager": DuckLakeIOManager(lake=resource, publish="run")}
    assert dg.materialize([orders, notified], resources=resources, instance=instance).success
    assert visible(resource.lake()) == {"shop.orders": [1]}
