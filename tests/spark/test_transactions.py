"""Spark frames in transactions: written by executors, read as staged, committed together with other data."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def test_spark_reads_what_a_transaction_has_staged_and_writes_into_it(lake: DuckLake, spark: SparkSession) -> None:
    lake.write(spark.range(100).selectExpr("id", "id % 3 AS p"), "facts", mode="append", partition_by=["p"])
    before = lake.snapshots(limit=1)[0].snapshot_id
    with lake.transaction() as tx:
        tx.write(spark.range(100, 110).selectExpr("id", "0L AS p"), "facts", mode="append")
        tx.delete("facts", "p = 1", spark=spark)
        tx.merge(spark.range(5).selectExpr("id", "2L AS p"), "facts", ["id"])
        counts = tx.read("facts", spark).groupBy("p").count()
        tx.write(counts, "counts", mode="overwrite")
        tx.write(pa.table({"day": ["today"]}), "runs", mode="append")
        assert lake.table("facts").count() == 100
    assert tx.result is not None
    assert tx.result.snapshot_id == before + 1
    found = {row["p"]: row["count"] for row in lake.read("counts", spark).collect()}
    assert found == {0: 42, 2: 37}
    assert sorted(row["id"] for row in lake.read("facts", spark, where="p = 2").collect() if row["id"] < 6) == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert lake.fsck(deep=True, storage=True).findings == []


def test_rows_of_spark_that_a_failed_transaction_wrote_leave_no_file(lake: DuckLake, spark: SparkSession) -> None:
    lake.write(spark.range(10), "facts", mode="append")

    def fail() -> None:
        with lake.transaction() as tx:
            tx.write(spark.range(1000), "facts", mode="overwrite")
            tx.write(spark.range(1000), "other", mode="append")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert lake.table("facts").count() == 10
    assert lake.fsck(storage=True).findings == []


def test_spark_reads_of_a_stage_can_be_evaluated_later_and_are_not_kept(lake: DuckLake, spark: SparkSession) -> None:
    lake.write(pa.table({"id": [1, 2, 3]}), "facts", mode="append", inline="never")
    stage = lake.stage("nightly")
    stage.delete("facts", "id = 2")
    before = len(vars(spark).get("_ducklake_orch_frames", ()))
    first = lake.read("facts", spark, stage="nightly")
    stage.write(pa.table({"id": [4]}), "facts", mode="append")
    second = stage.read("facts", spark)
    assert sorted(row["id"] for row in first.collect()) == [1, 3]
    assert sorted(row["id"] for row in second.collect()) == [1, 3, 4]
    assert len(vars(spark).get("_ducklake_orch_frames", ())) == before
