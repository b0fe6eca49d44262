"""Row changes whose rows Spark tasks search: the same rows that DuckDB finds in process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake, errors
from tests.support.backends import LOCAL, POSTGRES, S3_DISK, SQLITE, Backend
from tests.support.refusals import refused
from tests.support.row_history import row_ids
from tests.support.twin_lakes import ROWS, twins

MakeLake = Callable[..., DuckLake]
CONDITIONS = [
    "i % 7 = 3",
    "s IS NULL",
    "s = 'it''s'",
    "d >= DATE '2024-01-10' AND d < '2024-01-20'",
    "ts = TIMESTAMPTZ '2024-01-05 00:00:00+02'",
    "x IN (0.10, 0.20) OR later = 7",
    "NOT (s = 'a' AND i < 500)",
]


def rows(lake: DuckLake) -> list[dict[str, Any]]:
    return lake.execute("FROM t ORDER BY i", max_rows=None).rows


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK)], indirect=True, ids=str)
def test_both_engines_change_the_same_rows(make_lake: MakeLake, spark: SparkSession) -> None:
    duckdb_lake, spark_lake = twins(make_lake)
    for where in CONDITIONS:
        for lake, engine in ((duckdb_lake, "duckdb"), (spark_lake, "spark")):
            updated = lake.update("t", {"x": "x + 1"}, where, spark=spark, engine=engine)
            assert updated.engine == engine
        assert rows(duckdb_lake) == rows(spark_lake)
    for where in CONDITIONS:
        done = [
            lake.delete("t", where, spark=spark, engine=engine)
            for lake, engine in ((duckdb_lake, "duckdb"), (spark_lake, "spark"))
        ]
        assert done[0].rows_removed == done[1].rows_removed
        assert rows(duckdb_lake) == rows(spark_lake)
    assert spark_lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_small_changes_are_searched_in_the_driver_process(make_lake: MakeLake, spark: SparkSession) -> None:
    duckdb_lake, _ = twins(make_lake)
    assert duckdb_lake.delete("t", "i = 3", spark=spark).engine == "duckdb"
    refused(errors.ConfigError, lambda: duckdb_lake.delete("t", "i = 4", engine="spark"), "session")
    refused(errors.ConfigError, lambda: duckdb_lake.delete("t", "i = 4", engine="sparc"), "`engine`", "spark")


def test_many_files_in_a_task_need_no_more_memory_than_one(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0, task_memory_limit="128MiB")
    frame = spark.range(0, 200_000, 1, 100).selectExpr("id", "id % 7 AS x", "repeat(CAST(id AS STRING), 9) AS s")
    lake.write(frame, "t", mode="append", distribution="none", engine="duckdb")
    assert len(lake.table("t").files()) == 100
    done = lake.update("t", {"x": "x + 1"}, "id % 10 = 3", spark=spark, engine="spark")
    assert (done.engine, done.rows_removed) == ("spark", 20_000)
    assert lake.execute("SELECT sum(x) AS n FROM t").rows == [{"n": sum(n % 7 for n in range(200_000)) + 20_000}]
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_a_failed_search_raises_a_ducklake_orch_error(make_lake: MakeLake, spark: SparkSession) -> None:
    (lake, _) = twins(make_lake)
    Path(lake.table("t").files()[0].path).unlink()
    with pytest.raises(errors.DuckLakeOrchError, match=r"Finding rows of .* in Spark"):
        lake.delete("t", "i % 7 = 3", spark=spark, engine="spark")
    with pytest.raises(errors.DuckLakeOrchError):  # a later search in process reports its own error
        lake.delete("t", "i % 7 = 3")


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_lakes_with_on_connect_hooks_are_changed_in_the_driver_process(
    make_lake: MakeLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ducklake_orch.spark.row_finder.MIN_BYTES_FOR_SPARK", 1)
    monkeypatch.setattr("ducklake_orch.spark.row_workers.MIN_BYTES_FOR_SPARK", 1)
    lake = make_lake("one", on_connect=with_a_macro)
    lake.execute(f"CREATE TABLE t AS {ROWS.format(0, 1000)}").raise_for_error()
    assert lake.delete("t", "i < 10", spark=spark).engine == "duckdb"
    plain = make_lake("two")
    plain.execute(f"CREATE TABLE t AS {ROWS.format(0, 1000)}").raise_for_error()
    assert plain.delete("t", "i < 10", spark=spark).engine == "spark"


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK)], indirect=True, ids=str)
def test_tasks_find_replaced_rows_and_rewrite_retained_ones(
    make_lake: MakeLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_process(*_: Any) -> None:
        raise AssertionError("the driver process searches or writes rows")

    monkeypatch.setattr("ducklake_orch.spark.row_finder.MIN_BYTES_FOR_SPARK", 1)
    monkeypatch.setattr("ducklake_orch.spark.row_workers.MIN_BYTES_FOR_SPARK", 1)
    monkeypatch.setattr("ducklake_orch.catalog.search.row_positions.DuckDBFinder.find", in_process)
    monkeypatch.setattr("ducklake_orch.catalog.verbs.replace_rows.write_known_rows", in_process)
    lake = make_lake("one")
    lake.write(spark.range(0, 1000, 1, 2).selectExpr("id", "id % 10 AS part"), "t", mode="append")
    ids = row_ids(lake, "t")
    for part, first in ((3, 5000), (4, 6000)):  # the second exceeds 30 % deleted rows: the files are rewritten
        where = f"part = {part} OR part = {part + 3}"
        new = spark.range(first, first + 5).selectExpr("id", f"CAST({part} AS BIGINT) AS part")
        assert lake.write(new, "t", mode="replace_where", where=where).rows_removed == 200
    found = {
        row["id"]: row["rowid"] for row in lake.execute("SELECT id, rowid FROM t", max_rows=None).raise_for_error().rows
    }
    kept = {n: ids[n] for n in range(1000) if n % 10 not in {3, 6, 4, 7}}
    assert {n: row_id for n, row_id in found.items() if n < 1000} == kept
    assert sorted(n for n in found if n >= 1000) == [*range(5000, 5005), *range(6000, 6005)]
    assert lake.fsck(deep=True, storage=True).findings == []


def with_a_macro(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE OR REPLACE TEMP MACRO twice(x) AS 2 * x")
