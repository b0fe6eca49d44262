"""Run hostile cases in child processes, so that a crash, a hang or too much memory is noticed and has a seed.

A case is a function `case(seed, folder)`. It returns what happened, in a word, or raises an error. An error of the
family `DuckLakeOrchError` is an answer; any other exception is a finding.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Case = Callable[[int, Path], str]
# The cases of a test by kind, each with the number of its seeds in `make test` and at night.
Cases = Mapping[str, tuple[Case, int, int]]
ROOT = Path(__file__).parents[2]
# Findings that are printed with their seed and traceback.
_PRINTED = 15


@dataclass
class Outcomes:
    """What the cases of a run came to.

    Attributes:
        limit_mb: The most memory that a process may have.
        counts: How often each outcome occurred.
        findings: The seeds and texts of the findings, by the place where they occurred.
        memory_mb: The most memory that a process had.
    """

    limit_mb: int
    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    memory_mb: int = 0

    def add(self, line: dict[str, Any], seed: int) -> None:
        if "memory_mb" in line:
            self.memory_mb = max(self.memory_mb, line["memory_mb"])
            if line["memory_mb"] > self.limit_mb:
                self.find(f"more than {self.limit_mb} MB", seed, f"{line['memory_mb']} MB")
        elif "finding" in line:
            self.find(line["finding"], seed, line["text"])
        else:
            self.counts[line["outcome"]] += 1

    def find(self, place: str, seed: int, text: str) -> None:
        self.findings.setdefault(place, []).append((seed, text))

    def __str__(self) -> str:
        lines = [f"{sum(self.counts.values())} cases with an answer, at most {self.memory_mb} MB"]
        lines += [f"{count:8} {outcome}" for outcome, count in self.counts.most_common()]
        for place, found in sorted(self.findings.items(), key=lambda item: -len(item[1]))[:_PRINTED]:
            lines.append(f"FOUND {len(found)} times, seeds {[seed for seed, _ in found[:5]]}: {place}\n{found[0][1]}")
        return "\n".join(lines)


def chosen(quick: int) -> range:
    """Return the seeds of a test. `DUCKLAKE_ORCH_SEED` sets the first one, and `DUCKLAKE_ORCH_CASES` the number."""
    first = int(os.environ.get("DUCKLAKE_ORCH_SEED", "1"))
    return range(first, first + int(os.environ.get("DUCKLAKE_ORCH_CASES", quick)))


def kinds_of(cases: Cases) -> list[Any]:
    """Return the parameters of a test of several cases: each kind with few seeds, and at night with many."""
    return [*cases, *(pytest.param(f"more {kind}", marks=pytest.mark.full) for kind in cases)]


def run_kind(kind: str, cases: Cases, folder: Path, *, memory_mb: int) -> None:
    """Run the case of a kind that `kinds_of` has named."""
    case, few, many = cases[kind.removeprefix("more ")]
    run_cases(case, chosen(many if kind.startswith("more") else few), folder, memory_mb=memory_mb)


def run_cases(case: Case, seeds: range, folder: Path, *, memory_mb: int, seconds: int = 300, batch: int = 1000) -> None:
    """Run a case for all seeds; fail if there was a finding.

    Args:
        case: A function on the top level of its module.
        seeds: The seeds.
        folder: An empty folder.
        memory_mb: The most memory that a child process may take.
        seconds: The time after which a case counts as hanging.
        batch: The number of seeds for each child process.
    """
    found = Outcomes(memory_mb)
    waiting = [seeds[start : start + batch] for start in range(0, len(seeds), batch)]
    while waiting:
        part = waiting.pop(0)
        last = _run_batch(case, part, folder, seconds, found)
        if last is not None and last + 1 < part.stop:
            waiting.insert(0, range(last + 1, part.stop))
    print(f"\n{case.__module__}, DUCKLAKE_ORCH_SEED={seeds.start}: {found}")
    if found.findings:
        pytest.fail(str(found), pytrace=False)


def _run_batch(case: Case, seeds: range, folder: Path, seconds: int, found: Outcomes) -> int | None:
    """Run a batch; return the seed at which the child process died, or None if it did not."""
    name = f"{case.__module__}:{case.__name__}"
    command = [sys.executable, "-m", "tests.hostile.child", name, str(seeds.start), str(seeds.stop), str(folder)]
    answers = folder / "answers.jsonl"
    answers.unlink(missing_ok=True)
    with (folder / "stderr.txt").open("w") as errors:
        code = subprocess.run([*command, str(seconds)], cwd=ROOT, stderr=errors, check=False).returncode
    lines = answers.read_text().splitlines() if answers.exists() else []
    begun: int | None = None
    for line in map(json.loads, lines):
        if "begin" in line:
            begun = line["begin"]
        elif begun is not None:
            found.add(line, begun)
    if code == 0:
        return None
    text = (folder / "stderr.txt").read_text()[-6000:]
    assert begun is not None, f"the child process failed to start: {text}"
    why = f"killed by signal {-code}" if code < 0 else f"hung or ended with code {code}"
    found.find(f"process {why}", begun, text)
    return begun
