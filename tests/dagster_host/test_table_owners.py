"""Two assets for one table are refused when definitions load, or before the write if only the run can tell."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import ducklake_orch.dagster
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, check_definitions, with_table_names
from ducklake_orch.errors import ConfigError
from tests.support.dagster_runs import central, failure_of
from tests.support.fault_points import once_at

ONE, TWO = pa.table({"id": [1]}), pa.table({"id": [2]})


def asset(key: str, data: pa.Table = ONE, **options: Any) -> dg.AssetsDefinition:
    definition: dg.AssetsDefinition = dg.asset(key=key.split("/"), **options)(lambda: data)
    return definition


def ids(resource: DuckLakeResource, table: str) -> list[int]:
    with resource.lake().connect(read_only=True) as con:
        return [row[0] for row in con.execute(f"SELECT id FROM lake.{table} ORDER BY 1").fetchall()]


SAME_TABLE = pytest.mark.parametrize(
    ("first", "second", "metadata"),
    [
        ("eu/sales/orders", "us/sales/orders", {}),
        ("Orders", "orders", {}),
        ("sales/orders", "other", {"schema": "Sales", "table": "ORDERS"}),
    ],
)


@SAME_TABLE
def test_two_asset_keys_for_one_table_are_refused_when_definitions_load(
    first: str, second: str, metadata: dict[str, Any], resource: DuckLakeResource
) -> None:
    assets = [asset(first), asset(second, metadata=metadata)]
    for resources in ({"io_manager": DuckLakeIOManager(lake=resource)},):
        with pytest.raises(ConfigError, match=f"`{first}` and `{second}`|`{second}` and `{first}`"):
            check_definitions(dg.Definitions(assets=assets, resources=resources))
    with pytest.raises(ConfigError, match="store the same table"):
        with_table_names(assets, alias="lake")


@SAME_TABLE
def test_two_asset_keys_for_one_table_are_refused_in_a_run_before_writing(
    first: str, second: str, metadata: dict[str, Any], resource: DuckLakeResource, io_manager: DuckLakeIOManager
) -> None:
    assets = [asset(first), asset(second, TWO, metadata=metadata)]
    result = dg.materialize(assets, resources={"io_manager": io_manager}, raise_on_error=False)
    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert len(failures) == 2
    assert all("store the same table" in str(failure.user_failure_data) for failure in failures)
    assert resource.lake().tables() == []


@central
def test_an_asset_may_not_overwrite_the_table_of_another_asset(
    resource: DuckLakeResource, io_manager: DuckLakeIOManager
) -> None:
    def run(definition: dg.AssetsDefinition) -> Any:
        return dg.materialize([definition], resources={"io_manager": io_manager}, raise_on_error=False)

    assert run(asset("eu/sales/orders")).success
    assert run(asset("eu/sales/orders")).success
    failure = failure_of(run(asset("us/sales/orders", TWO))).user_failure_data.description
    assert "`us/sales/orders` and `eu/sales/orders` store the same table" in failure
    assert 'metadata={"renamed_from": "eu/sales/orders"}' in failure
    assert ids(resource, "sales.orders") == [1]
    # `renamed_from` is needed for the first run only.
    assert run(asset("us/sales/orders", TWO, metadata={"renamed_from": "eu/sales/orders"})).success
    assert run(asset("us/sales/orders", TWO)).success
    assert ids(resource, "sales.orders") == [2]


@central
@pytest.mark.parametrize("rival", ["us/sales/orders", "eu/sales/orders"])
def test_a_concurrent_first_write_of_another_asset_is_not_replaced(
    resource: DuckLakeResource, io_manager: DuckLakeIOManager, rival: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(definition: dg.AssetsDefinition) -> Any:
        return dg.materialize([definition], resources={"io_manager": io_manager}, raise_on_error=False)

    others = [asset(rival, TWO)]  # from another code location, or from another run

    def commit_rival() -> None:
        assert run(others.pop()).success

    once_at(monkeypatch, "files.written", commit_rival)
    result = run(asset("eu/sales/orders"))
    assert others == []
    if rival == "eu/sales/orders":
        assert result.success
        assert ids(resource, "sales.orders") == [1]
    else:
        assert "store the same table" in failure_of(result).user_failure_data.description
        assert ids(resource, "sales.orders") == [2]
    assert resource.lake().fsck(deep=True, storage=True).findings == []


def test_assets_that_only_append_may_share_a_table(resource: DuckLakeResource, io_manager: DuckLakeIOManager) -> None:
    add: dict[str, Any] = {"schema": "main", "table": "events", "write_mode": "append"}
    assets = [asset("a", metadata=add), asset("b", TWO, metadata=add)]
    resources = {"io_manager": io_manager}
    assert check_definitions(dg.Definitions(assets=assets, resources=resources))
    assert dg.materialize(assets, resources=resources).success
    assert ids(resource, "main.events") == [1, 2]


def test_assets_without_the_ducklake_io_manager_own_no_table(io_manager: DuckLakeIOManager) -> None:
    @dg.asset(key_prefix=["raw", "sales"])
    def orders() -> None:
        return None

    elsewhere = asset("us/sales/orders", io_manager_key="memory")
    external = dg.AssetSpec(["theirs", "sales", "orders"])
    resources = {"io_manager": io_manager, "memory": dg.mem_io_manager}
    defs = dg.Definitions(assets=[asset("eu/sales/orders"), orders, elsewhere, external], resources=resources)
    assert check_definitions(defs) is defs
    assert ducklake_orch.dagster.refuse_shared_tables is check_definitions  # its earlier name
    assert dg.materialize([asset("eu/sales/orders"), orders, elsewhere], resources=resources).success
