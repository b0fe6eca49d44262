"""The pages of the documentation and their code blocks."""

import re
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(r"^( *)```(python|py|toml|sh|sql|json)(?: [^\n]*)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Return the name of a page in test ids: its path relative to `docs/`."""
    return page.name if page == README else page.relative_to(DOCS).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """Return the code blocks of a page with their first lines."""
    text = page.read_text("utf-8")
    matches = [match for match in _BLOCK.finditer(text) if match[2] in languages]
    return [(text.count("\n", 0, match.start(3)), textwrap.dedent(match[3])) for match in matches]


def is_dag(code: str) -> bool:
    """Return whether a block is a DAG file, which runs only where Airflow is installed."""
    return "from airflow" in code
