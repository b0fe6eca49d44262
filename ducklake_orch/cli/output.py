"""Prints output for users with rich, or for programs as JSON."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ducklake_orch.cli.still_running import still_running
from ducklake_orch.results import to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# The width in a pipe: large enough that no table is cut.
_WIDTH_OF_A_PIPE = 10_000
_NUMERIC = re.compile(r"U?\w*INT(EGER)?|DECIMAL\(.*\)|DOUBLE|FLOAT|NUMBER", re.IGNORECASE)
_COLOURS = {"error": typer.colors.RED, "warning": typer.colors.YELLOW, "interrupted": typer.colors.YELLOW}


def print_json(value: Any) -> None:
    """Print one JSON document."""
    still_running.stop()
    typer.echo(json.dumps(to_json(value), indent=2, ensure_ascii=False))


def print_problem(kind: str, message: str, *remedies: str | None) -> None:
    """Print an error, a warning or an interruption on stderr, with each of its remedies on a separate line."""
    still_running.stop()
    head = f"{kind}:" if os.environ.get("NO_COLOR") else typer.style(f"{kind}:", fg=_COLOURS[kind], bold=True)
    typer.echo(f"{head} {message}", err=True)
    for remedy in filter(None, remedies):
        typer.echo(f"{' ' * (len(kind) + 2)}{remedy}", err=True)


def console(*, stderr: bool = False) -> "Console":
    """Return a console that prints text literally, without rich's markup and emoji codes."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal else _WIDTH_OF_A_PIPE
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, safe_box=True)


def show(*things: "RenderableType", stderr: bool = False) -> None:
    """Print texts, tables and other renderables, one below the other."""
    still_running.stop()
    target = console(stderr=stderr)
    for thing in things:
        target.print(thing)


def heading(text: str) -> "RenderableType":
    """Return a heading with an empty line above it."""
    from rich.text import Text

    return Text(f"\n{text}", style="bold cyan")


def sql_text(sql: str) -> "RenderableType":
    """Return highlighted SQL, which wraps in a terminal and is never cut."""
    from rich.syntax import Syntax

    text = Syntax(sql, "sql", theme="ansi_dark", background_color="default").highlight(sql)
    text.rstrip()
    return text


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = ()) -> "RenderableType":
    """Return a table.

    Args:
        columns: The headings.
        rows: The cells: values that `cell` can show, or rich renderables.
        right: Headings of the right-aligned columns.
    """
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for name in columns:
        # Folded and not shortened, because the end of a path or an error matters most.
        result.add_column(cell(name), overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        result.add_row(*[cell(value) for value in row])
    return result


def rows_table(columns: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> "RenderableType":
    """Return the rows of a query as a table."""
    names = [column["name"] for column in columns]
    right = [column["name"] for column in columns if _NUMERIC.fullmatch(column["type"])]
    return table(names, [[row[name] for name in names] for row in rows], right=right)


def cell(value: Any) -> Any:
    """Return the table cell of a value."""
    from rich.text import Text

    if value is None:
        return Text("NULL", style="dim")
    if hasattr(value, "__rich_console__") or hasattr(value, "__rich__"):
        return value
    if isinstance(value, list | tuple | dict):
        value = json.dumps(to_json(value), ensure_ascii=False)
    # Control characters in data must not reach the terminal.
    return Text("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(value)))
