"""`ducklake-orch demo`: a small lake of your own, in half a second."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ducklake_orch.cli.options import OutputOptions
from ducklake_orch.cli.output import heading, print_json, rows_table, show, sql_text, table

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake
    from ducklake_orch.results import ExecuteResult

_CREATE = """CREATE TABLE IF NOT EXISTS orders (
    id BIGINT, region VARCHAR, amount DECIMAL(9, 2), ordered_at TIMESTAMPTZ
)"""
_INSERT = """INSERT INTO orders
SELECT (SELECT coalesce(max(id), 0) FROM orders) + i, ['north', 'east', 'south', 'west'][1 + i % 4],
       (i * 37 % 500) / 4, TIMESTAMPTZ '2025-01-01 00:00:00+00' + to_minutes(i * 13)
FROM range(1, 1001) t(i)"""
_READ = """SELECT region, count(*) AS orders, sum(amount) AS revenue, max(ordered_at) AS latest
FROM orders GROUP BY region ORDER BY region"""


def demo(
    options: OutputOptions,
    folder: Annotated[Path, typer.Option(help="Where the lake is made, or used again.")] = Path("demo-lake"),
) -> None:
    """Make a small lake, write and read it, and travel back in time; run it again to see it grow."""
    from ducklake_orch.lake import DuckLake

    lake = DuckLake.local(folder / "demo")
    result = lake.execute([_CREATE, _INSERT, _READ]).raise_for_error()
    earlier = result.commands[1].snapshot_before
    travel = lake.execute(
        f"SELECT 'before' AS time, {earlier} AS snapshot, count(*) AS orders FROM orders AT (VERSION => {earlier})"
        f" UNION ALL SELECT 'now', {result.commands[1].snapshot_after}, count(*) FROM orders ORDER BY snapshot"
    ).raise_for_error()
    story = {
        "preview_sql": lake.preview_sql(),
        "result": result,
        "time_travel": travel.rows,
        "snapshots": lake.snapshots(limit=5),
        "tables": lake.tables(),
        "places": _places(lake),
    }
    if options.json:
        print_json(story)
    else:
        _show(lake, result, travel, story)


def _places(lake: "DuckLake") -> dict[str, str]:
    from ducklake_orch.config.catalogs import FileCatalog

    catalog = lake.config.catalog
    assert isinstance(catalog, FileCatalog)  # noqa: S101 - an embedded lake
    return {"catalog": str(catalog.path), "data": str(lake.config.data_path)}


def _show(lake: "DuckLake", result: "ExecuteResult", travel: "ExecuteResult", story: dict[str, Any]) -> None:
    commands = [
        [
            one.index,
            one.kind,
            one.status,
            one.affected_rows if one.affected_rows is not None else one.row_count,
            f"{one.duration_s * 1000:.0f}",
            f"{one.snapshot_before} → {one.snapshot_after}",
        ]
        for one in result.commands
    ]
    snapshots = [
        [one.snapshot_id, f"{one.snapshot_time:%Y-%m-%d %H:%M:%S}", ", ".join(one.changes)]
        for one in story["snapshots"]
    ]
    show(
        heading("1  Opening the lake runs this, secrets masked (`lake.preview_sql()`)"),
        sql_text(lake.preview_sql()),
        heading("2  A table, a thousand rows, a question (`lake.execute([...])`)"),
        sql_text(f"{_CREATE};\n{_INSERT};\n{_READ};"),
        heading("3  Each command has a structured result (`result.to_dict()` is JSON)"),
        table(["command", "kind", "status", "rows", "ms", "snapshot"], commands, right=["command", "rows", "ms"]),
        heading("4  The answer (`result.rows`)"),
        rows_table(result.commands[-1].columns, result.rows),
        heading("5  Every write is a snapshot (`lake.snapshots(limit=5)`)"),
        table(["snapshot", "time (UTC)", "changes"], snapshots, right=["snapshot"]),
        heading("6  and can be read again (`FROM orders AT (VERSION => …)`)"),
        rows_table(travel.commands[0].columns, travel.rows),
        heading("7  Where it all lies"),
        f"catalog  {story['places']['catalog']}",
        f"data     {story['places']['data']}",
        heading("Go on"),
        f"ducklake-orch sql 'FROM orders LIMIT 5' --catalog {shlex.quote(lake.config.catalog.to_url())}"
        f" --storage {shlex.quote(story['places']['data'])}",
    )
