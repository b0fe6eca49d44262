"""A worker for soak tests, which changes rows of a shared table at random and models its rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake, LakeConfig
from ducklake_orch.results import WriteResult

# The ids per worker. The ids of workers alternate, so that most files have rows of several workers.
IDS, WORKERS = 40, 8
# The commit message of snapshots that expiry keeps, and how often a worker commits such a snapshot.
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
        """Change some of the rows."""
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
        ids = [self._number + WORKERS * n for n in self._rng.sample(range(IDS), self._rng.choice((1, 3, 12)))]
        chosen(ids, self._value * WORKERS + self._number)
        self.done[chosen.__name__] += 1

    def append(self, ids: list[int], value: int) -> None:
        new = [id_ for id_ in ids if id_ not in self.rows]
        inline = self._rng.choice(("never", "auto"))
        result = self._lake.write(_table(new, value), "t", mode="append", inline=inline, commit=self._info)
        self.rows |= dict.fromkeys(new, value)
        self._record(result)

    def delete(self, ids: list[int], value: int) -> None:
        existing = self._existing(ids)
        result = self._lake.delete("t", _condition(ids), commit=self._info)
        assert result.rows_removed == len(existing)
        self._remove(existing)
        self._record(result)

    def update(self, ids: list[int], value: int) -> None:
        existing = self._existing(ids)
        result = self._lake.update("t", {"v": str(value)}, _condition(ids), commit=self._info)
        assert result.rows_written == len(existing)
        self.rows |= dict.fromkeys(existing, value)
        self._record(result)

    def merge(self, ids: list[int], value: int) -> None:
        result = self._lake.write(_table(ids, value), "t", mode="merge", keys=["id"], commit=self._info)
        self.rows |= dict.fromkeys(ids, value)
        self._record(result)

    def replace(self, ids: list[int], value: int) -> None:
        kept = ids[::2]
        result = self._lake.write(
            _table(kept, value), "t", mode="replace_where", where=_condition(ids), commit=self._info
        )
        self._remove(self._existing(ids))
        self.rows |= dict.fromkeys(kept, value)
        self._record(result)

    def engine_delete(self, ids: list[int], value: int) -> None:
        self._run(f"DELETE FROM t WHERE {_condition(ids)}")
        self._remove(self._existing(ids))

    def engine_update(self, ids: list[int], value: int) -> None:
        self._run(f"UPDATE t SET v = {value} WHERE {_condition(ids)}")
        self.rows |= dict.fromkeys(self._existing(ids), value)

    def engine_insert(self, ids: list[int], value: int) -> None:
        new = [id_ for id_ in ids if id_ not in self.rows]
        if new:
            self._run(f"INSERT INTO t VALUES {', '.join(f'({id_}, {value})' for id_ in new)}")
            self.rows |= dict.fromkeys(new, value)

    def _run(self, sql: str) -> None:
        self._lake.execute(sql).raise_for_error()

    def _record(self, result: WriteResult) -> None:
        self.states[result.snapshot_id] = dict(self.rows)

    def _existing(self, ids: list[int]) -> list[int]:
        return [id_ for id_ in ids if id_ in self.rows]

    def _remove(self, ids: list[int]) -> None:
        for id_ in ids:
            del self.rows[id_]


def _table(ids: list[int], value: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids), pa.int64())})


def _condition(ids: list[int]) -> str:
    return f"id IN ({', '.join(map(str, ids))})"


def rows_by_id(table: pa.Table) -> Model:
    """Return the rows of a table by id, and check that each id occurs once."""
    rows = dict(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))
    assert len(rows) == table.num_rows, "an id occurs twice"
    return rows


def state_at(workers: Sequence[dict[int, Model]], snapshot: int) -> Model:
    """Return the rows of all workers at a snapshot, from their recorded states."""
    rows: Model = {}
    for states in workers:
        earlier = [recorded for recorded in states if recorded <= snapshot]
        rows |= states[max(earlier)] if earlier else {}
    return rows
