"""The Makefile's environments: half-made ones are made again, makes wait for each other, failures end in a sentence."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.check import REPOSITORY
from tests.support import environment

PROGRAM = REPOSITORY / "tests" / "support" / "environment.py"
PIP = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
RETRY = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError('<…>: [Errno 111] refused')'"
DNS = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NameResolutionError(\"<…>: Failed to resolve\")'"
UV_INDEX = "error: Failed to fetch: …\n  cause: error sending request for url (…)\n  cause: Connection refused"
UV_DISK = "cause: failed to copy file from … to …/.tmp9JCCJf: No space left on device (os error 28)"
DEBIAN = "The virtual environment was not created successfully because ensurepip is not available."


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(folder / ".base"), os.devnull, "ducklake-orch-has-no-such-package"]
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("printed", "remedy"),
    [
        (PIP, "The disk is full: "),
        (UV_DISK, "The disk is full: "),
        (RETRY, "The package index cannot be reached: "),
        (DNS, "The package index cannot be reached: "),
        (UV_INDEX, "The package index cannot be reached: "),
        ("Error: [Errno 30] Read-only file system: '/checkout/.venv'", "{} cannot be written: "),
        (DEBIAN, f"{sys.executable} cannot make virtual environments: "),
        ("ERROR: No matching distribution found for duckdb", "The packages cannot be installed into {}/.venv, "),
    ],
)
def test_a_failure_ends_in_a_sentence_that_helps(printed: str, remedy: str, tmp_path: Path) -> None:
    sentence = environment._remedy(printed, tmp_path / ".venv")
    assert sentence.startswith(remedy.format(tmp_path))
    assert "\n" not in sentence


def test_a_half_made_environment_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    (folder / "bin").mkdir(parents=True)
    # Without `pyvenv.cfg` this is the user's own Python, into which nothing may be installed.
    (folder / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    process = start(folder)
    assert (
        process.communicate()[1]
        .rstrip()
        .endswith(f"cannot be installed into {folder}, for the reason above. `make clean` starts afresh.")
    )
    assert process.returncode == 1
    assert (folder / "pyvenv.cfg").exists()
    # pip failed in good order, so what was installed can stay; had it been killed, the file would still be there.
    kept, unfinished = folder / "kept", folder / ".unfinished"
    kept.touch()
    environment._make(folder)
    assert kept.exists()
    assert not unfinished.exists()


@pytest.mark.parametrize("broken", ["killed", "python gone"])
def test_an_unfinished_environment_is_removed(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".venv"
    (folder / "bin").mkdir(parents=True)
    python = Path(sys.executable) if broken == "killed" else tmp_path / "uninstalled"
    (folder / "bin" / "python").symlink_to(python)
    if broken == "killed":
        (folder / ".unfinished").touch()
    made: list[str] = []
    monkeypatch.setattr(environment, "_run", lambda *command: made.append(command[-1]))
    environment._make(folder)
    assert made == [str(folder)]
    assert not folder.exists()


def test_two_makes_install_one_after_the_other(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    process = start(folder)
    assert process.stderr is not None
    assert process.stderr.readline() == "Another make installs packages here: waiting for it.\n"
    folder.mkdir()
    (folder / ".base").touch()  # the other make has installed everything
    os.close(other)
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert not (folder / "bin").exists()
