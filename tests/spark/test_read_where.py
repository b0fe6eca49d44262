"""Spark evaluates a condition only if it means the same there as in DuckDB; otherwise DuckDB does."""

from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import ObjectNotFoundError, StatementError
from tests.support.spark_reads import check, execute, expected, plan_of, read_rows

NATIVE = [
    "k > 40",
    "3 <= k AND k <> 5",
    "k IN (1, 2, 400)",
    "k NOT IN (1, 2)",
    "k = 9000000000",
    "tiny >= 1000",
    "NOT (k < 10 OR v IS NULL)",
    "v = 'v7'",
    "v > 'v5'",
    "v IN ('', 'é')",
    "v BETWEEN 'v2' AND 'v3'",
    "flag",
    "NOT flag",
    "flag = false",
    "d >= '2024-01-20'",
    "d = DATE '2024-01-05'",
    "d BETWEEN '2024-01-05' AND '2024-01-07'",
    "ts < '2024-01-03'",
    "ts >= TIMESTAMP '2024-01-03 06:00:00.5'",
    "tz >= '2024-01-03 06:00:00'",
    "tz < TIMESTAMPTZ '2024-01-03 06:00:00+09'",
    "x > 1.5",
    "x <= 3",
    "x > 100",
    "x <> 1e0",
    "dec = 1.5",
    "dec > 2",
    "dec IS NOT NULL",
    "s IS NULL",
    "k > 5 -- a comment",
]
LEFT_TO_DUCKDB = [
    "k % 3 = 0",
    "lower(v) LIKE 'v1%'",
    "v = 'v' || k",
    "k = 1.5",
    "d >= '2024-1-5'",
    "d < TIMESTAMP '2024-01-05 12:00:00'",
    "d IN ('2024-01-05', DATE '2024-01-07')",
    "ts::DATE = '2024-01-03'",
    "ts = '2024-01-03 06:00:00+05'",
    "x > 0.1234567890123456789",
    "dec = 1.2345",
    "s.a = 3",
    "k IN (1, NULL)",
    "f > 1.1",
    "l[1] = 4",
    "k IS DISTINCT FROM 4",
    "true",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    lake = DuckLake.local(tmp_path_factory.mktemp("where") / "lake", data_inlining_row_limit=0)
    values = (
        "range, range::TINYINT, CASE range % 7 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'é' ELSE 'v' || range END,"
        " CASE range % 3 WHEN 0 THEN true WHEN 1 THEN false END, DATE '2024-01-01' + range::INTEGER,"
        " TIMESTAMP '2024-01-01' + INTERVAL (range * 6) HOUR + INTERVAL 500 MILLISECOND,"
        " TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (range * 6) HOUR,"
        " CASE range % 5 WHEN 0 THEN 'nan' WHEN 1 THEN NULL ELSE range / 2 END, range / 2,"
        " CASE range % 4 WHEN 0 THEN NULL ELSE range / 2 END, CASE range % 2 WHEN 0 THEN {'a': range} END, [range]"
    )
    execute(
        lake,
        "CREATE TABLE t (k BIGINT, tiny TINYINT, v VARCHAR, flag BOOLEAN, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ,"
        " x DOUBLE, f FLOAT, dec DECIMAL(10, 2), s STRUCT(a BIGINT), l BIGINT[])",
        f"INSERT INTO t SELECT {values} FROM range(60)",
        "DELETE FROM t WHERE k = 13",
    )
    lake.set_option("data_inlining_row_limit", 10)
    execute(lake, f"INSERT INTO t SELECT {values} FROM range(8)")
    return lake


def check_all(lake: DuckLake, spark: SparkSession, conditions: list[str], *, native: bool) -> None:
    """Compare the rows that match each condition with those of DuckDB, in one Spark job."""
    frames, wanted = [], []
    for n, where in enumerate(conditions):
        frame = lake.read("t", spark, columns=["k", "v"], where=where)
        assert ("InArrow" in plan_of(frame)) != native, where
        frames.append(frame.selectExpr(f"{n} AS n", "*"))
        wanted.append(expected(lake, f"SELECT {n} AS n, k, v FROM t WHERE {where}\n"))
    found = read_rows(reduce(DataFrame.unionAll, frames))
    for n, where in enumerate(conditions):
        assert [row for row in found if row.startswith(f"[{n},")] == wanted[n], where


def test_conditions_that_spark_shares_are_evaluated_natively(lake: DuckLake, spark: SparkSession) -> None:
    check_all(lake, spark, NATIVE, native=True)


def test_other_conditions_are_evaluated_by_duckdb(lake: DuckLake, spark: SparkSession) -> None:
    check_all(lake, spark, LEFT_TO_DUCKDB, native=False)


def test_the_duckdb_engine_evaluates_every_condition(lake: DuckLake, spark: SparkSession) -> None:
    every = " AND ".join(f"((\n{where}\n) OR true)" for where in NATIVE)
    check(lake, spark, engines=["duckdb"], where=f"k > 20 AND {every}", select="k, v", columns=["k", "v"])


@pytest.mark.parametrize("engine", ["native", "duckdb"])
def test_invalid_conditions_are_refused_by_both_engines(lake: DuckLake, spark: SparkSession, engine: str) -> None:
    for wrong in ("k", "k > 1; DROP TABLE t", "true) OR (true", "count(*) > 1", "k IN (SELECT 1)"):
        for session in (None, spark):
            with pytest.raises(StatementError, match="`where`"):
                lake.read("t", session, where=wrong)
    with pytest.raises(ObjectNotFoundError, match="kk"):
        lake.read("t", spark, where="kk = 1", engine=engine)  # type: ignore[call-overload]


def test_nan_compares_greater_than_every_number(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    execute(
        lake,
        "CREATE TABLE t (x DOUBLE, f FLOAT)",
        "INSERT INTO t SELECT range, range FROM range(50)",
        "INSERT INTO t SELECT CASE WHEN range = 7 THEN 'nan'::DOUBLE ELSE range END, 'nan' FROM range(50)",
    )
    for where in ("x > 1000", "x >= 49", "x = 'nan'", "x < 1000"):
        check(lake, spark, where=where)
    assert lake.read("t", spark).where("x > 1000").count() == 1
    assert lake.read("t", spark).where("f > 1000").count() == 50
