"""Nightly maintenance of 200 tables at a tight budget: what reads save by the order in which steps are done.

Run it with `make bench-upkeep`. Tables, nights and reads are simulated: the real planner plans over made-up files, and
the simulation does what a run would do until the budget is spent. So the figures do not depend on the machine.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.config.maintenance import RankPolicy
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.maintenance.census import Census, FileState, TableState, census
from ducklake_orch.maintenance.ranking import Ranking, task_name, waits
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.run_log import MaintenanceRun
from ducklake_orch.maintenance.table_plan import TABLE_OPERATIONS, TablePlanner

_MIB = 2**20
_START = datetime(2026, 1, 1, tzinfo=UTC)
_OPEN = RankPolicy().open_bytes


@dataclass
class Table:
    """A simulated table: how it is read and written, and its files."""

    number: int
    reads: float
    appends: int
    deletes: float
    files: list[FileState] = field(default_factory=list)
    written: datetime = _START

    @property
    def name(self) -> TableName:
        return TableName("main", f"t{self.number:03}")

    def read_cost(self, opens: int = _OPEN) -> float:
        """Return the bytes that the reads of a day read, with opens of files as bytes."""
        size = sum(file.bytes + opens * (2 if file.deleted else 1) for file in self.files)
        return self.reads * size

    def state(self) -> TableState:
        return TableState(self.number, self.name, "", {}, {}, tuple(self.files), (), None)


def tables_of(rng: Random, count: int) -> list[Table]:
    """Return tables whose reads and writes are skewed, and do not depend on each other."""
    ranks = rng.sample(range(1, count + 1), count)
    tables = [
        Table(n, 2000 / rank**1.1, int(1 + 40 * rng.random() ** 4), rng.random() ** 6) for n, rank in enumerate(ranks)
    ]
    for table in tables:
        table.files = [_file(rng, n, 64 * _MIB) for n in range(rng.randrange(1, 8))]
    return tables


def _file(rng: Random, number: int, most: int) -> FileState:
    size = int(most * (0.2 + 0.8 * rng.random()))
    return FileState(number, "", True, size, size // 100, 0, 0, number, number, (0, None, ()))


def live_a_day(rng: Random, tables: Sequence[Table], now: datetime, ids: list[int]) -> None:
    """Append files, and delete rows."""
    for table in tables:
        if rng.random() < 0.1:
            continue  # not written today
        table.written = now
        for _ in range(table.appends):
            ids[0] += 1
            table.files.append(_file(rng, ids[0], 2 * _MIB))
        if rng.random() < table.deletes:
            for n, file in enumerate(table.files):
                if rng.random() < 0.3:
                    lost = int(file.rows * rng.random() * 0.4)
                    table.files[n] = replace(file, deleted=min(file.rows, file.deleted + lost))


def do(step: PlannedStep, table: Table, ids: list[int]) -> None:
    """Do what a step does."""
    for part in step.bins:
        taken = [file for file in table.files if file.file_id in part.files]
        rows = sum(file.rows - file.deleted for file in taken)
        size = sum(file.bytes * (file.rows - file.deleted) // max(file.rows, 1) for file in taken)
        ids[0] += 1
        table.files = [file for file in table.files if file.file_id not in part.files]
        if rows:
            table.files.append(FileState(ids[0], "", True, size, rows, 0, 0, ids[0], ids[0], (0, None, ())))


Order = Callable[[Ranking, list[PlannedStep]], list[PlannedStep]]


def simulate(
    state: Census, nights: int, count: int, order: Order | None, budget: float, *, told: bool
) -> tuple[float, float, float]:
    """Return what all reads cost with and without opens of files, and what maintenance cost.

    Args:
        state: The census of a real lake, whose tables are replaced.
        nights: The number of nights.
        count: The number of tables.
        order: Puts the steps of a night in order; None for a lake without maintenance.
        budget: The cost of a night after which no step begins.
        told: Whether the policy tells the reads of each table.
    """
    rng, ids, spent, read, plain = Random(1), [10_000], 0.0, 0.0, 0.0
    tables = tables_of(rng, count)
    by_name = {str(table.name): table for table in tables}
    runs: list[MaintenanceRun] = []
    for night in range(nights):
        now = _START + timedelta(days=night + 1)
        live_a_day(rng, tables, now, ids)
        if order is not None:
            tonight = 0.0
            ranking = Ranking(now, {name: table.written for name, table in by_name.items()}, None, waits(runs))
            steps = []
            for table in tables:
                policy = MaintenancePolicy(rank={"reads": table.reads} if told else {})
                planner = TablePlanner(state, table.state(), policy, 10**9)
                planned = [step for operation in TABLE_OPERATIONS for step in planner.plan(operation)]
                steps += [ranking.scored(step, policy.rank) for step in planned if step.action == "run"]
            named, begun = {task_name(step) for step in steps}, set[str]()
            for step in order(ranking, steps):
                if tonight >= budget:
                    break
                begun.add(task_name(step))
                do(step, by_name[str(step.table)], ids)
                tonight += step.cost
            summary = {"planned": named, "left": named - begun}
            runs.insert(0, MaintenanceRun("", "", 0, now, now, "ok", summary))
            spent += tonight
        read += sum(table.read_cost() for table in tables)
        plain += sum(table.read_cost(0) for table in tables)
    return read, plain, spent


def stream(state: Census, tiers: Sequence[str] | None, minutes: int) -> tuple[float, int, int]:
    """Simulate a day of a small file each second.

    Args:
        state: The census of a real lake, whose tables are replaced.
        tiers: The tiers of the policy.
        minutes: How often maintenance runs.

    Returns:
        How often a byte is written, and the most and the last number of files after maintenance.
    """
    rng, ids, table = Random(1), [0], Table(0, 1, 0, 0)
    policy = MaintenancePolicy(merge={} if tiers is None else {"tiers": tiers})
    added = rewritten = most = 0
    for _ in range(24 * 60 // minutes):
        for _ in range(60 * minutes):
            ids[0] += 1
            table.files.append(_file(rng, ids[0], 64 * 1024))
            added += table.files[-1].bytes
        for step in TablePlanner(state, table.state(), policy, 10**9).plan("merge"):
            if step.action == "run":
                rewritten += step.bytes or 0
                do(step, table, ids)
        most = max(most, len(table.files))
    return (added + rewritten) / added, most, len(table.files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--share", type=float, default=0.25, help="the budget, as a share of what all steps cost")
    given = parser.parse_args()

    def by_score(ranking: Ranking, steps: list[PlannedStep]) -> list[PlannedStep]:
        return ranking.ranked(steps)

    def by_turns(ranking: Ranking, steps: list[PlannedStep]) -> list[PlannedStep]:
        return sorted(steps, key=lambda step: (-ranking.waited.get(task_name(step), 0), str(step.table)))

    folder = Path(tempfile.mkdtemp())
    try:
        lake = DuckLake.local(folder / "lake")
        lake.create_table("seed", {"id": "BIGINT"})
        with census(lake.config, "Simulating maintenance") as state:
            never, never_plain, _ = simulate(state, given.nights, given.tables, None, 0, told=True)
            best, best_plain, cost = simulate(state, given.nights, given.tables, by_score, float("inf"), told=True)
            budget = cost / given.nights * given.share
            orders: list[tuple[str, Order, bool]] = [
                ("by score, reads known", by_score, True),
                ("by score, reads estimated", by_score, False),
                ("tables in turn", by_turns, False),
            ]
            print(
                f"{given.tables} tables, {given.nights} nights, each with {given.share * 100:.0f} % of what all steps"
                " would cost; what reads save is relative to a lake with all steps\n"
            )
            print("| Order of the steps | reads save | without opens of files | cost |\n|---|---|---|---|", flush=True)
            print("| all steps, every night | 100 % | 100 % | 100 % |", flush=True)
            for name, order, told in orders:
                read, plain, spent = simulate(state, given.nights, given.tables, order, budget, told=told)
                saved = (never - read) / (never - best), (never_plain - plain) / (never_plain - best_plain)
                print(
                    f"| {name} | {saved[0]:.0%} | {saved[1]:.0%} | {spent / cost:.0%} |".replace("%", " %"), flush=True
                )
            print("\nA file of at most 64 KiB each second for a day\n")
            print("| Tiers of small files | maintained every | a byte is written | most files | files at the end |")
            print("|---|---|---|---|---|")
            for name, tiers in (("by default", None), ("one", ["1 TiB"])):
                for minutes in (10, 60):
                    times, most, last = stream(state, tiers, minutes)
                    print(f"| {name} | {minutes} minutes | {times:.1f} times | {most:,} | {last:,} |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
