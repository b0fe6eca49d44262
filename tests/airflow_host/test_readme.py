"""The DAGs that the README shows run as they stand there."""

from ducklake_orch.airflow import DuckLakeHook
from tests.airflow_host.runs import run, states
from tests.docs.pages import README, blocks, is_dag


def test_the_dags_of_the_readme_run(conn_id: str) -> None:
    code = "".join(code for _, code in blocks(README, "python") if is_dag(code))
    namespace: dict[str, object] = {"__name__": "__docs__"}
    exec(compile(code, str(README), "exec"), namespace)
    for name in ("dag", "upkeep"):
        done = run(namespace[name])  # type: ignore[arg-type]  # a DAG
        assert set(states(done).values()) == {"success"}
    assert DuckLakeHook().get_records("SELECT count(*) FROM shop.visits") == [(1000,)]
    assert DuckLakeHook().get_records("SELECT id_count FROM shop.latest") == [(1000,)]
