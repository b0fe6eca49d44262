"""Rows that Spark's plan proves to be few pass through the driver; no Python worker starts for them."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake, errors
from ducklake_orch.spark import spark_rows


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


@pytest.fixture
def no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("tasks write the rows")

    for work in ("ship_function", "write_natively"):
        monkeypatch.setattr(spark_rows, work, refuse)


def few(spark: SparkSession, rows: int = 10) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(
        "id",
        "CAST(id AS DECIMAL(20, 3)) AS amount",
        "TIMESTAMP '2024-01-01 00:00:00+02:00' AS at",
        "array(named_struct('a b', id)) AS nested",
        "IF(id % 2 = 0, 'even', NULL) AS parity",
    )


@pytest.mark.usefixtures("no_tasks")
def test_few_rows_are_written_with_their_types_in_each_mode(lake: DuckLake, spark: SparkSession) -> None:
    for mode, expected in (("append", 10), ("append", 20), ("overwrite", 10)):
        done = lake.write(few(spark), "t", mode=mode)
        assert (done.rows_written, done.files_added, done.engine) == (10, 1, "duckdb")
        assert lake.table("t").count() == expected
    lake.write(few(spark, 4), "t", mode="replace_where", where="id < 4")
    row = lake.read("t", where="id = 3").to_pylist()
    assert row == [
        {
            "id": 3,
            "amount": Decimal("3.000"),
            "at": datetime(2023, 12, 31, 22, tzinfo=UTC),
            "nested": [{"a b": 3}],
            "parity": None,
        }
    ]
    with pytest.raises(errors.RowsOutsideError, match="id < 4"):
        lake.write(few(spark), "t", mode="replace_where", where="id < 4")
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.usefixtures("no_tasks")
def test_few_rows_are_inlined_up_to_the_limit(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=10)
    frame = few(spark).drop("nested")
    assert lake.write(frame, "t", mode="append", inline="auto").files_added == 0
    assert lake.write(frame.unionAll(frame), "t", mode="append", inline="auto").files_added == 1
    assert lake.table("t").count() == 30


@pytest.mark.usefixtures("no_tasks")
def test_an_error_in_the_rows_names_the_write_and_leaves_no_file(lake: DuckLake, spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("id", "IF(id = 7, raise_error('row seven'), id) AS x")
    with pytest.raises(errors.DuckLakeOrchError, match=r"in Spark failed(.|\n)*row seven"):
        lake.write(frame, "t", mode="append")
    assert not [*Path(str(lake.config.data_path)).rglob("*.parquet")]


@pytest.mark.parametrize("given", [{"engine": "duckdb"}, {"engine": "native"}, {"distribution": "none"}])
def test_tasks_write_few_rows_if_the_caller_chooses_how(
    lake: DuckLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.delattr("pyspark.sql.classic.dataframe.DataFrame.toArrow")
    assert lake.write(few(spark), "t", mode="append", **given).rows_written == 10


def test_rows_that_are_few_only_by_estimate_are_written_by_tasks(
    lake: DuckLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pyspark.sql.classic.dataframe.DataFrame.toArrow")
    many = spark.range(10).selectExpr("explode(sequence(1, 2000)) AS id")
    assert lake.write(many, "t", mode="append").rows_written == 20_000
