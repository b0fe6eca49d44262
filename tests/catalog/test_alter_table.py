"""`alter_table` compared with the engine's own ALTER, alone, in transactions and in stages."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.errors import ConfigError, ConflictError, ObjectNotFoundError
from tests.support.backends import DUCKDB, MYSQL, POSTGRES, SQLITE, catalogs

ROWS = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"], "n": pa.array([1, 2, None], pa.int32())})

# The arguments of `alter_table`, and the engine's statements that do the same.
ALTERATIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "add": ({"add_columns": {"note": "VARCHAR"}}, ["ALTER TABLE {} ADD COLUMN note VARCHAR"]),
    "add nested": (
        {"add_columns": {"s": "STRUCT(a INTEGER, b VARCHAR[])"}},
        ["ALTER TABLE {} ADD COLUMN s STRUCT(a INTEGER, b VARCHAR[])"],
    ),
    "add with default": (
        {"add_columns": {"k": "DECIMAL(9,2)"}, "set_defaults": {"k": 1.5}},
        ["ALTER TABLE {} ADD COLUMN k DECIMAL(9,2) DEFAULT 1.50"],
    ),
    "drop": ({"drop_columns": ["n"]}, ["ALTER TABLE {} DROP COLUMN n"]),
    "rename": ({"rename_columns": {"n": "m"}}, ["ALTER TABLE {} RENAME n TO m"]),
    "swap names": (
        {"rename_columns": {"n": "id", "id": "n"}},
        ["ALTER TABLE {} RENAME n TO x", "ALTER TABLE {} RENAME id TO n", "ALTER TABLE {} RENAME x TO id"],
    ),
    "change a type": ({"change_types": {"n": "BIGINT"}}, ["ALTER TABLE {} ALTER n TYPE BIGINT"]),
    "set a default": ({"set_defaults": {"n": 7}}, ["ALTER TABLE {} ALTER n SET DEFAULT 7"]),
    "partition": ({"partition_by": ["region", "id"]}, ["ALTER TABLE {} SET PARTITIONED BY (region, id)"]),
    "sort": ({"sort_by": ["id desc"]}, ["ALTER TABLE {} SET SORTED BY (id DESC)"]),
    "comments": (
        {"comment": "it's ours", "column_comments": {"id": "the key"}},
        ["COMMENT ON TABLE {} IS 'it''s ours'", "COMMENT ON COLUMN {}.id IS 'the key'"],
    ),
    "several at once": (
        {
            "drop_columns": ["n"],
            "rename_columns": {"region": "place"},
            "add_columns": {"n": "DOUBLE"},
            "partition_by": ["place"],
        },
        [
            "ALTER TABLE {} DROP COLUMN n",
            "ALTER TABLE {} RENAME region TO place",
            "ALTER TABLE {} ADD COLUMN n DOUBLE",
            "ALTER TABLE {} SET PARTITIONED BY (place)",
        ],
    ),
}  # fmt: skip

# Ways to run the verb. Each makes one snapshot.
WAYS: dict[str, Callable[[DuckLake, str, dict[str, Any]], object]] = {
    "alone": lambda lake, table, arguments: lake.alter_table(table, **arguments),
    "transaction": lambda lake, table, arguments: _in_transaction(lake, table, arguments),
    "stage": lambda lake, table, arguments: _in_stage(lake, table, arguments),
}


def _in_transaction(lake: DuckLake, table: str, arguments: dict[str, Any]) -> None:
    with lake.transaction() as tx:
        tx.alter_table(table, **arguments)


def _in_stage(lake: DuckLake, table: str, arguments: dict[str, Any]) -> None:
    stage = lake.stage("alter")
    stage.alter_table(table, **arguments)
    stage.publish()


def described(lake: DuckLake, table: str) -> dict[str, object]:
    """Return everything that readers see of a table, by DuckDB and by ducklake-orch."""
    with lake.connect(read_only=True) as con:
        found = {
            "columns": con.execute(f"DESCRIBE {table}").fetchall(),
            "rows": con.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall(),
            "comment": con.execute(f"SELECT comment FROM duckdb_tables() WHERE table_name = '{table}'").fetchall(),
            "comments": con.execute(
                f"SELECT column_name, comment FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
            ).fetchall(),
        }
    schema = [(c.name, c.type, c.nullable, c.partition, c.comment) for c in lake.table(table).schema()]
    return found | {"schema": schema, "read": lake.read(table).sort_by("id").to_pylist()}


CASES = [(what, "alone") for what in ALTERATIONS]
CASES += [(what, way) for what in ("several at once", "partition", "comments") for way in ("transaction", "stage")]


@pytest.mark.parametrize(("what", "way"), CASES)
@catalogs(quick=[SQLITE])
def test_a_table_is_altered_as_the_engine_alters_it(lake: DuckLake, what: str, way: str) -> None:
    arguments, statements = ALTERATIONS[what]
    for table in ("ours", "theirs"):
        lake.write(ROWS, table, mode="error")
    before = lake.snapshots(limit=1)[0].snapshot_id
    WAYS[way](lake, "ours", arguments)
    assert lake.snapshots(limit=1)[0].snapshot_id == before + 1
    for statement in statements:
        lake.execute(statement.format("theirs"))
    assert described(lake, "ours") == described(lake, "theirs")
    insert = {"id": 4, "region": "us"} if what not in ("several at once", "swap names") else {"id": 4}
    for table in ("ours", "theirs"):  # by the engine, with defaults
        lake.execute(
            f"INSERT INTO {table} ({', '.join(insert)}) VALUES {tuple(insert.values()) if len(insert) > 1 else '(4)'}"
        )
    assert described(lake, "ours") == described(lake, "theirs")
    later = lake.read("ours")
    for table in ("ours", "theirs"):
        lake.write(later, table, mode="append")
    assert described(lake, "ours") == described(lake, "theirs")
    files = [sorted(str(file.partition) for file in lake.table(table).files()) for table in ("ours", "theirs")]
    assert files[0] == files[1]
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE, DUCKDB, POSTGRES, MYSQL])
def test_every_catalog_alters_tables_with_inlined_rows_and_deletions(lake: DuckLake) -> None:
    lake.create_table("t", {"id": "BIGINT NOT NULL", "v": "INTEGER", "old": "VARCHAR"})
    lake.alter_table("t", comment="before")
    for ids, inline in (([1, 2], "auto"), ([3, 4], "never")):
        values = pa.array([number * 10 for number in ids], pa.int32())
        lake.write(pa.table({"id": ids, "v": values, "old": ["a", "b"]}), "t", mode="append", inline=inline)
    on_mysql = lake.config.catalog.type == "mysql"  # where a table made by the engine inlines no rows of ours
    assert lake.table("t").stats().inlined_rows == (0 if on_mysql else 2)
    lake.delete("t", "id IN (2, 4)")
    result = lake.alter_table(
        "t",
        drop_columns=["old"],
        rename_columns={"v": "value"},
        change_types={"value": "BIGINT"},
        add_columns={"at": "TIMESTAMP"},
        set_defaults={"at": "2024-05-01 12:00:00"},
        allow_nulls=["id"],
        partition_by=["day(at)"],
        comment="",
        column_comments={"value": "in cents"},
        commit=CommitInfo(author="ann"),
    )
    assert (result.mode, lake.snapshots(limit=1)[0].author) == ("alter", "ann")
    assert [(c.name, c.type, c.nullable, c.comment) for c in lake.table("t").schema()] == [
        ("id", "BIGINT", True, None),
        ("value", "BIGINT", True, "in cents"),
        ("at", "TIMESTAMP", True, None),
    ]
    with lake.connect(read_only=True) as con:
        rows = con.execute('SELECT id, value, t."at"::VARCHAR FROM t ORDER BY id').fetchall()
    assert rows == [(1, 10, "2024-05-01 12:00:00"), (3, 30, "2024-05-01 12:00:00")]
    lake.write(pa.table({"id": pa.array([None], pa.int64())}), "t", mode="append", inline="auto")
    lake.maintain(operations=["flush"])
    assert lake.table("t").count() == 3
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_verbs_of_a_transaction_see_what_earlier_verbs_altered(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="error", partition_by=["region"])
    before = lake.snapshots(limit=1)[0].snapshot_id
    with lake.transaction() as tx:
        tx.write(pa.table({"id": [4], "region": ["asia"], "n": pa.array([4], pa.int32())}), "t", mode="append")
        tx.alter_table("t", rename_columns={"n": "m"}, change_types={"m": "BIGINT"}, partition_by=["m"])
        tx.write(pa.table({"id": [5], "region": ["eu"], "m": [5]}), "t", mode="append")
        tx.update("t", {"region": "'x'"}, "m = 5")
        tx.delete("t", "id = 1")
        tx.write(pa.table({"id": [6], "region": ["us"], "m": [2]}), "t", mode="overwrite_partitions")
        tx.alter_table("t", add_columns={"note": "VARCHAR"}, comment="by m")
        assert tx.read("t").num_rows == 4
    assert lake.snapshots(limit=1)[0].snapshot_id == before + 1
    rows = {row["id"]: (row["region"], row["m"], row["note"]) for row in lake.read("t").to_pylist()}
    assert rows == {3: ("eu", None, None), 4: ("asia", 4, None), 5: ("x", 5, None), 6: ("us", 2, None)}
    keys = {partition.values["m"] for partition in lake.table("t").partitions()}
    assert keys == {None, "2", "4", "5"}
    assert lake.fsck(deep=True).findings == []


Verb = Callable[[Any], object]

# What a transaction does, what is committed concurrently, and the conflict, if it is one.
CONCURRENT: dict[str, tuple[Verb, Verb, str | None]] = {
    "keys and columns": (
        lambda tx: tx.alter_table("t", partition_by=["region"]),
        lambda lake: lake.alter_table("t", add_columns={"x": "INTEGER"}),
        "The columns or partition keys",
    ),
    "a name and a default": (
        lambda tx: tx.alter_table("t", rename_columns={"n": "m"}),
        lambda lake: lake.alter_table("t", set_defaults={"n": 3}),
        "The column `n`",
    ),
    "a name and sort keys": (
        lambda tx: tx.alter_table("t", rename_columns={"n": "m"}),
        lambda lake: lake.alter_table("t", sort_by=["n"]),
        "The sort keys",
    ),
    "a new column and sort keys": (
        lambda tx: tx.alter_table("t", add_columns={"x": "INTEGER"}),
        lambda lake: lake.alter_table("t", sort_by=["n"]),
        None,
    ),
    "a deletion between names and rows that it would delete": (
        lambda tx: [
            tx.alter_table("t", rename_columns={"id": "n", "n": "id"}),
            tx.delete("t", "id = 2 OR id = 10"),
            tx.alter_table("t", rename_columns={"id": "n", "n": "id"}),
        ],
        lambda lake: lake.write(pa.table({"id": [4], "n": pa.array([10], pa.int32())}), "t", mode="append"),
        "it added the file",
    ),
    "a comment and rows": (
        lambda tx: tx.alter_table("t", comment="c", sort_by=["id"]),
        lambda lake: lake.write(ROWS, "t", mode="append"),
        None,
    ),
    "keys and rows": (
        lambda tx: tx.alter_table("t", partition_by=["region"]),
        lambda lake: lake.write(ROWS, "t", mode="append"),
        None,
    ),
    "rows and a dropped column": (
        lambda tx: tx.write(ROWS, "t", mode="append"),
        lambda lake: lake.alter_table("t", drop_columns=["n"]),
        "The columns or partition keys",
    ),
    "rows and a comment": (
        lambda tx: tx.write(ROWS, "t", mode="append"),
        lambda lake: lake.alter_table("t", comment="c", set_defaults={"n": 3}),
        None,
    ),
}


@pytest.mark.parametrize("what", CONCURRENT)
@catalogs(quick=[SQLITE])
def test_altering_conflicts_with_what_depends_on_the_old_definition(lake: DuckLake, what: str) -> None:
    inside, concurrent, conflict = CONCURRENT[what]
    lake.write(ROWS, "t", mode="error")
    with nullcontext() if conflict is None else pytest.raises(ConflictError, match=conflict), lake.transaction() as tx:
        inside(tx)
        concurrent(lake)
    snapshots = [snapshot.snapshot_id for snapshot in lake.snapshots()]
    assert max(snapshots) == 2 + (conflict is None)
    assert lake.fsck(deep=True).findings == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Nothing to change"),
        ({"drop_columns": ["idd"]}, "no column `idd`. Did you mean `id`"),
        ({"drop_columns": ["id", "region", "n"]}, "would have no column"),
        ({"drop_columns": ["region"]}, "`region` is a partition key"),
        ({"rename_columns": {"n": "ID"}}, "has a column `ID` already"),
        ({"rename_columns": {"id": "x"}}, "is sorted by `id`"),
        ({"drop_columns": ["ID"]}, "is sorted by `id`"),
        ({"drop_columns": "n"}, "is not a list"),
        ({"set_defaults": {"region": "NULL"}}, "cannot be the text NULL"),
        ({"add_columns": {"n": "INTEGER"}}, "has a column `n` already"),
        ({"add_columns": {"x": "INTEGER NOT NULL"}}, "NOT NULL"),
        ({"add_columns": {"x": "INTEGR"}}, "a type that DuckDB does not know"),
        ({"change_types": {"n": "SMALLINT"}}, "`n` is INTEGER and cannot become SMALLINT. It can become BIGINT"),
        ({"change_types": {"region": "INTEGER"}}, "`region` is VARCHAR and cannot become INTEGER"),
        ({"set_defaults": {"n": "many"}}, "'many' cannot be the default of `n`, which is INTEGER"),
        ({"partition_by": ["yeer(n)"]}, "Unknown transform"),
        ({"partition_by": ["bucket(4, n)"]}, "has files"),
        ({"sort_by": ["nn +"]}, "neither a column nor an expression"),
        ({"sort_by": ["nn"]}, "uses `nn`, which is not a column"),
        ({"sort_by": ["abs(id + nn)"]}, "uses `nn`, which is not a column"),
        ({"allow_nulls": ["zz"]}, "no column `zz`"),
        ({"rename_columns": {"n": 5}}, "5 is not a text"),
        ({"drop_columns": [1]}, "1 is not a text"),
    ],
)  # fmt: skip
@catalogs(quick=[SQLITE])
def test_what_cannot_be_altered_is_refused_with_the_way_on(
    lake: DuckLake, arguments: dict[str, Any], message: str
) -> None:
    lake.write(ROWS, "t", mode="ignore", partition_by=["region"], sort_by=["id"])
    before = lake.snapshots(limit=1)[0].snapshot_id
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace("+", r"\+")):
        lake.alter_table("t", **arguments)
    assert lake.snapshots(limit=1)[0].snapshot_id == before


@catalogs(quick=[SQLITE])
def test_a_column_whose_field_is_a_sort_key_is_not_dropped(lake: DuckLake) -> None:
    lake.write(pa.table({"id": [1], "s": [{"a": 1}]}), "t", mode="error", sort_by=["s.a"])
    with pytest.raises(ConfigError, match="is sorted by `s`"):
        lake.alter_table("t", drop_columns=["s"])
    lake.alter_table("t", drop_columns=["s"], sort_by=["id"])
    lake.write(pa.table({"id": [2]}), "t", mode="append")
    assert lake.table("t").count() == 2


@catalogs(quick=[SQLITE])
def test_a_replacement_between_changes_of_keys_replaces_what_it_did_in_the_transaction(lake: DuckLake) -> None:
    lake.write(pa.table({"id": [1, 2, 3], "a": [1, 2, 3], "b": [3, 2, 1]}), "t", mode="error", partition_by=["a"])
    with lake.transaction() as tx:
        tx.alter_table("t", partition_by=["b"])
        tx.write(pa.table({"id": [9], "a": [7], "b": [1]}), "t", mode="overwrite_partitions")
        tx.alter_table("t", partition_by=["a"])
    assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2, 9]
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_missing_table_is_named(lake: DuckLake) -> None:
    lake.write(ROWS, "orders", mode="error")
    with pytest.raises(ObjectNotFoundError, match="order"):
        lake.alter_table("order", comment="x")
