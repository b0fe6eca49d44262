"""The `dg` component of a lake: its connection in YAML, its tables, its SQL assets, and its scaffold."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from ducklake_orch import DuckLake
from ducklake_orch.dagster import DuckLakeComponent, DuckLakeIOManager, DuckLakeResource
from ducklake_orch.dagster.components import DuckLakeMaintenanceComponent
from ducklake_orch.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "dagster.md"
# Templates of Dagster 1.12.0 have the conditions under this name only; those of later releases warn of it.
CONDITIONS = "automation_condition" if dg.__version__ == "1.12.0" else "dg.AutomationCondition"
TYPE = "ducklake_orch.dagster.components.DuckLakeComponent"
# Dagster itself raises both warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)"),
]


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    """A lake that is already there."""
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(pa.table({"id": [1, 2], "region": ["eu", "us"]}), "raw.orders", mode="append")
    lake.write(pa.table({"id": [1]}), "main.plain", mode="append")
    return lake


def connection_to(lake: DuckLake, **fields: Any) -> dict[str, Any]:
    return {"name": "lake", "catalog": lake.config.catalog.to_url(), "storage": lake.config.data_path, **fields}


@contextmanager
def loaded(attributes: dict[str, Any], files: dict[str, str] | None = None) -> Iterator[dg.Definitions]:
    """Load a component from YAML, with files in its folder."""
    with create_defs_folder_sandbox() as sandbox:
        contents = {"type": TYPE, "attributes": attributes}
        folder = sandbox.scaffold_component(DuckLakeComponent, defs_yaml_contents=contents)
        for name, text in (files or {}).items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (folder / "sql" / "example.sql").unlink()
        with sandbox.load_component_and_build_defs(folder) as (_, definitions):
            yield definitions


def keys(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_all_asset_keys()}


def test_a_connection_its_tables_and_sql_assets(lake: DuckLake) -> None:
    attributes = {
        "connection": connection_to(lake),
        "tables": {"schemas": ["raw", "main"]},
        "sql": "sql",
        "assets": {"sales/by_region": {"group_name": "reports", "metadata": {"comment": "Orders by region"}}},
    }
    files = {"sql/sales/by_region.sql": "SELECT region, count(*) AS orders FROM Raw.Orders, plain GROUP BY ALL"}
    for _ in range(2):  # the table that the SQL asset has written is not listed a second time
        with loaded(attributes, files) as definitions:
            assert keys(definitions) == {"raw/orders", "main/plain", "sales/by_region"}
            graph = definitions.get_repository_def().asset_graph
            node = graph.get(dg.AssetKey(["sales", "by_region"]))
            assert node.parent_keys == {dg.AssetKey(["raw", "orders"]), dg.AssetKey(["main", "plain"])}
            assert node.group_name == "reports"
            assert graph.get(dg.AssetKey(["raw", "orders"])).metadata["dagster/row_count"] == 2
            assert definitions.resolve_implicit_global_asset_job_def().execute_in_process().success
        assert lake.table("sales.by_region").count() == 2
        assert next(table.comment for table in lake.tables() if table.table == "by_region") == "Orders by region"
        attributes["tables"] = {}


def test_partitions_and_settings_of_an_sql_asset_are_yaml(lake: DuckLake) -> None:
    attributes = {
        "connection": connection_to(lake),
        "sql": "sql",
        "assets": {
            "daily": {
                "partitions_def": {"type": "daily", "start_date": "2024-01-01"},
                "metadata": {"partition_expr": "day"},
                "automation_condition": f"{{{{ {CONDITIONS}.eager() }}}}",
            }
        },
    }
    with loaded(attributes, {"sql/daily.sql": "SELECT $partition_key::DATE AS day"}) as definitions:
        job = definitions.resolve_implicit_global_asset_job_def()
        for day in ("2024-01-01", "2024-01-02"):
            assert job.execute_in_process(partition_key=day).success
        (spec,) = definitions.resolve_all_asset_specs()
        assert spec.automation_condition is not None
    assert lake.table("main.daily").count() == 2


def test_keys_of_resources_and_the_schema_of_assets_can_be_named(lake: DuckLake) -> None:
    attributes = {
        "lake": "shop",
        "io_manager": "shop_tables",
        "asset_schema": "raw",
        "connection": connection_to(lake),
        "sql": "sql",
    }
    with loaded(attributes, {"sql/copy.sql": "FROM orders"}) as definitions:
        assert set(definitions.resources or {}) == {"shop", "shop_tables"}
        assert definitions.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert lake.table("raw.copy").count() == 2


def test_sql_assets_alone_use_the_lake_of_the_project(lake: DuckLake) -> None:
    resource = DuckLakeResource(**connection_to(lake))
    with loaded({"sql": "sql"}, {"sql/copy.sql": "FROM raw.orders"}) as definitions:
        assert not definitions.resources
        resources = dg.Definitions(resources={"lake": resource, "io_manager": DuckLakeIOManager(lake=resource)})
        merged = dg.Definitions.merge(definitions, resources)
        assert merged.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert lake.table("copy").count() == 2


def test_secrets_in_the_connection_stay_names_of_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "12345678")  # a template would make it a number
    monkeypatch.setenv("LAKE_HOST", "db.example")
    monkeypatch.setenv("LAKE_PORT", "5433")
    connection = {
        "name": "lake",
        "catalog": {
            "postgres": {
                "host": "{{ env.LAKE_HOST }}",
                "port": "{{ env.LAKE_PORT }}",
                "database": "lakes",
                "password": "{{ env.LAKE_PASSWORD }}",
            }
        },
        "storage": {"s3": {"bucket": "b", "secret_access_key": "{{env.LAKE_PASSWORD}}", "access_key_id": "id"}},
        "retry": {"max_attempts": 3},
    }
    with loaded({"connection": connection}) as definitions:
        resource = (definitions.resources or {})["lake"]
        assert "12345678" not in repr(resource)
        shown = str(resource.get_resource_definition().config_schema.default_value)
        assert "LAKE_PASSWORD" in shown
        assert "12345678" not in shown
        with resource.process_config_and_initialize_cm() as known:
            config = known.lake().config
    assert (config.catalog.host, config.catalog.port, config.retry.max_attempts) == ("db.example", 5433, 3)
    assert config.catalog.password.get_secret_value() == "12345678"
    assert config.storage.secret_access_key.get_secret_value() == "12345678"


def test_a_url_can_be_one_variable(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_URL", lake.config.catalog.to_url())
    with loaded({"connection": connection_to(lake, catalog="{{ env.LAKE_URL }}"), "tables": {}}) as definitions:
        assert keys(definitions) == {"raw/orders", "main/plain"}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"tables": {}}, "`tables` needs the lake"),
        ({"file": "ducklake.toml", "connection": {"name": "x"}}, "both given"),
        ({"connection": {"name": "x", "catalog": "sqlite:///x", "storage": "f", "theads": 2}}, "theads.*threads"),
        ({"sql": "none"}, "does not exist"),
        ({"assets": {"a": {}}}, "`assets` needs `sql`"),
    ],
)
def test_mistakes_are_refused_when_definitions_load(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception) as raised, loaded(attributes):  # noqa: PT011  # Dagster wraps it
        pass
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, ConfigError):
        error = error.__cause__ or error.__context__
    assert error is not None
    assert re.search(message, str(error), re.DOTALL)


def test_a_scaffolded_component_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_CATALOG", f"sqlite:///{tmp_path / 'lake.sqlite'}")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(DuckLakeComponent)
        for _ in range(2):
            with sandbox.load_component_and_build_defs(folder) as (_, definitions):
                assert keys(definitions) == {"example"}
                assert definitions.resolve_implicit_global_asset_job_def().execute_in_process().success


def test_a_lake_and_its_maintenance_are_two_components_of_a_project(tmp_path: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        shop = sandbox.scaffold_component(DuckLakeComponent, defs_path="shop")
        upkeep = {"type": "ducklake_orch.dagster.components.DuckLakeMaintenanceComponent", "attributes": {}}
        sandbox.scaffold_component(DuckLakeMaintenanceComponent, defs_path="upkeep", defs_yaml_contents=upkeep)
        with sandbox.build_all_defs() as definitions:
            assert {"example", "lake/maintenance/flush"} <= keys(definitions)
            assert definitions.resolve_job_def("lake_maintenance").execute_in_process().success
        assert (shop / "lake.sqlite").exists()


def test_every_attribute_has_a_description_in_the_schema() -> None:
    model = DuckLakeComponent.get_model_cls()
    assert model is not None
    schema = model.model_json_schema()
    for properties in (schema["properties"], schema["$defs"]["LakeTablesModel"]["properties"]):
        assert all(attribute.get("description") for attribute in properties.values())


def test_the_yaml_on_the_page_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    texts = [text.replace("dg.AutomationCondition", CONDITIONS) for text in texts]
    (given,) = (found for text in texts if (found := yaml.safe_load(text)).get("type") == TYPE)
    attributes = given["attributes"]
    assert attributes.pop("tables")  # reads the lake, which is on a server
    files = {f"sql/{key}.sql": "SELECT $partition_key::DATE AS day" for key in attributes["assets"]}
    with loaded(attributes, files) as definitions:
        assert set(definitions.resources or {}) == {"lake", "io_manager"}
        assert keys(definitions) == set(attributes["assets"])
