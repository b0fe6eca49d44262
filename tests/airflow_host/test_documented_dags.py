"""The DAGs in README and docs run as they are printed."""

from pathlib import Path

from ducklake_orch.airflow import DuckLakeHook
from tests.docs.pages import DOCS, README, blocks, is_dag
from tests.support.airflow_runs import run, states


def _run_dags(page: Path, *names: str) -> None:
    code = "".join(code for _, code in blocks(page, "python") if is_dag(code))
    namespace: dict[str, object] = {"__name__": "__docs__"}
    exec(compile(code, str(page), "exec"), namespace)
    for name in names:
        done = run(namespace[name])  # type: ignore[arg-type]  # a DAG
        assert set(states(done).values()) == {"success"}


def test_the_dags_of_the_readme_run(conn_id: str) -> None:
    _run_dags(README, "dag", "upkeep")
    assert DuckLakeHook().get_records("SELECT count(*) FROM shop.visits") == [(1000,)]
    assert DuckLakeHook().get_records("SELECT id_count FROM shop.latest") == [(1000,)]


def test_the_dag_of_the_quick_start_runs(conn_id: str) -> None:
    _run_dags(DOCS / "start" / "airflow.md", "dag")
    assert DuckLakeHook().get_records("SELECT count(*) FROM shop.orders") == [(1000,)]
    assert DuckLakeHook().get_records("SELECT amount FROM shop.revenue") == [(24500,)]
