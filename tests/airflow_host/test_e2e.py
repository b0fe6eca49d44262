"""End to end: scheduler, triggerer, workers and API run the shipped DAGs on a lake on Postgres and S3."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, PostgresCatalog, S3Storage
from ducklake_orch.airflow.get_provider_info import get_provider_info
from tests.airflow_host.standalone import Standalone, standalone
from tests.support.backends import POSTGRES, S3_MEMORY
from tests.support.lakes import CANARY, Servers, catalog_fields, storage_fields
from tests.support.waiting import waiting

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
SHIPPED = Path(__file__).parents[2] / "airflow_dags"


@pytest.fixture(scope="module")
def lake(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    folder = tmp_path_factory.mktemp("e2e-lake")
    fields: dict[str, Any] = {
        "catalog": catalog_fields(POSTGRES, servers, folder, "lake"),
        "storage": storage_fields(S3_MEMORY, servers, folder, "lake"),
    }
    lake = DuckLake.from_url("ducklake_default", create_if_missing=True, **fields)
    lake.ensure_exists()
    return lake


@pytest.fixture(scope="module")
def airflow(lake: DuckLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    home = tmp_path_factory.mktemp("e2e")
    shutil.copytree(SHIPPED, home / "dags")
    shutil.copytree(Path(__file__).with_name("dags"), home / "dags", dirs_exist_ok=True)
    catalog, storage = lake.config.catalog, lake.config.storage
    assert isinstance(catalog, PostgresCatalog)
    assert isinstance(storage, S3Storage)
    assert storage.secret_access_key is not None
    endpoint = {"region_name": storage.region, "endpoint_url": f"http://{storage.endpoint}"}
    cloud: dict[str, Any] = {"conn_type": "aws", "login": storage.access_key_id, "extra": endpoint}
    cloud["password"] = storage.secret_access_key.get_secret_value()
    ducklake_connection: dict[str, Any] = {
        "conn_type": "ducklake",
        "host": catalog.host,
        "port": catalog.port,
        "schema": catalog.database,
    }
    ducklake_connection |= {"login": catalog.user, "password": CANARY}
    ducklake_connection["extra"] = {
        "storage": storage.data_path,
        "storage_conn_id": "cloud",
        "spark_master": "local[2]",
    }
    variables = {
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": json.dumps(ducklake_connection),
        "AIRFLOW_CONN_CLOUD": json.dumps(cloud),
    }
    with standalone(home, home / "dags", variables) as running:
        yield running


def query(lake: DuckLake, sql: str) -> list[dict[str, Any]]:
    return lake.execute(sql).raise_for_error().rows


def test_the_connection_form_shows_the_ducklake_fields(airflow: Standalone) -> None:
    (form,) = [hook for hook in airflow.ask("/ui/connections/hook_meta") if hook["connection_type"] == "ducklake"]
    assert form["hook_name"] == "DuckLake"
    assert form["standard_fields"]["url_schema"]["title"] == "Catalog database"
    assert list(form["extra_fields"]) == list(get_provider_info()["connection-types"][0]["conn-fields"])
    assert form["extra_fields"]["storage__secret_access_key"]["schema"]["format"] == "password"


def test_sixteen_concurrent_tasks_replace_sixteen_partitions(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_parallel")
    run_id = airflow.trigger("e2e_parallel")
    assert airflow.finished("e2e_parallel", run_id, 600)["state"] == "success"
    tasks = airflow.tasks("e2e_parallel", run_id)
    assert [(task["state"], task["try_number"]) for task in tasks] == [("success", 1)] * 16
    counted = query(lake, "SELECT count(DISTINCT part) AS parts, count(*) AS n FROM parallel")
    assert counted == [{"parts": 16, "n": 16000}]
    events = airflow.ask("/api/v2/assets/events?limit=100")["asset_events"]
    keys = {event.get("partition_key") for event in events if "parallel" in event["uri"]}
    assert keys >= {f"p{number:02}" for number in range(16)}


def test_a_task_killed_after_its_commit_writes_once_across_retries(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_killed")
    run_id = airflow.trigger("e2e_killed")
    assert airflow.finished("e2e_killed", run_id, 400)["state"] == "success"
    assert airflow.tasks("e2e_killed", run_id)[0]["try_number"] == 3
    assert query(lake, "SELECT count(*) AS n FROM killed") == [{"n": 3}]


def test_a_partition_event_starts_its_consumer_and_maintenance_runs(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("ducklake_orders", "ducklake_revenue")
    run_id = airflow.trigger("ducklake_orders", partition_key="2025-01-15")
    assert airflow.finished("ducklake_orders", run_id, 400)["state"] == "success"
    # The schedule may also start a run for yesterday: wait for the run of this partition.
    consumer = airflow.finished("ducklake_revenue", seconds=400, partition_key="2025-01-15")
    assert consumer["state"] == "success"
    found = query(lake, "SELECT sum(orders)::INTEGER AS n FROM sales.daily_revenue WHERE day = '2025-01-15'")
    assert found == [{"n": 980}]
    airflow.unpause("ducklake_maintenance")  # starts the scheduled run of last night
    assert airflow.finished("ducklake_maintenance", None, 600)["state"] == "success"
    shown = airflow.everything_shown("ducklake_orders", run_id)
    assert "snapshot_id" in shown
    assert "canary" not in shown


def test_a_write_outside_airflow_starts_the_watching_dag(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("ducklake_returns")

    def written() -> bool:
        # The triggerer fires only for commits after its first check, whose time is unknown: write until it fires.
        lake.write(pa.table({"day": ["2025-01-15"], "order_id": [0]}), "raw.returns", mode="append")
        return bool(airflow.runs("ducklake_returns"))

    waiting(written, "a run of ducklake_returns", 240)
    assert airflow.finished("ducklake_returns", None, 240)["state"] == "success"
    (found,) = query(lake, "SELECT returns FROM sales.returns_by_day")
    assert found["returns"] >= 1
