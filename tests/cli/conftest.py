"""An empty working directory for every test, and a lake in it."""

import os
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("DUCKLAKE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def lake() -> DuckLake:
    """An embedded lake with a table and three snapshots, named by `ducklake.toml` in the working directory."""
    assert run("init", "--create").code == 0
    lake = DuckLake.from_toml()
    script = [
        "CREATE TABLE numbers AS SELECT range AS n, 'text [bold]' AS words FROM range(20)",
        "COMMENT ON TABLE numbers IS 'some numbers'",
        "DELETE FROM numbers WHERE n < 5",
    ]
    lake.execute(script).raise_for_error()
    return lake
