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
    for name in ("pyproject.toml", "constraints.txt", "constraints-lowest.txt"):
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
    (checkout / "tests" / "benchmarks" / "requirements-spark.txt").touch()
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
    (checkout / ".venv" / ".airflow").touch()
    connection = json.loads(make(checkout, "airflow"))
    assert connection["conn_type"] == "ducklake"
    assert connection["extra"] == {
        "catalog": f"sqlite:///{checkout}/demo-lake/airflow/catalog.sqlite",
        "storage": f"{checkout}/demo-lake/airflow/files",
        "create_if_missing": True,
    }
