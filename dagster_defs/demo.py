"""`make demo`: a week of the pipeline, orders that come late, customers by merge, maintenance; and what it led to.

Every run is one of Dagster, in its event log: `make dagster` shows them afterwards.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from dagster_defs.definitions import defs, lake
from dagster_defs.pipeline import REGIONS
from ducklake_orch import DuckLake
from ducklake_orch.spark import local_session

WEEK = [f"2025-01-{day:02}" for day in range(1, 8)]
LATE = WEEK[2]
_DONE = ("files_in", "files_out", "rows", "snapshots", "bytes_freed")
_REVENUE = """SELECT region, sum(orders)::BIGINT AS orders, sum(revenue) AS revenue, count(*) AS days
FROM sales.daily_revenue GROUP BY region ORDER BY revenue DESC"""
_TRAVEL = """SELECT (SELECT count(*) FROM sales.orders AT (VERSION => {before})) AS before,
(SELECT count(*) FROM sales.orders) AS now"""


class Story:
    """Runs jobs, and tells in a line what each wrote.

    Args:
        instance: Whose event log gets the runs.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._console = Console(highlight=False)
        self._start = time.monotonic()

    def title(self, text: str) -> None:
        """Begin a part."""
        self._console.print(f"\n[bold]{text}[/bold]")

    def run(self, job: str, about: str, *, partition: str | None = None, last: str | None = None, **ops: Any) -> None:
        """Run a job, for one partition or for those up to the last."""
        ends = {"dagster/asset_partition_range_start": partition, "dagster/asset_partition_range_end": last}
        began = time.monotonic()
        result = defs.resolve_job_def(job).execute_in_process(
            instance=self._instance,
            run_config={"ops": ops, "loggers": {"console": {"config": {"log_level": "ERROR"}}}},
            partition_key=partition if last is None else None,
            tags={name: end for name, end in ends.items() if last is not None and end is not None},
        )
        first, *more = dict.fromkeys(_lines(result)) or ["nothing to do"]
        self._console.print(f"  {about:<16} {time.monotonic() - began:4.1f} s  {first}")
        for line in more:
            self._console.print(f"{'':26}{line}")
        for check in result.get_asset_check_evaluations():
            if not check.passed:
                name = f"{check.asset_key.to_user_string()}: {check.check_name}"
                self._console.print(f"  [yellow]{check.severity.value.lower()}[/yellow]  {name}")

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Show the rows of a query."""
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*map(str, row.values()))
        self._console.print(table)

    def end(self) -> None:
        """Say how long it took, and what to look at."""
        self._console.print(
            f"\n{time.monotonic() - self._start:.0f} s in all. Go on: [bold]make dagster[/bold] shows these runs;\n"
            "[bold].venv/bin/ducklake-orch report --config dagster_defs/ducklake.toml --html shop.html[/bold] the lake."
        )


def _lines(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    """Say what became of each asset of a run."""
    for event in result.get_asset_materialization_events():
        told = {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}
        name = event.asset_key.to_user_string() if event.asset_key else ""
        if "ducklake/status" in told:
            figures = ((told.get(f"ducklake/{one}"), one.replace("_", " ")) for one in _DONE)
            did = ", ".join(f"{count} {what}" for count, what in figures if count)
            if did:
                yield f"{name.rpartition('/')[2]}: {did}"
        else:
            yield f"{name}: {told['ducklake/rows_written']} rows, snapshot {told['ducklake/snapshot_id']}"


def tell(story: Story, shop: DuckLake) -> None:
    """Run the pipeline from the first order to maintenance."""
    story.title("A week of orders: a run replaces exactly the rows of its day")
    for day in WEEK:
        story.run("orders_of_a_day", day, partition=day)
    story.title("Customers, by merge; the revenue of the week, a run for each region")
    story.run("customers", "customers")
    for region in REGIONS:
        story.run("revenue", region, partition=f"{WEEK[0]}|{region}", last=f"{WEEK[-1]}|{region}")
    story.show(shop.execute(_REVENUE).raise_for_error().rows)
    before = shop.snapshots(limit=1)[0].snapshot_id
    story.title(f"300 orders of {LATE} come late: that day is run again")
    story.run("orders_of_a_day", LATE, partition=LATE, raw__orders={"config": {"late": 300}})
    story.run("customers", "customers")
    for region in REGIONS:
        story.run("revenue", region, partition=f"{LATE}|{region}")
    story.show(shop.execute(_TRAVEL.format(before=before)).raise_for_error().rows)
    story.title("A till writes by itself all day: small files, and rows that stay in the catalog")
    for hour in range(24):
        sold = pa.table({"hour": [hour], "sum": [hour * 3.5]})
        shop.write(sold, "tills.sales", mode="append", idempotency_key=f"hour {hour} of run {before}")
        shop.execute(f"INSERT INTO tills.sales VALUES ({hour}, 1.0)").raise_for_error()
    story.show([_state(shop)])
    story.title("Maintenance, as it runs at night")
    story.run("lake_maintenance", "lake_maintenance")
    story.show([_state(shop)])


def _state(shop: DuckLake) -> dict[str, Any]:
    """Say how the table of the till is, and the lake."""
    (till,) = (table for table in shop.health().tables if table.table == "tills.sales")
    return {"tills.sales": till.grade} | {name: till.metrics[name] for name in ("files", "inlined_rows", "rows")}


def main() -> None:
    """Tell the story, in the event log of DAGSTER_HOME where there is one."""
    with dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else dg.DagsterInstance.ephemeral() as instance:
        story = Story(instance)
        session = local_session("ducklake-orch demo", master="local[2]", conf={"spark.sql.shuffle.partitions": 2})
        try:
            tell(story, lake.lake())
        finally:
            session.stop()
        story.end()


if __name__ == "__main__":
    main()
