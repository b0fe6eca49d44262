"""Each row of docs/dagster-peers.md has a result and tests that exist, and each such test has a row."""

import re
from collections.abc import Iterable

import pytest

from tests.docs.pages import DOCS, REPOSITORY

TESTS = REPOSITORY / "tests" / "dagster_host"
PEERS = ("DuckDB", "Delta Lake", "Iceberg", "Polars", "none")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_HEAD = ("Behaviour", "Who has it", "Here", "Test")

SECTIONS = dict(_SECTION.findall((DOCS / "dagster-peers.md").read_text("utf-8")))


def rows(text: str) -> list[tuple[str, ...]]:
    head, *found = _ROW.findall(text)
    assert head == _HEAD
    return found


ROWS = [(section, *row) for section, text in SECTIONS.items() for row in rows(text)]


def defined(file: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", (TESTS / file).read_text("utf-8"), re.MULTILINE))


def named(cells: Iterable[str]) -> set[tuple[str, str]]:
    return {test for cell in cells for test in _TEST.findall(cell)}


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_begins_with_a_sentence_and_has_one_table(section: str) -> None:
    introduction, *lines = (
        SECTIONS[section].strip().split("\n\n")[0],
        *re.findall(r"^\|.*$", SECTIONS[section], re.MULTILINE),
    )
    assert introduction.endswith(".")
    assert len(rows(SECTIONS[section])) == len(lines) - 2


@pytest.mark.parametrize(("section", "behaviour", "peers", "here", "tests"), ROWS, ids=[row[1] for row in ROWS])
def test_each_row_has_a_result_and_tests_that_exist(
    section: str, behaviour: str, peers: str, here: str, tests: str
) -> None:
    assert peers.startswith(PEERS)
    assert re.match(r"pass$|pass[;,:] \S|better: \S|by design: \S", here)
    assert _TEST.sub("", tests).strip() == ""
    assert named([tests])
    for file, test in named([tests]):
        assert test in defined(file)


def test_each_behaviour_is_listed_once() -> None:
    behaviours = [(section, behaviour) for section, behaviour, *_ in ROWS]
    assert len(set(behaviours)) == len(behaviours) > 50


@pytest.mark.parametrize("file", ["test_peer_behaviours.py", "test_peer_partitions.py"])
def test_each_test_of_a_peers_behaviour_has_a_row(file: str) -> None:
    assert defined(file) == {test for place, test in named(row[-1] for row in ROWS) if place == file}
