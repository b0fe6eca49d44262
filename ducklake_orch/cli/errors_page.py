"""Reads the page `docs/errors.md` and renders its sections as plain text."""

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import ducklake_orch

_SECTION = re.compile(r"^### (\w+)\n+`([a-z-]+)` · (.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]*)\)")
# Code with backticks inside stands between two backticks.
_CODE_WITH_CODE = re.compile(r"``\s?(.+?)\s?``(?!`)", re.DOTALL)
_BULLET = "  "


@dataclass(frozen=True)
class Section:
    """The section on a class of errors.

    Attributes:
        name: The class.
        code: Its code.
        markdown: The text of the section, without its heading and code.
    """

    name: str
    code: str
    markdown: str

    @property
    def summary(self) -> str:
        """The first sentence, without the family."""
        paragraph = _plain(self.markdown.partition("\n\n")[0])
        sentence = re.sub(r"^(Terminal|Transient)\. ", "", re.sub(r" ?An? `\w+`\.", "", paragraph))
        return re.split(r"(?<=\.) (?=[A-Z])", sentence, maxsplit=1)[0].strip()

    def text(self, width: int) -> str:
        """Return the section as plain text.

        Args:
            width: The longest line.
        """
        blocks = [f"{self.name} ({self.code})"]
        for paragraph in self.markdown.strip().split("\n\n"):
            bullets = re.split(r"^- ", paragraph, flags=re.MULTILINE)
            for number, bullet in enumerate(bullets):
                title, colon, body = _plain(bullet).partition(": ")
                if number and colon:
                    blocks.append(f"{title}\n{_wrapped(body[:1].upper() + body[1:], width, _BULLET)}")
                elif bullet.strip():
                    blocks.append(_wrapped(_plain(bullet), width, _BULLET if number else ""))
        return "\n\n".join(blocks)


@cache
def sections() -> dict[str, Section]:
    """Return the sections of the page by code."""
    return {
        code: Section(name, code, body.replace("](#", "](docs/errors.md#"))
        for name, code, body in _SECTION.findall(page().read_text("utf-8"))
    }


def page() -> Path:
    """Return the page: a resource of the installed package, or the file in a checkout."""
    shipped = files(ducklake_orch) / "errors.md"
    if shipped.is_file():
        return Path(str(shipped))
    return Path(ducklake_orch.__file__).parents[1] / "docs" / "errors.md"


def _wrapped(text: str, width: int, indent: str) -> str:
    # Commands and paths are copied, so they are not broken at hyphens.
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _plain(markdown: str) -> str:
    """Return Markdown on one line without its marks. Code keeps its backticks; links to pages name the page."""
    text = _LINK.sub(_linked, markdown).replace("**", "")
    return " ".join(_CODE_WITH_CODE.sub(r"\1", text).split())


def _linked(link: re.Match[str]) -> str:
    words, target = link.groups()
    if target.startswith("docs/errors.md#"):
        return f"`{words}`"
    return f"{words} (docs/{target})" if not target.startswith("http") else f"{words} ({target})"
