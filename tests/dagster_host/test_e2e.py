"""End to end: webserver, daemon and run processes, with the code location of the project."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.dagster_host.webserver import Webserver, dagster_dev
from tests.servers.browser import browsing

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
DAY = "2025-01-01"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dagster-dev")


@pytest.fixture(scope="module")
def dagster(home: Path) -> Iterator[Webserver]:
    with dagster_dev(ROOT, home, {"SHOP_FOLDER": str(home)}) as running:
        running.launch("orders_of_a_day", DAY)
        yield running


@pytest.fixture(scope="module")
def lake(home: Path) -> DuckLake:
    return DuckLake.from_url("shop", catalog=f"sqlite:///{home / 'shop.sqlite'}", storage=str(home / "files"))


def test_a_partition_run_a_backfill_and_maintenance_succeed(dagster: Webserver, lake: DuckLake) -> None:
    assert lake.table("sales.orders").count() == 980
    (first,) = dagster.materializations("sales", "orders")
    entries = {entry["label"]: entry for entry in first["metadataEntries"]}
    assert (first["partition"], entries["ducklake/rows_written"]["intValue"]) == (DAY, 980)
    assert entries["dagster/table_name"]["text"] == "shop.sales.orders"
    columns = entries["dagster/column_schema"]["schema"]["columns"]
    assert {"name": "amount", "type": "DECIMAL(9,2)"} in columns
    about = lake.table("sales.orders").history(limit=1, rows=True)[0].extra["dagster"]
    assert (about["run_id"], about["job"]) == (first["runId"], "orders_of_a_day")
    assert about["code_location"] == "dagster_defs.definitions"

    dagster.backfill([["raw", "orders"], ["sales", "orders"], ["checked_orders"]], ["2025-01-02", "2025-01-03"])
    assert lake.table("raw.orders").count() == 3 * 1050
    dagster.launch("lake_maintenance")
    assert {materialization["runId"] for materialization in dagster.materializations("lake", "maintenance", "merge")}
    assert not lake.fsck().findings


def test_the_maintenance_schedule_requests_its_job(dagster: Webserver) -> None:
    assert dagster.start_schedule("lake_maintenance") == "RUNNING"
    tick = dagster.tick("lake_maintenance", datetime(2026, 1, 1, 3, 30, tzinfo=UTC).timestamp())
    assert (len(tick["runRequests"]), tick["skipReason"], tick["error"]) == (1, None, None)


def test_the_asset_page_shows_the_write_metadata(dagster: Webserver, home: Path) -> None:
    dagster.launch("revenue", f"{DAY}|north")
    with browsing(home / "profile", width=1440, height=1500) as browser:
        browser.open(f"{dagster.url}/assets/sales/daily_revenue?view=overview", shows="ducklake/rows_written")
        for shown in ("partition: identity", "revenue", "DECIMAL", "15000.00"):
            browser.wait_for(shown)
        browser.picture(home / "asset.png")
    assert (home / "asset.png").stat().st_size > 20_000


def test_the_asset_page_plots_write_metrics(dagster: Webserver, home: Path) -> None:
    with browsing(home / "plots", width=1440, height=1500) as browser:
        browser.open(f"{dagster.url}/assets/raw/orders?view=overview", shows="ducklake/rows_written")
        browser.click("Plots")
        browser.click("Events")  # the default shows the newest partitions; these are of last year
        for shown in ("ducklake/rows_written", "ducklake/bytes_written", "ducklake/seconds"):
            browser.wait_for(shown)
        assert browser.value("document.querySelectorAll('canvas').length") > 5
        browser.picture(home / "plots.png")
