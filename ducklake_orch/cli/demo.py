"""`ducklake-orch demo`: creates a small lake, in which Spark writes a week of orders and reads it back."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ducklake_orch.cli.options import OutputOptions
from ducklake_orch.cli.output import heading, print_json, rows_table, show, sql_text, table
from ducklake_orch.install_commands import install_extra

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake
    from ducklake_orch.results import ExecuteResult, WriteResult

_PER_WEEK = 7000
# The same rows in Spark's SQL and in DuckDB's SQL.
_SPARK = """SELECT {first} + id AS id,
       element_at(array('north', 'east', 'south', 'west'), CAST(id % 4 AS INT) + 1) AS region,
       CAST((id * 37 % 500) / 4 AS DECIMAL(9, 2)) AS amount,
       timestamp_seconds(1735689600 + ({first} + id - 1) * 86) AS ordered_at
FROM range(1, {end})"""
_DUCKDB = """SELECT {first} + id AS id, ['north', 'east', 'south', 'west'][1 + id % 4] AS region,
       CAST((id * 37 % 500) / 4 AS DECIMAL(9, 2)) AS amount,
       to_timestamp(1735689600 + ({first} + id - 1) * 86) AS ordered_at
FROM range(1, {end}) AS t(id)"""
_READ = """SELECT region, count(*) AS orders, sum(amount) AS revenue, max(ordered_at) AS latest
FROM orders GROUP BY region ORDER BY region"""


def demo(
    options: OutputOptions,
    folder: Annotated[Path, typer.Option(help="Folder of the lake, created if it does not exist.")] = Path("demo-lake"),
) -> None:
    """Make a small lake, write a week of orders with Spark and read them back; run it again for the next week."""
    from ducklake_orch.lake import DuckLake

    lake = DuckLake.local(folder / "demo")
    first = lake.table("orders").count() if lake.exists("orders") else 0
    written, read_back = (_with_spark if find_spec("pyspark") else _with_duckdb)(lake, first)
    result = lake.execute(_READ).raise_for_error()
    earlier = written.previous_snapshot_id
    travel = lake.execute(
        f"SELECT 'now' AS time, {written.snapshot_id} AS snapshot, count(*) AS orders FROM orders"
        + (f" UNION ALL SELECT 'before', {earlier}, count(*) FROM orders AT (VERSION => {earlier})" if first else "")
        + " ORDER BY snapshot"
    ).raise_for_error()
    story = {
        "preview_sql": lake.preview_sql(),
        "write": written,
        "read_back": read_back,
        "result": result,
        "time_travel": travel.rows,
        "snapshots": lake.snapshots(limit=5),
        "tables": lake.tables(),
        "places": {"catalog": str(lake.config.catalog_file), "data": str(lake.config.data_path)},
    }
    if options.json:
        print_json(story)
    else:
        _show(lake, result, travel, story)


def _with_spark(lake: "DuckLake", first: int) -> tuple["WriteResult", list[dict[str, Any]]]:
    from ducklake_orch.spark import local_session

    spark = local_session("ducklake-orch demo")
    week = spark.sql(_SPARK.format(first=first, end=_PER_WEEK + 1))
    written = lake.write(week, "orders", mode="append", partition_by=["year(ordered_at)", "month(ordered_at)"])
    orders = lake.read("orders", spark)
    days = orders.groupBy(orders.ordered_at.cast("date").alias("day")).count().orderBy("day")
    return written, [{"day": str(row["day"]), "orders": row["count"]} for row in days.collect()[-7:]]


def _with_duckdb(lake: "DuckLake", first: int) -> tuple["WriteResult", list[dict[str, Any]]]:
    import duckdb

    with duckdb.connect() as con:
        week = con.sql(_DUCKDB.format(first=first, end=_PER_WEEK + 1))
        written = lake.write(week, "orders", mode="append", partition_by=["year(ordered_at)", "month(ordered_at)"])
    days = lake.execute("SELECT CAST(ordered_at AS DATE) AS day, count(*) AS orders FROM orders GROUP BY 1 ORDER BY 1")
    return written, [{"day": str(row["day"]), "orders": row["orders"]} for row in days.raise_for_error().rows[-7:]]


def _show(lake: "DuckLake", result: "ExecuteResult", travel: "ExecuteResult", story: dict[str, Any]) -> None:
    snapshots = [
        [snapshot.snapshot_id, f"{snapshot.snapshot_time:%Y-%m-%d %H:%M:%S}", ", ".join(snapshot.changes)]
        for snapshot in story["snapshots"]
    ]
    days = [[row["day"], row["orders"]] for row in story["read_back"]]
    spark = find_spec("pyspark") is not None
    show(
        heading("1  Opening the lake runs this, secrets masked (`lake.preview_sql()`)"),
        sql_text(lake.preview_sql()),
        heading("2  A week of orders (`lake.write(frame, 'orders', mode='append', …)`)"),
        str(story["write"]) + ("" if spark else f"; by DuckDB alone: for Spark, {install_extra('spark')}"),
        heading("3  Read back" + (" as a Spark DataFrame (`lake.read('orders', spark)`)" if spark else "")),
        table(["day", "orders"], days, right=["orders"]),
        heading("4  The same table in SQL (`lake.execute(…)`; `result.to_dict()` is JSON)"),
        sql_text(f"{_READ};"),
        rows_table(result.commands[-1].columns, result.rows),
        heading("5  Every write is a snapshot (`lake.snapshots(limit=5)`)"),
        table(["snapshot", "time (UTC)", "changes"], snapshots, right=["snapshot"]),
        heading("6  Earlier snapshots stay readable (`FROM orders AT (VERSION => …)`)"),
        rows_table(travel.commands[0].columns, travel.rows),
        heading("7  Where the files are"),
        f"catalog  {story['places']['catalog']}",
        f"data     {story['places']['data']}",
        heading("Next"),
        f"ducklake-orch sql 'FROM orders LIMIT 5' --catalog {shlex.quote(lake.config.catalog.to_url())}"
        f" --storage {shlex.quote(story['places']['data'])}",
    )
