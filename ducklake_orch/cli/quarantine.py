"""`ducklake-orch quarantine`: lists orphaned files in quarantine, and moves them back."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table
from ducklake_orch.config.units import in_bytes


def quarantine(
    options: LakeOptions,
    restore: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Move this file back to where it was; repeat for more.", show_default=False),
    ] = None,
    restore_all: Annotated[bool, typer.Option("--restore-all", help="Move all files back.")] = False,
) -> None:
    """List the orphaned files that maintenance moved into quarantine, or move them back."""
    if restore and restore_all:
        raise typer.BadParameter("Give either --restore or --restore-all.")
    lake = options.open()
    files = lake.restore_quarantined(restore) if restore or restore_all else lake.quarantined()
    if options.json:
        print_json(files)
        return
    rows = [[file.path, in_bytes(file.size), f"{file.since}"] for file in files]
    head = ["restored" if restore or restore_all else "file", "bytes", "since"]
    show(table(head, rows, right=["bytes"]) if rows else "No file is in quarantine.")
