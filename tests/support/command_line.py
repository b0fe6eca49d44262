"""Runs the command line, and captures its output."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from ducklake_orch.cli.program import app

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "canary-cli-4711"


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def checks(self) -> dict[str, dict[str, Any]]:
        return {check["name"]: check for check in self.json}


def run(*args: str, stdin: str | None = None) -> Answer:
    result = CliRunner().invoke(app, list(args), input=stdin, catch_exceptions=False)
    return Answer(result.exit_code, result.stdout, result.stderr)


def run_process(*args: str, **environ: str) -> Answer:
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)} | environ
    command = [sys.executable, "-m", "ducklake_orch.cli", *args]
    completed = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    return Answer(completed.returncode, completed.stdout, completed.stderr)
