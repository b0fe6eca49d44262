"""Misspelt arguments and metadata raise errors that suggest the right name."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import dagster as host
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from ducklake_orch.errors import ConfigError
from tests.support.dagster_runs import failure_of

ONE = pa.table({"id": [1]})


@pytest.mark.parametrize(
    ("make", "suggestion"),
    [
        (lambda lake: DuckLakeIOManager(lake=lake, schemas="raw"), "Did you mean `schema`?"),  # type: ignore[call-arg]
        (
            lambda lake: DuckLakeIOManager(lake=lake, write_mode="append"),  # type: ignore[call-arg]
            "Known: `lake`, `publish`, `schema`, `schema_prefix`, `stage_ttl`.",
        ),
        (lambda _: DuckLakeResource(name="x", create_if_mising=True), "Did you mean `create_if_missing`?"),
        (lambda _: host.DuckLakeFileResource(pth="x"), "Did you mean `path`?"),  # type: ignore[call-arg]
        (lambda _: host.SQLiteCatalog(path="x", busy_timout=1), "Did you mean `busy_timeout`?"),  # type: ignore[call-arg]
        (lambda _: host.S3Storage(bucket="x", regoin="eu"), "Did you mean `region`?"),  # type: ignore[call-arg]
        (lambda _: host.RetryPolicy(max_attempt=1), "Did you mean `max_attempts`?"),  # type: ignore[call-arg]
        (lambda _: host.SparkConfig(mastr="local"), "Did you mean `master`?"),  # type: ignore[call-arg]
        (lambda _: host.MaintenanceConfig(dryrun=True), "Did you mean `dry_run`?"),  # type: ignore[call-arg]
    ],
)
def test_misspelt_arguments_are_refused(
    make: Callable[[Any], Any], suggestion: str, resource: DuckLakeResource
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(resource)
    assert caught.value.remedy == suggestion


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("ducklake/wirte_mode", "write_mode"),
        ("ducklake/snapshot_id", "Known: "),
        ("write_mod", "write_mode"),
        ("merge_kes", "merge_keys"),
        ("partition-expr", "partition_expr"),
    ],
)
@pytest.mark.parametrize("at_run_time", [False, True])
def test_misspelt_output_metadata_are_refused_before_the_write(
    name: str, suggestion: str, at_run_time: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    @dg.asset(metadata={} if at_run_time else {name: "append"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        if at_run_time:
            context.add_output_metadata({name: "append"})
        return ONE

    result = dg.materialize([orders], resources={"io_manager": io_manager}, raise_on_error=False)
    description = failure_of(result).user_failure_data.description
    assert f"`{name}` in the metadata is not a setting" in description
    assert suggestion in description
    assert not resource.lake().exists("orders")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"write_mod": "append"}, "`write_mod` in the metadata is not a setting. Did you mean `write_mode`?"),
        ({"ducklake/out_side": ""}, "`ducklake/out_side` in the metadata is not a setting. Did you mean `outside`?"),
        ({"write_mode": "apend"}, "`write_mode` = 'apend' is unknown. Did you mean `append`?"),
    ],
)
def test_misspelt_metadata_of_definitions_are_refused_when_they_load(
    metadata: dict[str, str], message: str, io_manager: DuckLakeIOManager
) -> None:
    orders = dg.asset(name="orders", metadata=metadata)(lambda: ONE)
    in_memory = dg.asset(name="other", metadata=metadata, io_manager_key="memory")(lambda: ONE)
    resources = {"io_manager": io_manager, "memory": dg.mem_io_manager}
    loads: list[Callable[[], Any]] = [
        lambda: host.check_definitions(dg.Definitions(assets=[orders], resources=resources)),
        lambda: host.with_table_names([orders], alias="lake"),
        lambda: host.build_health_checks([orders]),
        lambda: host.build_maintenance_definitions(checked_assets=[orders]),
        lambda: host.ducklake_snapshot_sensor([orders]),
    ]
    for load in loads:
        with pytest.raises(ConfigError) as caught:
            load()
        assert str(caught.value).startswith(f"Asset `orders`: {message}")
    assert host.check_definitions(dg.Definitions(assets=[in_memory], resources=resources))


def test_unrelated_metadata_are_left_alone(io_manager: DuckLakeIOManager) -> None:
    unrelated = {"comments": "mine", "tables": 3, "owner": "me", "dagster/uri": "here", "mode": "x", "column": "id"}
    orders = dg.asset(name="orders", metadata=unrelated)(lambda: ONE)
    assert dg.materialize([orders], resources={"io_manager": io_manager}).success


def test_a_setting_may_have_the_prefix_of_the_package(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    @dg.asset(metadata={"ducklake/schema": "sales", "ducklake/write_mode": "overwrite"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"ducklake/write_mode": "append"})
        return ONE

    for _ in range(2):
        assert dg.materialize([orders], resources={"io_manager": io_manager}).success
    assert resource.lake().table("sales.orders").count() == 2


def test_a_setting_with_and_without_the_prefix_is_refused(io_manager: DuckLakeIOManager) -> None:
    twice = {"write_mode": "append", "ducklake/write_mode": "overwrite"}
    orders = dg.asset(name="orders", metadata=twice)(lambda: ONE)
    result = dg.materialize([orders], resources={"io_manager": io_manager}, raise_on_error=False)
    assert "both `write_mode` and `ducklake/write_mode`" in str(failure_of(result).error)
