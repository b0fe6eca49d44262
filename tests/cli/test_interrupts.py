"""Ctrl-C: one line that says what was done and what was left, no traceback, exit code 130."""

import signal
import subprocess
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run
from tests.support.terminal import start, wait_for

# At the fault point, the process says that it is there, and waits until it may go on.
WAIT = """
import time
from pathlib import Path
from ducklake_orch.engine.fault_points import actions
def wait():
    Path("there").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    actions.clear()
actions["{point}"] = wait
"""


@pytest.fixture
def worn(lake: DuckLake) -> DuckLake:
    """Two tables of small files."""
    for table in ("numbers", "others"):
        for number in range(5):
            sql = f"SELECT {number} + range AS n, 'more' AS words FROM range(20)"
            lake.execute(f"CREATE TABLE IF NOT EXISTS {table} AS {sql} LIMIT 0").raise_for_error()
            lake.execute(f"INSERT INTO {table} {sql}").raise_for_error()
    return lake


def at(point: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start the command line, and wait until it has reached a fault point."""
    prepare = WAIT.format(point=point)
    with Path("stderr").open("w") as stderr:
        process = start(*arguments, prepare=prepare, stdout=subprocess.PIPE, stderr=stderr)
    wait_for(Path("there"))
    return process


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return the last line of stderr and all of stdout of a process that Ctrl-C has ended."""
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    err = Path("stderr").read_text()
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    return err.splitlines()[-1], out


def files(lake: DuckLake) -> dict[str, int]:
    return {table: len(lake.table(table).files()) for table in ("numbers", "others")}


def test_ctrl_c_lets_maintenance_finish_its_step(worn: DuckLake) -> None:
    rows, before = worn.table("others").count(), files(worn)
    process = at("files.written", "maintain", "--operation", "merge")
    process.send_signal(signal.SIGINT)
    Path("go").touch()
    line, out = ended(process)
    assert line == ("interrupted: SIGINT stopped the run: 1 step done, 1 step left; the same command does the rest.")
    assert "SIGINT was received" in out
    after = files(worn)
    assert sum(after[table] < before[table] for table in before) == 1
    again = run("maintain", "--operation", "merge", "--json").json
    assert (again["totals"]["done"], again["totals"]["failed"]) == (1, 0)
    assert worn.table("others").count() == rows
    assert not worn.fsck(deep=True).findings


def test_a_second_ctrl_c_rolls_the_step_back(worn: DuckLake) -> None:
    before, snapshot = files(worn), worn.snapshots(limit=1)
    process = at("files.written", "maintain", "--operation", "merge")
    for count in (1, 2):
        process.send_signal(signal.SIGINT)
        if count == 1:  # the second one counts once the first one was received
            while "SIGINT received" not in Path("stderr").read_text():
                assert process.poll() is None
    line, out = ended(process)
    assert line == ("interrupted: SIGINT stopped the run: 0 steps done, 2 steps left; the same command does the rest.")
    assert "interrupted and rolled back" in out
    assert (files(worn), worn.snapshots(limit=1)) == (before, snapshot)
    assert run("maintain", "--operation", "merge", "--json").json["totals"]["done"] == 2
    assert not worn.fsck(deep=True).findings


@pytest.mark.parametrize("arguments", [("delete", "numbers", "--where", "n > 3"), ("rollback", "numbers", "--to", "1")])
def test_ctrl_c_in_a_write_leaves_nothing_behind(worn: DuckLake, arguments: tuple[str, ...]) -> None:
    snapshot = worn.snapshots(limit=1)
    process = at("commit.before", *arguments)
    process.send_signal(signal.SIGINT)
    line, out = ended(process)
    assert line.startswith("interrupted: What had not finished is rolled back; `ducklake-orch snapshots --limit 5`")
    assert out == ""
    assert worn.snapshots(limit=1) == snapshot
    assert run(*arguments).code == 0  # no lock was left behind
    assert not worn.fsck(deep=True).findings
