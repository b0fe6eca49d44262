"""Conditions on signed zeros, NaN, infinities and denormals find every row, whichever engine wrote the files."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DataError
from tests.support.backends import POSTGRES, SQLITE, catalogs, on_sqlite
from tests.support.float_rows import COLUMNS, PLACES, SCHEMA, Rows, conditions
from tests.support.lakes import MakeLake

Writer = Callable[[DuckLake, str, Rows, Path], object]


def _inserted(lake: DuckLake, table: str, rows: Rows, _: Path) -> None:
    with lake.connect() as con:
        for file in rows.files:
            con.register("one", file)
            con.execute(f"INSERT INTO {table} FROM one")


def _written(lake: DuckLake, table: str, rows: Rows, _: Path) -> None:
    for file in rows.files:
        lake.write(file, table, mode="append")


def _added(lake: DuckLake, table: str, rows: Rows, folder: Path) -> None:
    folder.mkdir()
    for n, file in enumerate(rows.files):
        pq.write_table(file, folder / f"{n}.parquet")
    lake.add_files(table, sorted(map(str, folder.iterdir())))


def _inlined(lake: DuckLake, table: str, rows: Rows, _: Path) -> None:
    for file in rows.files:
        lake.write(file, table, mode="append", inline="auto")


WRITERS: list[Writer] = [_inserted, _written, _added, _inlined]


def _table(lake: DuckLake, writer: Writer, folder: Path, name: str = "t") -> Rows:
    rows = Rows()
    lake.execute([f"CREATE TABLE {name} ({COLUMNS})"]).raise_for_error()
    writer(lake, name, rows, folder / f"files of {name}")
    return rows


def _numbers(table: pa.Table) -> set[int]:
    found = Counter(table.column("n").to_pylist())
    assert set(found.values()) <= {1}, "rows are duplicated"
    return set(found)


def _left(lake: DuckLake, table: str = "t") -> dict[int, float]:
    """Return all rows that plain DuckDB reads without a condition."""
    with lake.connect() as con:
        found = con.execute(f"SELECT n, x FROM {table}").fetchall()
    assert len(dict(found)) == len(found), "rows are duplicated"
    return dict(found)


def _same(found: dict[int, float], wanted: dict[int, float]) -> bool:
    """Return whether rows are equal, with numbers compared by their bits."""
    return {n: _bits(v) for n, v in found.items()} == {n: _bits(v) for n, v in wanted.items()}


def _bits(value: float) -> str:
    return "nan" if math.isnan(value) else value.hex()


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__[1:])
def test_conditions_on_special_floats_read_the_matching_rows(tmp_path: Path, writer: Writer) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=200 if writer is _inlined else 0)
    rows = _table(lake, writer, tmp_path)
    for n, place in enumerate(PLACES):
        for condition in conditions(place)[n::8]:
            wanted = rows.matching(place, condition)
            assert _numbers(lake.read("t", columns=["n"], where=condition.sql)) == wanted, condition.sql
            with lake.read_batches("t", columns=["n"], where=condition.sql) as batches:
                assert _numbers(batches.read_all()) == wanted, condition.sql
            assert lake.delete("t", condition.sql, dry_run=True).rows_removed == len(wanted), condition.sql


@catalogs(quick=[SQLITE, POSTGRES])
@pytest.mark.parametrize("writer", [_written, _added], ids=lambda writer: writer.__name__[1:])
def test_conditions_on_special_floats_change_the_matching_rows(
    make_lake: MakeLake, writer: Writer, tmp_path: Path
) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    rows = _table(lake, writer, tmp_path)
    now = dict(rows.values)
    first = lake.snapshots(limit=1)[0].snapshot_id

    updated = {n for n, v in now.items() if v == 0}
    assert lake.update("t", {"x": "9"}, "x = 0").rows_removed == len(updated)
    now |= dict.fromkeys(updated, 9.0)
    assert _same(_left(lake), now)

    # The other columns are unchanged.
    deleted = {n for n in now if math.isnan(rows.values[n])}
    assert lake.delete("t", "s.x > CAST('inf' AS DOUBLE)").rows_removed == len(deleted)
    now = {n: v for n, v in now.items() if n not in deleted}
    assert _same(_left(lake), now)

    replaced = {n for n in now if rows.values[n] == 0}
    new = [{"n": -1, "x": -0.0, "f": -0.0, "s": {"x": 0.0}}, {"n": -2, "x": 0.0, "f": 0.0, "s": None}]
    lake.write(pa.Table.from_pylist(new, schema=SCHEMA), "t", mode="replace_where", where="f = 0")
    # A FLOAT has less precision: ±5e-324 becomes a zero of the same sign.
    replaced |= {n for n in now if abs(rows.values[n]) == 5e-324}
    now = {n: v for n, v in now.items() if n not in replaced} | {-1: -0.0, -2: 0.0}
    assert _same(_left(lake), now)

    feed = lake.changes("t", first + 1).select(["change_type", "n"]).to_pylist()
    kinds = Counter((row["change_type"], row["n"]) for row in feed)
    assert {n for kind, n in kinds if kind == "update_postimage"} == updated
    assert {n for kind, n in kinds if kind == "delete"} == deleted | replaced
    assert {n for kind, n in kinds if kind == "insert"} == {-1, -2}


@catalogs(quick=[SQLITE, POSTGRES])
def test_merge_keys_match_equal_floats(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    for key, kind in (("x", pa.float64()), ("f", pa.float32())):
        for n, writer in enumerate((_written, _added)):
            name = f"t_{key}_{n}"
            rows = _table(lake, writer, tmp_path, name)
            wanted = {n: v for n, v in rows.values.items() if not (PLACES[key](v) == 0 or math.isnan(v))}
            # Both zeros are the same key, so a source with both has a duplicate key.
            zeros = pa.table({key: pa.array([-0.0, 0.0], kind), "n": pa.array([1, 2], pa.int32())})
            with pytest.raises(DataError, match="same keys"):
                lake.write(zeros, name, mode="merge", keys=[key])
            data = pa.table({key: pa.array([(-0.0, 0.0)[n], math.nan, 77], kind), "n": pa.array([-1] * 3, pa.int32())})
            lake.write(data, name, mode="merge", keys=[key], when_matched="delete")
            assert _left(lake, name).keys() == wanted.keys() | {-1}


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_positive_and_negative_zero_share_one_partition(make_lake: MakeLake, kind: str) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute([f"CREATE TABLE t (n INTEGER, x {kind})", "ALTER TABLE t SET PARTITIONED BY (x)"]).raise_for_error()

    def rows(first: int, *values: float) -> pa.Table:
        kinds = pa.schema([("n", pa.int32()), ("x", pa.float32() if kind == "FLOAT" else pa.float64())])
        return pa.table({"n": range(first, first + len(values)), "x": values}, schema=kinds)

    lake.write(rows(0, -0.0, 0.0, 1.5, math.nan), "t", mode="append")
    lake.write(rows(10, 0.0, math.nan), "t", mode="overwrite_partitions")
    assert _same(_left(lake), {2: 1.5, 10: 0.0, 11: math.nan})
    lake.write(rows(20, -0.0), "t", mode="overwrite_partitions")
    assert _same(_left(lake), {2: 1.5, 11: math.nan, 20: -0.0})
    lake.write(rows(30, 0.0, -0.0), "t", mode="replace_where", where="x = 0")
    assert _left(lake).keys() == {2, 11, 30, 31}
    assert lake.delete("t", "x >= -0.0 AND x < 1").rows_removed == 2
    assert _same(_left(lake), {2: 1.5, 11: math.nan})


@on_sqlite
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_partitions_that_the_extension_named_by_a_negative_zero_or_nan_are_replaced(
    make_lake: MakeLake, kind: str
) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table("t", {"n": "INTEGER", "x": kind}, partition_by=["x"])
    lake.execute(f"INSERT INTO t VALUES (1, '-0.0'::{kind}), (2, '-nan'::{kind}), (3, 1.5)").raise_for_error()
    with lake.connect_metadata() as con:
        names = con.execute("SELECT partition_value FROM ducklake_file_partition_value ORDER BY 1").fetchall()
    assert names == [("-0.0",), ("-nan",), ("1.5",)]
    values = pa.array([0.0, math.nan], pa.float32() if kind == "FLOAT" else pa.float64())
    new = pa.table({"n": pa.array([4, 5], pa.int32()), "x": values})
    assert lake.write(new, "t", mode="overwrite_partitions").rows_removed == 2
    assert _same(_left(lake), {3: 1.5, 4: 0.0, 5: math.nan})


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_both_zeros_are_found_in_their_different_buckets(tmp_path: Path, kind: str) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    rows = f"INSERT INTO t SELECT n, x::{kind} FROM (VALUES (1, '-0.0'), (2, '0.0'), (3, 'nan'), (4, '-nan')) v(n, x)"
    created = lake.execute([f"CREATE TABLE t (n INTEGER, x {kind})", "ALTER TABLE t SET PARTITIONED BY (bucket(8, x))"])
    created.raise_for_error()
    lake.execute([rows]).raise_for_error()
    for where in ("x = -0.0", "x = 'nan'"):
        assert lake.read("t", where=where).num_rows == lake.delete("t", where).rows_removed == 2, where
    assert _left(lake) == {}
