"""Batches for tasks in Python: as long as their rows allow, in a session that stays as it was."""

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
from ducklake_orch.spark.batches import in_quick_batches
from ducklake_orch.spark.carry import _forget_archives
from ducklake_orch.spark.read_native import numbered

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def lengths(frame: DataFrame) -> list[int]:
    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows for batch in batches]})

    return [row.n for row in frame.mapInArrow(counted, "n bigint").collect()]


@pytest.fixture
def many_rows(spark: SparkSession) -> Iterator[None]:
    """Batches of a hundred thousand rows, as sessions of ours have them."""
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100000")
    yield
    spark.conf.set(ROWS, str(before))


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize(
    ("columns", "longest"),
    [
        (["id", "CAST(id AS DECIMAL(9, 2)) AS d", "DATE'2024-01-01'", "id % 2 = 0"], 10_000),
        (["id", "CAST(id AS STRING) AS s"], 2048),
        (["array(id)"], 2048),
        (["id", "named_struct('b', encode('x', 'UTF-8')) AS s"], 30_000),
    ],
    ids=["of one length", "texts", "nested", "bytes"],
)
def test_batches_end_after_rows_of_a_known_length(spark: SparkSession, columns: list[str], longest: int) -> None:
    frame = spark.range(0, 30_000, 1, 1).selectExpr(*columns)
    found = lengths(in_quick_batches(frame))
    assert (max(found), sum(found)) == (longest, 30_000)


def test_shorter_batches_stay_as_somebody_wants_them(spark: SparkSession) -> None:
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100")
    try:
        assert set(lengths(in_quick_batches(spark.range(0, 1000, 1, 1)))) == {100}
    finally:
        spark.conf.set(ROWS, str(before))


def test_a_limit_of_bytes_holds_where_somebody_has_set_one(spark: SparkSession) -> None:
    spark.conf.set(BYTES, "1k")
    try:
        assert max(lengths(in_quick_batches(spark.range(0, 1000, 1, 1)))) < 200
    finally:
        spark.conf.unset(BYTES)


def test_the_session_is_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.getAll
    done = DuckLake.local(tmp_path / "lake").write(spark.range(3_000_000), "t", mode="append", engine="duckdb")
    assert (done.rows_written, done.engine) == (3_000_000, "duckdb")
    assert spark.conf.getAll == before


@pytest.mark.parametrize("engine", ["auto", "duckdb", "native"])
def test_what_somebody_observes_is_told(
    spark: SparkSession, tmp_path: Path, engine: Literal["auto", "duckdb", "native"]
) -> None:
    seen = Observation("seen")
    frame = spark.range(3_000_000).observe(seen, functions.count(functions.lit(1)).alias("n"))
    DuckLake.local(tmp_path / "lake").write(frame, "t", mode="append", engine=engine)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(lambda: seen.get).result(30) == {"n": 3_000_000}


def test_files_have_numbers_that_differ_before_the_bits_of_positions(spark: SparkSession) -> None:
    addresses = [f"file:///lake/é {n}.parquet" for n in range(20)]
    found = numbered(spark, addresses, bits=56)
    assert len({one >> 56 for one in found.numbers.values()}) == 20
    asked = spark.createDataFrame([(one,) for one in addresses], "a string")
    asked = asked.selectExpr("struct(a AS file_path) AS _metadata").selectExpr("_metadata.file_path", f"{found.sql} n")
    assert {row.file_path: row.n for row in asked.collect()} == found.numbers


def test_a_worker_forgets_archives_of_sparks_and_finds_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path_importer_cache", {})
    make: Callable[[str], Path] = tmp_path.joinpath
    for name in ("pyspark.zip", "spark-core_2.13.jar", "users.zip"):
        with ZipFile(make(name), "w") as archive:
            archive.writestr(f"of_{name[:5]}.py", "here = True")
        sys.path_importer_cache[str(make(name))] = zipimport.zipimporter(str(make(name)))
    _forget_archives()
    assert list(sys.path_importer_cache) == [str(make("users.zip"))]
    monkeypatch.syspath_prepend(str(make("pyspark.zip")))
    assert __import__("of_pyspa").here
