"""Make a virtual environment and install packages into it, for the Makefile. A failure ends in one sentence.

python tests/support/environment.py MARKER CONSTRAINTS REQUIREMENT…

The environment is the folder of the marker, which is touched once everything is installed.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What Python, pip and uv print,
_DISK_FULL = "No space left|Disk quota exceeded"
_READ_ONLY = "Read-only file system|Permission denied"
_NO_INDEX = (
    "NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|error sending request"
)
_NO_VENV = "ensurepip|No module named venv"
# and what to do about it.
_REMEDIES = {
    _DISK_FULL: "The disk is full: {fullest} has {free} MB left. Free 4 GB there, and run make again.",
    _READ_ONLY: "{checkout} cannot be written: clone into a folder that you may write to, and run make there.",
    _NO_INDEX: "The package index cannot be reached: check the network, or set {index} to one that can, and run "
    "make again.",
    _NO_VENV: "{python} cannot make virtual environments: install its venv module (Debian: apt install python3-venv), "
    "and run make again.",
    "": "The packages cannot be installed into {folder}, for the reason above. `make clean` starts afresh.",
}
_UV = shutil.which("uv")
_WORKS = "import sys; sys.exit(sys.prefix == sys.base_prefix)" + ("" if _UV else "; import pip")


def main(marker: Path, constraints: str, *requirements: str) -> None:
    """Install requirements into the folder of a marker, or say why not."""
    folder = marker.parent.absolute()
    try:
        before = _touched(marker)
        with _turn(folder.parent):
            if _touched(marker) == before:  # otherwise the make that this one waited for has installed everything
                _make(folder)
                _install(folder, constraints, *requirements)
                marker.touch()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(_remedy(str(error), folder))
    except subprocess.CalledProcessError as error:
        sys.exit(_remedy(error.output, folder))


def _touched(marker: Path) -> int | None:
    return marker.stat().st_mtime_ns if marker.exists() else None


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let one make at a time install packages in a folder."""
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another make installs packages here: waiting for it.", file=sys.stderr)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _make(folder: Path) -> None:
    """Make an environment, unless there is one that works and whose last installation has ended."""
    python = folder / "bin" / "python"
    ended = python.exists() and not _unfinished(folder).exists()
    if ended and subprocess.run([python, "-c", _WORKS], capture_output=True, check=False).returncode == 0:
        return
    if folder.exists():
        shutil.rmtree(folder)
    base = getattr(sys, "_base_executable", sys.executable)  # the running one may be that of the folder
    try:
        _run(*([_UV, "venv", "-q", "--python", base] if _UV else [base, "-m", "venv"]), str(folder))
    except subprocess.CalledProcessError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _install(folder: Path, constraints: str, *requirements: str) -> None:
    python = str(folder / "bin" / "python")
    pip = [_UV, "pip", "install", "--python", python] if _UV else [python, "-m", "pip", "install"]
    _unfinished(folder).touch()
    try:
        if not _UV:
            _run(*pip, "-q", "-c", constraints, "pip")  # older ones know no dependency groups
        _run(*pip, "-q", "-c", constraints, *requirements)
    except subprocess.CalledProcessError as error:
        if re.search(_DISK_FULL, error.output):
            raise
        _unfinished(folder).unlink()  # pip has restored what was installed
        raise
    _unfinished(folder).unlink()


def _unfinished(folder: Path) -> Path:
    """Return the file that is there during an installation; one that was killed leaves it."""
    return folder / ".unfinished"


def _run(*command: str) -> None:
    """Run a command, and show what it prints as it comes; it is the `output` of the error, too."""
    printed = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            printed += line
            sys.stderr.write(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed)


def _remedy(printed: str, folder: Path) -> str:
    sentence = next(remedy for cause, remedy in _REMEDIES.items() if re.search(cause, printed))
    free = {place: shutil.disk_usage(place).free for place in (folder.parent, Path.home(), Path(tempfile.gettempdir()))}
    fullest = min(free, key=lambda place: free[place])
    return sentence.format(
        checkout=folder.parent,
        folder=folder,
        fullest=fullest,
        free=free[fullest] >> 20,
        index="UV_INDEX_URL" if _UV else "PIP_INDEX_URL",
        python=sys.executable,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
