"""A worker for soak tests, which changes rows of a shared table at random and models its rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake, LakeConfig
from ducklake_orch.results import WriteResult

# The ids per worker. The ids of workers alternate, so that most files have rows of several workers.
IDS, WORKERS = 40, 8
# The commit message of snapshots that expiry keeps, and how often a worker commits one.
KEPT, _KEPT_EVERY = "keep me", 25
Model = dict[int, int]


class Worker:
    """Changes its own rows at random, and models them.

    Args:
        config: The configuration of the lake.
        number: The remainder of the worker's ids modulo the number of workers.
        seed: The seed of its random choices.
        engine_writes: Whether the engine also changes rows for it.

    Attributes:
        rows: The rows of the worker.
        states: Its rows from a snapshot on. Changes by the engine are missing, as it does not report its snapshot.
        done: How often the worker ran each operation.
    """

    def __init__(self, config: LakeConfig, number: int, seed: int, *, engine_writes: bool = True) -> None:
        self._lake = DuckLake(config)
        self._number = number
        self._rng = Random(f"{seed} {number}")
        self._engine_writes = engine_writes and config.catalog.type != "mysql"
        self._value = 0
        self.rows: Model = {}
        self.states: dict[int, Model] = {}
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
        self._info = CommitInfo(message=KEPT if self._value % _KEPT_EVERY == 0 else None)
        if self._engine_writes:
            steps += [self.engine_delete, self.engine_update, self.engine_insert]
        chosen = self._rng.choice(steps)
        some = [self._number + WORKERS * n for n in self._rng.sample(range(IDS), self._rng.choice((1, 3, 12)))]
        chosen(some, self._value * WORKERS + self._number)
        self.done[chosen.__name__] += 1

    def append(self, some: list[int], value: int) -> None:
        new = [one for one in some if one not in self.rows]
        inline = self._rng.choice(("never", "auto"))
        done = self._lake.write(_table(new, value), "t", mode="append", inline=inline, commit=self._info)
        self.rows |= dict.fromkeys(new, value)
        self._note(done)

    def delete(self, some: list[int], value: int) -> None:
        gone = self._there(some)
        done = self._lake.delete("t", _ids(some), commit=self._info)
        assert done.rows_removed == len(gone)
        self._forget(gone)
        self._note(done)

    def update(self, some: list[int], value: int) -> None:
        there = self._there(some)
        done = self._lake.update("t", {"v": str(value)}, _ids(some), commit=self._info)
        assert done.rows_written == len(there)
        self.rows |= dict.fromkeys(there, value)
        self._note(done)

    def merge(self, some: list[int], value: int) -> None:
        done = self._lake.write(_table(some, value), "t", mode="merge", keys=["id"], commit=self._info)
        self.rows |= dict.fromkeys(some, value)
        self._note(done)

    def replace(self, some: list[int], value: int) -> None:
        kept = some[::2]
        done = self._lake.write(_table(kept, value), "t", mode="replace_where", where=_ids(some), commit=self._info)
        self._forget(self._there(some))
        self.rows |= dict.fromkeys(kept, value)
        self._note(done)

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

    def _note(self, done: WriteResult) -> None:
        self.states[done.snapshot_id] = dict(self.rows)

    def _there(self, some: list[int]) -> list[int]:
        return [one for one in some if one in self.rows]

    def _forget(self, some: list[int]) -> None:
        for one in some:
            del self.rows[one]


def _table(ids: list[int], value: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids), pa.int64())})


def _ids(some: list[int]) -> str:
    return f"id IN ({', '.join(map(str, some))})"


def rows_by_id(table: pa.Table) -> Model:
    """Return the rows of a table by id, and check that each id occurs once."""
    found = dict(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))
    assert len(found) == table.num_rows, "an id comes twice"
    return found


def state_at(workers: Sequence[dict[int, Model]], snapshot: int) -> Model:
    """Return the rows of all workers at a snapshot, from their recorded states."""
    found: Model = {}
    for states in workers:
        then = [state for state in states if state <= snapshot]
        found |= states[max(then)] if then else {}
    return found
