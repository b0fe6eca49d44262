"""The pages of the documentation and their code blocks."""

import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
_FENCE = re.compile(r"^( *)```(\w+)(?: ([^\n]*))?\n(.*?)^ *```[^\n]*\n?", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    `title` is the file that the reader saves it as. `printed` is the `text` block that directly follows: what the
    block prints, with `...` for the parts that vary.
    """

    line: int
    language: str
    title: str | None
    code: str
    printed: str | None


def name_of(page: Path) -> str:
    """Return the name of a page in test ids: its path relative to `docs/`."""
    return page.name if page == README else page.relative_to(DOCS).as_posix()


def all_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, each with what it prints; a printed `text` block is none by itself."""
    text = page.read_text("utf-8")
    found: list[Block] = []
    matches = list(_FENCE.finditer(text))
    for match, following in zip_longest(matches, matches[1:]):
        printed = None
        if following and following[2] == "text" and not text[match.end() : following.start()].strip():
            printed = textwrap.dedent(following[4])
        title = _TITLE.search(match[3] or "")
        line = text.count("\n", 0, match.start(4))
        found.append(Block(line, match[2], title and title[1], textwrap.dedent(match[4]), printed))
    return [block for block in found if block.language != "text"]


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """Return the code blocks of a page with their first lines."""
    return [(block.line, block.code) for block in all_blocks(page) if block.language in languages]


def is_dag(code: str) -> bool:
    """Return whether a block is a DAG file, which runs only where Airflow is installed."""
    return "from airflow" in code
