"""The pages of the docs, and the code in them."""

import re
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(r"^( *)```(python|py|toml|sh|sql|json)(?: [^\n]*)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Return what a page is called in tests: its path below `docs/`."""
    return page.name if page == README else page.relative_to(DOCS).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """Return the blocks of a page with the lines that they begin at."""
    text = page.read_text("utf-8")
    found = [one for one in _BLOCK.finditer(text) if one[2] in languages]
    return [(text.count("\n", 0, one.start(3)), textwrap.dedent(one[3])) for one in found]


def is_dag(code: str) -> bool:
    """Whether a block belongs into a file of DAGs: those run where Airflow does."""
    return "from airflow" in code
