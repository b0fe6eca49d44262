"""Bounds of tables: the engine's INSERT after our write keeps them correct."""

from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import ColumnDef, ColumnStats, NewFile
from ducklake_orch.catalog.parquet import file_stats, summarize
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.execute(sql).raise_for_error().rows]


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int32())})


@catalogs(sql_writes=True)
def test_rows_with_only_nulls_keep_the_table_bounds(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(numbers(5), "t", mode="append")
    lake.write(numbers(None), "t", mode="append")
    lake.execute("INSERT INTO t VALUES (7)").raise_for_error()
    assert rows(lake, "FROM t WHERE i = 5") == [(5,)]
    assert rows(lake, "FROM t WHERE i < 6") == [(5,)]


@catalogs(sql_writes=True)
def test_values_without_bounds_are_found_after_an_insert_by_the_engine(make_lake: MakeLake) -> None:
    # The engine has no bounds for long texts beyond ASCII, and treats a missing bound of a table as no values.
    lake = make_lake(data_inlining_row_limit=0)
    for n, first in enumerate((["é" * 300], ["a", "é" * 300], [None, "é" * 300])):
        lake.write(pa.table({"s": pa.array(first, pa.string())}), f"t{n}", mode="append")
        lake.execute(f"INSERT INTO t{n} VALUES ('a')").raise_for_error()
        assert rows(lake, f"SELECT count(*) FROM t{n} WHERE s = repeat('é', 300)") == [(1,)]
        assert rows(lake, f"SELECT count(*) FROM t{n} WHERE s > 'b'") == [(1,)]


@catalogs(sql_writes=True)
def test_values_are_found_after_rows_with_only_nulls(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(numbers(None), "t", mode="append")
    lake.write(numbers(5), "t", mode="append")
    lake.execute("INSERT INTO t VALUES (7)").raise_for_error()
    lake.write(numbers(3), "t", mode="append")
    assert rows(lake, "FROM t WHERE i IS NOT NULL ORDER BY i") == [(3,), (5,), (7,)]
    assert [rows(lake, f"FROM t WHERE i = {i}") for i in (3, 5, 7)] == [[(3,)], [(5,)], [(7,)]]


@pytest.mark.parametrize("kind", ["int32", "float64", "varchar", "interval", "timetz"])
def test_table_bounds_of_one_file_equal_those_of_several(kind: str) -> None:
    leaf = ColumnDef(1, "x", kind, nullable=True)
    bounds = {"int32": ("1", "20"), "float64": ("-1.5", "inf"), "varchar": ("a", "a\0b")}.get(kind, ("1", "2"))
    with duckdb.connect() as con:
        for values, nulls, nan, low, high in product(
            (None, 0, 3), (None, 0, 2), (None, True, False), (None, bounds[0]), (None, bounds[1])
        ):
            stats = ColumnStats(10, values, nulls, low, high, nan)
            file = NewFile("f.parquet", 5, 100, 10, stats={1: stats})
            single, pair = ([file], [file, file])
            assert summarize(con, {1: leaf}, single, file_stats(single)) == summarize(
                con, {1: leaf}, pair, file_stats(pair)
            )
