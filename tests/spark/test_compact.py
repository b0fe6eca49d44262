"""Compaction by Spark executors has the same result as compaction by DuckDB in process."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.catalog.lifecycle import Way, compact
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.spark.compact_in_tasks import SparkCompactor
from tests.support.backends import LOCAL, POSTGRES, S3_DISK, SQLITE, Backend
from tests.support.readers_of_the_past import Past, merges, rewrites

MakeLake = Callable[..., DuckLake]


def make_table(lake: DuckLake) -> None:
    data = pa.table({"p": ["a b", "c"] * 50, "k": list(range(100))})
    for _ in range(3):
        lake.write(data, "t", mode="append", partition_by=["p", "bucket(2, k)"], sort_by=["k DESC"])
    lake.delete("t", "k % 20 = 3")


@pytest.mark.parametrize(
    ("backend", "way"),
    [(Backend(SQLITE, LOCAL), "rewrite"), (Backend(POSTGRES, S3_DISK), "merge")],
    indirect=["backend"],
    ids=str,
)
def test_spark_compacts_the_same_files_as_duckdb(make_lake: MakeLake, spark: SparkSession, way: Way) -> None:
    duckdb_lake, spark_lake = make_lake("here"), make_lake("there")
    for lake in (duckdb_lake, spark_lake):
        make_table(lake)
    pasts = [Past(lake) for lake in (duckdb_lake, spark_lake)]
    planned = [merges(lake) if way == "merge" else rewrites(lake) for lake in (duckdb_lake, spark_lake)]
    done = [
        compact(duckdb_lake.config, way, planned[0]),
        compact(spark_lake.config, way, planned[1], engine=SparkCompactor(spark_lake.config, spark)),
    ]
    figures = [
        (
            compaction.bins,
            compaction.files_in,
            compaction.files_out,
            compaction.rows_in,
            compaction.rows_out,
            compaction.delete_files_out,
        )
        for compaction in done
    ]
    assert figures[0] == figures[1]
    assert done[0].bins > 1
    for past in pasts:
        past.check()


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_a_failed_compaction_leaves_no_file(make_lake: MakeLake, spark: SparkSession) -> None:
    lake = make_lake()
    make_table(lake)
    planned = merges(lake)
    last = lake.table("t").files()[-1].path
    with open(last, "r+b") as file:
        good = file.read()
        file.seek(0)
        file.write(b"not a file of Parquet")
        file.truncate()
    with pytest.raises(DuckLakeOrchError, match="Compacting files"):
        compact(lake.config, "merge", planned, engine=SparkCompactor(lake.config, spark))
    with open(last, "wb") as file:
        file.write(good)
    assert lake.fsck(deep=True, storage=True).counts == {}
