"""`ducklake-orch changes`: shows the change feed of a table."""

from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table
from ducklake_orch.cli.times import zoned_time

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake


def changes(
    options: LakeOptions,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="`table` or `schema.table`.")],
    from_snapshot: Annotated[
        int | None, typer.Option("--from", min=0, help="The first snapshot.", show_default=False)
    ] = None,
    to_snapshot: Annotated[
        int | None, typer.Option("--to", min=0, help="The last snapshot, included.", show_default=False)
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From this ISO 8601 time on, instead of --from.", show_default=False),
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this ISO 8601 time, instead of --to.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many changes to show.")] = 1000,
) -> None:
    """Show how the rows of a table changed from snapshot to snapshot."""
    lake = options.open()
    feed = lake.changes(name, from_snapshot, to_snapshot, from_time=zoned_time(from_time), to_time=zoned_time(to_time))
    if not feed.num_rows and from_snapshot is not None:
        _refuse_future(lake, name, from_snapshot)
    rows = feed.slice(0, limit).to_pylist()
    if options.json:
        print_json({"changes": rows, "total": feed.num_rows})
        return
    shown = [[row[column] for column in feed.schema.names] for row in rows]
    show(table(feed.schema.names, shown, right=["snapshot_id", "rowid"]) if rows else "There are no changes.")
    if feed.num_rows > limit:
        show(f"… and {feed.num_rows - limit} more; --limit shows more of them.")


def _refuse_future(lake: "DuckLake", name: str, snapshot: int) -> None:
    """Refuse a first snapshot after the next one, with which programs that follow a table ask for news."""
    if snapshot > lake.snapshots(limit=1)[0].snapshot_id + 1:
        lake.changes(name, to_snapshot=snapshot)  # whose end has to exist, so this raises
