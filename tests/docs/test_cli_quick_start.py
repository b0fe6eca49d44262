"""The quick start of the command line runs unchanged."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, REPOSITORY, blocks


def test_the_quick_start_of_the_command_line_runs(tmp_path: Path) -> None:
    install, story = (code for _, code in blocks(DOCS / "start" / "cli.md", "sh"))
    assert install.startswith("pip install")
    # A shell function, so that the command runs this source tree.
    program = f'ducklake-orch() {{ "{sys.executable}" -m ducklake_orch.cli "$@"; }}\n'
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DUCKLAKE_")}
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program + story],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "500 rows restored" in completed.stdout
    assert (tmp_path / "lake.html").stat().st_size > 10_000
