"""Concurrent transactions, compared with a model: each snapshot equals their whole effects in the order of commits."""

import random
import threading
from dataclasses import dataclass, field

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.errors import DuckLakeOrchError
from tests.support.backends import DUCKDB, MYSQL, POSTGRES, SQLITE, catalogs
from tests.support.random_verbs import TABLES, Effect, Ids, Rows, frame, random_verb

POLICY = MaintenancePolicy.model_validate({"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}})


@dataclass
class History:
    """The effects of committed work, by snapshot."""

    effects: dict[int, list[tuple[str, Effect]]] = field(default_factory=dict)
    conflicts: int = 0
    failures: list[BaseException] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def work(lake: DuckLake, seed: str, count: int, ids: Ids, history: History) -> None:
    """Run transactions and maintenance, one after the other; a conflict ends its transaction."""
    rng = random.Random(seed)
    try:
        for number in range(count):
            verbs = [random_verb(rng, ids) for _ in range(rng.choice((1, 2, 3, 5)))]
            try:
                if rng.random() < 0.1:
                    lake.maintain(POLICY, operations=[rng.choice(("merge", "rewrite", "flush"))])
                    continue
                with lake.transaction(idempotency_key=f"{seed} {number}") as tx:
                    for verb in verbs:
                        verb.run(tx)
            except DuckLakeOrchError as error:
                if not error.retryable:
                    raise
                history.conflicts += 1
                continue
            assert tx.result is not None
            snapshot = tx.result.snapshot_id
            ids.committed.extend(key for verb in verbs for key in verb.ids)
            with history.lock:
                history.effects.setdefault(snapshot, []).extend((verb.table, verb.effect) for verb in verbs)
    except BaseException as error:
        history.failures.append(error)
        raise


def check_every_snapshot(lake: DuckLake, history: History, first: int) -> None:
    """Compare the three tables at every snapshot with the model."""
    model: dict[str, Rows] = {table: {} for table in TABLES}
    last = lake.snapshots(limit=1)[0].snapshot_id
    for snapshot in range(first + 1, last + 1):
        for table, effect in history.effects.get(snapshot, ()):
            model[table] = effect(model[table])
        for table in TABLES:
            found = lake.read(table, snapshot=snapshot).to_pylist()
            rows = {row["id"]: (row["p"], row["v"]) for row in found}
            assert len(found) == len(rows), f"{table} at snapshot {snapshot} has rows twice"
            assert rows == model[table], f"{table} at snapshot {snapshot}"


def run(lake: DuckLake, threads: int, count: int, seed: int) -> History:
    for table in TABLES:
        lake.write(frame({}), table, mode="error", partition_by=["p"])
    first = lake.snapshots(limit=1)[0].snapshot_id
    history, ids = History(), Ids()
    workers = [
        threading.Thread(target=work, args=(lake, f"{seed} {number}", count, ids, history)) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert history.failures == []
    check_every_snapshot(lake, history, first)
    assert lake.fsck(deep=True, storage=True).findings == []
    return history


@catalogs(quick=[SQLITE])
def test_snapshots_equal_whole_transactions_in_the_order_of_their_commits(lake: DuckLake) -> None:
    history = run(lake, threads=3, count=12, seed=1)
    assert len(history.effects) >= 10


@pytest.mark.soak
@pytest.mark.timeout(7200)
@catalogs(quick=[SQLITE, POSTGRES, DUCKDB, MYSQL])
def test_snapshots_equal_whole_transactions_for_long(lake: DuckLake) -> None:
    history = run(lake, threads=4, count=75, seed=2)
    assert len(history.effects) >= 100
