"""`--minutes N` ends a run in time: tests that have not begun by then are skipped, and the summary counts them.

Slower machines run fewer tests. The files run in an order that changes with the commit, so that no test is always last.
"""

import subprocess
import time
import zlib
from pathlib import Path

import pytest

_REASON = "out of time"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="skip the tests that have not begun after so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    if (minutes := config.getoption("--minutes")) is not None:
        config.pluginmanager.register(TimeLimit(minutes), "time-limit")


class TimeLimit:
    """Skips the tests that have not begun in time.

    Args:
        minutes: How long tests may begin.
    """

    def __init__(self, minutes: float) -> None:
        self._minutes = minutes
        self._end = time.monotonic() + minutes * 60

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = list(dict.fromkeys(item.path for item in items))
        first = zlib.crc32(_commit()) % max(len(files), 1)
        turns = {path: turn for turn, path in enumerate(files[first:] + files[:first])}
        items.sort(key=lambda item: turns[item.path])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip(_REASON)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = [one.longrepr for one in terminalreporter.stats.get("skipped", [])]
        late = sum(isinstance(why, tuple) and why[2].endswith(_REASON) for why in skipped)
        if late:
            terminalreporter.write_line(
                f"OUT OF TIME: {late} tests did not begin within {self._minutes:g} minutes; without --minutes, all run",
                yellow=True,
            )


def _commit() -> bytes:
    """Return the commit that is checked out, or nothing outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False).stdout
