"""Encrypted lakes in Spark: tasks write, search, stage and read encrypted files, and no key is shown."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from tests.catalog.test_encryption import check_files
from tests.support.backends import on_sqlite
from tests.support.lakes import MakeLake
from tests.support.spark_reads import plan_of

SHOWN = "k", "s"


@pytest.fixture
def lake(make_lake: MakeLake) -> Iterator[DuckLake]:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    yield lake
    check_files(lake)
    assert lake.fsck(deep=True, storage=True).counts == {}


def keys_of(lake: DuckLake) -> list[str]:
    with lake.connect() as con:
        found = con.execute("SELECT encryption_key FROM __ducklake_metadata_lake.ducklake_data_file").fetchall()
    return [key for (key,) in found]


@on_sqlite
def test_tasks_write_and_change_encrypted_files(
    lake: DuckLake, spark: SparkSession, event_log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    frame = spark.range(0, 3000, 1, 2).selectExpr("id AS k", "id % 2 AS p", "concat('secret ', id) AS s")
    assert lake.write(frame, "t", mode="append", partition_by=["p"]).engine == "duckdb"
    changed = spark.range(2000, 4000, 1, 2).selectExpr("id AS k", "id % 2 AS p", "concat('secret new ', id) AS s")
    lake.merge(changed.repartition(2), "t", keys=["k"])
    lake.update("t", {"s": "'secret ' || k"}, "k >= 3500", spark=spark, engine="spark")
    lake.delete("t", "k % 10 = 3", spark=spark, engine="spark")
    wanted = [(k, f"secret {k}" if k < 2000 or k >= 3500 else f"secret new {k}") for k in range(4000) if k % 10 != 3]
    for engine in ("auto", "duckdb"):
        read = lake.read("t", spark, engine=engine)
        assert sorted(map(tuple, read.select(*SHOWN).collect())) == wanted
    policy = {
        "merge": {"min_files": 2, "engine": "spark", "settled_after": 0},
        "rewrite": {"engine": "spark", "delete_threshold": 0.01},
    }
    lake.maintain(policy, ["rewrite", "merge"], spark=spark).raise_for_error()
    assert sorted(map(tuple, lake.read("t", spark).select(*SHOWN).collect())) == wanted
    shown = caplog.text + plan_of(read) + "".join(path.read_text() for path in event_log.rglob("*") if path.is_file())
    assert not [key for key in keys_of(lake) if key in shown]


@on_sqlite
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_streams_write_encrypted_files(lake: DuckLake, spark: SparkSession, tmp_path: Path, mode: str) -> None:
    lake.write(spark.range(1, 40).selectExpr("id AS k", "concat('secret ', id) AS s"), "source", mode="append")
    lake.register(spark)
    options = {"table": "t", "mode": mode} | ({"keys": "k"} if mode == "merge" else {})
    writer = lake.read_stream(spark, "source", start="earliest").select(*SHOWN).writeStream.format("ducklake")
    writer = writer.options(**options).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(tuple, lake.read("t", spark).select(*SHOWN).collect())) == [
        (k, f"secret {k}") for k in range(1, 40)
    ]
