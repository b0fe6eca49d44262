"""Sizes of the Arrow batches of Python tasks, and an unchanged Spark session."""

import sys
import zipimport
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession, functions

from ducklake_orch import DuckLake
from ducklake_orch.errors import StatementError
from ducklake_orch.spark import arrow_batches
from ducklake_orch.spark.arrow_batches import in_batches, in_quick_batches
from ducklake_orch.spark.ship_code import _forget_archives

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def lengths(frame: DataFrame) -> list[int]:
    def counted(given: Iterator[Any]) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows for batch in given]})

    return [row.n for row in frame.mapInArrow(counted, "n bigint").collect()]


@pytest.fixture
def many_rows(spark: SparkSession) -> Iterator[None]:
    """Batches of 100,000 rows, as in sessions from `local_session`."""
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100000")
    yield
    spark.conf.set(ROWS, str(before))


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize(
    ("columns", "longest"),
    [
        (["id", "CAST(id AS DECIMAL(9, 2)) AS d", "DATE'2024-01-01'", "named_struct('b', id % 2 = 0) AS s"], 10_000),
        ([f"id AS c{n}" for n in range(400)], 2621),
        (["id", "named_struct('b', array(encode('x', 'UTF-8'))) AS s"], 30_000),
    ],
    ids=["fixed width", "wide", "bytes"],
)
def test_batch_size_follows_the_row_width(spark: SparkSession, columns: list[str], longest: int) -> None:
    frame = spark.range(0, 30_000, 1, 1).selectExpr(*columns)
    found = lengths(in_quick_batches(frame))
    assert (max(found), sum(found)) == (longest, 30_000)


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize(("memory", "longest"), [(0, 256), (3 * 2**30, 768), (2**40, 1024)])
def test_batches_of_strings_are_sized_by_task_memory(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, memory: int, longest: int
) -> None:
    monkeypatch.setattr(arrow_batches, "_task_memory", lambda frame: memory)
    frame = spark.range(0, 3_000, 1, 1).selectExpr("CAST(id AS STRING) AS s")
    assert max(lengths(in_quick_batches(frame))) == longest


@pytest.mark.usefixtures("many_rows")
def test_rows_too_long_for_quick_batches_fall_back_to_sparks_batches(spark: SparkSession) -> None:
    frame = spark.range(0, 3_000, 1, 1).selectExpr("CAST(id AS STRING) AS s")

    def run(given: DataFrame) -> int:
        if max(lengths(given)) < 3_000:
            raise StatementError("OversizedAllocationException: Memory required for vector is (2149402821)")
        return given.count()

    assert in_batches(frame, run) == 3_000
    with pytest.raises(StatementError, match="a disk is full"):
        in_batches(frame, lambda _: fail())


def fail() -> None:
    raise StatementError("a disk is full")


@pytest.mark.usefixtures("many_rows")
def test_user_functions_get_unchanged_batches(spark: SparkSession) -> None:
    seen = spark.sparkContext.accumulator(0)

    def user_function(given: Iterator[Any]) -> Iterator[Any]:
        for batch in given:
            seen.add(1)
            yield batch.select(["id"])

    frame = spark.range(0, 30_000, 1, 1).mapInArrow(user_function, "id bigint")
    assert (sum(lengths(in_quick_batches(frame))), seen.value) == (30_000, 1)


def test_a_shorter_configured_batch_length_is_kept(spark: SparkSession) -> None:
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100")
    try:
        assert set(lengths(in_quick_batches(spark.range(0, 1000, 1, 1)))) == {100}
    finally:
        spark.conf.set(ROWS, str(before))


def test_a_configured_batch_byte_limit_is_kept(spark: SparkSession) -> None:
    spark.conf.set(BYTES, "1k")
    try:
        assert max(lengths(in_quick_batches(spark.range(0, 1000, 1, 1)))) < 200
    finally:
        spark.conf.unset(BYTES)


def test_a_write_leaves_the_session_settings_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.getAll
    done = DuckLake.local(tmp_path / "lake").write(spark.range(3_000_000), "t", mode="append", engine="duckdb")
    assert (done.rows_written, done.engine) == (3_000_000, "duckdb")
    assert spark.conf.getAll == before


@pytest.mark.parametrize("engine", ["auto", "duckdb", "native"])
def test_observations_of_a_written_frame_complete(
    spark: SparkSession, tmp_path: Path, engine: Literal["auto", "duckdb", "native"]
) -> None:
    seen = Observation("seen")
    frame = spark.range(3_000_000).observe(seen, functions.count(functions.lit(1)).alias("n"))
    frame = frame.selectExpr(*(f"id AS a_column_with_a_name_that_is_long_{n}" for n in range(8)))
    spark.conf.set("spark.sql.maxPlanStringLength", "200")
    try:
        DuckLake.local(tmp_path / "lake").write(frame, "t", mode="append", engine=engine)
    finally:
        spark.conf.unset("spark.sql.maxPlanStringLength")
    with ThreadPoolExecutor() as pool:
        assert pool.submit(lambda: seen.get).result(30) == {"n": 3_000_000}


@pytest.mark.parametrize("engine", ["duckdb", "native"])
def test_written_rows_see_the_sessions_current_catalog(
    spark: SparkSession, tmp_path: Path, engine: Literal["duckdb", "native"]
) -> None:
    spark.conf.set("spark.sql.catalog.other", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    spark.conf.set("spark.sql.catalog.other.url", f"jdbc:derby:{tmp_path / 'derby'};create=true")
    spark.conf.set("spark.sql.catalog.other.driver", "org.apache.derby.iapi.jdbc.AutoloadedDriver")
    lake = DuckLake.local(tmp_path / "lake")
    spark.sql("USE other")
    try:
        frame = spark.range(3_000_000).selectExpr("id", "current_catalog() AS c")
        lake.write(frame, "t", mode="append", engine=engine)
    finally:
        spark.sql("USE spark_catalog.default")
    assert lake.execute("SELECT DISTINCT c FROM t").rows == [{"c": "other"}]


def test_a_worker_drops_cached_spark_archives_and_imports_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path_importer_cache", {})
    make: Callable[[str], Path] = tmp_path.joinpath
    for name in ("pyspark.zip", "spark-core_2.13.jar", "pyspark_of_users.zip"):
        with ZipFile(make(name), "w") as archive:
            archive.writestr(f"in_{name[:6]}.py", "here = True")
        sys.path_importer_cache[str(make(name))] = zipimport.zipimporter(str(make(name)))
    _forget_archives()
    assert list(sys.path_importer_cache) == [str(make("pyspark_of_users.zip"))]
    monkeypatch.syspath_prepend(str(make("pyspark.zip")))
    assert __import__("in_pyspar").here
