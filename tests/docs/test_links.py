"""Every link of README and docs to a file in the repository has an existing target and anchor."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, README, REPOSITORY, name_of

_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_MORE = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md"]


def links(page: Path) -> list[str]:
    """Return the link targets of a page without web addresses."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))
    targets = [match[1] or match[2] for match in _LINK.finditer(text)]
    return [link for link in targets if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that mkdocs and GitHub generate for the headings of a page."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in plain}
    return slugs | set(re.findall(r"\bid=\"([^\"]+)\"|\{ *#([\w-]+) *\}", text))


@pytest.mark.parametrize("page", [*PAGES, *_MORE], ids=lambda page: page.name if page in _MORE else name_of(page))
def test_links_have_existing_targets(page: Path) -> None:
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(REPOSITORY if page in (README, *_MORE) else REPOSITORY / "docs")
        if not target.exists() or not inside:
            lost.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            lost.append(f"{link}: there is no such heading")
    assert lost == []


def test_every_page_is_in_the_navigation() -> None:
    entries = set(re.findall(r": ([\w/-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    # The build generates pages from files outside `docs/`.
    assert entries == {name_of(page) for page in PAGES if page != README} | {page.name.lower() for page in _MORE}
