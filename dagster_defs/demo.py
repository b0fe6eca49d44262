"""`make demo`: runs a week of the pipeline with late orders, merged customers and maintenance, and prints the results.

Every run is a Dagster run in the event log, so `make dagster` shows it afterwards.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
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
_NEEDED_MB = 200
_FIGURES = ("files_in", "files_out", "rows", "snapshots", "bytes_freed")
_REVENUE = """SELECT region, sum(orders)::BIGINT AS orders, sum(revenue) AS revenue, count(*) AS days
FROM sales.daily_revenue GROUP BY region ORDER BY revenue DESC"""
_TRAVEL = """SELECT (SELECT count(*) FROM sales.orders AT (VERSION => {before})) AS before,
(SELECT count(*) FROM sales.orders) AS now"""


class Story:
    """Runs jobs, and prints a line for each write.

    Args:
        instance: The Dagster instance whose event log records the runs.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._console = Console(highlight=False)
        self._start = time.monotonic()

    def title(self, text: str) -> None:
        """Print a heading."""
        self._console.print(f"\n[bold]{text}[/bold]")

    def run(self, job: str, about: str, *, partition: str | None = None, last: str | None = None, **ops: Any) -> None:
        """Run a job for one partition, or for a range of partitions up to `last`."""
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
        """Print the rows of a query."""
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*map(str, row.values()))
        self._console.print(table)

    def end(self) -> None:
        """Print the duration and the next commands to try."""
        self._console.print(
            f"\n{time.monotonic() - self._start:.0f} s in total. [bold]make dagster[/bold] shows these runs.\n"
            "The report on the lake: "
            "[bold].venv/bin/ducklake-orch report --config dagster_defs/ducklake.toml --html shop.html[/bold]",
            soft_wrap=True,  # a command in one line can be copied
        )


def _lines(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    """Return a line for each asset that a run materialized."""
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        metadata: dict[str, Any] = {name: value.value for name, value in materialization.metadata.items()}
        name = event.asset_key.to_user_string() if event.asset_key else ""
        if "ducklake/status" in metadata:
            figures = ((metadata.get(f"ducklake/{figure}"), figure.replace("_", " ")) for figure in _FIGURES)
            summary = ", ".join(f"{count} {what}" for count, what in figures if count)
            if summary:
                yield f"{name.rpartition('/')[2]}: {summary}"
        elif "ducklake/tables" in metadata:
            yield f"{name}: {len(metadata['ducklake/tables'])} tables in snapshot {metadata['ducklake/snapshot_id']}"
        else:
            snapshot = metadata.get("ducklake/snapshot_id")
            seen = "staged" if snapshot is None else f"snapshot {snapshot}"
            yield f"{name}: {metadata['ducklake/rows_written']} rows, {seen}"


def tell(story: Story, shop: DuckLake) -> None:
    """Run the pipeline from the first order to maintenance."""
    story.title("A week of orders: each run replaces exactly the rows of its day, once they are checked")
    for day in WEEK:
        story.run("orders_of_a_day", day, partition=day)
    story.title("Customers by merge, and the revenue of the week with one run for each region")
    story.run("customers", "customers")
    for region in REGIONS:
        story.run("revenue", region, partition=f"{WEEK[0]}|{region}", last=f"{WEEK[-1]}|{region}")
    story.show(shop.execute(_REVENUE).raise_for_error().rows)
    before = shop.snapshots(limit=1)[0].snapshot_id
    story.title(f"300 orders of {LATE} arrive late, 15 of them twice and 6 without amount: that day is run again")
    story.run("orders_of_a_day", LATE, partition=LATE, raw__orders={"config": {"late": 300}})
    story.run("customers", "customers")
    for region in REGIONS:
        story.run("revenue", region, partition=f"{LATE}|{region}")
    story.show(shop.execute(_TRAVEL.format(before=before)).raise_for_error().rows)
    story.title("A till writes all day outside Dagster: small files, and rows inlined in the catalog")
    for hour in range(24):
        sold = pa.table({"hour": [hour], "sum": [hour * 3.5]})
        shop.write(sold, "tills.sales", mode="append", idempotency_key=f"hour {hour} of run {before}")
        shop.execute(f"INSERT INTO tills.sales VALUES ({hour}, 1.0)").raise_for_error()
    story.show([_state(shop)])
    story.title("Nightly maintenance")
    story.run("lake_maintenance", "lake_maintenance")
    story.show([_state(shop)])


def _state(shop: DuckLake) -> dict[str, Any]:
    """Return the health grade and the figures of the till's table."""
    (till,) = (table for table in shop.health().tables if table.table == "tills.sales")
    return {"tills.sales": till.grade} | {name: till.metrics[name] for name in ("files", "inlined_rows", "rows")}


def main() -> None:
    """Run the demo, with the event log of DAGSTER_HOME if it is set."""
    folder = Path(os.environ.get("DAGSTER_HOME") or Path(__file__).parent)
    if (free := shutil.disk_usage(folder).free >> 20) < _NEEDED_MB:
        sys.exit(f"The disk of {folder} has {free} MB left: free {_NEEDED_MB} MB for the demo, and run it again.")
    only = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("Another `make demo` runs in this folder, and both would count each other's rows: wait for it to end.")
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
