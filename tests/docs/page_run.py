"""Runs the blocks of a page in order, and compares what they print with what the page says."""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import README, REPOSITORY, Block, all_blocks, is_dag, name_of

# Commands that the test does not run: they install packages, or run until the reader stops them.
_NOT_RUN = re.compile(r"^(pip install|python3 -m venv|dagster dev|airflow standalone)", re.MULTILINE)
_COMMENT = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def runs(page: Path, block: Block) -> bool:
    """Return whether the test runs a block: Python on every page, shell commands on the pages of `start/`."""
    if block.language == "sh":
        return name_of(page).startswith("start/") and not _NOT_RUN.search(block.code)
    return block.language == "python"


def run_page(page: Path, given: str, folder: Path) -> list[str]:
    """Run a page in a folder, which is the working directory, and return where it does not print what it says."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(given, f"given for {name_of(page)}", "exec"), namespace)
    wrong = []
    for block in all_blocks(page):
        if not runs(page, block):
            continue
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.code, "utf-8")
            continue
        if block.language == "python" and is_dag(block.code):
            continue  # `tests/airflow_host` runs them
        printed = _run_shell(block, folder) if block.language == "sh" else _run_python(page, block, namespace)
        place = f"{name_of(page)}:{block.line}"
        if block.printed is not None and not same(block.printed, printed):
            wrong.append(f"{place} says\n{block.printed}and prints\n{printed}")
        if page == README:
            wrong += [
                f"{place} says {comment!r} and prints {line!r}"
                for comment, line in zip(_COMMENT.findall(block.code), printed.splitlines(), strict=True)
                if not comment.startswith(line)
            ]
    return wrong


def same(said: str, printed: str) -> bool:
    """Compare two texts line by line: `...` stands for anything, and any run of spaces equals any other."""
    said, printed = (text.strip("\n").replace("\n", "\n|") for text in (said, printed))
    # The bar keeps the ends of lines, which the checker would take for spaces.
    return doctest.OutputChecker().check_output(said, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


def _run_python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        # Line numbers in a traceback are those of the page.
        exec(compile("\n" * block.line + block.code, str(page), "exec"), namespace)
    return out.getvalue()


def _run_shell(block: Block, folder: Path) -> str:
    """Run a block in bash with the variables that earlier blocks exported; return stdout and stderr."""
    exported = folder / ".exported"
    exported.touch()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DUCKLAKE", "AIRFLOW"))}
    environment |= {"PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source .exported\n{block.code}\nexport -p > .exported"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, f"{block.code}\nfailed:\n{completed.stdout[-6000:]}"
    return completed.stdout
