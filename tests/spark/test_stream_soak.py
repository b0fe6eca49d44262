"""Streams under random changes, maintenance and kills: at each quiet point, the sinks equal the table."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ducklake_orch import CommitInfo, DuckLake, MaintenancePolicy
from tests.support.stream_queries import QUERIES, QueryProcess
from tests.support.table_steps import COMMON, UPDATES, State, replay, rows_of, run, state, step

# Calls of the engine work on `t` alone: they would corrupt tables that the queries change at the same time.
CALLS = [
    ["CALL ducklake_flush_inlined_data('lake', table_name => 't')"],
    [
        "CALL ducklake_flush_inlined_data('lake', table_name => 't')",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)",
    ],
]
CHANGES = [change for change in COMMON + UPDATES if "CALL" not in change]
# Expiry removes every snapshot that no stream needs. Clean-up would delete files that tasks read right now.
RUNNING = MaintenancePolicy.model_validate(
    {
        "rewrite": {"delete_threshold": 0.1},
        "merge": {"min_files": 2},
        "expire": {"older_than": 0, "retain_last": 1},
        "cleanup": {"enabled": False},
        "force": True,
    }
)
# While all queries are idle: every file that the catalog does not need is deleted.
QUIET = MaintenancePolicy.model_validate(
    RUNNING.model_dump(include={"rewrite", "merge", "expire"})
    | {
        "cleanup": {"older_than": 0},
        "orphans": {"older_than": 0, "action": "delete", "unknown": "delete"},
        "force": True,
    }
)
FAULTS = ("files.written", "commit.before", "commit.after")
INLINING_LIMITS = (0, 10, 100)


class Soak:
    """Changes a table at random, and compares it with what three streams made of its changes.

    Attributes:
        done: How often each change, kill and maintenance ran.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._rng = folder, Random(seed)
        (folder / "batches").mkdir()
        self._lakes = [DuckLake.local(folder / "lake", data_inlining_row_limit=limit) for limit in INLINING_LIMITS]
        self._lake = self._lakes[0]
        self._lake.create_table("t", {"k": "BIGINT", "v": "VARCHAR"})
        self._first = self._seen = self._lake.snapshots(limit=1)[0].snapshot_id
        self._n, self._read = 0, 0
        self._model: State = {}
        self._feed: Counter[tuple[Any, ...]] = Counter()
        self._writer = "sink"
        self.done: Counter[str] = Counter()
        for _ in range(3):
            self._change()
        self._queries = QueryProcess(folder)

    def round(self, kill: str | None) -> None:
        """Change the table while some queries run, let all of them finish, and compare."""
        self._do("start", self._some_queries())
        for _ in range(self._rng.randrange(2, 6)):
            self._change()
            if self._read and self._rng.random() < 0.25:
                self._maintain(RUNNING)
        if self._rng.random() < 0.2:
            self._do("stop", self._some_queries())
        if kill:
            self._kill(kill)
        self._do("finish", QUERIES)
        self._compare()
        stopped = self._some_queries() if self._rng.random() < 0.4 else []
        self._do("stop", stopped)
        if "replica" in stopped:
            self._writer = self._rng.choice(("sink", "stream_writer"))
        if self._rng.random() < 0.3:
            self._maintain(QUIET)

    def end(self) -> None:
        """Check what is left in the lake, and that snapshots have expired."""
        self._queries.kill()
        self._maintain(QUIET)
        assert self._lake.fsck(deep=True, storage=True).findings == []
        assert min(snapshot.snapshot_id for snapshot in self._lake.snapshots()) > self._first

    def close(self) -> None:
        self._queries.kill()

    def _some_queries(self) -> list[str]:
        return [name for name in QUERIES if self._rng.random() < 0.6]

    def _do(self, action: str, queries: Any) -> None:
        answer = self._queries.do(action, queries, **self._options(action))
        assert answer == "done", f"{action} {queries}: {answer}"

    def _options(self, action: str) -> dict[str, Any]:
        most = self._rng.choice((None, None, 1, 3))
        return {} if action == "stop" else {"most": most, "writer": self._writer}

    def _kill(self, where: str) -> None:
        """Kill all queries while they process, and once more at a fault point if `where` names one."""
        if self._rng.random() < 0.7:
            self._queries.send("finish", QUERIES, **self._options("finish"))
        time.sleep(self._rng.uniform(0, 4))
        self._queries.kill()
        self.done["kill"] += 1
        if where in FAULTS:
            self._queries = QueryProcess(self._folder, where)
            self._change()
            answer = self._queries.do("finish", QUERIES, **self._options("finish"))
            self.done[f"kill at {where}"] += answer != "done"
            self._queries.kill()
            if self._read and self._rng.random() < 0.5:
                self._maintain(RUNNING)  # Spark's Python workers may outlive the JVM for a moment
        self._queries = QueryProcess(self._folder)

    def _change(self) -> None:
        """Change the table by ducklake-orch or by the engine."""
        lake = self._rng.choice(self._lakes)
        self._n += 20
        choice = self._rng.choice([*CHANGES, "append by an author", "engine call", "engine call"])
        if choice == "append by an author":
            rows = rows_of(*((self._n + key, "authored") for key in range(self._rng.randrange(1, 30))))
            lake.write(rows, "t", mode="append", inline="auto", commit=CommitInfo(author="author"))
        elif choice == "engine call":
            run(lake, *self._rng.choice(CALLS))
        else:
            step(lake, choice, self._n, self._rng.randrange(5))
        self.done[choice.partition(" ")[0]] += 1

    def _maintain(self, policy: MaintenancePolicy) -> None:
        """Maintain the lake, after all changes were read that may expire."""
        self._read_feed()
        report = self._lake.maintain(policy)
        assert report.status == "ok", str(report)
        self.done.update(f"maintain: {step.operation}" for step in report.operations if step.status == "done")

    def _read_feed(self) -> None:
        changes = self._lake.changes("t", self._seen + 1)
        self._feed.update(tuple(row.values()) for row in changes.drop_columns(["idempotency_key"]).to_pylist())
        self._seen = self._lake.snapshots(limit=1)[0].snapshot_id

    def _compare(self) -> None:
        """Compare the three sinks with the table and its change feed."""
        self._read_feed()
        self._replay()
        rows = state(self._lake)
        assert self._model == rows, _difference(self._model.items(), rows.items())
        replica = self._lake.read("replica", columns=["id", "k", "v"]).to_pylist()
        found = Counter((row["id"], (row["k"], row["v"])) for row in replica)
        assert found == Counter(rows.items()), _difference(found, rows.items())
        log = Counter(tuple(row.values()) for row in self._lake.read("log").to_pylist())
        assert log == self._feed, _difference(log, self._feed)

    def _replay(self) -> None:
        """Apply the batches of the query `model` to the rows of the table, by row id."""
        while (file := self._folder / "batches" / f"{self._read}.json").exists():
            self._read += 1
            replay(self._model, json.loads(file.read_text()))


def _difference(found: Any, expected: Any) -> str:
    found, expected = Counter(found), Counter(expected)
    return f"unexpected: {(found - expected).most_common(5)}; missing: {(expected - found).most_common(5)}"


def soak(folder: Path, rounds: int, seed: int, kills: Mapping[int, str]) -> None:
    """Run some rounds, of which `kills` says where the queries are killed."""
    test = Soak(folder, seed)
    try:
        for number in range(rounds):
            try:
                test.round(kills.get(number))
            except AssertionError as error:
                error.add_note(f"in round {number} of seed {seed}, after {dict(sorted(test.done.items()))}")
                raise
        test.end()
    finally:
        test.close()
    print(f"\nseed {seed}: {dict(sorted(test.done.items()))}")


@pytest.mark.parametrize("seed", [1])
def test_streams_follow_random_changes_maintenance_and_kills_exactly_once(tmp_path: Path, seed: int) -> None:
    soak(tmp_path, 6, seed, {3: "anywhere"})


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [2])
def test_streams_follow_changes_exactly_once_for_200_rounds(tmp_path: Path, seed: int) -> None:
    places = cycle(("anywhere", *FAULTS))
    soak(tmp_path, 200, seed, dict(zip(range(9, 200, 10), places, strict=False)))
