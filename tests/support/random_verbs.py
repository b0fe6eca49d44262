"""Random changes of three small tables, each with what it does to the rows of a model."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TABLES = ("a", "b", "c")
PARTITIONS = 3
# Rows of one table, by id: the partition and a value.
Rows = dict[int, tuple[int, int]]
Effect = Callable[[Rows], Rows]


@dataclass(frozen=True)
class Verb:
    """A verb on one table, and what it does to the rows of the model.

    Attributes:
        ids: The ids of the rows that it adds.
        keyed: Whether the verb takes an idempotency key.
    """

    table: str
    run: Callable[[Any], object]
    effect: Effect
    ids: tuple[int, ...] = ()
    keyed: bool = True


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


def delete_effect(rest: int, part: int) -> Effect:
    """Return what `DELETE … WHERE id % 4 = rest AND p = part` does."""
    return lambda rows: {key: row for key, row in rows.items() if key % 4 != rest or row[0] != part}


def update_effect(part: int) -> Effect:
    """Return what `UPDATE … SET v = v + 1 WHERE p = part` does."""
    return lambda rows: {key: (row[0], row[1] + (row[0] == part)) for key, row in rows.items()}


def random_verb(rng: random.Random, ids: Ids) -> Verb:
    table, part = rng.choice(TABLES), rng.randrange(PARTITIONS)
    kind = rng.choice(("append", "append", "partitions", "where", "delete", "update", "merge", "truncate", "alter"))
    if kind == "alter":
        comment, column = f"comment {rng.randrange(100)}", rng.choice(("id", "v"))
        change = {"comment": comment, "sort_by": [column]}
        return Verb(table, lambda lake: lake.alter_table(table, **change), lambda rows: rows, keyed=False)
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
            delete_effect(rest, part),
        )
    if kind == "update":
        return Verb(
            table,
            lambda lake: lake.update(table, {"v": "v + 1"}, f"p = {part}"),
            update_effect(part),
        )
    if kind == "merge":
        known = rng.sample(ids.committed, min(3, len(ids.committed)))
        new = ids.rows(rng) | {key: (part, rng.randrange(100)) for key in known}
        return Verb(table, lambda lake: lake.merge(frame(new), table, ["id"]), lambda rows: rows | new)
    if rng.random() < 0.8:
        return random_verb(rng, ids)
    return Verb(table, lambda lake: lake.truncate(table), lambda rows: {}, keyed=False)
