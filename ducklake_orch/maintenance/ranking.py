"""Rank the steps of tables by what they save readers and by what they cost, so that what pays off first is done first.

The formula, whose weights are `rank` of the policy:

    cost    = bytes read + bytes written + files read x open_bytes + step_bytes
    benefit = reads per day x what the step saves each read
    score   = benefit / cost

A merge saves each read the opens of files, a rewrite also the bytes of deleted rows, and a flush the rows that come
from the catalog. Where the policy does not tell the reads of a table, they are estimated by the age of its last write.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ducklake_orch.config.maintenance import RankPolicy
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.run_log import MaintenanceRun

# An operation of a table that had to wait in this many runs in a row comes first.
_RUNS_UNTIL_FIRST = 3
# The latest runs that a plan learns from.
RANKED_RUNS = 50
_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Ranking:
    """What steps are ranked by.

    Attributes:
        at: The time of the plan.
        last_writes: When each table was last written.
        rate: The bytes of cost per second of earlier runs; None if there are none.
        waited: In how many runs in a row an operation of a table had to wait, by `task_name`.
    """

    at: datetime
    last_writes: Mapping[str, datetime]
    rate: float | None
    waited: Mapping[str, int]

    def scored(self, step: PlannedStep, policy: RankPolicy) -> PlannedStep:
        """Return a step with its benefit and its cost."""
        if step.action == "skip":
            return step
        read = step.bytes or 0
        if step.operation == "flush":
            moved = (step.rows + step.deletions) * policy.inlined_row_bytes
        else:
            moved = 2 * read + step.files_in * policy.open_bytes
        cost = moved + policy.step_bytes
        reads = self._reads(step.table or "", policy)
        benefit = reads * step.saves
        seconds = None if self.rate is None else cost / self.rate
        return replace(step, reads=reads, benefit=benefit, cost=cost, score=benefit / cost, seconds=seconds)

    def _reads(self, table: str, policy: RankPolicy) -> float:
        if policy.reads is not None:
            return policy.reads
        age = self.at - self.last_writes.get(table, self.at)
        # In whole hours, so that tables of one nightly job are equal.
        age = max(age // _HOUR, 0) * _HOUR
        return float(2 ** -(age / policy.half_life))

    def ranked(self, steps: Iterable[PlannedStep]) -> list[PlannedStep]:
        """Return steps in the order of the run; those that are skipped come last."""
        steps = list(steps)
        best: dict[str | None, float] = {}
        for step in steps:
            best[step.table] = max(step.score, best.get(step.table, 0))
        # The extension needs its operations in their order: it rewrites and merges only what was flushed.
        in_order = {step.table for step in steps if step.engine == "extension"}

        def rank(step: PlannedStep) -> tuple[bool, int, float]:
            score = best[step.table] if step.table in in_order else step.score
            waited = self.waited.get(task_name(step), 0)
            return step.action == "skip", -waited if waited >= _RUNS_UNTIL_FIRST else 0, -score

        return sorted((self._explained(step) for step in steps), key=rank)

    def _explained(self, step: PlannedStep) -> PlannedStep:
        waited = self.waited.get(task_name(step), 0)
        if step.action == "skip" or waited < _RUNS_UNTIL_FIRST:
            return step
        return replace(step, reason=f"{step.reason}; first, because the last {waited} runs did not get to it")


def task_name(step: PlannedStep) -> str:
    """Return the name of an operation of a table, as the records of runs have it."""
    return f"{step.operation} {step.table}"


def waits(runs: Sequence[MaintenanceRun]) -> dict[str, int]:
    """Return in how many runs in a row operations of tables had to wait, up to the last run that planned them.

    Args:
        runs: The runs, the latest first.
    """
    counts, ended = dict[str, int](), set[str]()
    for run in runs:
        planned, left = set(run.summary.get("planned", ())), set(run.summary.get("left", ()))
        ended |= planned - left
        for task in (planned & left) - ended:
            counts[task] = counts.get(task, 0) + 1
    return counts


def cost_per_second(runs: Sequence[MaintenanceRun]) -> float | None:
    """Return the bytes of cost that runs did per second."""
    outcomes = [run.summary["outcome"] for run in runs if "outcome" in run.summary]
    seconds = sum(outcome["seconds"] for outcome in outcomes)
    return sum(outcome["cost"] for outcome in outcomes) / seconds if seconds else None
