"""`ducklake-orch add-files`: adds existing Parquet files to a table."""

from typing import Annotated, Literal, cast

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show


def add_files(
    options: LakeOptions,
    table: Annotated[str, typer.Argument(help="`table` or `schema.table`; the table must exist.")],
    patterns: Annotated[
        list[str], typer.Argument(metavar="PATTERN...", help="Parquet files, or patterns such as 'old/**/*.parquet'.")
    ],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept files that lack columns; these read as default or NULL.")
    ] = False,
    ignore_extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Accept files that have more columns; these are never read.")
    ] = False,
    copy: Annotated[bool, typer.Option("--copy", help="Add copies, and leave the files alone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the files.")] = False,
    verify: Annotated[
        str, typer.Option(help="What to check first: `pages` reads all values, `footer` only the footers.")
    ] = "pages",
    idempotency_key: Annotated[
        str | None, typer.Option(help="Key that all attempts at the same work share.", show_default=False)
    ] = None,
    author: Author = None,
    message: Message = None,
) -> None:
    """Register Parquet files with a table without rewriting them, in one snapshot; all of them, or none.

    The lake then owns the files and deletes them when no snapshot needs them any more. --copy adds copies and leaves
    the files themselves alone.
    """
    from ducklake_orch.config.units import in_bytes

    result = options.open().add_files(
        table,
        patterns,
        allow_missing=allow_missing,
        ignore_extra=ignore_extra,
        copy=copy,
        dry_run=dry_run,
        verify=cast(Literal["pages", "footer"], verify),
        idempotency_key=idempotency_key,
        commit=commit_info(author, message),
    )
    if options.json:
        print_json(result)
    elif dry_run and not result.replayed:
        size = in_bytes(result.bytes_written)
        show(f"{result.files_added} files with {result.rows_written} rows, {size}, fit {result.table}; none was added")
    else:
        show(str(result))
