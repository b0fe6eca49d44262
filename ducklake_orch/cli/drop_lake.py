"""`ducklake-orch drop-lake`: drops the whole lake."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show


def drop_lake(
    options: LakeOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Drop it. Without, only show what would be dropped.")] = False,
) -> None:
    """Drop the whole lake: its tables with their history, its files, and its catalog."""
    result = options.open().drop_lake(dry_run=not yes)
    if options.json:
        print_json(result)
    else:
        show(str(result))
