"""Rank the steps of tables by what they save readers and by what they cost, so that what pays off first is done first.

The formula, whose weights are `rank` of the policy:

    cost    = bytes read + bytes written + files read x open_bytes + step_bytes
    benefit = reads per day x what the step saves each read
    score   = benefit / cost

A merge saves each read the opens of files, a rewrite also the bytes of deleted rows, and a flush the rows that come
from the catalog. A new layout saves the files that a condition on one of its keys no longer needs. If the policy
sets no reads of a table, they are the counted reads plus an estimate by the age of its last write.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ducklake_orch.config.maintenance import RankPolicy
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.run_log import MaintenanceRun

# An operation of a table that had to wait in this many runs in a row comes first, until such operations have this share
# of a run's cost.
_RUNS_UNTIL_FIRST, _SHARE_OF_WAITING = 3, 0.2
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
        reads: The reads of tables per day that were counted.
    """

    at: datetime
    last_writes: Mapping[str, datetime]
    rate: float | None
    waited: Mapping[str, int]
    reads: Mapping[str, float] = field(default_factory=dict)

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
        # Not all reads are counted.
        return float(2 ** -(age / policy.half_life)) + self.reads.get(table, 0.0)

    def ranked(self, steps: Iterable[PlannedStep]) -> list[PlannedStep]:
        """Return steps in the order of the run: by score, with a share for those that waited; skipped steps last."""
        groups, skipped = dict[object, list[PlannedStep]](), list[PlannedStep]()
        for step in steps:
            if step.action == "skip":
                skipped.append(step)
            else:
                # The extension needs its operations in their order: it rewrites and merges only what was flushed.
                key = step.table if step.engine == "extension" else len(groups)
                groups.setdefault(key, []).append(step)
        by_score = sorted(groups.values(), key=lambda group: -max(step.score for step in group))
        waiting = [group for group in by_score if self._waited(group) >= _RUNS_UNTIL_FIRST]
        waiting.sort(key=lambda group: -self._waited(group))
        order, done, spent, of_waiting = list[PlannedStep](), set[int](), 0, 0
        queues = {True: iter(waiting), False: iter(by_score)}
        while len(done) < len(by_score):
            is_turn = of_waiting <= _SHARE_OF_WAITING * spent
            group = next((group for group in queues[is_turn] if id(group) not in done), None)
            if group is None:
                group = next(group for group in queues[not is_turn] if id(group) not in done)
            done.add(id(group))
            cost = sum(step.cost for step in group)
            spent += cost
            of_waiting += cost if is_turn and self._waited(group) >= _RUNS_UNTIL_FIRST else 0
            order += group if not is_turn else map(self._explained, group)
        return order + skipped

    def _waited(self, group: Sequence[PlannedStep]) -> int:
        return max(self.waited.get(task_name(step), 0) for step in group)

    def _explained(self, step: PlannedStep) -> PlannedStep:
        waited = self.waited.get(task_name(step), 0)
        if waited < _RUNS_UNTIL_FIRST:
            return step
        return replace(step, reason=f"{step.reason}; the last {waited} runs did not get to it")


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
