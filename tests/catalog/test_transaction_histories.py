"""Concurrent transactions, compared with a model: each snapshot equals their whole effects in the order of commits."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.errors import DuckLakeOrchError
from tests.support.backends import DUCKDB, MYSQL, POSTGRES, SQLITE, catalogs

TABLES = ("a", "b", "c")
PARTITIONS = 3
POLICY = MaintenancePolicy.model_validate({"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}})
# Rows of one table, by id: the partition and a value.
Rows = dict[int, tuple[int, int]]
Step = Callable[[Any, str], None]
Effect = Callable[[Rows], Rows]


@dataclass(frozen=True)
class Verb:
    """A verb on one table, and what it does to the rows of the model."""

    table: str
    run: Callable[[Any], object]
    effect: Effect
    ids: tuple[int, ...] = ()


def frame(rows: Rows) -> pa.Table:
    ids = list(rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": pa.array([rows[key][0] for key in ids], pa.int64()),
            "v": pa.array([rows[key][1] for key in ids], pa.int64()),
        }
    )


class Ids:
    """Hands out ids that no other thread gets."""

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._lock = threading.Lock()
        # Ids that nobody will append any more: a merge of an id beside its append would make two rows of it.
        self.committed: list[int] = []

    def rows(self, rng: random.Random, partition: int | None = None) -> Rows:
        with self._lock:
            first, count = self._next, rng.randrange(1, 6)
            self._next += count
        return {
            key: (rng.randrange(PARTITIONS) if partition is None else partition, rng.randrange(100))
            for key in range(first, first + count)
        }


def random_verb(rng: random.Random, ids: Ids) -> Verb:
    table, part = rng.choice(TABLES), rng.randrange(PARTITIONS)
    kind = rng.choice(("append", "append", "partitions", "where", "delete", "update", "merge", "truncate", "alter"))
    if kind == "alter":
        comment, column = f"comment {rng.randrange(100)}", rng.choice(("id", "v"))
        return Verb(table, lambda lake: lake.alter_table(table, comment=comment, sort_by=[column]), lambda rows: rows)
    if kind == "append":
        new = ids.rows(rng)
        return Verb(table, lambda lake: lake.write(frame(new), table, mode="append"), lambda rows: rows | new, (*new,))
    if kind == "partitions":
        new = ids.rows(rng, part)
        return Verb(
            table,
            lambda lake: lake.write(frame(new), table, mode="overwrite_partitions"),
            lambda rows: {key: row for key, row in rows.items() if row[0] != part} | new,
        )
    if kind == "where":
        new = ids.rows(rng, part)
        return Verb(
            table,
            lambda lake: lake.write(frame(new), table, mode="replace_where", where=f"p = {part}"),
            lambda rows: {key: row for key, row in rows.items() if row[0] != part} | new,
        )
    if kind == "delete":
        rest = rng.randrange(4)
        return Verb(
            table,
            lambda lake: lake.delete(table, f"id % 4 = {rest} AND p = {part}"),
            lambda rows: {key: row for key, row in rows.items() if key % 4 != rest or row[0] != part},
        )
    if kind == "update":
        return Verb(
            table,
            lambda lake: lake.update(table, {"v": "v + 1"}, f"p = {part}"),
            lambda rows: {key: (row[0], row[1] + (row[0] == part)) for key, row in rows.items()},
        )
    if kind == "merge":
        known = rng.sample(ids.committed, min(3, len(ids.committed)))
        new = ids.rows(rng) | {key: (part, rng.randrange(100)) for key in known}
        return Verb(table, lambda lake: lake.merge(frame(new), table, ["id"]), lambda rows: rows | new)
    if rng.random() < 0.8:
        return random_verb(rng, ids)
    return Verb(table, lambda lake: lake.truncate(table), lambda rows: {})


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
