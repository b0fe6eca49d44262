"""Install lines of README and docs work in a checkout: no package index has ducklake-orch."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import DOCS, PAGES, REPOSITORY

EXTRAS = set(tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
PINNED = set(re.findall(r"^([\w.-]+)==", (REPOSITORY / "constraints.txt").read_text("utf-8"), re.MULTILINE))
FILES = [path for path in [*PAGES, *sorted((DOCS / "examples").glob("*"))] if path.is_file()]
LINES = [
    pytest.param(line, id=f"{path.relative_to(REPOSITORY)}: {line}")
    for path in FILES
    for line in re.findall(r"\bpip install ([^`\n]*[^`\s])", path.read_text("utf-8"))
]


@pytest.mark.parametrize("line", LINES)
def test_an_install_line_works_in_a_checkout(line: str) -> None:
    arguments = shlex.split(re.split(r" (?:&&|\\|#) ?", line)[0])
    while arguments:
        match arguments:
            case [("-c" | "-r"), file, *arguments]:
                assert (REPOSITORY / Path(file).name).exists(), file
            case [option, *arguments] if option.startswith("-"):
                pass
            case [folder, *arguments] if own := re.fullmatch(r"(?:\.|/src|\$HOME/ducklake-orch)(?:\[(.+)\])?", folder):
                assert set((own[1] or "").split(",")) - {""} <= EXTRAS
            case [package, *arguments]:
                assert Requirement(package).name in PINNED | UNPINNED
    assert arguments == []


UNPINNED = {"jupyterlab"}  # a program of the reader's choice


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_page_installs_from_an_index(path: Path) -> None:
    assert re.findall(r"(?<![\w/])ducklake-orch\[", path.read_text("utf-8", errors="ignore")) == []
