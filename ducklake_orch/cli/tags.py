"""`ducklake-orch tag`, `tags` and `untag`: names of snapshots."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table
from ducklake_orch.cli.times import zoned_time

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")]


def tag(
    options: LakeOptions,
    name: Name,
    snapshot: Annotated[
        int | None, typer.Option(min=0, help="The snapshot; by default the latest.", show_default=False)
    ] = None,
    keep_until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="ISO 8601 time, with its zone, at which the snapshot may expire.", show_default=False
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move the name from an earlier snapshot.")] = False,
) -> None:
    """Name a snapshot; maintenance retains it."""
    result = options.open().tag(name, snapshot, zoned_time(keep_until), replace=replace)
    if options.json:
        print_json(result)
    else:
        show(str(result))


def tags(options: LakeOptions) -> None:
    """List the names of snapshots, the oldest snapshot first."""
    entries = options.open().tags()
    if options.json:
        print_json(entries)
        return
    rows = [
        [
            entry.name,
            f"{entry.snapshot_id}{' (expired)' * entry.expired}",
            f"{entry.snapshot_time:%Y-%m-%d %H:%M:%S}",
            f"{entry.keep_until:%Y-%m-%d %H:%M:%S}" if entry.keep_until else "",
        ]
        for entry in entries
    ]
    head = ["tag", "snapshot", "time", "keep until"]
    show(table(head, rows, right=["snapshot"]) if rows else "There are no tags.")


def untag(options: LakeOptions, name: Name) -> None:
    """Remove the name of a snapshot, which then expires like all others."""
    options.open().untag(name)
    if options.json:
        print_json({"untagged": name})
    else:
        show(f"The tag `{name}` is removed.")
