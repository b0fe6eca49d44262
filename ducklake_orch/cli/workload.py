"""`ducklake-orch workload`: lists which columns reads had conditions on."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table


def workload(
    options: LakeOptions,
    days: Annotated[int, typer.Option(min=1, max=60, help="Count the reads of so many days.")] = 30,
) -> None:
    """List which columns reads had conditions on, and how many files they opened."""
    entries = options.open().workload(days)
    if options.json:
        print_json(entries)
        return
    rows = [
        [
            entry.table,
            entry.column or "",
            entry.condition or "all reads",
            f"{entry.reads}",
            "" if entry.files is None else f"{entry.files:.1f}",
            "" if entry.opened is None else f"{entry.opened:.1f}",
        ]
        for entry in entries
    ]
    head = ["table", "column", "condition", "reads", "files", "opened"]
    none = "No reads are counted. Set `workload = true` in the lake's configuration to count them."
    show(table(head, rows, right=["reads", "files", "opened"]) if rows else none)
