"""The change feed as a DataFrame: equal to the in-process feed, lazy, and read by tasks."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import HistoryExpiredError
from tests.support.spark_reads import execute, rows


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=5)


def checked_changes(
    lake: DuckLake, spark: SparkSession, *ends: int | None, columns: list[str] | None = None
) -> DataFrame:
    frame = lake.changes("t", *ends, spark=spark, columns=columns)
    in_process = lake.changes("t", *ends, columns=columns)
    assert frame.columns == in_process.schema.names
    assert rows(frame.toArrow()) == rows(in_process)
    return frame


def test_spark_returns_the_changes_of_the_in_process_feed(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, 'CREATE TABLE t (k INTEGER, "v w" VARCHAR, m MAP(VARCHAR, DOUBLE), u UUID)')
    values = "range, 'v' || range, MAP {'a': range::DOUBLE, 'b': 'NaN'}, uuid()"
    execute(lake, f"INSERT INTO t SELECT {values} FROM range(300)")
    execute(lake, "DELETE FROM t WHERE k % 10 = 0", "INSERT INTO t VALUES (1000, NULL, NULL, NULL)")
    execute(lake, """UPDATE t SET "v w" = 'NULL' WHERE k % 7 = 0 OR k = 1000""", "UPDATE t SET k = k WHERE k < 50")
    execute(lake, "DELETE FROM t WHERE k = 3", "CALL ducklake_flush_inlined_data('lake')")
    execute(lake, "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    execute(lake, "ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 5", "DELETE FROM t WHERE k = 4")
    frame = checked_changes(lake, spark)
    kinds = {row["change_type"]: row["count"] for row in frame.groupBy("change_type").count().collect()}
    assert kinds == {"insert": 301, "delete": 32, "update_preimage": 39, "update_postimage": 39}
    checked_changes(lake, spark, 3, 4)
    checked_changes(lake, spark, 4, columns=["v w"])


def test_appended_rows_need_no_shuffle(lake: DuckLake, spark: SparkSession) -> None:
    for n in range(2):
        execute(lake, *(["CREATE TABLE t (k INTEGER)"] if n == 0 else []), "INSERT INTO t SELECT range FROM range(50)")
    frame = checked_changes(lake, spark)
    assert "Window" not in frame._jdf.queryExecution().executedPlan().toString()


def test_a_range_without_changes_is_an_empty_frame(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t VALUES (1)")
    assert checked_changes(lake, spark, 99).isEmpty()


def test_no_file_is_read_before_the_frame_runs(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(50)")
    frame = lake.changes("t", spark=spark)
    (path,) = [file.path for file in lake.table("t").files()]
    Path(path).unlink()
    with pytest.raises(Exception, match="no longer exists"):
        frame.collect()


def test_expired_history_is_refused_before_any_work(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t VALUES (1)", "DELETE FROM t")
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [2])", force=True).raise_for_error()
    with pytest.raises(HistoryExpiredError):
        lake.changes("t", 1, spark=spark)
