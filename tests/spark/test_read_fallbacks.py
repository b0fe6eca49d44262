"""Reads that Spark's own reader cannot do: buckets, encrypted files, views, deletion vectors, missing files."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    ConfigError,
    FileNotUsableError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
    UnsupportedStatementError,
)
from tests.support.backends import AZURE, POSTGRES, S3_MEMORY, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.spark_reads import check, execute, expected, plan_of, read_rows


@pytest.fixture
def local(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


@pytest.mark.parametrize("backend", [Backend(SQLITE, S3_MEMORY), Backend(POSTGRES, AZURE)], indirect=True, ids=str)
def test_tasks_read_a_bucket_and_expose_no_secret(
    make_lake: MakeLake, spark: SparkSession, caplog: pytest.LogCaptureFixture, event_log: Path
) -> None:
    lake = make_lake()
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, p VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (p)",
        "INSERT INTO t SELECT range, 'a b' FROM range(100)",
        "INSERT INTO t SELECT range, NULL FROM range(50)",
        "DELETE FROM t WHERE k BETWEEN 3 AND 40",
        "INSERT INTO t VALUES (1, 'inlined')",
    )
    caplog.set_level(logging.DEBUG)
    check(lake, spark, engines=["native", "duckdb"], where="k <> 2")
    assert "does not reach" in caplog.text
    frame = lake.read("t", spark)
    shown = plan_of(frame) + str(frame._jdf.queryExecution().toString()) + caplog.text
    shown += "".join(path.read_text() for path in event_log.glob("**/*") if path.is_file())
    shown += str(spark.sparkContext.getConf().getAll())
    secrets = lake.config.storage.secret_values() if lake.config.storage else []
    assert secrets
    assert not [secret for secret in secrets if secret in shown]


def test_encrypted_files_are_read_by_duckdb(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", encrypted=True, extensions=["httpfs"])
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, v VARCHAR)",
        "INSERT INTO t SELECT range, 'v' FROM range(100)",
        "ALTER TABLE t RENAME v TO w",
        "ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 4",
        "DELETE FROM t WHERE k BETWEEN 3 AND 40",
        "INSERT INTO t SELECT range, 'v', 5 FROM range(100)",
    )
    frame = lake.read("t", spark)
    assert read_rows(frame) == expected(lake, "FROM t")


def test_a_view_is_refused_in_spark_and_read_without_it(local: DuckLake, spark: SparkSession) -> None:
    execute(
        local,
        "CREATE TABLE t (k INTEGER)",
        "INSERT INTO t SELECT range FROM range(20)",
        "CREATE VIEW v AS SELECT k * 2 AS twice FROM t",
    )
    with pytest.raises(UnsupportedStatementError, match="is a view"):
        local.read("v", spark)
    found = local.read("v", columns=["TWICE"], where="twice > 10")
    assert sorted(found["twice"].to_pylist()) == list(range(12, 40, 2))
    assert spark.createDataFrame(found).count() == 14


def test_missing_tables_columns_and_snapshots_are_named(local: DuckLake, spark: SparkSession) -> None:
    execute(local, "CREATE TABLE orders (k INTEGER)", "INSERT INTO orders SELECT range FROM range(20)")
    for session in (None, spark):
        with pytest.raises(ObjectNotFoundError, match="order") as missing:
            local.read("order", session)
        assert "main.orders" in str(missing.value)
        with pytest.raises(ObjectNotFoundError, match="kk"):
            local.read("orders", session, columns=["kk"])
        with pytest.raises(SnapshotNotFoundError):
            local.read("orders", session, snapshot=99)
        with pytest.raises(ConfigError, match="columns"):
            local.read("orders", session, columns="k")
        with pytest.raises(ConfigError, match="columns"):
            local.read("orders", session, columns=[])
    with pytest.raises(ConfigError, match="nativ"):
        local.read("orders", spark, engine="nativ")  # type: ignore[call-overload]


def test_a_frame_keeps_its_snapshot_and_reports_deleted_files(local: DuckLake, spark: SparkSession) -> None:
    execute(local, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(20)")
    frames = {engine: local.read("t", spark, engine=engine) for engine in ("native", "duckdb")}
    execute(local, "INSERT INTO t SELECT range FROM range(20)", "DELETE FROM t")
    assert [frame.count() for frame in frames.values()] == [20, 20]
    first_write = local.snapshots()[-3].snapshot_id
    for path in Path(str(local.config.data_path)).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(FileNotUsableError, match="no longer exists") as refused:
        local.read("t", spark, snapshot=first_write + 1, engine="native")
    assert "retained" in str(refused.value)
    with pytest.raises(Exception, match="must be retained for longer than a read takes"):
        frames["duckdb"].count()
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        frames["native"].count()


@pytest.mark.parametrize("engine", ["native", "duckdb"])
def test_spark_reads_and_changes_files_with_deletion_vectors(engine: Any, tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    execute(lake, "CREATE TABLE t (k INTEGER)", "INSERT INTO t SELECT range FROM range(20)")
    execute(lake, "INSERT INTO t SELECT range FROM range(100, 120)")
    execute(lake, "CALL ducklake_set_option('lake', 'write_deletion_vectors', true)")  # as another program may set it
    before = lake.snapshots(limit=1)[0].snapshot_id
    execute(lake, "DELETE FROM t WHERE k % 4 = 3")
    left = [k for k in [*range(20), *range(100, 120)] if k % 4 != 3]

    def read(**options: Any) -> list[int]:
        return sorted(row.k for row in lake.read("t", spark, engine=engine, **options).collect())

    assert read() == left
    assert read(snapshot=before) == [*range(20), *range(100, 120)]
    assert read(where="k > 110") == [k for k in left if k > 110]
    assert lake.changes("t", from_snapshot=before + 1, spark=spark).filter("change_type = 'delete'").count() == 10
    lake.merge(spark.createDataFrame([(3,), (4,), (500,)], "k INT"), "t", keys=["k"])
    lake.delete("t", "k = 0")
    assert read() == sorted({*left, 3, 500} - {0})
    lake.maintain(
        {"rewrite": {"delete_threshold": 0.01, "engine": "spark"}}, ["rewrite"], spark=spark
    ).raise_for_error()
    assert read() == sorted({*left, 3, 500} - {0})


def test_executor_code_imports_neither_pydantic_nor_pyspark() -> None:
    code = (
        "import sys\n"
        "sys.modules['pydantic'] = sys.modules['pyspark'] = sys.modules['sqlglot'] = None\n"
        "import ducklake_orch.spark.read_task"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
