"""A lake whose catalog has every kind of row, and damage to one of these rows."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_orch import DuckLake

Rows = list[tuple[Any, ...]]
TABLES = ("t", "p", "i", "a")
_VALUES: list[Any] = [
    *(
        None,
        "",
        " ",
        "x",
        "NULL",
        "nan",
        "'",
        '"',
        "a'b\"c;--",
        "../../x",
        "/etc/passwd",
        "é\0",
        "1,2",
        "{",
        "[]",
        "true",
    ),
    *(-1, 0, 1, 2, 3, 7, 99, 2**31, 2**53, 2**63 - 1, -(2**63), 0.5, float("inf"), b"", b"\xff\xfe", b"1", "1", "1.5"),
    *(
        "9" * 400,
        "x" * 5000,
        "1970-01-01 00:00:00+00",
        "9999-12-31 00:00:00",
        "int32",
        "list",
        "struct",
        "decimal(99,99)",
    ),
]


def rows(*keys: int) -> pa.Table:
    texts, parts = [f"v{key}" for key in keys], [key % 3 for key in keys]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": texts, "part": pa.array(parts, pa.int32())})


def make_lake(folder: Path) -> DuckLake:
    """Create a lake with partitions, delete files, vectors, inlined rows, name mappings, tags and stages."""
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    for start in (0, 10, 20):
        lake.write(rows(*range(start, start + 10)), "t", mode="append", sort_by=["k"] if start == 0 else None)
    lake.delete("t", "k IN (3, 14)")
    lake.write(rows(*range(12)), "p", mode="append", partition_by=["part", "bucket(4, k)"])
    lake.update("p", {"v": "'changed'"}, "k = 4")
    lake.write(rows(1, 2, 3), "i", mode="append", inline="auto")
    lake.execute(["CALL ducklake_set_option('lake', 'data_inlining_row_limit', 10)"]).raise_for_error()
    lake.write(rows(4, 5), "i", mode="append", inline="auto")
    lake.delete("i", "k = 2")
    lake.create_table("a", pa.schema([("k", pa.int64()), ("v", pa.string()), ("part", pa.int32())]))
    pq.write_table(rows(*range(5)), folder / "added.parquet")
    lake.add_files("a", [folder / "added.parquet"], copy=True)
    lake.alter_table("a", add_columns={"s": "STRUCT(x INTEGER, y INTEGER[])", "n": "INTEGER"}, set_defaults={"n": 7})
    lake.execute(
        [
            "CREATE VIEW w AS SELECT k FROM t",
            "CREATE MACRO m(x) AS x + 1",
            "COMMENT ON TABLE t IS 'rows'",
            "COMMENT ON COLUMN t.k IS 'key'",
            "CREATE SCHEMA other",
            "CREATE TABLE other.gone (x INTEGER)",
            "INSERT INTO other.gone SELECT * FROM range(30)",
            "DROP TABLE other.gone",
        ]
    ).raise_for_error()
    lake.tag("good")
    lake.set_option("parquet_compression", "zstd", table="t")
    lake.stage("waiting").write(rows(500), "t", mode="append")
    lake.write(rows(*range(100, 105)), "t", mode="append", idempotency_key="once")
    return lake


def history(lake: DuckLake, snapshots: list[int]) -> dict[tuple[int, str], Rows]:
    """Return the rows of the tables at each snapshot in which they exist."""
    found: dict[tuple[int, str], Rows] = {}
    for at in snapshots:
        names = {table.table for table in lake.tables(snapshot=at)}
        for name in names & set(TABLES):
            found[at, name] = read(lake, name, at)
    return found


def read(lake: DuckLake, name: str, at: int | None = None) -> Rows:
    columns = lake.read(name, snapshot=at)
    return sorted((tuple(row.values()) for row in columns.to_pylist()), key=repr)


def copied(lake: DuckLake, folder: Path) -> DuckLake:
    """Return a copy of a lake in another folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    assert lake.config.catalog_file is not None
    shutil.copy(lake.config.catalog_file, folder / "lake.sqlite")
    shutil.copytree(str(lake.config.data_path), folder / "lake.files")
    copy = DuckLake.local(folder / "lake", data_inlining_row_limit=0, retry={"max_seconds": 0}, memory_limit="1GB")
    with opened(copy) as con:
        con.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [f"{folder / 'lake.files'}/"])
        con.commit()
    return copy


def opened(lake: DuckLake) -> closing[sqlite3.Connection]:
    assert lake.config.catalog_file is not None
    return closing(sqlite3.connect(lake.config.catalog_file))


def damage_row(lake: DuckLake, pick: Random) -> str:
    """Damage one row of the catalog; return what was changed, in words."""
    with opened(lake) as con:
        names = [name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        while True:
            table = pick.choice([name for name in names if name.startswith("ducklake_")])
            cells = [column[1] for column in con.execute(f'PRAGMA table_info("{table}")')]
            ids = [row_id for (row_id,) in con.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
            if not ids:
                continue
            if table.startswith("ducklake_inlined_data_") and table[-1].isdigit():
                cells = cells[:3]  # another value of the user's is no damage
            row_id, column, kind = pick.choice(ids), pick.choice(cells), pick.randrange(10)
            change = _statement(con, table, column, row_id, kind, pick, ids)
            before = con.execute(f'SELECT * FROM "{table}" WHERE rowid = {row_id}').fetchone()
            try:
                changed = con.execute(*change).rowcount
            except (sqlite3.IntegrityError, OverflowError):
                continue
            after = con.execute(f'SELECT * FROM "{table}" WHERE rowid = {row_id}').fetchone()
            if changed and (after != before or kind == 1):
                con.commit()
                return f"{change[0]} {str(change[1])[:100]} (was {str(dict(zip(cells, before, strict=False)))[:400]})"
            con.rollback()


def _statement(
    con: sqlite3.Connection, table: str, column: str, row_id: int, kind: int, pick: Random, ids: list[int]
) -> tuple[str, list[Any]]:
    if kind == 0:
        return f'DELETE FROM "{table}" WHERE rowid = {row_id}', []
    if kind == 1:
        names = ", ".join(f'"{row[1]}"' for row in con.execute(f'PRAGMA table_info("{table}")'))
        return f'INSERT INTO "{table}" ({names}) SELECT {names} FROM "{table}" WHERE rowid = {row_id}', []
    if kind == 2:
        other = pick.choice(ids)
        value = f'(SELECT "{column}" FROM "{table}" WHERE rowid = {other})'
        return f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid = {row_id}', []
    if kind == 3:
        return f'UPDATE "{table}" SET "{column}" = "{column}" + ? WHERE rowid = {row_id}', [pick.choice([-1, 1, 1000])]
    return f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = {row_id}', [pick.choice(_VALUES)]


def files_of(lake: DuckLake) -> dict[int, set[str]]:
    """Return the files that each snapshot needs, from the metadata tables of an undamaged lake."""
    needed: dict[int, set[str]] = {}
    with opened(lake) as con:
        snapshots = [number for (number,) in con.execute("SELECT snapshot_id FROM ducklake_snapshot")]
        for at in snapshots:
            needed[at] = set(_files_at(con, at))
    return needed


def _files_at(con: sqlite3.Connection, at: int) -> Iterator[str]:
    live = f"begin_snapshot <= {at} AND coalesce(end_snapshot, {2**60}) > {at}"
    for name in ("ducklake_data_file", "ducklake_delete_file"):
        for (path,) in con.execute(f"SELECT path FROM {name} WHERE {live}"):
            yield Path(path).name
