"""Spark's own writer: same rows and statistics, no leftover files, and an unchanged session."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake, errors
from tests.support.refusals import refused

MakeLake = Callable[..., DuckLake]
ALL_TYPES = """
    SELECT id, CAST(id AS STRING) AS s, timestamp_micros(id * 1000000007) AS tz,
           CAST(timestamp_micros(-id * 1000000007) AS TIMESTAMP_NTZ) AS ts,
           date_add(DATE'0001-01-01', CAST(id AS INT)) AS d,
           CAST(id AS DECIMAL(38, 9)) AS big, CAST(id AS DECIMAL(7, 2)) AS small, IF(id % 7 = 0, NULL, id / 3) AS x,
           CAST(id AS FLOAT) AS f, id % 2 = 0 AS b, encode(CAST(id AS STRING), 'UTF-8') AS bin,
           CAST(id % 100 AS TINYINT) AS i8, CAST(id AS SMALLINT) AS i16, CAST(id AS INT) AS i32,
           named_struct('y', id, 'x', named_struct('deep', IF(id % 3 = 0, NULL, 'é' || id))) AS st
    FROM range(0, 1000, 1, 2)"""


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    # The name of the folder looks like a Hive partition.
    return DuckLake.local(tmp_path / "s=5 it's" / "lake", data_inlining_row_limit=0)


def settings(spark: SparkSession) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def written_by(spark: SparkSession, lake: DuckLake, engine: str) -> list[dict[str, Any]]:
    done = lake.write(spark.sql(ALL_TYPES), engine, mode="append", engine=engine)
    assert done.engine == engine
    return lake.execute(f"FROM {engine} ORDER BY id", max_rows=None).rows


def test_auto_writes_small_or_numeric_frames_with_duckdb(spark: SparkSession, lake: DuckLake) -> None:
    numbers = spark.range(3_000_000)
    small, large = spark.range(1000), numbers.withColumn("s", numbers.id.cast("string"))
    assert lake.write(numbers, "n", mode="append").engine == "duckdb"
    assert lake.write(numbers, "n", mode="append", engine="native").engine == "native"
    small = small.withColumn("s", small.id.cast("string"))
    assert lake.write(small, "t", mode="append").engine == "duckdb"
    assert lake.write(small, "t", mode="append", engine="native").engine == "native"
    assert lake.write(large, "t", mode="append").engine == "native"


def test_both_engines_write_the_same_rows(spark: SparkSession, lake: DuckLake) -> None:
    assert written_by(spark, lake, "native") == written_by(spark, lake, "duckdb")
    assert lake.fsck(deep=True, storage=True).findings == []
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 'native')").raise_for_error()
    assert lake.execute("SELECT count(*) AS n FROM native").rows == [{"n": 1000}]


def test_statistics_prune_files_written_by_spark(spark: SparkSession, lake: DuckLake) -> None:
    written_by(spark, lake, "native")
    for where in ("id = 700", "s = '999'", "big > 700.5", "d > DATE '0002-06-01'"):
        rows = lake.execute(f"EXPLAIN ANALYZE FROM native WHERE {where}").rows
        assert "Total Files Read: 1" in str(rows), where


def test_a_native_write_leaves_only_parquet_files(spark: SparkSession, lake: DuckLake) -> None:
    lake.write(spark.range(0, 100, 1, 2), "t", mode="append", engine="native")
    lake.write(spark.range(0, 1, 1, 8), "t", mode="append", engine="native")
    assert lake.config.data_path is not None
    files = [path for path in Path(lake.config.data_path).rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {path.suffix for path in files} == {".parquet"}


def test_a_native_write_leaves_the_session_settings_unchanged(spark: SparkSession, lake: DuckLake) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    before = settings(spark)
    try:
        lake.write(spark.sql(ALL_TYPES), "t", mode="append", engine="native")
        failing = spark.sql("SELECT CAST(raise_error('boo') AS STRING) AS s")
        refused(
            errors.StatementError, lambda: lake.write(failing, "u", mode="append", engine="native"), "boo", "`main.u`"
        )
        with ThreadPoolExecutor(4) as pool:
            futures = [
                pool.submit(lake.write, spark.range(n, n + 5), "t2", mode="append", engine="native") for n in range(4)
            ]
        assert {future.result().engine for future in futures} == {"native"}
        assert settings(spark) == before
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    assert lake.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t2").rows == [{"n": 20, "ids": 8}]
    assert lake.execute("SELECT max(tz) AS tz FROM t").rows[0]["tz"].microsecond == 6993
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize(
    ("ddl", "sql", "why"),
    [
        ("(id BIGINT[])", "SELECT array(id) AS id FROM range(2)", "BIGINT[]"),
        ("(id BIGINT, j JSON)", "SELECT id, '{}' AS j FROM range(2)", "JSON"),
        ("(id BIGINT NOT NULL)", "SELECT id FROM range(2)", "NULL"),
        ("(id BIGINT, d INT DEFAULT 3)", "SELECT id FROM range(2)", "default"),
        ("(id BIGINT)", "SELECT CAST(id AS INT) AS id FROM range(2)", "INTEGER"),
    ],
)
def test_frames_spark_cannot_write_correctly_are_written_by_duckdb(
    spark: SparkSession, lake: DuckLake, caplog: pytest.LogCaptureFixture, ddl: str, sql: str, why: str
) -> None:
    lake.execute(f"CREATE TABLE t {ddl}").raise_for_error()
    done = lake.write(spark.sql(sql), "t", mode="append", engine="native")
    assert (done.engine, done.rows_written) == ("duckdb", 2)
    assert why in caplog.text
    assert lake.fsck(deep=True, storage=True).findings == []


def test_range_sorted_writes_are_written_by_duckdb(spark: SparkSession, lake: DuckLake) -> None:
    lake.create_table("t", {"id": "BIGINT"}, sort_by=["id"], options={"sort_on_insert": "false"})
    assert lake.write(spark.range(9), "t", mode="append", engine="native").engine == "native"
    assert lake.write(spark.range(9), "t", mode="append", engine="native", distribution="range").engine == "duckdb"


@pytest.mark.parametrize("shape", ["limit", "sort", "union", "cache", "rows", "aggregate"])
def test_field_ids_survive_the_optimizer(spark: SparkSession, lake: DuckLake, shape: str) -> None:
    frame = spark.sql("SELECT id, CAST(id AS STRING) AS s, named_struct('x', id) AS st FROM range(20)")
    made = {
        "limit": lambda: frame.limit(5),
        "sort": lambda: frame.orderBy("s"),
        "union": lambda: frame.union(frame),
        "cache": lambda: frame.cache(),
        "rows": lambda: spark.createDataFrame(frame.collect(), frame.schema),
        "aggregate": lambda: frame.groupBy("id", "st").agg({"s": "max"}).selectExpr("id", "`max(s)` AS s", "st"),
    }[shape]()
    assert lake.write(made, "t", mode="append", engine="native").engine == "native"
    lake.execute("ALTER TABLE t RENAME s TO text").raise_for_error()
    row = lake.execute("FROM t WHERE id = 3 LIMIT 1").rows[0]
    assert row == {"id": 3, "text": "3", "st": {"x": 3}}
