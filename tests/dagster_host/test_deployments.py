"""One code location in several deployments: the schema of an asset, and schemas of a deployment's own."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch.dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    build_health_checks,
    check_definitions,
    ducklake_snapshot_sensor,
    with_table_names,
)
from ducklake_orch.dagster.table_names import TableNames, specs_of
from ducklake_orch.errors import ConfigError
from tests.support.dagster_runs import metadata_of

ONE = pa.table({"id": [1]})


@pytest.mark.parametrize(
    ("key", "metadata", "schema", "expected"),
    [
        ("orders", {}, "main", "main"),
        ("any/sales/orders", {}, "main", "sales"),
        ("sales/orders", {}, "mine", "mine"),
        ("orders", {}, "mine", "mine"),
        ("sales/orders", {"schema": "other"}, "mine", "other"),
        ("sales/orders", {"ducklake/schema": "other"}, "main", "other"),
    ],
)
def test_the_schema_is_that_of_metadata_then_setting_then_key(
    key: str, metadata: dict[str, Any], schema: str, expected: str
) -> None:
    asset_key = dg.AssetKey(key.split("/"))
    for prefix in ("", "dev_"):
        assert str(TableNames(schema, prefix).of_asset(asset_key, metadata)) == f"{prefix}{expected}.orders"


@pytest.mark.parametrize("settings", [{"schema": "mine"}, {"schema_prefix": "dev_"}])
def test_every_part_of_a_deployment_names_the_same_table(
    settings: dict[str, Any], resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix="sales")
    def orders() -> pa.Table:
        return ONE

    @dg.asset(ins={"orders": dg.AssetIn(key=["sales", "orders"])})
    def seen(orders: pa.Table) -> pa.Table:
        assert orders == ONE
        return orders

    manager = DuckLakeIOManager(lake=resource, **settings)
    checks, sensor = build_health_checks([orders], **settings), ducklake_snapshot_sensor([orders], **settings)
    (named,) = with_table_names([orders], alias="lake", **settings)
    result = dg.materialize(
        [named, seen, *checks], resources={"io_manager": manager, "lake": resource}, raise_on_error=False
    )
    assert result.success
    assert all(
        evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.check_name == "consistent"
    )
    table = "mine.orders" if "schema" in settings else "dev_sales.orders"
    assert resource.lake().exists(table)
    assert specs_of([named])[0].metadata["dagster/table_name"] == f"lake.{table}"
    assert metadata_of(result, "sales/orders")["dagster/table_name"] == f"lake.{table}"
    cursor = str(resource.lake().snapshots(1)[0].snapshot_id)
    resource.lake().write(ONE, table, mode="append")
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": resource}) as context:
        events = sensor.evaluate_tick(context).asset_events
    assert [event.asset_key for event in events] == [orders.key]


def test_deployments_share_a_lake_without_sharing_tables(resource: DuckLakeResource) -> None:
    def deployment(prefix: str, rows: pa.Table) -> None:
        @dg.asset(key_prefix="sales")
        def orders() -> pa.Table:
            return rows

        manager = DuckLakeIOManager(lake=resource, schema_prefix=prefix)
        assert dg.materialize([orders], resources={"io_manager": manager}).success

    deployment("", ONE)
    deployment("dev_alice_", pa.table({"id": [2, 3]}))
    lake = resource.lake()
    assert [lake.read(name)["id"].to_pylist() for name in ("sales.orders", "dev_alice_sales.orders")] == [[1], [2, 3]]


def test_op_outputs_of_a_deployment_are_in_schemas_of_its_own(resource: DuckLakeResource) -> None:
    @dg.op
    def make() -> pa.Table:
        return ONE

    @dg.op(out=dg.Out(metadata={"table": "named"}))
    def pass_on(rows: pa.Table) -> pa.Table:
        return rows

    @dg.op
    def take(rows: pa.Table) -> None:
        assert rows == ONE

    manager = DuckLakeIOManager(lake=resource, schema="mine", schema_prefix="dev_")

    @dg.job(resource_defs={"io_manager": manager})
    def all_ops() -> None:
        take(pass_on(make()))

    assert all_ops.execute_in_process().success
    assert {table.schema for table in resource.lake().tables()} == {"dev_dagster_outputs", "dev_mine"}


def test_one_schema_for_all_keys_refuses_two_assets_of_one_name(resource: DuckLakeResource) -> None:
    assets = [dg.asset(key=key.split("/"))(lambda: ONE) for key in ("eu/orders", "us/orders")]
    for settings, are_shared in (({}, False), ({"schema": "mine"}, True), ({"schema_prefix": "dev_"}, False)):
        manager = DuckLakeIOManager(lake=resource, **settings)
        definitions = dg.Definitions(assets=assets, resources={"io_manager": manager})
        if are_shared:
            with pytest.raises(ConfigError, match=r"store the same table, `mine\.orders`"):
                check_definitions(definitions)
        else:
            assert check_definitions(definitions) is definitions


def test_schema_and_prefix_may_come_from_the_environment(
    resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SCHEMA_PREFIX", "dev_")
    monkeypatch.setenv("LAKE_SCHEMA", "")  # an empty setting is none
    manager = DuckLakeIOManager(
        lake=resource, schema=dg.EnvVar("LAKE_SCHEMA"), schema_prefix=dg.EnvVar("LAKE_SCHEMA_PREFIX")
    )
    assert manager.table_names == TableNames("main", "dev_")
    orders = dg.asset(key=["sales", "orders"])(lambda: ONE)
    definitions = check_definitions(dg.Definitions(assets=[orders], resources={"io_manager": manager}))
    assert definitions.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert resource.lake().exists("dev_sales.orders")
