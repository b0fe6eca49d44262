"""The model allows what the real code has committed, and rejects what broken code has."""

import subprocess
import sys

import pytest

from tests.servers.base import REPOSITORY, ServerUnavailable


def check(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.model.conformance", *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if ServerUnavailable.WORDS in ended.stderr:
        pytest.skip(ended.stderr.splitlines()[-1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_model_allows_the_commits_of_the_code() -> None:
    assert ", 0 rejected" in check("--runs", "5")


@pytest.mark.full
def test_the_model_rejects_commits_of_code_without_the_file_check() -> None:
    assert ", 0 rejected" not in check("--runs", "25", "--broken", "no file check")
