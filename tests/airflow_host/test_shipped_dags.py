"""The shipped DAGs: they load fast without an engine, and each succeeds on an empty or a filled lake."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from ducklake_orch.airflow import DuckLakeHook
from tests.airflow_host.own_process import in_own_process
from tests.support.airflow_connections import Connect
from tests.support.airflow_runs import DagSerialization, bag_of, states, store

FOLDER = Path(__file__).parents[2] / "airflow_dags"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "ducklake_shop")


@pytest.fixture(scope="module")
def shipped() -> Iterator[dict[str, DAG]]:
    """The shipped DAGs, copied to the DAGs folder of Airflow."""
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    bag = bag_of(folder)
    assert not bag.import_errors
    store(bag)  # Airflow 3.1 runs only stored DAGs
    yield dict(bag.dags)
    for file in FOLDER.glob("*.py"):
        (folder / file.name).unlink()


def test_every_dag_file_holds_one_serializable_dag(shipped: dict[str, DAG]) -> None:
    assert sorted(shipped) == [file.stem for file in FILES]
    for dag in shipped.values():
        stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
        assert DagSerialization.from_dict(stored).dag_id == dag.dag_id
        assert dag.doc_md


def test_dag_files_load_within_a_second_without_spark_or_pandas() -> None:
    code = f"""
import runpy, sys, time
sys.path.insert(0, {str(FOLDER)!r})
import airflow.sdk
from ducklake_orch.airflow import DuckLakeHook
took = {{}}
for file in {[str(file) for file in FILES]!r}:
    started = time.monotonic()
    runpy.run_path(file)
    took[file] = time.monotonic() - started
import json
print(json.dumps([took, sorted({{"pyspark", "pandas", "polars"}} & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    took, loaded = json.loads(done.stdout.splitlines()[-1])
    assert max(took.values()) < 1, took
    assert loaded == []


def rows(sql: str) -> Any:
    return DuckLakeHook().get_records(sql)


@in_own_process
def test_shipped_dags_succeed_in_any_order_on_an_empty_lake(shipped: dict[str, DAG], conn_id: str) -> None:
    order = ["ducklake_revenue", "ducklake_returns", "ducklake_submit", "ducklake_maintenance", "ducklake_orders"]
    order.append("ducklake_publication")
    for name in order:
        done = run_shipped(shipped[name])
        assert set(states(done).values()) <= {"success", "skipped"}, name
        assert str(done.state) == "success", name
    assert rows("SELECT count(*), count(DISTINCT order_id) FROM raw.orders") == [(1050, 1000)]
    assert rows("SELECT count(*), count(DISTINCT order_id) FROM sales.orders") == [(980, 980)]
    DuckLakeHook().run("CREATE TABLE raw.returns AS SELECT DATE '2025-01-01' AS day, range AS order_id FROM range(5)")
    for name in ["ducklake_returns", "ducklake_revenue", "ducklake_orders"]:
        done = run_shipped(shipped[name])
        assert set(states(done).values()) == {"success"}, name
    assert rows("SELECT returns FROM sales.returns_by_day") == [(5,)]
    assert rows("SELECT sum(orders) FROM sales.daily_revenue") == [(980,)]
    assert rows("SELECT sum(sales) FROM shop.totals") == [(1000,)]
    assert rows("SELECT count(*) FROM sales.orders") == [(980,)]


@in_own_process
def test_a_submitted_write_uses_the_lake_config_and_names_its_task(
    shipped: dict[str, DAG], connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKLAKE_METADATA_SCHEMA", "of_another_lake")
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite"), "busy_timeout": 5000}
    connect(extra={"catalog": catalog, "storage": str(tmp_path / "files"), "create_if_missing": True, "alias": "mine"})
    done = shipped["ducklake_submit"].test(run_conf={"master": "local[2]"})
    assert states(done) == {"submit": "success"}
    assert rows("SELECT count(*) FROM sales.submitted") == [(100_000,)]
    last = DuckLakeHook().snapshots(limit=1)[0]
    assert (last.author, last.message) == ("airflow", f"task ducklake_submit.submit, run {done.run_id}")
    with DuckLakeHook().lake().connect_metadata() as con:
        ((key,),) = con.execute("SELECT idempotency_key FROM ducklake_orch_commits").fetchall()
    assert key.startswith("airflow:ducklake_submit:submit:")


def run_shipped(dag: DAG) -> Any:
    time.sleep(0.01)  # each run needs a distinct logical date
    return dag.test()
