"""Snapshots are linked to the runs that made them, if the writer or the user of the report names the page."""

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.errors import ConfigError
from ducklake_orch.report.run_links import run_link
from tests.support.backends import on_sqlite

RUN = {"airflow": {"dag_id": "load", "run_id": "manual__2026-11-01T00:00:00+00:00", "task_id": "orders"}}


def test_a_recorded_url_is_the_link() -> None:
    extra = {"airflow": RUN["airflow"] | {"url": "https://airflow.example.com/dags/load/runs/1"}}
    assert run_link(extra, {}) == (
        f"airflow {RUN['airflow']['run_id']}",
        "https://airflow.example.com/dags/load/runs/1",
    )
    assert run_link({"url": "https://ci.example.com/job/7"}, {}) == (
        "ci.example.com/job/7",
        "https://ci.example.com/job/7",
    )


def test_the_address_of_a_host_completes_its_runs() -> None:
    _, url = run_link(RUN, {"airflow": "https://airflow.example.com/"}) or ("", None)
    assert url == "https://airflow.example.com/dags/load/runs/manual__2026-11-01T00%3A00%3A00%2B00%3A00/tasks/orders"
    assert run_link(RUN, {"dagster": "https://dagster.example.com"}) == (f"airflow {RUN['airflow']['run_id']}", None)


@pytest.mark.parametrize("extra", [None, "text", {}, {"dagster": "x"}, {"url": "javascript:alert(1)"}, {"url": 7}])
def test_without_a_run_there_is_no_link(extra: object) -> None:
    assert run_link(extra, {"dagster": "https://dagster.example.com"}) is None


@on_sqlite
def test_the_page_links_a_run_and_keeps_other_schemes_as_text(lake: DuckLake) -> None:
    for extra in ({"dagster": {"run_id": "1a2b"}}, {"airflow": {"run_id": "r", "url": "javascript:alert(1)"}}):
        lake.write(pa.table({"v": [1]}), "t", mode="append", commit=CommitInfo(extra=extra))
    html = lake.report(host_urls={"dagster": "https://dagster.example.com"}).to_html()
    assert '<a href="https://dagster.example.com/runs/1a2b" rel="noreferrer">dagster 1a2b</a>' in html
    assert 'href="javascript' not in html


@on_sqlite
def test_unknown_hosts_and_addresses_are_refused(lake: DuckLake) -> None:
    lake.ensure_exists()
    with pytest.raises(ConfigError, match="dagstr"):
        lake.report(host_urls={"dagstr": "https://dagster.example.com"})
    with pytest.raises(ConfigError, match="no address of dagster"):
        lake.report(host_urls={"dagster": "dagster.example.com"})
