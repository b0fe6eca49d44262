"""Busy, slow or full storage while executors write: at most one clear error, every row once, no stray file."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake, S3Storage, errors
from tests.servers.base import ServerUnavailable
from tests.servers.disk import small_disk
from tests.servers.proxy import FaultProxy
from tests.support.backends import LOCAL, S3_DISK, SQLITE, Backend
from tests.support.refusals import refused

MakeLake = Callable[..., DuckLake]
on_s3 = pytest.mark.parametrize("backend", [Backend(SQLITE, S3_DISK)], indirect=True, ids=str)


@dataclass
class ProxiedLake:
    """A lake on S3, reached directly and through a proxy."""

    direct: DuckLake
    lake: DuckLake
    proxy: FaultProxy

    def assert_whole(self, count: int) -> None:
        rows = self.direct.execute("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t").rows
        assert rows == [{"n": count, "ids": count}]
        assert self.direct.fsck(deep=True, storage=True).findings == []


@pytest.fixture
def proxied(make_lake: MakeLake, spark: SparkSession) -> Iterator[ProxiedLake]:
    direct = make_lake(data_inlining_row_limit=0)
    direct.write(spark.range(5), "t", mode="append")
    storage = direct.config.storage
    assert isinstance(storage, S3Storage)
    assert storage.endpoint
    host, _, port = storage.endpoint.rpartition("://")[2].partition(":")
    with FaultProxy(host, int(port)) as proxy:
        through = storage.model_copy(update={"endpoint": storage.endpoint.replace(f":{port}", f":{proxy.port}")})
        yield ProxiedLake(direct, DuckLake(direct.config.model_copy(update={"storage": through})), proxy)


@on_s3
def test_requests_to_busy_storage_are_retried(proxied: ProxiedLake, spark: SparkSession) -> None:
    proxied.proxy.answer_503(times=3)
    proxied.lake.write(spark.range(5, 1000, 1, 2), "t", mode="append")
    assert proxied.proxy.answers_503 == 3
    proxied.assert_whole(1000)


@on_s3
def test_storage_that_stays_busy_raises_storage_busy_error(proxied: ProxiedLake, spark: SparkSession) -> None:
    proxied.proxy.answer_503()
    message = refused(
        errors.StorageBusyError,
        lambda: proxied.lake.write(spark.range(5, 1000, 1, 2), "t", mode="append"),
        "main.t",
        "503",
    )
    assert "at org.apache" not in message
    proxied.proxy.restore()
    proxied.assert_whole(5)


@on_s3
def test_slow_storage_delays_but_does_not_fail_a_write(proxied: ProxiedLake, spark: SparkSession) -> None:
    proxied.proxy.delay(0.05)
    proxied.lake.write(spark.range(5, 1000, 1, 2), "t", mode="append")
    assert proxied.lake.read("t", spark, engine="duckdb").count() == 1000
    proxied.proxy.restore()
    proxied.assert_whole(1000)


@pytest.mark.parametrize("engine", ["duckdb", "native"])
@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_a_full_disk_raises_storage_error_and_leaves_no_file(
    make_lake: MakeLake, backend: Backend, spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    try:
        with small_disk(2 << 20, tmp_path / "disk") as folder:
            lake = make_lake(data_inlining_row_limit=0, storage=folder / "files")
            lake.write(spark.range(5), "t", mode="append", engine=engine)
            large = spark.range(0, 2_000_000, 1, 2).selectExpr("xxhash64(id) AS id")
            refused(errors.StorageError, lambda: lake.write(large, "t", mode="append", engine=engine), "No space left")
            assert lake.fsck(deep=True, storage=True).findings == []
            lake.write(spark.range(5, 1000, 1, 2), "t", mode="append", engine=engine)
            assert lake.table("t").count() == 1000
    except ServerUnavailable as error:
        if os.environ.get("REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(error))
