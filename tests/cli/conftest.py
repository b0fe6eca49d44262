"""A working directory of its own for every test, and a lake in it."""

import os
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("DUCKLAKE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def lake() -> DuckLake:
    """An embedded lake with some history, that `ducklake.toml` in the working directory names."""
    assert run("init", "--create").code == 0
    made = DuckLake.from_toml()
    script = [
        "CREATE TABLE numbers AS SELECT range AS n, 'text [bold]' AS words FROM range(20)",
        "COMMENT ON TABLE numbers IS 'some numbers'",
        "DELETE FROM numbers WHERE n < 5",
    ]
    made.execute(script).raise_for_error()
    return made
