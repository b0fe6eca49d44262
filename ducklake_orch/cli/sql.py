"""`ducklake-orch sql`: runs SQL and shows the result of each command."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.failure import FAILED, show_error
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, rows_table, show
from ducklake_orch.cli.times import AsOf, SnapshotId, TagName, TimeLimit, seconds, zoned_time

if TYPE_CHECKING:
    from rich.text import Text

    from ducklake_orch.results import CommandResult, ExecuteResult

_SHOWN_SQL = 100
_MARKS = {"ok": ("ok", "green"), "error": ("error", "bold red"), "skipped": ("skipped", "dim")}


class OnError(StrEnum):
    """What happens after a failed command."""

    STOP = "stop"
    CONTINUE = "continue"


def sql(
    options: LakeOptions,
    statements: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="One or more statements; `-` reads them from stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the statements from a file.", show_default=False),
    ] = None,
    atomic: Annotated[bool, typer.Option("--atomic", help="All in one transaction: one snapshot, or nothing.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse writes.")] = False,
    snapshot: SnapshotId = None,
    as_of: AsOf = None,
    tag: TagName = None,
    max_rows: Annotated[int, typer.Option(min=0, help="Rows kept of each result.")] = 1000,
    timeout: TimeLimit = None,
    on_error: Annotated[OnError, typer.Option(help="Whether later commands run after a failure.")] = OnError.STOP,
    force: Annotated[
        bool, typer.Option("--force", help="Allow maintenance calls below their retention floors.")
    ] = False,
    author: Author = None,
    message: Message = None,
) -> None:
    """Run SQL commands; rows go to stdout, and what each command did to stderr.

    Writes wait in the catalog's queue and are retried after transient failures.
    """
    script = _read(statements, file)
    result = options.open().execute(
        script,
        atomic=atomic,
        on_error=on_error.value,
        max_rows=max_rows,
        read_only=read_only,
        snapshot=snapshot,
        as_of=zoned_time(as_of),
        tag=tag,
        timeout=seconds(timeout),
        force=force,
        commit=commit_info(author, message),
    )
    if options.json:
        print_json(result)
    else:
        _show(result)
    if result.status == "error":
        raise typer.Exit(FAILED)


def _read(statements: str | None, file: Path | None) -> str:
    if (statements is None) == (file is None):
        raise typer.BadParameter("Give the SQL once: as an argument, with -f FILE, or from stdin with `-`.")
    if file is None:
        assert statements is not None  # noqa: S101 - one of them is given
        return sys.stdin.read() if statements == "-" else statements
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"The file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"The file {file} is not UTF-8.") from None


def _show(result: "ExecuteResult") -> None:
    for command in result.commands:
        show(_headline(command), stderr=True)
        if command.columns:
            show(rows_table(command.columns, command.rows), "")
        if command.truncated:
            show(f"The first {_rows(command.row_count)}; --max-rows shows more.\n", stderr=True)
    for command in result.commands:
        if command.error:
            show_error(command.error, as_json=False)


def _headline(command: "CommandResult") -> "Text":
    from rich.text import Text

    word, style = _MARKS[command.status]
    statement = " ".join(command.sql.split())
    shortened = statement if len(statement) <= _SHOWN_SQL else f"{statement[: _SHOWN_SQL - 1]}…"
    line: Any = Text.assemble((word, style), f"  {shortened}")
    if command.status != "ok":
        return Text.assemble(line)
    facts = [f"{command.duration_s * 1000:.0f} ms"]
    if command.affected_rows is not None:
        facts.insert(0, _rows(command.affected_rows))
    elif command.columns:
        facts.insert(0, f"{_rows(command.row_count)}{', more left out' if command.truncated else ''}")
    if command.snapshot_after is not None and command.snapshot_before != command.snapshot_after:
        facts.append(f"snapshot {command.snapshot_before} → {command.snapshot_after}")
    return Text.assemble(line, (f"  ({', '.join(facts)})", "dim"))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
