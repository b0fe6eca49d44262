"""Run a test in its own process, where no other test has started a Spark session."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

Given = ParamSpec("Given")
_REPOSITORY = Path(__file__).resolve().parents[2]
_IN_OWN_PROCESS = "DUCKLAKE_TEST_ALONE"


def in_own_process(test: Callable[Given, None]) -> Callable[Given, None]:
    """Run a test in its own pytest process."""

    @functools.wraps(test)
    def run(*args: Given.args, **fields: Given.kwargs) -> None:
        if os.environ.get(_IN_OWN_PROCESS):
            test(*args, **fields)
            return
        name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {
            _IN_OWN_PROCESS: "1"
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        completed = subprocess.run(command, env=environ, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stdout + completed.stderr

    return run
