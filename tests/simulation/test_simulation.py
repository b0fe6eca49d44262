"""Simulations of a few seeds find nothing wrong, and find faults that are built in. `make simulate` runs more."""

import os
import re
import subprocess
import sys

import pytest

from tests.servers.base import REPOSITORY, ServerUnavailable
from tests.simulation.broken import BROKEN

SEED = int(os.environ.get("DUCKLAKE_ORCH_SEED", "1"))


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run simulations in a process of their own: it must not have used the engine before it forks."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(SEED), *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if ServerUnavailable.WORDS in ended.stdout:
        pytest.skip(ended.stdout.splitlines()[0])
    return ended


@pytest.mark.parametrize(
    "catalog", ["sqlite", *(pytest.param(name, marks=pytest.mark.full) for name in ("duckdb", "postgres", "mysql"))]
)
def test_the_lake_equals_the_model_after_faults_in_any_order(catalog: str) -> None:
    ended = simulate("--catalog", catalog, "--runs", "1")
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-5_000:]
    assert "faults" in ended.stdout


@pytest.mark.full
@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_of_the_code_is_found(fault: str) -> None:
    ended = simulate("--runs", "20", "--broken", fault)
    assert "fails:" in ended.stdout, ended.stdout + ended.stderr
    assert "the smallest part that fails" in ended.stdout


def steps(printed: str) -> list[str]:
    """Return which worker did what at each step, without times, processes and the names of files."""
    lines = [line for line in printed.splitlines() if re.match(r"\d ", line)]
    differ = r"[0-9a-f]{8,}(-[0-9a-f]{4,})*|(?<=orch-|tion-)\w+|(?<=/tmp)\w+|'[0-9T:. +-]{10,}|\d{3,}"
    return [re.sub(differ, "?", line[:150]) for line in lines]


@pytest.mark.full
def test_a_seed_runs_the_same_steps_again() -> None:
    first, second = (steps(simulate("--runs", "1", "--log").stdout) for _ in range(2))
    assert len(first) > 500
    assert first == second
