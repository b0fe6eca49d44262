"""Conditions on floating-point columns select the right rows in Spark, for files of every writer."""

from collections import defaultdict
from functools import reduce
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from tests.support.float_rows import COLUMNS, PLACES, Rows, conditions
from tests.support.spark_reads import execute, is_native, plan_of

# Their files describe values differently: dictionaries, bounds with and without NaN, Bloom filters.
WRITERS = ("duckdb", "pyarrow", "spark", "added from spark")


def _tables(lake: DuckLake, spark: SparkSession, rows: Rows, folder: Path) -> None:
    folder.mkdir()
    execute(lake, *(f'CREATE TABLE "{name}" ({COLUMNS})' for name in WRITERS))
    blooms = {"parquet.bloom.filter.enabled": "true", "parquet.enable.dictionary": "false"}
    for n, data in enumerate(rows.files):
        pq.write_table(data, path := str(folder / f"{n}.parquet"))
        lake.write(data, "duckdb", mode="append")
        frame = spark.read.parquet(path).coalesce(1)
        frame.write.options(**blooms).parquet(str(folder / f"spark_{n}"))
    lake.write(spark.read.parquet(*map(str, folder.glob("*.parquet"))), "spark", mode="append", engine="native")
    lake.add_files("added from spark", [str(path) for path in folder.glob("spark_*/*.parquet")])
    lake.add_files("pyarrow", [str(path) for path in folder.glob("*.parquet")])


def test_float_conditions_select_the_same_rows_from_every_writer(spark: SparkSession, tmp_path: Path) -> None:
    lake, rows = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0), Rows()
    _tables(lake, spark, rows, tmp_path / "files")
    for number, table in enumerate(WRITERS):
        whole = lake.read(table, spark, engine="native")
        assert is_native(whole)
        frames: list[DataFrame] = []
        wanted: dict[str, set[int]] = {}
        for place in PLACES:
            # Odd conditions filter the frame, even ones are passed as `where`; all run in one job.
            for n, condition in enumerate(conditions(place)[number::7]):
                read = whole.where(condition.sql) if n % 2 else lake.read(table, spark, where=condition.sql)
                wanted[condition.sql] = rows.matching(place, condition)
                frames.append(read.selectExpr(f'"{condition.sql}" AS checked', "n"))
        found = defaultdict[str, set[int]](set)
        for row in reduce(DataFrame.unionAll, frames).collect():
            assert row.n not in found[row.checked], "a row was returned twice"
            found[row.checked].add(row.n)
        assert {sql for sql in wanted if found[sql] != wanted[sql]} == set(), table
        values = {row.n: row.x.hex() for row in whole.select("n", "x").collect()}
        assert values == {n: value.hex() for n, value in rows.values.items()}, table


def test_only_float_conditions_are_not_pushed_into_files(spark: SparkSession, tmp_path: Path) -> None:
    lake, rows = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0), Rows()
    lake.write(rows.files[0], "t", mode="append")
    pushed = plan_of(lake.read("t", spark).where("n > 1 AND x = 0 AND s.x = 0")).partition("PushedFilters: ")[2]
    assert pushed.startswith("[IsNotNull(n), GreaterThan(n,1)]")
