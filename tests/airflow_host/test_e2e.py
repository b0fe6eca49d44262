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
    assert form["extra_fields"]["storage"]["schema"]["section"] == "Storage"


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


def states_of(airflow: Standalone, dag: str, run_id: str) -> dict[str, str]:
    return {task["task_id"].removeprefix("maintenance."): task["state"] for task in airflow.tasks(dag, run_id)}


def test_maintenance_survives_a_lost_worker(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_lost_once", "e2e_lost")
    run_id = airflow.trigger("e2e_lost_once")
    assert airflow.finished("e2e_lost_once", run_id, 400)["state"] == "success"
    tries = {task["task_id"]: task["try_number"] for task in airflow.tasks("e2e_lost_once", run_id)}
    assert (tries["maintenance.merge"], tries["maintenance.expire"]) == (2, 1)
    run_id = airflow.trigger("e2e_lost")
    assert airflow.finished("e2e_lost", run_id, 400)["state"] == "failed"
    others = dict.fromkeys(["plan", "expire", "health"], "success")
    assert states_of(airflow, "e2e_lost", run_id) == others | {"merge": "failed", "all_succeeded": "upstream_failed"}


def test_mapped_tasks_replace_their_partitions_at_the_same_time(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_mapped")
    for _ in range(2):
        run_id = airflow.trigger("e2e_mapped")
        assert airflow.finished("e2e_mapped", run_id, 400)["state"] == "success"
    counted = query(lake, "SELECT part, count(*) AS n FROM mapped GROUP BY ALL ORDER BY 1")
    assert counted == [{"part": f"p{number}", "n": 100} for number in range(6)]


def test_a_backfill_writes_each_partition_once_and_starts_its_consumers(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_backfilled", "e2e_consumed")
    days = ["2025-01-01", "2025-01-02", "2025-01-03"]
    body = {"dag_id": "e2e_backfilled", "from_date": f"{days[0]}T00:00:00Z", "to_date": f"{days[-1]}T00:00:00Z"}
    airflow.ask("/api/v2/backfills", body | {"max_active_runs": 3, "run_backwards": False, "dag_run_conf": {}})
    for day in days:
        assert airflow.finished("e2e_backfilled", partition_key=day)["state"] == "success"
        assert airflow.finished("e2e_consumed", partition_key=day)["state"] == "success"
    for table in ("backfilled", "consumed"):
        counted = query(lake, f"SELECT day, count(*) AS n FROM {table} WHERE day < '2026' GROUP BY ALL ORDER BY 1")
        assert counted == [{"day": day, "n": 2} for day in days]


def test_catch_up_writes_the_missed_partitions(airflow: Standalone, lake: DuckLake) -> None:
    airflow.unpause("e2e_caught_up")
    waiting(lambda: len(airflow.runs("e2e_caught_up")) >= 2, "the missed runs", 240)
    keys = sorted(run["partition_key"] for run in airflow.runs("e2e_caught_up"))
    for key in keys:
        assert airflow.finished("e2e_caught_up", partition_key=key)["state"] == "success"
    counted = query(lake, "SELECT day, count(*) AS n FROM caught_up GROUP BY ALL ORDER BY 1")
    assert counted == [{"day": key, "n": 2} for key in keys]


def test_the_asset_graph_joins_producers_and_consumers(airflow: Standalone) -> None:
    assets = {asset["name"]: asset for asset in airflow.ask("/api/v2/assets?limit=100")["assets"]}
    orders = assets["ducklake_default.raw.orders"]
    assert orders["group"] == "ducklake"
    assert orders["producing_tasks"][0]["task_id"] == "deliver"
    assert orders["consuming_tasks"][0]["task_id"] == "clean"
