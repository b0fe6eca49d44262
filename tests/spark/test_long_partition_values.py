"""Partition values that are too long for the names of folders, written and read in Spark's tasks."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.catalog.lifecycle import compact
from ducklake_orch.spark.compact_in_tasks import SparkCompactor
from tests.support.readers_of_the_past import merges
from tests.support.spark_reads import check

LONG = ["x" * 300, "日本語" * 40]
ROWS = pa.table({"k": [*LONG, "short", None] * 3, "id": list(range(12))})


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def folders(lake: DuckLake) -> set[str]:
    return {path.name for path in Path(str(lake.config.data_path)).rglob("k=*") if path.is_dir()}


@pytest.mark.parametrize("distribution", ["none", "hash"])
def test_tasks_write_and_read_long_partition_values(lake: DuckLake, spark: SparkSession, distribution: str) -> None:
    frame = spark.createDataFrame(ROWS.to_pylist(), "k string, id bigint").repartition(2)
    lake.write(frame, "t", mode="append", engine="duckdb", partition_by=["k"], distribution=distribution)
    lake.write(ROWS, "t", mode="append")  # to the same folders
    assert len(folders(lake)) == 4
    assert lake.fsck(deep=True, storage=True).findings == []
    assert lake.read("t", spark).count() == 2 * len(ROWS)
    check(lake, spark, "t")
    check(lake, spark, "t", where=f"k = '{LONG[1]}'")


def test_tasks_merge_and_compact_long_partition_values(lake: DuckLake, spark: SparkSession) -> None:
    lake.write(ROWS, "t", mode="append", partition_by=["k"])
    changed = spark.createDataFrame([(LONG[0] + "y", 0), (LONG[1], 100)], "k string, id bigint")
    lake.merge(changed, "t", ["id"], engine="spark")
    done = compact(lake.config, "merge", merges(lake), engine=SparkCompactor(lake.config, spark))
    assert done.files_in > done.files_out
    values = {row["id"]: row["k"] for row in lake.read("t").to_pylist()}
    assert values == dict(zip(ROWS["id"].to_pylist(), ROWS["k"].to_pylist(), strict=True)) | {
        0: LONG[0] + "y",
        100: LONG[1],
    }
    assert len(folders(lake)) == 5
    assert lake.fsck(deep=True, storage=True).findings == []
