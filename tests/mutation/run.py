"""Run the tests against mutants of the commit path: each mutant has to fail a test, or be explained.

`python -m tests.mutation.run conflicts retire` mutates these modules; without names, all of `MODULES`. One process
collects the tests, and forks for each mutant: the child replaces the code of the functions that differ, and runs tests
that execute the changed lines until one fails. No file is changed. `docs/trust.md` describes what it is for.
"""

import argparse
import ast
import os
import pkgutil
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ducklake_orch import catalog, engine
from tests.mutation.mutants import Mutant, find_mutants

ROOT = Path(__file__).parents[2]
COVERAGE = ROOT / "build/mutation/coverage"
EXPLAINED = Path(__file__).with_name("explained.toml")
MODULES = {
    module.rpartition(".")[2]: f"ducklake_orch.catalog.{module}"
    for module in (
        *("commit.conflicts", "commit.retire", "commit.idempotency", "commit.table_commit", "commit.native_commit"),
        *("commit.late_rows", "commit.expect_snapshot", "commit.serializable_reads"),
        *("lifecycle.compaction_commit", "lifecycle.flush_commit", "lifecycle.expiry", "lifecycle.cleanup"),
    )
}
# A test that takes longer than this hangs, and has found the mutant.
_SECONDS_FOR_A_TEST = 60.0
# Stands for the test that kills a mutant whose module cannot be imported.
_IMPORT = "the import of its module"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed`, `timed out`, `survived`, `explained` or `not run`, and the last test."""

    kind: str
    test: str = ""


class Runner:
    """A pytest plugin that runs mutants instead of the tests that pytest has collected."""

    def __init__(self, names: Sequence[str], only: str, tests: str, most_tests: int) -> None:
        self._names, self._only, self._tests, self._most_tests = names, only, tests, most_tests
        self._killers = _past_killers()
        self._passes: dict[str, bool] = {}
        self._items: dict[str, pytest.Item] = {}
        self.unexplained = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants of all chosen modules."""
        self._items = {item.nodeid: item for item in session.items if re.search(self._tests, item.nodeid)}
        for package in (catalog, engine):  # what this process has imported, its children need not
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                import_module(module.name)
        explained = tomllib.loads(EXPLAINED.read_text())
        for name in self._names:
            self._run_module(name, explained.get(name, {}))
        return True

    def _run_module(self, name: str, explained: Mapping[str, str]) -> None:
        module, path = import_module(MODULES[name]), _path(name)
        tree = ast.parse(path.read_text())
        mutants = find_mutants(tree)
        if unknown := set(explained) - {mutant.name for mutant in mutants}:
            raise pytest.UsageError(f"{EXPLAINED.name} explains mutants that do not exist: {sorted(unknown)}")
        covering = _tests_by_line(path)
        rows, start = list[tuple[Mutant, Outcome]](), time.monotonic()
        for mutant in sorted(mutants, key=lambda mutant: mutant.is_definition):
            if not re.search(self._only, f"{mutant.lines[0]} {mutant.name}"):
                continue
            outcome = Outcome("explained")
            if mutant.name not in explained:
                outcome = self._run(mutant, module, tree, path, covering)
            rows.append((mutant, outcome))
            _write_table(name, rows)
            if outcome.kind not in ("killed", "explained"):
                _say(f"{name}.py:{mutant.lines[0]} {outcome.kind}: {mutant.name}")
        counts = Counter(outcome.kind for _, outcome in rows)
        self.unexplained += counts["survived"] + counts["not run"]
        words = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        _say(f"{name}: {len(rows)} mutants, {words}; {time.monotonic() - start:.0f} s")

    def _run(
        self, mutant: Mutant, module: ModuleType, tree: ast.Module, path: Path, covering: Mapping[int, Sequence[str]]
    ) -> Outcome:
        known = [test for test in _tests_of(mutant, covering) if test in self._items]
        killers = [test for test in self._killers if test in known]
        # The tests of the module itself, such as those of `test_expire.py` for `expiry`, come before other near ones.
        others = [test for test in known if test not in killers]
        near = _various(sorted(others, key=lambda test: path.stem[:5] not in test.partition("::")[0]))
        ordered = [test for pair in zip_longest(killers, near) for test in pair if test]

        def mutate() -> None:
            mutant.apply()
            install(module, compile(tree, path, "exec"))

        chosen = [test for test in ordered if not self._is_slow(test)][: self._most_tests or None]
        chosen += [test for test in ordered if self._is_slow(test)][: -(-self._most_tests // 10) or None]
        while chosen:
            outcome = self._forked(chosen, mutate)
            if outcome.kind == "survived" or outcome.test == _IMPORT or self._is_passing(outcome.test):
                break
            chosen.remove(outcome.test)
        else:
            return Outcome("not run")
        if outcome.kind == "killed":
            self._killers = [outcome.test, *(test for test in self._killers if test != outcome.test)]
        return outcome

    def _is_slow(self, test: str) -> bool:
        return self._items[test].get_closest_marker("rest") is not None

    def _is_passing(self, test: str) -> bool:
        """Whether a test passes without a mutant."""
        if test not in self._passes:
            self._passes[test] = self._forked([test], lambda: None).kind == "survived"
        return self._passes[test]

    def _forked(self, tests: Sequence[str], mutate: Callable[[], None]) -> Outcome:
        """Run tests in a child process until one fails."""
        reader, writer = os.pipe()
        folder = tempfile.mkdtemp(prefix="mutant-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        child = os.fork()
        if not child:
            self._run_in_child([self._items[test] for test in tests], mutate, writer, folder)
        os.close(writer)
        current, outcome = tests[0], Outcome("survived")
        while True:
            ready, _, _ = select.select([reader], [], [], _SECONDS_FOR_A_TEST)
            answer = os.read(reader, 1) if ready else b"t"
            if answer != b"p":
                break
            current = tests[min(tests.index(current) + 1, len(tests) - 1)]
        if answer == b"e":
            outcome = Outcome("killed", _IMPORT)
        elif answer != b"d":
            outcome = Outcome("timed out" if answer == b"t" else "killed", current)
        os.killpg(child, signal.SIGKILL)  # with the processes that its tests have started
        os.waitpid(child, 0)
        os.close(reader)
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _run_in_child(self, items: Sequence[pytest.Item], mutate: Callable[[], None], writer: int, folder: str) -> None:
        """Run tests and write one letter for each that passes, `d` after the last one, `f` for one that fails.

        Without a test, it writes `e` if the mutant cannot be installed.
        """
        os.setsid()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            try:
                mutate()
            except BaseException:
                os.write(writer, b"e")
                raise
            for item, following in zip(items, [*items[1:], None], strict=True):
                reports = runtestprotocol(item, log=False, nextitem=following)
                if any(report.failed for report in reports):
                    os.write(writer, b"f")
                    break
                os.write(writer, b"p" if following is not None else b"d")
        except BaseException:
            os.write(writer, b"f")
        finally:
            os._exit(0)


def install(module: ModuleType, code: CodeType) -> None:
    """Give the functions and constants of a module the code of its mutant."""
    codes = {inner.co_qualname: inner for inner in _codes_within(code)}
    made = ModuleType(module.__name__)
    exec(code, made.__dict__)
    for function in _functions_of(module):
        if (new := codes.get(function.__qualname__)) is not None:
            function.__code__ = new
    for made_function, function in zip(_functions_of(made), _functions_of(module), strict=True):
        function.__defaults__, function.__kwdefaults__ = made_function.__defaults__, made_function.__kwdefaults__
    for name, value in vars(made).items():
        old = vars(module).get(name)
        if isinstance(value, int | str | tuple | set | dict) and value != old and not name.startswith("__"):
            for other in list(sys.modules.values()):
                if other.__name__.startswith("ducklake_orch") and vars(other).get(name) is old:
                    setattr(other, name, value)


def _codes_within(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*inner, *(found for constant in inner for found in _codes_within(constant))]


def _functions_of(owner: Any, prefix: str | None = None) -> list[FunctionType]:
    """Return the functions that a module or class defines, in order."""
    module = prefix or owner.__name__
    functions = []
    for value in vars(owner).values():
        plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(plain, FunctionType) and plain.__module__ == module:
            functions.append(plain)
        elif isinstance(value, type) and value.__module__ == module:
            functions += _functions_of(value, module)
    return functions


def _tests_by_line(path: Path) -> dict[int, list[str]]:
    """Return the tests that execute each line of a file."""
    from coverage import CoverageData  # only `make mutants` installs it

    data = CoverageData(str(COVERAGE))
    data.read()
    return {
        line: [context.removesuffix("|run") for context in contexts if context.endswith("|run")]
        for line, contexts in data.contexts_by_lineno(str(path)).items()
    }


def _tests_of(mutant: Mutant, covering: Mapping[int, Sequence[str]]) -> list[str]:
    """Return the tests that execute a mutant, those first that execute lines near it that few tests execute."""
    scores: dict[str, float] = defaultdict(float)
    for line, tests in covering.items():
        for test in tests:
            scores[test] += 1 / len(tests) / (1 + abs(line - mutant.lines[0]))
    tests = next((found for line in mutant.lines if (found := covering.get(line))), ())
    return sorted(scores if mutant.is_definition else tests, key=scores.__getitem__, reverse=True)


def _various(tests: Sequence[str]) -> list[str]:
    """Put one test of each function first, then the second ones, and so on."""
    seen = Counter[str]()
    rounds = defaultdict[int, list[str]](list)
    for test in tests:
        function = test.partition("[")[0]
        rounds[seen[function]].append(test)
        seen[function] += 1
    return [test for number in sorted(rounds) for test in rounds[number]]


def _past_killers() -> list[str]:
    """Return the tests that killed mutants in earlier runs, those first that killed many."""
    tables = [path.read_text().splitlines()[2:] for path in COVERAGE.parent.glob("*.md")]
    cells = [line.removesuffix(" |").split(" | ")[-2:] for table in tables for line in table]
    return [test for test, _ in Counter(test for kind, test in cells if kind == "killed").most_common()]


def _path(name: str) -> Path:
    return ROOT / f"{MODULES[name].replace('.', '/')}.py"


def _write_table(name: str, rows: Sequence[tuple[Mutant, Outcome]]) -> None:
    lines = ["| Line | Mutant | Outcome | Test |", "|---|---|---|---|"]
    for mutant, outcome in rows:
        text = mutant.name.replace("|", "\\|")
        lines.append(f"| {mutant.lines[0]} | {text} | {outcome.kind} | {outcome.test.replace('|', ' ')} |")
    COVERAGE.with_name(f"{name}.md").write_text("\n".join(lines) + "\n")


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Run the mutants of the modules that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", choices=[*MODULES, []], help="names of modules; all if none is given")
    parser.add_argument("--only", default="", help="run the mutants whose line and name match this expression")
    parser.add_argument("--most-tests", type=int, default=100, help="tests for one mutant; 0 for all that reach it")
    parser.add_argument("--tests", default="", help="run the tests whose name matches this expression")
    chosen = parser.parse_args()
    names = chosen.modules or list(MODULES)
    tests = {test for name in names for found in _tests_by_line(_path(name)).values() for test in found}
    files = sorted({test.partition("::")[0] for test in tests if re.search(chosen.tests, test)})
    selected = "not full and not soak and not e2e"
    runner = Runner(names, chosen.only, chosen.tests, chosen.most_tests)
    options = ["-q", "-s", "-p", "no:cacheprovider", "-o", "timeout=0", "-m", selected]
    status = pytest.main([*options, *files], [runner])
    return int(status) or int(runner.unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
