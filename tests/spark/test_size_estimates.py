"""Size estimates of frames: Spark chooses joins by them, but they never route data through the driver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake, errors
from tests.support.refusals import refused
from tests.support.spark_reads import ENGINES, plan_of


def size_of(frame: Any) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def multiplied(frame: Any) -> Any:
    """Return five thousand times the rows; the size that Spark estimates stays the same."""

    def many(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        for batch in batches:
            for number in batch["id"]:
                yield pd.DataFrame({"id": range(5000), "x": number, "s": "a long text" * 5})

    return frame.mapInPandas(many, "id long, x long, s string")


def test_both_readers_estimate_sizes_for_the_same_join_strategy(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(spark.range(100_000).selectExpr("id", "hash(id) AS x"), "t", mode="append")
    lake.write(spark.range(10).selectExpr("id", "hash(id) AS x"), "small", mode="append")
    files = sum(file.bytes for file in lake.table("t").files())
    native, tasks = (lake.read("t", spark, engine=engine) for engine in ENGINES)
    assert size_of(native) == files
    assert files * 0.9 <= size_of(tasks) <= files
    feed = lake.changes("t", spark=spark)
    assert size_of(feed) >= files * 0.9
    before = str(spark.conf.get("spark.sql.autoBroadcastJoinThreshold"))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(files // 2))
    try:
        for frame in (native, tasks, feed.select("id", "x")):
            joined = plan_of(frame.join(frame.withColumnRenamed("x", "y"), "id"))
            assert (
                "SortMergeJoin" in joined.partition("BroadcastHashJoin")[0]
            )  # the feed itself contains a join with its commits
        small = lake.read("small", spark, engine="duckdb")
        assert "BroadcastHashJoin" in plan_of(tasks.join(small, "id"))
        assert tasks.join(native, ["id", "x"]).count() == 100_000  # a broadcast would exceed the limit of the driver
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
    assert tasks.selectExpr("sum(id)", "count(DISTINCT id)").first() == (4_999_950_000, 100_000)


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_underestimated_data_do_not_pass_through_the_driver(tmp_path: Path, spark: SparkSession, engine: str) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    source = multiplied(spark.range(0, 60, 1, 6))
    assert size_of(source) < 10_000  # in fact 20 MB; the driver of this session accepts 1 MB
    keys = ["id", "x"]
    assert lake.write(source, "t", mode="merge", keys=keys, engine=engine).rows_written == 300_000
    again = lake.write(source, "t", mode="merge", keys=keys, engine=engine, when_matched="keep")
    assert (again.rows_written, again.rows_removed) == (0, 0)
    with lake.connect() as con:
        found = con.execute("SELECT count(*), count(DISTINCT (id, x)), sum(x) FROM t").fetchall()
    assert found == [(300_000, 300_000, 5000 * sum(range(60)))]
    assert lake.fsck(deep=True, storage=True).findings == []


def test_user_defined_types_are_written_as_their_storage_type(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    data = [(1, Vectors.dense(1.0, -0.0), [Vectors.dense(2.0)]), (2, None, []), (3, Vectors.sparse(9, {4: 5.0}), None)]
    frame = spark.createDataFrame(data, spark.createDataFrame(data[:1], ["id", "v", "several"]).schema)
    lake.write(frame, "t", mode="append")
    lake.write(frame, "m", mode="merge", keys=["id"])
    for table in ("t", "m"):
        with lake.connect() as con:
            found = con.execute(f"SELECT v.type, v.size, v.indices, v.values FROM {table} ORDER BY id").fetchall()
            inner = con.execute(f"SELECT several[1].values FROM {table} WHERE id = 1").fetchall()
        assert found == [(1, None, None, [1.0, -0.0]), (None,) * 4, (0, 9, [4], [5.0])]
        assert inner == [([2.0],)]


def test_a_struct_with_fields_that_differ_only_in_case_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    frame = spark.sql("SELECT 1 AS id, array(named_struct('a', 1, 'A', 2)) AS s")
    refused(errors.DataError, lambda: lake.write(frame, "t", mode="append"), "`s`", "duplicate fields: a")
    merged = lambda: lake.write(frame, "t", mode="merge", keys=["id"])  # noqa: E731
    refused(errors.DataError, merged, "`s`", "duplicate fields: a")
