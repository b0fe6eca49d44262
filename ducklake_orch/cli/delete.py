"""`ducklake-orch delete`: deletes or counts the rows that meet a condition."""

from typing import Annotated

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show


def delete(
    options: LakeOptions,
    table: Annotated[str, typer.Argument(help="`table` or `schema.table`.")],
    where: Annotated[str, typer.Option(help="Condition of the rows to delete, in DuckDB's SQL.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows to delete.")] = False,
    expect_snapshot: Annotated[
        int | None, typer.Option(help="Refuse if such rows changed after this snapshot.")
    ] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Key to record with the snapshot.")] = None,
    author: Author = None,
    message: Message = None,
) -> None:
    """Delete rows from a table; with --json, the result is one JSON document."""
    result = options.open().delete(
        table,
        where,
        dry_run=dry_run,
        expect_snapshot=expect_snapshot,
        idempotency_key=idempotency_key,
        commit=commit_info(author, message),
    )
    if options.json:
        print_json(result)
    elif dry_run:
        show(f"{result.rows_removed} rows of {result.table} would be deleted")
    else:
        show(str(result))
