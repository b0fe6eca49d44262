"""Run simulations: `python -m tests.simulation --catalog postgres --runs 100`.

Each run starts from a small lake. Three workers run random operations on it, one step at a time in an order that the
seed decides, and meet faults. Then the lake is compared with a model. A seed that fails is run again with fewer
operations and faults, until nothing more can be left out.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.servers.base import ServerUnavailable
from tests.simulation.broken import BROKEN
from tests.simulation.clocks import start_with_clock
from tests.simulation.places import Place, open_place
from tests.simulation.scenario import Scenario, shrink
from tests.simulation.scheduler import Run

_TELLS_EVERY_S = 30


def main(arguments: Sequence[str]) -> int:
    """Run the simulations of some seeds on one catalog; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--catalog", default="sqlite", choices=["sqlite", "duckdb", "postgres", "mysql"])
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=10, help="how many seeds")
    parser.add_argument("--workers", type=int, default=3, help="concurrent workers")
    parser.add_argument("--operations", type=int, default=6, help="operations of each worker")
    parser.add_argument("--broken", choices=BROKEN, help="build a fault into the code first")
    parser.add_argument("--log", action="store_true", help="print each step")
    chosen = parser.parse_args(arguments)
    if chosen.catalog == "postgres":
        start_with_clock(arguments)
    if chosen.broken:
        BROKEN[chosen.broken]()
    with tempfile.TemporaryDirectory(prefix="simulation-") as folder:
        try:
            place = open_place(chosen.catalog, Path(folder))
        except ServerUnavailable as error:
            print(error)
            return 1
        try:
            return _simulate(place, chosen)
        finally:
            place.stop()


def _simulate(place: Place, chosen: argparse.Namespace) -> int:
    started, faults, statuses, steps = time.monotonic(), Counter[str](), Counter[str](), 0
    told = started
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        scenario = Scenario.of(seed, chosen.workers, chosen.operations)
        run = scenario.run(place)
        if chosen.log:
            print(*run.log, sep="\n")
        faults += Counter(run.faults.values())
        statuses += Counter(outcome.status for outcome in run.outcomes.values())
        steps += run.steps
        if run.problems:
            print(f"seed {seed} fails:", *run.problems, sep="\n- ")
            _explain(*shrink(scenario, run, lambda smaller: smaller.run(place)))
            return 1
        if time.monotonic() - told > _TELLS_EVERY_S:
            told = time.monotonic()
            print(
                f"{chosen.catalog}: seed {seed}, {told - started:.0f} s, {steps} steps, {faults.total()} faults",
                flush=True,
            )
    seconds = time.monotonic() - started
    print(f"{chosen.catalog}: seeds {chosen.seed} to {chosen.seed + chosen.runs - 1} in {seconds:.0f} s: {steps} steps")
    print(f"  operations: {_listed(statuses)}\n  {faults.total()} faults: {_listed(faults)}")
    return 0


def _explain(scenario: Scenario, run: Run) -> None:
    print(f"the smallest part that fails: {scenario}", *run.problems, sep="\n- ")
    for number, outcome in sorted(run.outcomes.items()):
        print(f"operation {number}: {outcome.status} {outcome.snapshot or ''} {outcome.error or ''}")
    print("its steps:", *run.log, sep="\n  ")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
