"""With `workload = true`, reads in Spark are counted by the columns of their conditions."""

import pyarrow as pa
from pyspark.sql import SparkSession

from ducklake_orch.catalog.scan import write_reads
from tests.support.backends import on_sqlite
from tests.support.lakes import MakeLake


@on_sqlite
def test_reads_in_spark_are_counted(make_lake: MakeLake, spark: SparkSession) -> None:
    lake = make_lake("lake", workload=True)
    for number in range(3):
        lake.write(pa.table({"id": [number * 10, number * 10 + 5]}), "t", mode="append")
    for _ in range(2):  # the second read takes the DataFrame of the first
        assert lake.read("t", spark, where="id < 10").count() == 2
    lake.read("t", spark)
    write_reads(lake.config, now=True)
    assert [(entry.column, entry.reads, entry.files, entry.opened) for entry in lake.workload()] == [
        (None, 3, 3.0, 1.0),
        ("id", 2, 3.0, 1.0),
    ]
