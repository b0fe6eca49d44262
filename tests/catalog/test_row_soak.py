"""Processes change rows that share files, by us and by the engine, beside maintenance: none is lost or comes twice."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.engine.session import open_session
from tests.backends import POSTGRES, SQLITE, catalogs
from tests.conftest import MakeLake

# Workers have so many ids each, one beside the other, so that rows of several lie in most files.
_IDS, _WORKERS = 40, 8
Model = dict[int, int]


class Worker:
    """Changes its own rows at random, and knows what they are.

    Args:
        config: The lake.
        number: Its ids are those that leave this number when divided by the number of workers.
        seed: What its choices come from.
    """

    def __init__(self, config: LakeConfig, number: int, seed: int) -> None:
        self._lake = DuckLake(config)
        self._number = number
        self._rng = Random(f"{seed} {number}")
        self._engine_writes = config.catalog.type != "mysql"
        self._value = 0
        self.rows: Model = {}
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """Change some rows."""
        self._value += 1
        steps: list[Callable[[list[int], int], None]] = [
            self.append,
            self.delete,
            self.update,
            self.merge,
            self.replace,
        ]
        if self._engine_writes:
            steps += [self.engine_delete, self.engine_update, self.engine_insert]
        chosen = self._rng.choice(steps)
        some = [self._number + _WORKERS * n for n in self._rng.sample(range(_IDS), self._rng.choice((1, 3, 12)))]
        chosen(some, self._value * _WORKERS + self._number)
        self.done[chosen.__name__] += 1

    def append(self, some: list[int], value: int) -> None:
        new = [one for one in some if one not in self.rows]
        self._lake.write(_table(new, value), "t", mode="append", inline=self._rng.choice(("never", "auto")))
        self.rows |= dict.fromkeys(new, value)

    def delete(self, some: list[int], value: int) -> None:
        gone = self._there(some)
        assert self._lake.delete("t", _ids(some)).rows_removed == len(gone)
        self._forget(gone)

    def update(self, some: list[int], value: int) -> None:
        there = self._there(some)
        assert self._lake.update("t", {"v": str(value)}, _ids(some)).rows_written == len(there)
        self.rows |= dict.fromkeys(there, value)

    def merge(self, some: list[int], value: int) -> None:
        self._lake.write(_table(some, value), "t", mode="merge", keys=["id"])
        self.rows |= dict.fromkeys(some, value)

    def replace(self, some: list[int], value: int) -> None:
        kept = some[::2]
        self._lake.write(_table(kept, value), "t", mode="replace_where", where=_ids(some))
        self._forget(self._there(some))
        self.rows |= dict.fromkeys(kept, value)

    def engine_delete(self, some: list[int], value: int) -> None:
        self._run(f"DELETE FROM t WHERE {_ids(some)}")
        self._forget(self._there(some))

    def engine_update(self, some: list[int], value: int) -> None:
        self._run(f"UPDATE t SET v = {value} WHERE {_ids(some)}")
        self.rows |= dict.fromkeys(self._there(some), value)

    def engine_insert(self, some: list[int], value: int) -> None:
        new = [one for one in some if one not in self.rows]
        if new:
            self._run(f"INSERT INTO t VALUES {', '.join(f'({one}, {value})' for one in new)}")
            self.rows |= dict.fromkeys(new, value)

    def _run(self, sql: str) -> None:
        self._lake.execute(sql).raise_for_error()

    def _there(self, some: list[int]) -> list[int]:
        return [one for one in some if one in self.rows]

    def _forget(self, some: list[int]) -> None:
        for one in some:
            del self.rows[one]


def _table(ids: list[int], value: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids), pa.int64())})


def _ids(some: list[int]) -> str:
    return f"id IN ({', '.join(map(str, some))})"


def work(config: LakeConfig, number: int, seed: int, seconds: float) -> tuple[Model, Counter[str]]:
    """Change rows for so long; return what they are then, and what was done how often."""
    worker, end = Worker(config, number, seed), time.monotonic() + seconds
    while time.monotonic() < end:
        worker.step()
    return worker.rows, worker.done


def maintain(config: LakeConfig, stop: Any) -> int:
    """Flush, rewrite and merge until told to stop, by us and by the engine; return how often."""
    lake, times = DuckLake(config), 0
    policy = MaintenancePolicy.model_validate({"rewrite": {"delete_threshold": 0.1}, "merge": {"min_files": 2}})
    while not stop.is_set():
        report = lake.maintain(policy)
        assert report.status == "ok", str(report)
        if config.catalog.type != "mysql":  # the engine cannot do it there
            # Rows deleted in the catalog between a flush and a rewrite would make the engine spoil the past.
            with open_session(config) as session, session.queue("maintenance"):
                session.con.execute("CALL ducklake_flush_inlined_data('lake', table_name => 't')")
                session.con.execute("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)")
            lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
        times += 1
        time.sleep(0.5)
    return times


def soak(lake: DuckLake, seconds: float, seed: int = 1) -> None:
    lake.execute("CREATE TABLE t (id BIGINT, v BIGINT)").raise_for_error()
    start = lake.snapshots(limit=1)[0].snapshot_id
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(_WORKERS + 1) as pool:
        stop = manager.Event()
        upkeep = pool.apply_async(maintain, (lake.config, stop))
        run = partial(work, lake.config, seed=seed, seconds=seconds)
        try:
            found = pool.map(run, range(_WORKERS), chunksize=1)
        finally:
            stop.set()
        times = upkeep.get()
    done = sum((counts for _, counts in found), Counter[str]())
    print(f"\n{lake.config.catalog.type}, seed {seed}: {dict(sorted(done.items()))}, maintained {times} times")
    rows = {id_: value for model, _ in found for id_, value in model.items()}
    assert _rows(lake.read("t")) == rows
    assert {one["id"]: one["v"] for one in lake.execute("FROM t", max_rows=None).rows} == rows
    assert lake.table("t").count() == len(rows)
    assert _fed(lake, start) == rows
    assert lake.fsck(deep=True, storage=True).findings == []


def _rows(table: pa.Table) -> Model:
    found = dict(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))
    assert len(found) == table.num_rows, "an id comes twice"
    return found


def _fed(lake: DuckLake, start: int) -> Model:
    """What the change feed makes of an empty table."""
    rows: Model = {}
    changes = lake.changes("t", start).sort_by([("snapshot_id", "ascending")]).to_pylist()
    for one in sorted(changes, key=lambda one: (one["snapshot_id"], one["change_type"] not in _GOING)):
        if one["change_type"] in _GOING:
            assert rows.pop(one["id"]) == one["v"], one
        else:
            assert one["id"] not in rows, one
            rows[one["id"]] = one["v"]
    return rows


_GOING = ("delete", "update_preimage")


@catalogs(quick=[SQLITE, POSTGRES])
def test_rows_that_share_files_change_side_by_side(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 12)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@catalogs()
def test_rows_that_share_files_change_side_by_side_for_minutes(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 300)
