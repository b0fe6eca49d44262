"""Run operations of the model with the real code, and let TLC decide whether the model allows what they committed.

python -m tests.model.conformance [--runs N] [--seed N] [--broken FAULT]

The simulator runs the operations of three writers, statement by statement in an order of the seed, and kills some of
them. The catalog then tells which operation each snapshot is, what it recorded, and which rows the tables have. With
`--broken`, a fault is built into the code, and TLC has to reject some of the runs.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.catalog.metadata.change_tokens import parse_tokens
from ducklake_orch.catalog.search import row_search
from ducklake_orch.errors import DuckLakeOrchError
from tests.model.check import run_tlc
from tests.servers.base import ServerUnavailable
from tests.simulation.broken import BROKEN
from tests.simulation.places import in_child, open_place
from tests.simulation.scheduler import KILL, Scheduler
from tests.simulation.work import Outcome

WRITERS, EACH = 3, 2
TABLES = ("a", "b")
# The snapshots of the real lake before the first one of the model: it creates the tables.
_SNAPSHOTS_BEFORE = 1
FIRST_SNAPSHOT = 3
# The operations of the model, with their tables and keys.
_CHOICES = (
    *(("append", "a", 1), ("append", "b", 2), ("merge", "a", 2), ("delete", "a", 1), ("delete", "a", 3)),
    *(("replace", "a", 1), ("replace", "a", 3), ("flush", "a", 0), ("compact", "a", 1), ("rollback", "a", 0)),
)
# A run has one of these, too: with both, a key could have two rows, and the model has no merge that updates both.
_EITHER = (("inline", "a", 3), ("merge", "a", 3))
_POLICY = MaintenancePolicy.model_validate({"merge": {"min_files": 2}})
_TOKENS = {"inserted_into_table": "inserted", "deleted_from_table": "deleted"}
# Which rows a table has: who wrote each (the number of an operation; 0: a row of the start), and its key.
Rows = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class ModelOperation:
    """An operation of the model, for the real code."""

    number: int
    do: str
    table: str
    key: int

    @property
    def once(self) -> bool:
        """Whether it can be run again after a kill: a second rollback would go to another snapshot."""
        return self.do != "rollback"

    def run(self, lake: DuckLake) -> Outcome:
        """Run it; an error ends it."""
        try:
            _RUN[self.do](self, lake)
        except DuckLakeOrchError as error:
            return Outcome("failed", error=str(error))
        return Outcome("done")

    @property
    def marks(self) -> dict[str, Any]:
        """Its idempotency key and the mark of its snapshot."""
        return {"idempotency_key": f"operation {self.number}", "commit": CommitInfo(extra={"operation": self.number})}

    def rows(self) -> pa.Table:
        """The row that it writes."""
        return _frame([(self.number, self.key)])


def _part(key: int) -> str:
    return "q" if key == 3 else "p"


def _frame(rows: Sequence[tuple[int, int]]) -> pa.Table:
    return pa.table(
        {
            "who": pa.array([who for who, _ in rows], pa.int64()),
            "k": pa.array([key for _, key in rows], pa.int64()),
            "p": pa.array([_part(key) for _, key in rows], pa.string()),
        }
    )


def _roll_back(op: ModelOperation, lake: DuckLake) -> None:
    snapshots = [found.snapshot_id for found in lake.snapshots()][1 : -1 - _SNAPSHOTS_BEFORE]
    lake.rollback(op.table, Random(f"{op.number} {snapshots}").choice(snapshots), commit=op.marks["commit"])


def _maintain(name: str) -> Callable[[ModelOperation, DuckLake], object]:
    return lambda op, lake: lake.maintain(_POLICY, operations=[name], tables=[op.table])


_RUN: dict[str, Callable[[ModelOperation, DuckLake], object]] = {
    "append": lambda op, lake: lake.write(op.rows(), op.table, mode="append", **op.marks),
    "inline": lambda op, lake: lake.write(op.rows(), op.table, mode="append", inline="auto", **op.marks),
    "merge": lambda op, lake: lake.merge(op.rows(), op.table, ["k"], **op.marks),
    "replace": lambda op, lake: lake.write(op.rows(), op.table, mode="overwrite_partitions", **op.marks),
    "delete": lambda op, lake: lake.delete(op.table, f"k = {op.key}", **op.marks),
    "rollback": _roll_back,
    "flush": _maintain("flush"),
    "compact": _maintain("merge"),
}


@dataclass(frozen=True)
class Commit:
    """A snapshot.

    Attributes:
        operation: The number of the operation; 0 if the snapshot does not say it, as those of maintenance.
        process: The process that committed it.
        tokens: What it recorded, with the table of each.
        rows: The rows of each table.
        parts: The partitions of the files that it wrote.
    """

    operation: int
    process: int
    tokens: frozenset[tuple[str, str]]
    rows: dict[str, Rows]
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A run: the operations of each writer that the model has to follow, and the commits."""

    programs: list[list[ModelOperation]]
    commits: list[Commit]


def create(config: LakeConfig) -> None:
    """Create the lake with which the model starts."""
    lake = DuckLake(config)
    with lake.transaction() as tx:
        for table in TABLES:
            tx.create_table(table, _frame([]).schema, partition_by=["p"])
    with lake.transaction() as tx:
        tx.write(_frame([(0, key) for key in (1, 2, 4)]), "a", mode="append")
        tx.write(_frame([(0, 1)]), "b", mode="append")
    lake.write(_frame([(0, 3)]), "a", mode="append", inline="auto")
    lake.execute("DELETE FROM a WHERE k = 4").raise_for_error()


def observe(config: LakeConfig) -> list[Commit]:
    """Return what the catalog says about each snapshot after the first ones."""
    lake, commits = DuckLake(config), []
    with lake.connect_metadata() as con:
        names = dict(con.execute("SELECT table_id, table_name FROM ducklake_table").fetchall())
        paths = [path for (path,) in con.execute("SELECT path FROM ducklake_data_file").fetchall()]
    with lake.connect(read_only=True) as con:
        for snapshot in sorted(lake.snapshots(), key=lambda found: found.snapshot_id)[2 + FIRST_SNAPSHOT :]:
            at, own = f"AT (VERSION => {snapshot.snapshot_id})", snapshot.extra["ducklake_orch"]
            tokens = [token for token in parse_tokens(",".join(snapshot.changes)) if token.id is not None]
            rows = {table: con.execute(f"SELECT who, k FROM {table} {at}").fetchall() for table in TABLES}
            commit = Commit(
                operation=snapshot.extra.get("operation", 0),
                process=own["process"],
                tokens=frozenset((_TOKENS.get(token.kind, token.kind), names[token.id]) for token in tokens),
                rows={table: _set_of(found) for table, found in rows.items()},
                parts=tuple(sorted({path.split("/")[-2][2:] for path in paths if own["write_id"] in path})),
            )
            commits.append(commit)
    return commits


def _set_of(rows: Sequence[tuple[int, int]]) -> Rows:
    """Return the set of rows; one that is there twice adds a row that the model never has."""
    return frozenset(rows) | (frozenset() if len(set(rows)) == len(rows) else {(0, -1)})


def simulate(seeds: Sequence[int], *, kills: bool) -> list[Run]:
    """Run the operations of some seeds, and return what they committed."""
    # The model marks deleted rows; it does not copy the rest of a file that has lost much.
    row_search.REWRITE_ABOVE = 1.0
    runs = []
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        place = open_place("sqlite", Path(folder), create)
        for seed in seeds:
            place.reset()
            rng = Random(seed)
            choices = (*_CHOICES, rng.choice(_EITHER))
            shares = [
                [ModelOperation(1 + writer * EACH + n, *rng.choice(choices)) for n in range(EACH)]
                for writer in range(WRITERS)
            ]
            run = Scheduler(place.config, shares, seed, faults={KILL} if kills else set()).run()
            assert run.problems == [], "\n".join(run.problems)
            commits = in_child(lambda: observe(place.config))
            programs = [_program(share, run.outcomes, commits) for share in shares]
            # Who ran the maintenance whose process was killed after its commit is not known.
            steps = [step for program in programs for step in program if step.do in ("flush", "compact")]
            if len(steps) == sum(not commit.operation for commit in commits):
                runs.append(Run(programs, commits))
    return runs


def _program(
    share: Sequence[ModelOperation], outcomes: Mapping[int, Outcome], commits: Sequence[Commit]
) -> list[ModelOperation]:
    """Return what the model has to do for a writer: its operations, and each step of its maintenance as one."""
    program, committed = [], {commit.operation for commit in commits}
    for operation in share:
        if operation.do in ("flush", "compact"):
            done = [commit for commit in commits if commit.process == outcomes[operation.number].process]
            steps = [commit for commit in done if not commit.operation and _kind(commit) == operation.do]
            keys = [{"p": 1, "q": 3}[part] for commit in steps for part in commit.parts or "p"]
            program += [replace(operation, key=key) for key in keys[: len(steps)]]
        elif outcomes[operation.number].status == "done" or operation.number in committed:
            program.append(operation)
    return program


def _kind(commit: Commit) -> str:
    """Return the kind of maintenance that a commit is; a compaction records both tokens, so that a flush conflicts."""
    return "compact" if ("merge_adjacent", "a") in commit.tokens else "flush"


# --- what TLC reads ------------------------------------------------------------------------------------------------


def observed(runs: Sequence[Run]) -> str:
    """Return the module with the runs."""
    records = ",\n".join(map(_record, runs))
    return (
        "---- MODULE Observed ----\nEXTENDS CommitProtocol, Sequences\n"
        "AnyId == <<Nobody, 0>>\n"
        "Elements(sequence) == {sequence[n] : n \\in DOMAIN sequence}\n"
        f"Runs == <<\n{records}>>\n====\n"
    )


def _record(run: Run) -> str:
    ids = {
        operation.number: f"<<{writer}, {n}>>"
        for writer, program in enumerate(run.programs, 1)
        for n, operation in enumerate(program, 1)
    }
    programs = _sequence(_sequence(map(_operation, program)) for program in run.programs)
    commits = _sequence(_commit(commit, ids) for commit in run.commits)
    return f"[programs |-> {programs},\n commits |-> {commits}]"


def _operation(operation: ModelOperation) -> str:
    change = f'One("{operation.do}", "{operation.table}", {{{operation.key or ""}}})'
    return change if operation.do in ("flush", "compact") else f'With("once", {change})'


def _commit(commit: Commit, ids: Mapping[int, str]) -> str:
    tokens = _set(f'<<"{kind}", "{table}">>' for kind, table in sorted(commit.tokens))
    rows = ", ".join(f"{table} |-> {_rows(commit.rows[table], ids)}" for table in TABLES)
    return f"[id |-> {ids.get(commit.operation, 'AnyId')}, tokens |-> {tokens}, rows |-> [{rows}]]"


def _rows(rows: Rows, ids: Mapping[int, str]) -> str:
    return _set(f"[id |-> {ids[who]}, k |-> {key}]" if who else f"Old({key})" for who, key in sorted(rows))


def _sequence(parts: Iterable[str]) -> str:
    return f"<<{', '.join(parts)}>>"


def _set(parts: Iterable[str]) -> str:
    return f"{{{', '.join(parts)}}}"


def matched(runs: Sequence[Run]) -> list[int]:
    """Return how many commits of each run the model can follow.

    Raises:
        ServerUnavailable: When Java or TLC is missing.
    """
    config = "\n".join(
        [
            "SPECIFICATION ConformingSpec",
            "CHECK_DEADLOCK FALSE",
            "CONSTANTS",
            f"  Writers = {{{', '.join(str(writer) for writer in range(1, WRITERS + 1))}}}",
            "  Nobody = nobody",
            '  Tables = {"a", "b"}',
            "  Mix <- ProgramMix",
            "  EngineMix <- NoEngine",
            f"  OpsPerWriter = {max(len(program) for run in runs for program in run.programs)}",
            "  Crashes = 0",
            "  LostAnswers = 0",
            '  Mutation = "none"',
            "",
        ]
    )
    printed = run_tlc("Conformance", config, {"Observed": observed(runs)})
    if "No error has been found" not in printed:
        raise RuntimeError(f"TLC failed:\n{printed[-5000:]}")
    found = [0] * len(runs)
    for number, commits in re.findall(r'<<"matched", (\d+), (\d+)>>', printed):
        found[int(number) - 1] = max(found[int(number) - 1], int(commits))
    return found


def main(arguments: Sequence[str]) -> int:
    """Check runs; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.conformance")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--broken", choices=BROKEN, help="build a fault into the code first")
    chosen = parser.parse_args(arguments)
    if chosen.broken:
        BROKEN[chosen.broken]()
    runs = simulate(range(chosen.seed, chosen.seed + chosen.runs), kills=not chosen.broken)
    rejected = 0
    for number, (run, commits) in enumerate(zip(runs, matched(runs), strict=True)):
        if commits < len(run.commits):
            rejected += 1
            print(f"run {number}: commit {commits + 1} of {len(run.commits)} is rejected:")
            print(*run.programs, *run.commits, sep="\n- ")
    print(f"{len(runs)} runs with {sum(len(run.commits) for run in runs)} commits, {rejected} rejected")
    return 0 if (rejected > 0) == bool(chosen.broken) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerUnavailable as missing:
        sys.exit(str(missing))
