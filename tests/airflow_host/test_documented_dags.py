"""The DAG files in README and docs load and run as they are printed."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ducklake_orch.airflow import DuckLakeHook
from tests.docs.pages import DOCS, PAGES, README, blocks, is_dag, name_of
from tests.support.airflow_runs import bag_of, run, states


def _dags(page: Path, folder: Path) -> dict[str, object]:
    """Return the DAGs that Airflow finds in the blocks of a page, each saved as a file."""
    for line, code in blocks(page, "python"):
        if is_dag(code):
            (folder / f"{page.stem}_{line}.py").write_text(code, "utf-8")
    bag = bag_of(folder)
    assert not bag.import_errors
    return dict(bag.dags)


def _run_dags(page: Path, folder: Path, *names: str) -> None:
    found = _dags(page, folder)
    for name in names:
        assert set(states(run(found[name])).values()) == {"success"}  # type: ignore[arg-type]  # a DAG


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(is_dag(code) for _, code in blocks(page, "python"))], ids=name_of
)
def test_airflow_finds_the_dags_of_a_page(page: Path, tmp_path: Path) -> None:
    assert _dags(page, tmp_path)


def test_the_dags_of_the_readme_run(conn_id: str, tmp_path: Path) -> None:
    _run_dags(README, tmp_path, "shop", "ducklake_maintenance")
    assert DuckLakeHook().get_records("SELECT count(*) FROM shop.visits") == [(1000,)]
    assert DuckLakeHook().get_records("SELECT id_count FROM shop.latest") == [(1000,)]


def test_the_dag_that_writes_several_tables_runs(conn_id: str, tmp_path: Path) -> None:
    _run_dags(DOCS / "airflow.md", tmp_path, "shop_together")
    lake = DuckLakeHook().lake()
    assert {row["price_sum"] for row in lake.read("shop.totals").to_pylist()} == {2.5, 5.0}
    assert lake.table("shop.orders").history()[0].snapshot_id == lake.table("shop.totals").history()[0].snapshot_id


def test_the_dag_whose_tables_are_published_together_runs(conn_id: str, tmp_path: Path) -> None:
    _run_dags(DOCS / "airflow.md", tmp_path, "shop_checked")
    assert {stage.status for stage in DuckLakeHook().lake().stages()} == {"published"}
    assert DuckLakeHook().get_records("SELECT sum(price_sum) FROM shop.totals") == [(7.5,)]


def test_a_task_with_a_key_of_its_own_appends_once_for_each_day(conn_id: str, tmp_path: Path) -> None:
    visits = _dags(DOCS / "airflow.md", tmp_path)["shop_visits"]
    for day in (2, 2, 3):
        done = run(visits, logical_date=datetime(2026, 11, day, tzinfo=UTC))  # type: ignore[arg-type]  # a DAG
        assert set(states(done).values()) == {"success"}
    assert DuckLakeHook().get_records("SELECT day, sum(visits) FROM shop.visits GROUP BY day ORDER BY day") == [
        ("2026-11-02", 7),
        ("2026-11-03", 7),
    ]


def test_the_dag_of_the_quick_start_runs(conn_id: str, tmp_path: Path) -> None:
    _run_dags(DOCS / "start" / "airflow.md", tmp_path, "first_lake")
    assert DuckLakeHook().get_records("SELECT count(*) FROM shop.orders") == [(1000,)]
    assert DuckLakeHook().get_records("SELECT amount FROM shop.revenue") == [(24500,)]
