"""A run: random steps of a seed on a lake, each followed by a comparison, and then the cells that are still empty."""

import os
from collections.abc import Callable, Collection
from random import Random

import pytest

from ducklake_orch import DuckLake
from tests.catalog.differential.check import LOOKS, Checker
from tests.catalog.differential.coverage import Cell, Coverage, Event, specs_of
from tests.catalog.differential.ddl_steps import partition
from tests.catalog.differential.goals import STEPS, Scene, goals
from tests.catalog.differential.model import Model, Table
from tests.catalog.differential.native_steps import NATIVE
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.shapes import SPECS, family, labels
from tests.catalog.differential.steps import Refused, Step
from tests.catalog.differential.tables import create
from tests.catalog.differential.world import World

# A table beyond these limits is cut down, so that a run does not slow down.
_MANY_ROWS, _MANY_FILES = 50, 30
_FILLED_AT_MOST = 120
# Fault points between the plan and the commit of a step, and the steps that may run there.
BETWEEN = ("files.written", "rows.found")
_REARRANGING = [step for step in STEPS if step.name in ("flush", "merge files", "rewrite", "lake.maintain")]
_ELSEWHERE = [step for step in STEPS if step.axis == "mode" and step.name != "expire"]
_CUTS = ("overwrite", "merge files", "DELETE", "replace_where", "rewrite")


def seeds(many: int) -> list[int]:
    """Return the seeds of a test. `DUCKLAKE_ORCH_SEED` sets the first one."""
    first = int(os.environ.get("DUCKLAKE_ORCH_SEED", "1"))
    return list(range(first, first + many))


class Run:
    """One run.

    Args:
        lake: An empty lake that inlines nothing.
        scene: The catalog, the tables, and their readers.
        seed: The seed of all random choices.
        coverage: The coverage, including earlier runs. Only the filling at the end depends on it: until then, a seed
            runs the same steps whatever ran before.
        world: Returns the lake under test, with its way of writing.
        checker: Returns the checker that reads the lake.
        nests: Whether other steps run between the plan and the commit of a step.
    """

    def __init__(
        self,
        lake: DuckLake,
        scene: Scene,
        seed: int,
        coverage: Coverage,
        *,
        world: Callable[..., World] = World,
        checker: Callable[..., Checker] = Checker,
        nests: bool = False,
    ) -> None:
        catalog = scene.catalog
        self._scene = scene
        self._oracle, self._model, self._seed = Oracle(), Model(), seed
        self._rng = Random(f"{seed} {catalog.name}")
        self._world = world(lake, catalog, self._model, self._oracle, self._rng, scene.shapes)
        self._checker = checker(lake, self._model, self._oracle, self._rng, catalog)
        self._coverage, self._own = coverage, Coverage(coverage.wanted)
        self._nests = nests
        self._working: str | None = None
        self._looks = 0
        self._doing = "nothing"

    def add_program(self, other: DuckLake) -> None:
        """Run some of the statements in another program.

        Args:
            other: The lake as that program opens it.
        """
        self._world.other = other

    def go(self, steps: int, *, looks: int, fill: bool) -> None:
        """Run random steps.

        Args:
            steps: The number of steps.
            looks: The number of additional checks after each step.
            fill: Whether to continue until no wanted cell is empty.
        """
        self._looks = looks
        try:
            self._create()
            with self._checker:
                for number in range(steps):
                    self._any_step(number)
                if fill:
                    self._fill()
                self._doing = "the end"
                for name in self._model.tables:
                    self._checker.check(name, LOOKS, past=5)
        except (Exception, pytest.fail.Exception) as error:
            print("\n".join(self._world.log))  # pytest shows it
            raise AssertionError(
                f"DUCKLAKE_ORCH_SEED={self._seed}, {self._world.catalog.name}, {self._doing}, at snapshot"
                f" {self._model.snapshot}: {error}"
            ) from error
        finally:
            self._oracle.close()
            self._coverage.faults += self._checker.faults

    def _create(self) -> None:
        for number, shape in enumerate(self._scene.shapes):
            create(self._world, shape, self._rng.choice(list(SPECS)), by_sql=(self._seed + number) % 2 == 0)

    def _any_step(self, number: int) -> None:
        table = self._model.tables[self._rng.choice(sorted(self._model.tables))]
        there = [step for step in STEPS if step.on_mysql or self._world.catalog.sql_writes]
        possible = [step for step in there if step.possible(self._world, table)]
        if len(table.rows) > _MANY_ROWS or self._checker.files.get(table.name, 0) > _MANY_FILES:
            possible = [step for step in possible if step.name in _CUTS]
        every = self._scene.readers
        weights = [step.weight * (1 + self._own.gain(self._event(step, table, every))) for step in possible]
        step = self._rng.choices(possible, weights)[0]
        self._step(f"step {number}", step, table)

    def _step(self, what: str, step: Step, table: Table) -> bool:
        """Run a step and compare; return whether the step was run."""
        self._doing = f"{what}: {step.name} on `{table.name}` by {table.spec}"
        self._world.log.append(f"--- {self._doing}")
        self._world.wrote.clear()
        taken = True
        self._working = table.name if self._nests else None
        try:
            step.run(self._world, table)
        except Refused:
            taken = False
        finally:
            self._working = None
        seen = self._checker.check(table.name, self._rng.sample(LOOKS, self._looks))
        if taken:
            if step.axis == "ddl":
                self._world.ddl[table.name].add(step.name)
            self._coverage.steps[step.name] += 1
            for coverage in (self._coverage, self._own):
                coverage.add(self._event(step, self._model.tables[table.name], seen, set(self._world.wrote)))
        return taken

    def between(self) -> None:
        """Run another step at a fault point of a step, which must not change the rows of its table."""
        if self._working is None or not self._world.chance(0.4):
            return
        busy, self._working = self._working, None
        # A second maintenance run is refused while the first one is active.
        excluded = "lake.maintain" if "lake.maintain" in self._doing else None
        table = self._model.tables[self._world.rng.choice(sorted(self._model.tables))]
        steps = _REARRANGING if table.name == busy else _ELSEWHERE
        possible = [
            step
            for step in steps
            if step.name != excluded
            and (step.on_mysql or self._world.catalog.sql_writes)
            and step.possible(self._world, table)
        ]
        step = self._world.rng.choice(possible)
        self._world.log.append(f"    --- concurrently: {step.name} on `{table.name}`")
        try:
            step.run(self._world, table)
        except Refused:
            self._world.log.append("    (refused)")
        self._coverage.steps[f"{step.name}, concurrently"] += 1

    def _event(self, step: Step, table: Table, seen: Collection[str], wrote: Collection[str] = ()) -> Event:
        ddl = self._world.ddl[table.name] | ({step.name} if step.axis == "ddl" else set())
        return Event(labels(table), table.spec, ddl, step.name if step.axis == "mode" else None, seen, wrote)

    # --- cells that random steps left empty ----------------------------------------------------------------------

    def _fill(self) -> None:
        """Run the steps of the cells that are still empty, with all readers."""
        self._looks = len(LOOKS)
        for number in range(_FILLED_AT_MOST):
            if not (missing := self._coverage.missing()):
                return
            self._make(f"filling {number}", missing[number % len(missing)])

    def _make(self, what: str, cell: Cell) -> None:
        wanted = {cell[0]: cell[1], cell[2]: cell[3]}
        shape = next(shape for shape in self._scene.shapes if cell in goals(self._scene, shape, exact=True))
        if "type" in wanted and wanted["type"] not in labels(self._model.tables[shape.name]):
            self._named(what, "DROP, CREATE", shape.name)  # its column was promoted or dropped
        if "writer" in wanted and self._world.chance(0.5):
            self._named(what, "DROP, CREATE", shape.name)  # that writer may not support the table as it is now
        table = self._model.tables[shape.name]
        kind = wanted.get("family", "none" if "writer" in wanted else family(table.spec))
        specs = [wanted["transform"]] if "transform" in wanted else specs_of(kind)
        if table.spec not in specs:
            spec = self._rng.choice(specs)
            name = "SET PARTITIONED BY" if spec != "none" else "RESET PARTITIONED BY"
            self._step(what, Step(name, "ddl", lambda world, table: partition(world, table, spec)), table)
        for axis in ("ddl", "mode"):
            if axis in wanted:
                self._named(what, wanted[axis], table.name)
        if "writer" in wanted and not {"ddl", "mode"} & wanted.keys():
            self._step(what, NATIVE[0], self._model.tables[shape.name])

    def _named(self, what: str, name: str, table: str) -> None:
        step = next(step for step in STEPS if step.name == name)
        for _ in range(5):
            current = self._model.tables[table]
            if not step.possible(self._world, current):
                self._step(what, NATIVE[0], current)  # most steps need rows
                current = self._model.tables[table]
            if step.possible(self._world, current) and self._step(what, step, current):
                return
