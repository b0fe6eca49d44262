"""Every recipe line of the Makefile is a complete command, and hosts start with their requirements."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.check import REPOSITORY

TARGETS = re.findall(r"^([a-z-]+):.* ## ", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout without an environment."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    (tmp_path / "ducklake_orch").mkdir()
    for name in ("pyproject.toml", "ducklake_orch/__init__.py", "constraints.txt", "constraints-lowest.txt"):
        (tmp_path / name).touch()
    return tmp_path


def make(checkout: Path, *arguments: str) -> str:
    command = ["make", "--no-print-directory", "-C", str(checkout), *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_each_recipe_line_is_a_complete_command(target: str, checkout: Path) -> None:
    (checkout / "tests" / "benchmarks").mkdir(parents=True)
    for host in ("spark", "dagster"):
        (checkout / "tests" / "benchmarks" / f"requirements-{host}.txt").touch()
    # Make starts a shell for each line.
    lines = make(checkout, "-n", target).replace("\\\n", "").splitlines()
    assert lines
    for line in lines:
        checked = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{line}\n{checked.stderr}"


@pytest.mark.parametrize(("target", "extras"), [("demo", "spark,dagster"), ("airflow", "spark,airflow")])
def test_a_host_is_installed_with_spark(target: str, extras: str, checkout: Path) -> None:
    assert f'".[{extras}]"' in make(checkout, "-n", target)


def test_airflow_starts_with_a_lake(checkout: Path) -> None:
    program = checkout / ".venv" / "bin" / "airflow"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$AIRFLOW_CONN_DUCKLAKE_DEFAULT"\n')
    program.chmod(0o755)
    program.with_name("python").touch()
    (checkout / ".venv" / ".airflow").touch()
    connection = json.loads(make(checkout, "airflow"))
    assert connection["conn_type"] == "ducklake"
    assert connection["extra"] == {
        "catalog": f"sqlite:///{checkout}/demo-lake/airflow/catalog.sqlite",
        "storage": f"{checkout}/demo-lake/airflow/files",
        "create_if_missing": True,
    }


@pytest.mark.parametrize("python", ["false", "no-such-python"])
def test_a_python_that_is_too_old_or_missing_is_named(python: str, checkout: Path) -> None:
    command = ["make", "-C", str(checkout), "demo", f"PYTHON={python}"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    first, _ = completed.stderr.splitlines()
    assert first == f"Python 3.11 or later is needed, and {python} is not: make demo PYTHON=/path/to/python3.11"


def test_an_environment_whose_python_is_gone_is_installed_again(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.touch()
    (checkout / ".venv" / ".dagster").touch()
    assert "environment.py" not in make(checkout, "-n", "demo")
    python.unlink()
    assert "environment.py .venv/.dagster constraints.txt" in make(checkout, "-n", "demo")
