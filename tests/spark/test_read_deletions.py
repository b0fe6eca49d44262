"""Spark's own reader skips the deleted rows of files, which it tells apart by their size."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.spark import deletion_bits
from tests.catalog.fsck.damage import damage
from tests.support.spark_reads import check, execute, is_native, no_fallback

SAME_SIZE = ("CREATE TABLE t (k INTEGER)", *["INSERT INTO t SELECT range FROM range(100)"] * 3)


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def test_deletions_at_chunk_edges_are_skipped_in_a_file_that_is_read_in_parts(
    lake: DuckLake, spark: SparkSession
) -> None:
    execute(
        lake,
        "CALL lake.set_option('parquet_row_group_size', 50_000)",
        "CREATE TABLE t (k INTEGER, h UBIGINT)",
        "INSERT INTO t SELECT range, hash(range) FROM range(200_000)",
        "INSERT INTO t SELECT range, hash(range) FROM range(200_000, 200_100)",
        "DELETE FROM t WHERE k IN (0, 49_999, 50_000, 65_535, 65_536, 131_071, 131_072, 199_999, 200_000, 200_099)",
        "DELETE FROM t WHERE k BETWEEN 100_000 AND 120_000 OR h % 50 = 0",
    )
    size = "spark.sql.files.maxPartitionBytes"
    before = str(spark.conf.get(size))
    spark.conf.set(size, "400k")
    try:
        frame = lake.read("t", spark)
        assert is_native(frame)
        assert frame.rdd.getNumPartitions() > 2
        left = "count(*)", "sum(k)", "min(k)", "max(k)", "CAST(sum(CAST(h % 1000 AS INT)) AS BIGINT)"
        with lake.connect() as con:
            assert (
                tuple(frame.selectExpr(*left).collect()[0])
                == con.execute(f"SELECT {', '.join(left)} FROM t").fetchone()
            )
    finally:
        spark.conf.set(size, before)


@pytest.mark.parametrize("inlined", [0, 100])
def test_files_of_the_same_size_keep_their_own_deletions(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture, inlined: int
) -> None:
    execute(lake, *SAME_SIZE)
    assert len({file.bytes for file in lake.table("t").files()}) == 1
    lake.set_option("data_inlining_row_limit", inlined)
    execute(lake, "DELETE FROM t WHERE rowid IN (0, 7, 63, 64, 107, 108, 171, 299)")
    check(lake, spark)
    check(lake, spark, where="k < 50")
    assert no_fallback(caplog)


def test_many_files_of_the_same_size_with_deletions_are_left_to_duckdb(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(lake, *SAME_SIZE, "DELETE FROM t WHERE rowid IN (0, 107, 299)")
    monkeypatch.setattr(deletion_bits, "_MOST_SCANS", 2)
    check(lake, spark)
    assert "DuckDB reads 1 file of `main.t` in tasks: many files with deletions have the same size" in caplog.text
    monkeypatch.setattr(deletion_bits, "_MOST_CHUNKS", 1)
    check(lake, spark)
    assert "DuckDB reads 2 files of `main.t` in tasks: the files with deletions have too many rows" in caplog.text


def test_a_wrong_size_in_the_catalog_brings_no_deleted_row_back(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(100)")
    execute(lake, "DELETE FROM t WHERE k IN (3, 50)")
    damage(lake, "UPDATE ducklake_data_file SET file_size_bytes = file_size_bytes + 1")
    frame = lake.read("t", spark, engine="native")
    assert "it has deletions, and its size is not the one in the catalog" in caplog.text
    assert sorted(row.k for row in frame.collect()) == [k for k in range(100) if k not in (3, 50)]
