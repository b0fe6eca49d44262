"""The operations that two writers can run on one table, as data: how to run them, and the resulting rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake

Row = dict[str, Any]
Rows = list[Row]
# Partitions `x` and `y` each have a file of two rows, one of them deleted in the catalog, and an inlined row.
START: Rows = [{"p": "x", "v": 2}, {"p": "x", "v": 3}, {"p": "y", "v": 5}, {"p": "y", "v": 6}]


def make_table(lake: DuckLake, *, with_engine: bool) -> None:
    """Create the table `t` with the start rows of every pair. The engine inlines and deletes some of them."""
    first = [("x", 1), ("x", 2), ("y", 4), ("y", 5)] if with_engine else [(row["p"], row["v"]) for row in START]
    lake.write(table(*first), "t", mode="append", partition_by=["p"])
    if with_engine:
        lake.execute(["INSERT INTO t VALUES ('x', 3), ('y', 6)", "DELETE FROM t WHERE v IN (1, 4)"]).raise_for_error()


def table(*rows: tuple[str, int], **more: Any) -> pa.Table:
    """Return rows of `t` as an Arrow table."""
    columns = {"p": pa.array([p for p, _ in rows], pa.string()), "v": pa.array([v for _, v in rows], pa.int64())}
    return pa.table(columns | {name: [value] * len(rows) for name, value in more.items()})


@dataclass(frozen=True)
class Operation:
    """An operation on `t`.

    Attributes:
        name: The name in the table of pairs.
        run: Runs the operation.
        then: Returns the rows after the operation.
        kind: The effect on a write that was planned before it: `rows`, `moves` (no rows changed), `layout` (files
            written for the old layout no longer fit), `drop`.
        statements: The SQL of an operation by the engine.
    """

    name: str
    run: Callable[[DuckLake], Any]
    then: Callable[[Rows], Rows]
    kind: str = "rows"
    statements: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def sql(name: str, statements: str | Sequence[str], then: Callable[[Rows], Rows], kind: str = "rows") -> Operation:
    """Return an operation by the engine's SQL."""
    script = (statements,) if isinstance(statements, str) else tuple(statements)
    return Operation(name, lambda lake: lake.execute(script, force=True).raise_for_error(), then, kind, script)


def same(rows: Rows) -> Rows:
    return rows


def without(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if any(row[key] != value for key, value in values.items())]


def plus(*new: Row) -> Callable[[Rows], Rows]:
    return lambda rows: [*rows, *new]


def widened(rows: Rows) -> Rows:
    return [{"w": None} | row for row in rows]


def raised(row: Row) -> Row:
    return row | {"v": row["v"] + 100} if row["p"] == "y" else row


OURS = [
    Operation("append", lambda lake: lake.write(table(("x", 10)), "t", mode="append"), plus({"p": "x", "v": 10})),
    Operation(
        "overwrite", lambda lake: lake.write(table(("y", 11)), "t", mode="overwrite"), lambda _: [{"p": "y", "v": 11}]
    ),
    Operation(
        "overwrite_partitions",
        lambda lake: lake.write(table(("x", 12)), "t", mode="overwrite_partitions"),
        lambda rows: [*without(p="x")(rows), {"p": "x", "v": 12}],
    ),
    Operation(
        "replace_where",
        lambda lake: lake.write(table(("x", 13)), "t", mode="replace_where", where="p = 'x'"),
        lambda rows: [*without(p="x")(rows), {"p": "x", "v": 13}],
    ),
    Operation(
        "append, add a column",
        lambda lake: lake.write(table(("x", 14), w=1), "t", mode="append", schema_evolution="add"),
        lambda rows: [*widened(rows), {"p": "x", "v": 14, "w": 1}],
        kind="layout",
    ),
]
THEIRS = [
    sql("INSERT, inlined", "INSERT INTO t (p, v) VALUES ('x', 20)", plus({"p": "x", "v": 20})),
    sql(
        "INSERT, files",
        "INSERT INTO t (p, v) SELECT 'x', 21 FROM range(20)",
        plus(*[{"p": "x", "v": 21}] * 20),
    ),
    sql("DELETE, inlined", "DELETE FROM t WHERE v = 2", without(v=2)),
    sql("DELETE of a partition", "DELETE FROM t WHERE p = 'x'", without(p="x")),
    sql("UPDATE", "UPDATE t SET v = v + 100 WHERE p = 'y'", lambda rows: [raised(row) for row in rows]),
    sql(
        "MERGE",
        "MERGE INTO t USING (SELECT 'x' AS p, 2 AS v) s USING (p, v) WHEN MATCHED THEN UPDATE SET v = 22"
        " WHEN NOT MATCHED THEN INSERT",
        lambda rows: [row | {"v": 22 if (row["p"], row["v"]) == ("x", 2) else row["v"]} for row in rows],
    ),
    sql("TRUNCATE", "TRUNCATE t", lambda _: []),
    sql("flush", "CALL ducklake_flush_inlined_data('lake')", same, "moves"),
    sql("merge", "CALL ducklake_merge_adjacent_files('lake', 't')", same, "moves"),
    sql(
        "flush and rewrite",
        [
            "CALL ducklake_flush_inlined_data('lake')",
            "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
        ],
        same,
        "moves",
    ),
    sql("expire", "CALL ducklake_expire_snapshots('lake', versions => [1])", same, "moves"),
    sql("COMMENT", "COMMENT ON TABLE t IS 'c'", same, "moves"),
    sql("SET SORTED BY", "ALTER TABLE t SET SORTED BY (v)", same, "moves"),
    sql("SET DEFAULT", "ALTER TABLE t ALTER COLUMN v SET DEFAULT 1", same, "moves"),
    sql("ADD COLUMN", "ALTER TABLE t ADD COLUMN z INTEGER", lambda rows: [row | {"z": None} for row in rows], "layout"),
    sql("SET PARTITIONED BY", "ALTER TABLE t SET PARTITIONED BY (p, v)", same, "layout"),
    sql("DROP", "DROP TABLE t", same, "drop"),
    sql("DROP and CREATE", ["DROP TABLE t", "CREATE TABLE t (p VARCHAR, v BIGINT)"], lambda _: [], "drop"),
]
