"""Concurrent transactions that append to lists of several tables and read them have no anomaly of their isolation."""

import itertools
import random
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.errors import ConflictError, DuckLakeOrchError
from tests.hostile.cases import chosen
from tests.support.backends import DUCKDB, MYSQL, POSTGRES, SQLITE, catalogs
from tests.support.list_append import ListName, Work, anomalies

TABLES = ("a", "b", "c")
KEYS = (0, 1)
POLICY = MaintenancePolicy.model_validate({"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}})
X, Y = ("a", 0), ("b", 0)


def lists(rows: pa.Table) -> dict[int, list[int]]:
    return {row["k"]: [int(element) for element in row["list"].split()] for row in rows.to_pylist()}


class Histories:
    """Threads that run random transactions, and what these did."""

    def __init__(self, lake: DuckLake, isolation: Any, seed: int) -> None:
        self.works: list[Work] = []
        self.failures: list[BaseException] = []
        self._lake, self._isolation, self._seed = lake, isolation, seed
        self._elements = itertools.count()

    def run(self, threads: int, count: int) -> None:
        for table in TABLES:
            rows = pa.table({"k": KEYS, "list": [""] * len(KEYS)})
            self._lake.write(rows, table, mode="append", partition_by=["k"])
        workers = [threading.Thread(target=self._work, args=(number, count)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert self.failures == []

    def final(self) -> dict[ListName, list[int]]:
        return {(table, key): found for table in TABLES for key, found in lists(self._lake.read(table)).items()}

    def _work(self, thread: int, count: int) -> None:
        rng = random.Random(f"{self._seed} {thread}")
        for number in range(count):
            self.works.append(work := Work(f"{thread}.{number}"))
            try:
                if rng.random() < 0.1:
                    self._lake.maintain(POLICY, operations=[rng.choice(("merge", "rewrite"))])
                else:
                    self._transact(rng, work)
            except DuckLakeOrchError as error:
                if not error.retryable:
                    self.failures.append(error)
            except BaseException as error:
                self.failures.append(error)
                raise

    def _transact(self, rng: random.Random, work: Work) -> None:
        with self._lake.transaction(isolation=self._isolation) as tx:
            for _ in range(rng.choice((2, 3, 4))):
                name = table, key = rng.choice(TABLES), rng.choice(KEYS)
                if rng.random() < 0.5:
                    found = lists(tx.read(table, where=f"k = {key}"))[key]
                    own = work.appends.get(name, [])
                    assert found[len(found) - len(own) :] == own, "a transaction sees what it did"
                    seen = found[: len(found) - len(own)]
                    assert work.reads.setdefault(name, seen) == seen, "a transaction reads the same twice"
                else:
                    work.appends.setdefault(name, []).append(element := next(self._elements))
                    tx.update(table, {"list": f"list || ' {element}'"}, f"k = {key}")
            if rng.random() < 0.1:
                raise ConflictError("the block gives up")
        work.committed = True


def check(lake: DuckLake, isolation: str, threads: int, count: int, seed: int) -> int:
    histories = Histories(lake, isolation, seed)
    histories.run(threads, count)
    assert anomalies(histories.works, histories.final(), isolation) == []
    assert [finding for finding in lake.fsck(deep=True).findings if finding.severity == "error"] == []
    return sum(work.committed for work in histories.works)


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_short_histories_have_no_anomaly(lake: DuckLake, isolation: str) -> None:
    assert check(lake, isolation, threads=3, count=5, seed=1) >= 3


@pytest.mark.soak
@pytest.mark.timeout(7200)
@catalogs(quick=[SQLITE, POSTGRES, DUCKDB, MYSQL])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("seed", chosen(1))
def test_long_histories_have_no_anomaly(lake: DuckLake, isolation: str, seed: int) -> None:
    start = time.monotonic()
    committed = check(lake, isolation, threads=4, count=150, seed=seed)
    kind, seconds = lake.config.catalog.type, time.monotonic() - start
    print(f"\n{kind}, {isolation}, seed {seed}: 600 transactions, {committed} committed, {seconds:.0f} s")
    assert committed >= 100


# Each history is anomalous under these isolations.
ANOMALIES: dict[str, tuple[list[Work], dict[ListName, list[int]], str]] = {
    "lost update": ([Work("1", {X: [1]}, {X: []}, True), Work("2", {X: [2]}, {X: []}, True)], {X: [1, 2]}, "both"),
    "write skew": (
        [Work("1", {X: [1]}, {Y: []}, True), Work("2", {Y: [2]}, {X: []}, True)],
        {X: [1], Y: [2]},
        "serializable",
    ),
    "read skew": (
        [Work("1", {X: [1], Y: [2]}, {}, True), Work("2", {}, {X: [1], Y: []}, True)],
        {X: [1], Y: [2]},
        "both",
    ),
    "effect without cause": (
        [Work("1", {X: [1]}, {}, True), Work("2", {Y: [2]}, {X: [1]}, True), Work("3", {}, {X: [], Y: [2]}, True)],
        {X: [1], Y: [2]},
        "both",
    ),
    "aborted": ([Work("1", {X: [1]})], {X: [1]}, "both"),
    "lost": ([Work("1", {X: [1]}, {}, True)], {X: []}, "both"),
    "a part is read": ([Work("1", {X: [1, 2]}, {}, True), Work("2", {}, {X: [1]}, True)], {X: [1, 2]}, "both"),
    "none": (
        [Work("1", {X: [1]}, {X: []}, True), Work("2", {Y: [2]}, {X: [1]}, True)],
        {X: [1], Y: [2]},
        "neither",
    ),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_the_check_finds_each_anomaly(name: str) -> None:
    works, final, forbidding = ANOMALIES[name]
    assert bool(anomalies(works, final, "snapshot")) == (forbidding == "both")
    assert bool(anomalies(works, final, "serializable")) == (forbidding != "neither")
