"""`ducklake-orch explain`: prints the documentation's section on an error."""

import difflib
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.completion import error_codes
from ducklake_orch.cli.options import OutputOptions
from ducklake_orch.cli.output import print_json
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from ducklake_orch.cli.errors_page import Section

# Prose is easier to read in lines of this width than in those of a wide terminal.
_WIDTH = 80
_NEAR = 5


def explain(
    options: OutputOptions,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="Code or class of an error; without it, all codes are listed.",
            show_default=False,
            autocompletion=error_codes,
        ),
    ] = None,
) -> None:
    """Explain an error: what it means, how it is seen, and what to do."""
    from ducklake_orch.cli.errors_page import sections

    known = sections()
    if code is None:
        if options.json:
            print_json([{"code": each.code, "type": each.name, "summary": each.summary} for each in known.values()])
        else:
            typer.echo("\n".join(_listed(list(known.values()))))
        return
    section = _found(code, known)
    if options.json:
        text = section.text(_WIDTH)
        docs = f"docs/errors.md#{section.name.lower()}"
        print_json({"code": section.code, "type": section.name, "text": text, "docs": docs})
    else:
        typer.echo(section.text(min(_WIDTH, _columns() or _WIDTH)))


def _found(code: str, known: "dict[str, Section]") -> "Section":
    word = code.strip().lower()
    for section in known.values():
        if word in (section.code, section.name.lower()):
            return section
    raise ConfigError(f"There is no error code `{code}`.", remedy=_suggestion(word, known))


def _suggestion(word: str, known: "dict[str, Section]") -> str:
    """Name the codes that are spelled alike; else those whose section contains the words, as a part of a message."""
    names = {section.name.lower(): section.code for section in known.values()} | {each: each for each in known}
    alike = [names[name] for name in difflib.get_close_matches(word, names, n=_NEAR, cutoff=0.6)]
    alike += [each for each in known if word and word in each]
    if not alike and word:
        alike = [each.code for each in known.values() if word in each.markdown.lower()]
    near = list(dict.fromkeys(alike))[:_NEAR]
    if not near:
        return "`ducklake-orch explain` lists all codes."
    return f"Near ones: {', '.join(f'`{each}`' for each in near)}. `ducklake-orch explain` lists all."


def _listed(known: "list[Section]") -> list[str]:
    longest, columns = max(len(section.code) for section in known), _columns()
    lines = [f"{section.code:<{longest}}  {section.summary}" for section in known]
    # Nothing is left out in a pipe.
    return [line if columns is None else _cut(line, columns) for line in lines]


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: max(columns - 1, 1)].rstrip()}…"


def _columns() -> int | None:
    """Return the width of the terminal; None in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
