"""Each row of docs/requirements.md has a status with its reason, existing links, and tests that exist."""

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import DOCS, REPOSITORY
from tests.docs.test_links import anchors

PAGE = DOCS / "requirements.md"
PROGRAMS = ("dlt", "Metaxy", "MotherDuck", "datafusion-ducklake", "NoETL")
_HEAD = ["Item", "Here", "Test", "Status"]
_STATUS = re.compile(r"works|(by design|out of scope|missing): \S.*")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^(##+) (.+)$")


def read_rows() -> list[tuple[str, str, list[str]]]:
    """Return the rows with the titles of their text and section."""
    found, titles = [], {"##": "", "###": ""}
    for line in PAGE.read_text("utf-8").splitlines():
        if heading := _HEADING.match(line):
            titles[heading[1]] = heading[2]
        elif line.startswith("| ") and titles["##"]:
            cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
            if cells != _HEAD:
                found.append((titles["##"], titles["###"], cells))
    return found


ROWS = read_rows()


@cache
def defined(file: str) -> set[str]:
    """Return the tests of a file, those of a class with its name."""
    tests = set()
    for node in ast.parse((REPOSITORY / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            tests.add(node.name)
        elif isinstance(node, ast.ClassDef):
            tests |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return tests


def test_every_program_has_rows_and_there_are_many() -> None:
    assert len(ROWS) >= 150
    assert all(any(name in text for text, _, _ in ROWS) for name in PROGRAMS)


def test_no_item_of_a_section_is_listed_twice() -> None:
    items = [(text, section, cells[0]) for text, section, cells in ROWS]
    assert sorted(items) == sorted(set(items))


@pytest.mark.parametrize("cells", [cells for _, _, cells in ROWS], ids=[cells[0] for _, _, cells in ROWS])
def test_each_row_has_a_status_and_tests_and_links_that_exist(cells: list[str]) -> None:
    assert len(cells) == len(_HEAD)
    _, here, tests, status = cells
    assert _STATUS.fullmatch(status)
    named = _TEST.findall(tests)
    assert _TEST.sub("", tests).replace("<br>", "").strip() in ("", "–")  # noqa: RUF001 - as in all tables of the docs
    assert named or status != "works"
    for file, test in named:
        assert test in defined(file)
    for link in _LINK.findall(f"{here} {status}"):
        path, _, anchor = link.partition("#")
        target = DOCS / path
        assert target.exists()
        assert not anchor or anchor in anchors(target)
