"""`ducklake-orch rollback`: restores the rows of a table from an earlier snapshot."""

from typing import Annotated

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show


def rollback(
    options: LakeOptions,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="`table` or `schema.table`.")],
    to_snapshot: Annotated[
        int | None, typer.Option("--to", min=0, help="The snapshot whose rows to restore.", show_default=False)
    ] = None,
    tag: Annotated[
        str | None, typer.Option(help="Instead of --to: the name of that snapshot.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    author: Author = None,
    message: Message = None,
) -> None:
    """Restore the rows of an earlier snapshot, in a new snapshot."""
    commit = commit_info(author, message)
    result = options.open().rollback(name, to_snapshot, tag=tag, dry_run=dry_run, commit=commit)
    if options.json:
        print_json(result)
    else:
        show(str(result))
