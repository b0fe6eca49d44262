"""Steps that change a table in every way, and the rows that the engine reads afterwards."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake

State = dict[int, tuple[Any, ...]]
_FLUSH = "CALL ducklake_flush_inlined_data('lake')"
COMMON = [
    "INSERT INTO t (k, v) SELECT range, 'row ' || range FROM range({n}, {n} + 40)",
    "INSERT INTO t (k, v) VALUES ({n}, 'é'), ({n} + 1, NULL), ({n} + 2, 'NULL')",
    "DELETE FROM t WHERE k % 7 = {m}",
    "DELETE FROM t WHERE k BETWEEN {n} - 20 AND {n} - 18",
    "DELETE FROM t WHERE k < {n} - 60",
    _FLUSH,
    # Flushed right before, because the engine's flush would write a second delete file for a rewritten file.
    f"{_FLUSH}; CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
    "BEGIN; INSERT INTO t (k, v) VALUES ({n} + 50, 'gone'); DELETE FROM t WHERE k = {n} + 50 OR k = {n}; COMMIT",
    "append",
    "inline",
    "replace",
]
UPDATES = [
    "UPDATE t SET v = v || '!' WHERE k % 5 = {m}",
    "UPDATE t SET v = 'one' WHERE k = {n} - 3",
    "UPDATE t SET v = v WHERE k % 3 = 0",
    "our delete",
    "our update",
    "our merge",
]
# The engine's merge drops the row ids of updated rows.
MERGES = ["CALL ducklake_merge_adjacent_files('lake')"]


def step(lake: DuckLake, change: str, n: int, m: int) -> None:
    match change:
        case "append":
            lake.write(rows_of((n, "ours"), (n + 1, None)), "t", mode="append")
        case "inline":
            lake.write(rows_of((n, "few"), (n + 1, "NULL")), "t", mode="append", inline="auto")
        case "replace":
            lake.write(rows_of((n, "replaced")), "t", mode="overwrite")
        case "our delete":
            lake.delete("t", f"k % 6 = {m}")
        case "our update":
            lake.update("t", {"v": "v || '?'"}, f"k % 4 = {m}")
        case "our merge":
            lake.write(rows_of((n - 10, "merged"), (n + 3, "new")), "t", mode="merge", keys=["k"])
        case _:
            run(lake, *change.format(n=n, m=m).split("; "))


def replay(rows: State, changes: Iterable[Sequence[Any]]) -> None:
    """Apply changes to the rows of a table, by row id; each is a snapshot, a row id, a kind, and values."""
    order = ("delete", "update_preimage", "update_postimage", "insert")
    for change in sorted(changes, key=lambda change: (change[0], order.index(change[2]))):
        _, row_id, kind, *values = change
        if kind in ("delete", "update_preimage"):
            assert rows.pop(row_id, None) == tuple(values), change
        else:
            assert row_id not in rows, change
            rows[row_id] = tuple(values)


def run(lake: DuckLake, *statements: str) -> None:
    lake.execute(list(statements), force=True).raise_for_error()


def latest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def rows_of(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.string())})


def state(lake: DuckLake, columns: str = "*") -> State:
    """Return the rows that the engine reads now, by their row ids."""
    with lake.connect() as con:
        return {row[0]: row[1:] for row in con.execute(f"SELECT rowid, {columns} FROM t").fetchall()}
