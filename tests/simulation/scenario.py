"""One simulation: what the workers do, where they meet faults, and the smallest part of it that still fails."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.simulation.check import problems_of
from tests.simulation.operations import Operation
from tests.simulation.places import Place, in_child
from tests.simulation.scheduler import Run, Scheduler, Stop
from tests.support.random_verbs import TABLES

# The first snapshots create the tables.
_FIRST_SNAPSHOT = len(TABLES)


@dataclass(frozen=True)
class Scenario:
    """What a simulation does.

    Attributes:
        seed: Decides operations, order and faults.
        shares: The numbers of the operations of each worker.
        stops: Where workers may meet faults; None: anywhere.
    """

    seed: int
    shares: tuple[tuple[int, ...], ...]
    stops: frozenset[Stop] | None = None

    @classmethod
    def of(cls, seed: int, workers: int, each: int) -> "Scenario":
        """Return the whole scenario of a seed."""
        return cls(seed, tuple(tuple(range(n * each, (n + 1) * each)) for n in range(workers)))

    def run(self, place: Place) -> Run:
        """Run the scenario, and check the lake; `problems` of the result says what is wrong."""
        place.reset()
        # Two transactions of the extension can corrupt a table without ducklake-orch: one worker runs all of them.
        shares = [
            [Operation(self.seed, number, by_engine=place.has_engine and worker == 0) for number in share]
            for worker, share in enumerate(self.shares)
        ]
        run = Scheduler(
            place.config,
            shares,
            self.seed,
            stops=self.stops,
            drop=place.drop,
            late=place.late,
            wrong_clocks=place.has_clock,
        ).run()
        if not run.problems:
            operations = {operation.number: operation for share in shares for operation in share}
            run.problems = in_child(lambda: problems_of(place.config, _FIRST_SNAPSHOT, operations, run.outcomes))
        return run


def shrink(scenario: Scenario, failed: Run, run: Callable[[Scenario], Run]) -> tuple[Scenario, Run]:
    """Return the smallest scenario that was found to fail, and what happened in it."""
    scenario = replace(scenario, stops=frozenset(failed.faults))
    shrinks = True
    while shrinks:
        shrinks = False
        for smaller in _smaller(scenario):
            again = run(smaller)
            if again.problems:
                scenario, failed, shrinks = replace(smaller, stops=frozenset(again.faults)), again, True
                break
    return scenario, failed


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    for worker, share in enumerate(scenario.shares):
        for left_out in range(len(share)):
            shares = list(scenario.shares)
            shares[worker] = share[:left_out] + share[left_out + 1 :]
            yield replace(scenario, shares=tuple(shares))
    for stop in sorted(scenario.stops or ()):
        yield replace(scenario, stops=(scenario.stops or frozenset()) - {stop})
