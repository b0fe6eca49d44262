"""Stages that several tasks change, publish and discard beside transactions and maintenance, compared with a model.

Each snapshot equals whole transactions and whole stages, in the order of their commits. A stage is what its tasks
staged, in the order in which they stored it.
"""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.transactions import stage_rows
from ducklake_orch.errors import DuckLakeOrchError, StageConflictError, TransactionClosedError
from tests.catalog.test_transaction_histories import History
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.random_verbs import TABLES, Ids, Verb, frame, random_verb

POLICY = MaintenancePolicy.model_validate(
    {
        "merge": {"min_files": 2},
        "rewrite": {"delete_threshold": 0.01},
        "flush": {"min_rows": 1, "min_age": 0},
        "expire": {"older_than": 0, "retain_last": 5},
        "force": True,
    }
)
STAGES = 2


@dataclass
class Stored:
    """The verbs of each block that stages, in the order in which the blocks were stored, by write id."""

    running: dict[int, list[Verb]] = field(default_factory=dict)
    works: dict[str, list[Verb]] = field(default_factory=dict)

    def record(self, write_id: str) -> None:
        """Record the block that this thread stores; called in its transaction, again in each attempt."""
        if (verbs := self.running.get(threading.get_ident())) is not None:
            self.works.pop(write_id, None)
            self.works[write_id] = verbs


@dataclass
class Names:
    """The names of the stages that are open now."""

    names: list[str] = field(default_factory=lambda: [f"stage {number}" for number in range(STAGES)])
    ended: int = 0

    def end(self, name: str) -> None:
        """Let another stage take the place of one that has ended."""
        if name in self.names:
            self.ended += 1
            self.names[self.names.index(name)] = f"stage {STAGES + self.ended}"


class Worker:
    """A thread that stages, publishes, discards, commits and maintains at random."""

    def __init__(self, lake: DuckLake, seed: str, ids: Ids, history: History, stored: Stored, names: Names) -> None:
        self.rng, self.lake, self.ids, self.history = random.Random(seed), DuckLake(lake.config), ids, history
        self.stored, self.names = stored, names

    def run(self, count: int) -> None:
        for _ in range(count):
            try:
                self.step()
            except TransactionClosedError:
                continue  # another thread has published or discarded the stage
            except DuckLakeOrchError as error:
                if not (error.retryable or isinstance(error, StageConflictError)):
                    self.history.failures.append(error)
                    raise
                self.history.conflicts += 1
            except BaseException as error:
                self.history.failures.append(error)
                raise

    def step(self) -> None:
        name, kind = self.rng.choice(self.names.names), self.rng.random()
        verbs = [random_verb(self.rng, self.ids) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        if kind < 0.5:
            self.work_in(name, verbs)
        elif kind < 0.65:
            self.publish(name)
        elif kind < 0.68:
            self.names.end(name)
            self.lake.stage(name).discard()
        elif kind < 0.9:
            with self.lake.transaction() as tx:
                for verb in verbs:
                    verb.run(tx)
            assert tx.result is not None
            self.committed(tx.result.snapshot_id, verbs)
        else:
            self.lake.maintain(POLICY, operations=[self.rng.choice(("merge", "rewrite", "flush", "expire"))])

    def work_in(self, name: str, verbs: list[Verb]) -> None:
        self.stored.running[threading.get_ident()] = verbs
        try:
            with self.lake.stage(name).transaction() as tx:
                for verb in verbs:
                    verb.run(tx)
        finally:
            del self.stored.running[threading.get_ident()]

    def publish(self, name: str) -> None:
        stage = self.lake.stage(name)
        self.names.end(name)
        try:
            result = stage.publish()
        except DuckLakeOrchError:
            stage.discard()
            raise
        if not result.replayed:
            published = stage._stored().head.published
            assert published.keys() <= self.stored.works.keys()
            works = [verbs for write_id, verbs in list(self.stored.works.items()) if write_id in published]
            self.committed(result.snapshot_id, [verb for verbs in works for verb in verbs])

    def committed(self, snapshot: int, verbs: list[Verb]) -> None:
        self.ids.committed.extend(key for verb in verbs for key in verb.ids)
        with self.history.lock:
            self.history.effects.setdefault(snapshot, []).extend((verb.table, verb.effect) for verb in verbs)


def check(lake: DuckLake, history: History, first: int) -> None:
    """Compare the tables at every snapshot that is left with the model."""
    model: dict[str, Any] = {table: {} for table in TABLES}
    left = {snapshot.snapshot_id for snapshot in lake.snapshots()}
    for snapshot in range(first + 1, max(left) + 1):
        for table, effect in history.effects.get(snapshot, ()):
            model[table] = effect(model[table])
        for table in TABLES if snapshot in left else ():
            found = lake.read(table, snapshot=snapshot).to_pylist()
            rows = {row["id"]: (row["p"], row["v"]) for row in found}
            assert len(found) == len(rows), f"{table} at snapshot {snapshot} has rows twice"
            assert rows == model[table], f"{table} at snapshot {snapshot}"


def run(lake: DuckLake, monkeypatch: pytest.MonkeyPatch, threads: int, count: int, seed: int) -> History:
    for table in TABLES:
        lake.write(frame({}), table, mode="error", partition_by=["p"])
    first = lake.snapshots(limit=1)[0].snapshot_id
    history, ids, stored, names, store = History(), Ids(), Stored(), Names(), stage_rows._store_head

    def recorded(transaction: Any, head: stage_rows.StageHead, version: str) -> None:
        stored.record(version)
        store(transaction, head, version)

    monkeypatch.setattr(stage_rows, "_store_head", recorded)
    workers = [Worker(lake, f"{seed} {number}", ids, history, stored, names) for number in range(threads)]
    running = [threading.Thread(target=worker.run, args=(count,)) for worker in workers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert history.failures == []
    check(lake, history, first)
    for stage in lake.stages():
        lake.stage(stage.name).discard()
    assert lake.fsck(deep=True, storage=True).findings == []
    return history


@catalogs(quick=[SQLITE])
def test_snapshots_equal_whole_stages_in_the_order_of_their_commits(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = run(lake, monkeypatch, threads=3, count=12, seed=1)
    assert len(history.effects) >= 5


@pytest.mark.soak
@pytest.mark.timeout(7200)
@catalogs(quick=[SQLITE, POSTGRES])
def test_snapshots_equal_whole_stages_for_long(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    history = run(lake, monkeypatch, threads=4, count=100, seed=2)
    assert len(history.effects) >= 50
