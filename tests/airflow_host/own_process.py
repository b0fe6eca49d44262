"""Tests that need a process of their own: in others, Spark sessions of other tests run."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

Given = ParamSpec("Given")
_REPOSITORY = Path(__file__).resolve().parents[2]
_ALONE = "DUCKLAKE_TEST_ALONE"


def in_own_process(test: Callable[Given, None]) -> Callable[Given, None]:
    """Have a test run in a pytest of its own."""

    @functools.wraps(test)
    def run(*args: Given.args, **fields: Given.kwargs) -> None:
        if os.environ.get(_ALONE):
            test(*args, **fields)
            return
        name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {_ALONE: "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        done = subprocess.run(command, env=environ, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run
