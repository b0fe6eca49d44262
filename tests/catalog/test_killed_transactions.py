"""Processes are killed while they run transactions: each is there as a whole and once, or not at all.

A transaction is determined by its number, which is its idempotency key, too, and stands in its snapshot. So the
snapshots tell which transactions the lake has, in which order; the model then tells the rows.
"""

import multiprocessing
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from ducklake_orch import CommitInfo, DuckLake, LakeConfig
from ducklake_orch.errors import ConflictError
from tests.support.backends import DUCKDB, MYSQL, POSTGRES, SQLITE, catalogs
from tests.support.random_verbs import TABLES, Ids, Rows, Verb, frame, random_verb

# Larger than the number of ids that one transaction uses.
IDS_EACH = 100
# A process is killed up to so many seconds after some of its transactions.
SECONDS = 1.0


def verbs_of(number: int) -> list[Verb]:
    """Return what a transaction does, the same in each of its attempts."""
    rng, ids = random.Random(number), Ids(number * IDS_EACH)
    return [random_verb(rng, ids) for _ in range(rng.choice((1, 2, 3, 5)))]


def transact(lake: DuckLake, number: int) -> str:
    """Run a transaction as a task does that is tried again, and return its outcome."""
    try:
        with lake.transaction(idempotency_key=str(number), commit=CommitInfo(extra={"number": number})) as tx:
            for verb in verbs_of(number):
                verb.run(tx)
    except ConflictError:
        return "conflict"
    assert tx.result is not None
    return str(tx.result.snapshot_id)


def work(config: LakeConfig, numbers: Iterable[int], log: Path) -> None:
    """Run transactions, one after the other, and write down their outcomes."""
    lake = DuckLake(config)
    with log.open("a") as file:
        for number in numbers:
            print(number, transact(lake, number), file=file, flush=True)


class Worker:
    """A process with a share of the transactions, which is killed and started again until all have an outcome.

    Args:
        config: The lake.
        numbers: Its transactions.
        most: How many of them are done at most between two kills.
        log: The file with the outcomes.
    """

    def __init__(self, config: LakeConfig, numbers: range, most: int, log: Path) -> None:
        self._config, self._numbers, self._most, self._log = config, numbers, most, log
        self.kills = 0

    def outcomes(self) -> dict[int, str]:
        """Return the outcomes that were written down as a whole."""
        lines = self._log.read_text().splitlines(keepends=True) if self._log.exists() else []
        return {int(line.split()[0]): line.split()[1] for line in lines if line.endswith("\n")}

    def run(self, rng: random.Random) -> None:
        while left := [number for number in self._numbers if number not in self.outcomes()]:
            done = len(self._numbers) - len(left) + rng.randint(1, self._most)
            process = multiprocessing.get_context("spawn").Process(target=work, args=(self._config, left, self._log))
            process.start()
            while process.is_alive() and len(self.outcomes()) < done:
                time.sleep(0.05)
            process.join(rng.uniform(0, SECONDS))
            if process.is_alive():
                process.kill()
                self.kills += 1
            process.join()
            assert process.exitcode in (0, -9), "a transaction failed; its error is in the output"


class Reader:
    """Reads all tables again and again, with DuckDB's own SQL."""

    def __init__(self, lake: DuckLake) -> None:
        self._lake, self._stop = lake, threading.Event()
        self.seen: dict[int, set[tuple[int, ...]]] = {}

    def run(self) -> None:
        sums = ", ".join(f"(SELECT coalesce(sum(id * 7 + p * 3 + v), 0)::BIGINT FROM {table})" for table in TABLES)
        while not self._stop.is_set():
            with self._lake.connect(read_only=True) as con:
                con.execute("BEGIN")
                (snapshot,) = con.execute("SELECT id FROM ducklake_current_snapshot('lake')").fetchall()[0]
                self.seen.setdefault(snapshot, set()).update(con.execute(f"SELECT {sums}").fetchall())
            time.sleep(0.1)

    def stop(self) -> None:
        self._stop.set()


def check(lake: DuckLake, outcomes: dict[int, str], seen: dict[int, set[tuple[int, ...]]], first: int) -> int:
    """Compare every snapshot with the model, and return the number of transactions that were committed."""
    committed: dict[int, int] = {}
    model: dict[str, Rows] = {table: {} for table in TABLES}
    snapshots = sorted(lake.snapshots(), key=lambda found: found.snapshot_id)
    last = snapshots[-1].snapshot_id
    for snapshot in snapshots:
        if snapshot.snapshot_id <= first:
            continue
        number = snapshot.extra["number"]
        assert number not in committed, f"transaction {number} was committed twice"
        committed[number] = snapshot.snapshot_id
        verbs = verbs_of(number)
        for verb in verbs:
            model[verb.table] = verb.effect(model[verb.table])
        # What it did to other tables would be seen at their next transaction, or at the last snapshot.
        for table in TABLES if snapshot.snapshot_id == last else {verb.table for verb in verbs}:
            found = lake.read(table, snapshot=snapshot.snapshot_id).to_pylist()
            rows = {row["id"]: (row["p"], row["v"]) for row in found}
            assert len(found) == len(rows), f"{table} at {snapshot.snapshot_id} has rows twice"
            assert rows == model[table], f"{table} at {snapshot.snapshot_id}"
        sums = tuple(sum(key * 7 + p * 3 + v for key, (p, v) in model[table].items()) for table in TABLES)
        assert seen.get(snapshot.snapshot_id, {sums}) == {sums}, f"a reader saw a part of {snapshot.snapshot_id}"
    for number, outcome in outcomes.items():
        assert outcome in ("conflict", str(committed.get(number))) or not verbs_change_rows(lake, number, int(outcome))
    return len(committed)


def verbs_change_rows(lake: DuckLake, number: int, at: int) -> bool:
    """Whether a transaction, as a whole, changes the rows that the tables have at a snapshot."""
    found = {table: lake.read(table, snapshot=at).to_pylist() for table in TABLES}
    before = {table: {row["id"]: (row["p"], row["v"]) for row in rows} for table, rows in found.items()}
    after = dict(before)
    for verb in verbs_of(number):
        after[verb.table] = verb.effect(after[verb.table])
    return after != before


def soak(lake: DuckLake, folder: Path, count: int, workers: int = 4, most: int = 30) -> None:
    for table in TABLES:
        lake.write(frame({}), table, mode="error", partition_by=["p"])
    first = lake.snapshots(limit=1)[0].snapshot_id
    each, reader = count // workers, Reader(lake)
    shares = [
        Worker(lake.config, range(number * each, (number + 1) * each), most, folder / f"outcomes {number}")
        for number in range(workers)
    ]
    reading = threading.Thread(target=reader.run)
    threads = [threading.Thread(target=share.run, args=(random.Random(n),)) for n, share in enumerate(shares)]
    for thread in (reading, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    reader.stop()
    reading.join()
    outcomes = {number: outcome for share in shares for number, outcome in share.outcomes().items()}
    assert outcomes.keys() == set(range(each * workers))
    committed, kills = check(lake, outcomes, reader.seen, first), sum(share.kills for share in shares)
    conflicts = list(outcomes.values()).count("conflict")
    kind, reads = lake.config.catalog.type, len(reader.seen)
    print(f"\n{kind}: {committed} of {count} committed, {conflicts} conflicts, {kills} kills, {reads} snapshots read")
    assert kills >= workers
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_killed_processes_leave_whole_transactions(lake: DuckLake, tmp_path: Path) -> None:
    soak(lake, tmp_path, count=24, workers=2, most=8)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [300, 2000])
@catalogs(quick=[SQLITE, POSTGRES, DUCKDB, MYSQL])
def test_killed_processes_leave_whole_transactions_for_long(lake: DuckLake, tmp_path: Path, count: int) -> None:
    soak(lake, tmp_path, count)
