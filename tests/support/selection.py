"""Chooses what `make test` runs: every behaviour once, in about 25 minutes. `make test-all` runs the rest as well.

Two markers are set here. `rest`:

- tests that take longer than two seconds, as `tests/slow_tests.txt` lists them (`make durations` writes that file),
- on local storage, one catalog more than SQLite, which changes from test to test, so that together the tests cover all.

`full`, which only `make test-full` runs: the other catalogs. A test that cannot run on SQLite has its first catalog in
`make test`, and a module that tests the dialects is marked `every_catalog` and has them all.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend, CatalogKind

SLOW = Path(__file__).parents[1] / "slow_tests.txt"
SECONDS = 2.0
_OTHER_TARGETS = ("full", "soak", "e2e")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow", action="store_true", help=f"list tests above {SECONDS:.0f} s in {SLOW.name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(config), "durations-of-tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = set(listed())
    for found in _by_case(items).values():
        first, *others = sorted(found, key=lambda catalog: catalog is not SQLITE)
        turn = _turn(found[first].nodeid, others)
        for catalog in others:
            found[catalog].add_marker("rest" if catalog is turn else "full")
    for item in items:
        if item.nodeid in slow:
            item.add_marker("rest")


def pytest_deselected(items: Iterable[pytest.Item]) -> None:
    """Count the tests that `make test-all` would run, for the summary of this run."""
    left = [
        item
        for item in items
        if item.get_closest_marker("rest") and not any(map(item.get_closest_marker, _OTHER_TARGETS))
    ]
    for item in left[:1]:
        output = getattr(item.config, "workeroutput", None)
        plugin = item.config.pluginmanager.get_plugin("durations-of-tests")
        assert isinstance(plugin, Durations)
        plugin.left_out = len(left)
        if output is not None:
            output["left_out"] = len(left)


def listed() -> list[str]:
    """Return the tests that the file lists as slow."""
    return SLOW.read_text().splitlines() if SLOW.exists() else []


def _by_case(items: Iterable[pytest.Item]) -> dict[str, dict[CatalogKind, pytest.Item]]:
    """Group the tests that differ only in their catalog."""
    cases: dict[str, dict[CatalogKind, pytest.Item]] = defaultdict(dict)
    for item in items:
        backend = item.callspec.params.get("backend") if hasattr(item, "callspec") else None
        whole = item.get_closest_marker("every_catalog") or item.get_closest_marker("full")
        if isinstance(backend, Backend) and backend.storage is LOCAL and not whole:
            cases[item.nodeid.replace(str(backend), "")][backend.catalog] = item
    return cases


def _turn(case: str, others: list[CatalogKind]) -> CatalogKind | None:
    # PostgreSQL, which most lakes that are shared are on, twice as often as the others.
    turns = [catalog for catalog in others for _ in range(2 if catalog is POSTGRES else 1)]
    return turns[zlib.crc32(case.encode()) % len(turns)] if turns else None


class Durations:
    """How long each test took with its fixtures, on whichever worker it ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = defaultdict(float)
        self.left_out = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(
                f"LEFT OUT: {self.left_out} tests, slow ones and further catalogs; to run them, too: make test-all",
                yellow=True,
            )
        if self._config.getoption("--write-slow"):
            slow = {test for test, seconds in self._seconds.items() if seconds > SECONDS}
            slow |= {test for test in listed() if test not in self._seconds}
            SLOW.write_text("".join(f"{test}\n" for test in sorted(slow)))
            terminalreporter.write_line(f"{len(slow)} tests are listed in {SLOW}")
