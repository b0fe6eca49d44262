"""Run workers one step at a time, in an order that a seed decides, and let them meet faults."""

import os
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from random import Random

from ducklake_orch import LakeConfig
from tests.simulation.late_commits import LateCommits
from tests.simulation.stops import CLOCK, DISK_FULL, GO, LOSE, REFUSE, SLEEP, TORN
from tests.simulation.work import Outcome, Work
from tests.simulation.worker import start

KILL = "kill"
DROP = "drop all connections"
LATE = "late commit"  # the connection ends, and COMMIT reaches the server some steps later
# A worker that has not stopped again after this time waits for a lock of the database: the others go on.
_BLOCKED_S, _BLOCKED_BY_LOCK_S = 1, 0.005
_HANGS_S = 60
# A worker that was started takes part after so many steps of the others. It loads the engine meanwhile: how long that
# takes must not decide who comes next.
_STEPS_TO_START = 20
_WAITS_FOR_LOCK = ("pg_advisory_xact_lock", "get_lock(")
# How likely each fault is at a stop, by the kind of the stop, in good weather.
_FAULTS = {
    SLEEP: {KILL: 0.001},
    "done": {KILL: 0.006},
    "COMMIT": {KILL: 0.02, REFUSE: 0.02, LOSE: 0.06, DROP: 0.01, CLOCK: 0.01, LATE: 0.06},
    "COPY": {KILL: 0.02, REFUSE: 0.02, DISK_FULL: 0.06, TORN: 0.03, DROP: 0.005},
    **{change: {KILL: 0.006, REFUSE: 0.01, LOSE: 0.01, DROP: 0.002} for change in ("INSERT", "DELETE", "CALL ", "os.")},
    "": {KILL: 0.006, REFUSE: 0.01, DROP: 0.001, CLOCK: 0.002},
}
# How likely a late COMMIT arrives before a step.
_ARRIVES = 0.05
# How much more likely faults are in other weather, which the seed chooses.
_WEATHER = (1, 2, 4)
# A worker that sleeps is chosen so much more seldom than others: it mostly finds that it has to wait again.
_ASLEEP = 0.1
# A stop of a worker: the worker's number, and how many stops it had before.
Stop = tuple[int, int]


@dataclass
class Run:
    """What happened in a simulation.

    Attributes:
        outcomes: How each operation ended; an operation without a key whose worker was killed is unknown.
        faults: The faults that the workers met, by place.
        steps: How often a worker went on.
        problems: What must not happen: an error that is not of our family, a worker that hangs.
        log: Each step: worker, what it did next, where it had stopped.
    """

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    faults: dict[Stop, str] = field(default_factory=dict)
    steps: int = 0
    problems: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


@dataclass
class _Worker:
    number: int
    left: list[Work]
    process: int = 0
    pipe: Connection | None = None
    place: str | None = None
    stops: int = 0
    lives: int = 0
    starts_at: int = 0  # the step from which it takes part
    starting: bool = False
    was_killed: bool = False  # in the operation that it runs

    @property
    def is_ready(self) -> bool:
        """Whether it takes part and has stopped."""
        return self.place is not None and not self.starting


class Scheduler:
    """Runs the operations of some workers.

    Args:
        config: The lake.
        shares: The operations of each worker.
        seed: Decides the order of steps, and the faults.
        stops: Where workers may meet faults; by default anywhere.
        faults: The faults that they may meet; by default any.
        drop: Ends all connections to the catalog's server.
        late: Holds back a COMMIT.
        wrong_clocks: Whether the clocks of workers are wrong, and jump.
    """

    def __init__(
        self,
        config: LakeConfig,
        shares: Sequence[Sequence[Work]],
        seed: int,
        *,
        stops: Collection[Stop] | None = None,
        faults: Collection[str] | None = None,
        drop: Callable[[], None] | None = None,
        late: LateCommits | None = None,
        wrong_clocks: bool = False,
    ) -> None:
        self._config, self._seed, self._drop, self._late = config, seed, drop, late
        self._stops, self._faults, self._wrong_clocks = stops, faults, wrong_clocks
        self._workers = [_Worker(number, list(share)) for number, share in enumerate(shares)]
        self._order = Random(f"{seed} order")
        self._weather = Random(f"{seed} weather").choice(_WEATHER)
        self._run = Run()

    def run(self) -> Run:
        """Run until each operation has ended."""
        try:
            for worker in self._workers:
                self._start(worker)
            while (active := [worker for worker in self._workers if worker.pipe]) and not self._run.problems:
                self._step(active)
        finally:
            for worker in self._workers:
                self._kill(worker)
            if self._late and self._late.held:
                self._late.deliver()
        return self._run

    def _step(self, active: Sequence[_Worker]) -> None:
        self._let_in(active)
        ready = [worker for worker in active if worker.is_ready]
        if self._late and self._late.held and (not ready or self._order.random() < _ARRIVES):
            self._late.deliver()
        if not ready:
            if not self._hear(active, _HANGS_S):
                self._run.problems.append(f"all workers hang; the last steps: {self._run.log[-20:]}")
            return
        weights = [_ASLEEP if worker.place == SLEEP else 1 for worker in ready]
        (worker,) = self._order.choices(ready, weights)
        place = worker.place or ""
        fault = self._fault(worker, place)
        self._run.steps += place != SLEEP
        self._run.log.append(f"{worker.number} {fault:8} {place[:200]}")
        if fault != GO:
            self._run.faults[worker.number, worker.stops] = fault
        worker.stops, worker.place = worker.stops + 1, None
        if fault == KILL:
            self._kill(worker)
            self._go_on_after_kill(worker)
            return
        if fault == DROP and self._drop:
            self._drop()
        if fault == LATE and self._late:
            self._late.hold()
        assert worker.pipe
        worker.pipe.send(GO if fault in (DROP, LATE) else fault)
        blocks = any(word in place for word in _WAITS_FOR_LOCK)
        self._hear([worker], _BLOCKED_BY_LOCK_S if blocks else _BLOCKED_S)
        if fault == LATE and self._late:
            self._late.let_pass()
        self._hear(self._workers, 0)

    def _let_in(self, active: Sequence[_Worker]) -> None:
        """Wait for the first stop of workers that take part from now on; if no other is ready, of the next one."""
        starting = [worker for worker in active if worker.starting]
        steps = len(self._run.log)
        if starting and not any(worker.is_ready for worker in active):
            steps = max(steps, min(worker.starts_at for worker in starting))
        for worker in starting:
            if worker.starts_at <= steps:
                worker.starting = False
                if worker.place is None:
                    self._hear([worker], _HANGS_S)

    def _fault(self, worker: _Worker, place: str) -> str:
        if self._stops is not None and (worker.number, worker.stops) not in self._stops:
            return GO
        kind = next(kind for kind in _FAULTS if place.startswith(kind))
        draw = Random(f"{self._seed} {worker.number} {worker.stops}").random()
        for fault, likely in _FAULTS[kind].items():
            draw -= likely * self._weather
            if draw < 0:
                possible = {DROP: self._drop is not None, LATE: self._late is not None, CLOCK: self._wrong_clocks}.get(
                    fault, True
                )
                return fault if possible and (self._faults is None or fault in self._faults) else GO
        return GO

    def _hear(self, workers: Sequence[_Worker], seconds: float) -> bool:
        """Wait for a message of workers that run, and read all that are there; return whether there was one."""
        running = {worker.pipe: worker for worker in workers if worker.pipe and worker.place is None}
        heard = wait(list(running), seconds)
        for pipe in heard:
            self._read(running[pipe])  # type: ignore[index]
        return bool(heard)

    def _read(self, worker: _Worker) -> None:
        while worker.pipe and worker.place is None:
            try:
                kind, value = worker.pipe.recv()
            except EOFError:
                if (ended_by := self._kill(worker)) != signal.SIGKILL:
                    self._run.problems.append(f"a worker ended with {ended_by} in {worker.left[0]}")
                self._go_on_after_kill(worker)  # after a torn write
                return
            if kind == "at":
                worker.place = value
            elif kind == "ended":
                # It may be committed although it failed, if it was begun before.
                status = "unknown" if value.status == "failed" and worker.was_killed else value.status
                self._run.outcomes[worker.left.pop(0).number] = replace(value, status=status)
                worker.was_killed = False
            else:
                if kind == "raised":
                    self._run.problems.append(f"operation {worker.left[0]} raised {value}")
                self._kill(worker)

    def _go_on_after_kill(self, worker: _Worker) -> None:
        """Start a killed worker again; it repeats its operation if that has a key."""
        worker.was_killed = True
        if worker.left and not worker.left[0].once:
            self._run.outcomes[worker.left.pop(0).number] = Outcome("unknown")
            worker.was_killed = False
        if worker.left:
            self._start(worker)

    def _start(self, worker: _Worker) -> None:
        worker.pipe, theirs = Pipe()
        seed = f"{self._seed} {worker.number} {worker.lives}"
        worker.lives += 1
        worker.starts_at, worker.starting = len(self._run.log) + _STEPS_TO_START, True
        worker.process = start(self._config, worker.left, theirs, seed, wrong_clock=self._wrong_clocks)
        theirs.close()

    @staticmethod
    def _kill(worker: _Worker) -> int:
        """End a worker's process, if it has not ended; return the signal that ended it, or 0."""
        status = 0
        if worker.pipe:
            os.kill(worker.process, signal.SIGKILL)
            _, status = os.waitpid(worker.process, 0)
            worker.pipe.close()
        worker.pipe = worker.place = None
        return os.WTERMSIG(status)
