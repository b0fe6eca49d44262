"""`ducklake-orch stages`, `diff`, `publish` and `discard`: what is staged, and what becomes of it."""

from typing import Annotated

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table
from ducklake_orch.config.units import in_bytes

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the stage.")]


def stages(options: LakeOptions) -> None:
    """List the stages, with what publishing each would change."""
    found = options.open().stages()
    if options.json:
        print_json({"stages": [stage.to_dict() for stage in found]})
        return
    head = ["stage", "status", "expires", "tables", "rows in", "rows out", "size", "author"]
    rows = [
        [
            stage.name,
            stage.status,
            f"{stage.expires:%Y-%m-%d %H:%M}",
            ", ".join(stage.tables),
            stage.rows_added,
            stage.rows_removed,
            in_bytes(stage.bytes),
            stage.author or "",
        ]
        for stage in found
    ]
    show(table(head, rows, right=["rows in", "rows out", "size"]) if rows else "There are no stages.")


def diff(
    options: LakeOptions,
    stage: Name,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="`table` or `schema.table`.")],
    limit: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 1000,
) -> None:
    """Show the rows of a table that publishing a stage would add and remove."""
    found = options.open().stage(stage, create=False).diff(name)
    rows = found.slice(0, limit).to_pylist()
    if options.json:
        print_json({"changes": rows, "total": found.num_rows})
        return
    show(table(found.column_names, [list(row.values()) for row in rows]) if rows else "There are no changes.")
    if found.num_rows > limit:
        show(f"… and {found.num_rows - limit} more; --limit shows more of them.")


def publish(options: LakeOptions, stage: Name, author: Author = None, message: Message = None) -> None:
    """Commit what a stage holds as one snapshot."""
    result = options.open().stage(stage, create=False).publish(commit=commit_info(author, message))
    if options.json:
        print_json(result.to_dict())
        return
    for write in result.writes:
        show(str(write))
    is_now = "was already" if result.replayed else "is"
    show(f"The stage `{stage}` {is_now} published as snapshot {result.snapshot_id}.")


def discard(options: LakeOptions, stage: Name) -> None:
    """Delete a stage and its files."""
    lake = options.open()
    lake.stage(stage, create=False).discard()
    left = next((found for found in lake.stages() if found.name == stage), None)
    if options.json:
        print_json({"discarded": stage if left is None else None, "snapshot_id": left and left.snapshot_id})
        return
    what = "is discarded" if left is None else f"stays: it was published as snapshot {left.snapshot_id}"
    show(f"The stage `{stage}` {what}.")
