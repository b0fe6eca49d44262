"""Partition columns of a table are partition columns of Spark's relation, with the values that DuckDB reads."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from tests.support.backends import AZURE, LOCAL, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.spark_reads import check, execute, read_rows

TEXTS = [
    "eu", "us-east.1", "007", "1e5", "true", "2024-01-01", "null", "NULL", "", None, "__HIVE_DEFAULT_PARTITION__",
    "a b", "é", "x=y", "%41", "a/b", ".", "..", "~", "+", "_h", "it's",
]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def by_day(lake: DuckLake, days: int = 4) -> None:
    rows = pa.table({"id": range(40), "day": [f"2024-01-0{n % days + 1}" for n in range(40)]})
    rows = rows.set_column(1, "day", rows["day"].cast(pa.date32()))
    lake.write(rows, "t", mode="append", partition_by=["day"])


def test_files_of_excluded_partitions_are_not_opened(lake: DuckLake, spark: SparkSession) -> None:
    by_day(lake)
    frame = lake.read("t", spark)
    for file in lake.table("t").files():
        if "2024-01-02" not in file.path:
            Path(file.path).write_bytes(b"no Parquet file")
    assert frame.where("day = DATE '2024-01-02' AND id < 20").count() == 5
    assert frame.where("day > DATE '2024-01-01' AND day < DATE '2024-01-03'").select("id").count() == 10


def test_the_log_tells_how_much_a_read_opens(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    by_day(lake)
    size = sum(file.bytes for file in lake.table("t").files() if "2024-01-02" in file.path)
    with caplog.at_level("INFO"):
        lake.read("t", spark, where="day = '2024-01-02'")
    assert f"read of `main.t` at snapshot 1: 1 files, {size} bytes, plan" in caplog.text


def test_a_join_excludes_partitions_by_its_other_side(lake: DuckLake, spark: SparkSession) -> None:
    by_day(lake)
    days = spark.sql("SELECT date_add(DATE '2024-01-01', CAST(id AS INT)) AS day, id % 2 AS odd FROM range(4)")
    days = spark.createDataFrame(days.collect(), days.schema)
    joined = lake.read("t", spark).join(days.where("odd = 1"), "day")
    assert "dynamicpruning" in plan_of(joined).lower()
    assert joined.count() == 20


NUMBERS = [0, -1, 7, 2**15 - 1, -(2**15), None]
VALUES: dict[str, list[Any]] = {
    "VARCHAR": TEXTS,
    "DATE": ["2024-02-29", "0001-01-01", "9999-12-31", "1582-10-10", None],
    "BOOLEAN": [True, False, None],
    "SMALLINT": NUMBERS,
    "INTEGER": NUMBERS,
    "BIGINT": NUMBERS,
    "DECIMAL(9,2)": NUMBERS,
    "DOUBLE": NUMBERS,
}


@pytest.mark.parametrize("kind", VALUES)
def test_partition_values_are_those_of_the_files(lake: DuckLake, spark: SparkSession, kind: str) -> None:
    values = VALUES[kind]
    lake.create_table("t", {"p": kind, "q": "INTEGER"}, partition_by=["p"])
    texts = pa.array([None if value is None else str(value) for value in values])
    given = pa.table({"p": texts, "q": range(len(values))})
    with lake.connect() as con:
        con.register("given", given)
        con.execute(f"INSERT INTO t SELECT CAST(p AS {kind}), q FROM given")
        con.execute(f"INSERT INTO t SELECT CAST(p AS {kind}), q + 100 FROM given")
    check(lake, spark)
    for number, value in enumerate(values):
        text = str(value).replace("'", "\\'")
        condition = "p IS NULL" if value is None else f"p = CAST('{text}' AS {kind.replace('VARCHAR', 'STRING')})"
        found = [row.q for row in lake.read("t", spark).where(condition).collect()]
        assert sorted(found) == [number, number + 100], value


def test_two_keys_with_deletions_renames_and_other_specs(lake: DuckLake, spark: SparkSession) -> None:
    rows = pa.table({"id": range(60), "region": ["eu", "us", "north sea"] * 20, "n": [n % 4 for n in range(60)]})
    lake.write(rows, "t", mode="append", partition_by=["region", "n"])
    check(lake, spark)
    assert "PartitionFilters: [isnotnull(region" in plan_of(lake.read("t", spark).where("region = 'eu'"))
    execute(lake, "DELETE FROM t WHERE id % 7 = 0")
    check(lake, spark)
    execute(lake, "ALTER TABLE t SET PARTITIONED BY (n)", "INSERT INTO t VALUES (100, 'eu', 9)")
    check(lake, spark)
    execute(lake, "ALTER TABLE t RENAME COLUMN n TO m", "INSERT INTO t VALUES (101, 'eu', 9)")
    check(lake, spark)
    execute(lake, "ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 5", "INSERT INTO t VALUES (102, 'eu', 9, 1)")
    check(lake, spark)
    assert read_rows(lake.read("t", spark, columns=["m"]).where("m = 9")) == ["[9]"] * 3
    assert read_rows(lake.read("t", spark, columns=["id"], where="m = 9")) == ["[100]", "[101]", "[102]"]
    lake.maintain(operations=["rewrite", "merge"], tables=["t"])
    check(lake, spark)


@pytest.mark.parametrize("partition_by", [["year(at)"], ["bucket(4, id)"], ["region", "day(at)"]])
def test_transforms_are_no_columns(lake: DuckLake, spark: SparkSession, partition_by: list[str]) -> None:
    at = pa.array([n * 86_400_000_000 * 100 for n in range(20)], pa.timestamp("us"))
    rows = pa.table({"id": range(20), "region": ["eu", "us"] * 10, "at": at, "year": range(20)})
    lake.write(rows, "t", mode="append", partition_by=partition_by)
    check(lake, spark)
    assert "PartitionFilters: []" in plan_of(lake.read("t", spark).where("region = 'eu'"))


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(SQLITE, AZURE)], indirect=True, ids=str)
def test_partition_columns_alone_are_read(make_lake: MakeLake, spark: SparkSession) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    by_day(lake)
    assert lake.read("t", spark, columns=["day"]).distinct().count() == 4
    assert lake.read("t", spark).select("day").count() == 40
