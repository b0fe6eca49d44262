"""Deletes by Spark tasks: the driver receives counts and paths, but no row positions."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.engine.fault_points import actions
from tests.support.row_history import row_ids

# The driver of this session accepts 1 MB of results: about 65,000 row positions.
ROWS = 300_000


def lake_of(folder: Path, spark: SparkSession, rows: int) -> DuckLake:
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "id % 7 AS x")
    lake.write(frame, "t", mode="append", distribution="none", engine="duckdb")
    return lake


def count(lake: DuckLake, at: int | None = None) -> tuple[int, int, int]:
    """Return the count, distinct count and sum of the ids, as DuckDB reads them."""
    version = "" if at is None else f" AT (VERSION => {at})"
    with lake.connect() as con:
        n, distinct, total = con.execute(f"SELECT count(*), count(DISTINCT id), sum(id) FROM t{version}").fetchall()[0]
    return n, distinct, total


def halve(lake: DuckLake, spark: SparkSession, rows: int) -> None:
    """Delete a quarter of the rows by delete files, then another quarter by rewriting the data files."""
    for remainder in (1, 3):
        done = lake.delete("t", f"id % 4 = {remainder}", spark=spark, engine="spark")
        assert (done.engine, done.rows_removed) == ("spark", rows // 4)
    evens = rows // 2
    assert count(lake) == (evens, evens, evens * (evens - 1))


def test_no_position_passes_through_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    lake = lake_of(tmp_path, spark, ROWS)
    ids = row_ids(lake, "t")
    before = lake.snapshots(limit=1)[0].snapshot_id
    halve(lake, spark, ROWS)
    assert count(lake, before) == (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
    assert row_ids(lake, "t").items() <= ids.items()
    updated = lake.update("t", {"x": "x + 1"}, "id % 4 = 0", spark=spark, engine="spark")
    assert (updated.engine, updated.rows_removed) == ("spark", ROWS // 4)
    assert row_ids(lake, "t").items() <= ids.items()
    assert lake.fsck(deep=True, storage=True).findings == []  # and no file of positions remains


def test_a_delete_after_concurrent_commits_records_its_own_snapshot(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(tmp_path, spark, 10_000)
    lake.execute("CREATE TABLE other (i INTEGER)").raise_for_error()
    concurrent_commits: list[Callable[[], object]] = [
        # The first deletes from the same file, so the delete is planned again; the second takes the next snapshot id.
        lambda: lake.delete("t", "id = 4", engine="duckdb"),
        lambda: lake.execute("INSERT INTO other VALUES (1)").raise_for_error(),
    ]

    def commit_concurrently() -> None:
        if concurrent_commits:
            with pytest.MonkeyPatch.context() as undisturbed:
                undisturbed.delitem(actions, "files.written")
                concurrent_commits.pop(0)()

    monkeypatch.setitem(actions, "files.written", commit_concurrently)
    done = lake.delete("t", "id % 10 = 1", spark=spark, engine="spark")
    monkeypatch.undo()
    assert (done.rows_removed, done.attempts, concurrent_commits) == (1000, 2, [])
    model = [n for n in range(10_000) if n % 10 != 1 and n != 4]
    assert count(lake) == (len(model), len(model), sum(model))
    before = [n for n in range(10_000) if n != 4]
    assert count(lake, done.snapshot_id - 1) == (len(before), len(before), sum(before))
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.full
def test_half_of_eight_million_rows_are_deleted_with_a_small_driver(tmp_path: Path, spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.maxResultSize") == "1m"  # the positions take 64 MB
    lake = lake_of(tmp_path, spark, 8_000_000)
    halve(lake, spark, 8_000_000)
    assert lake.fsck(deep=True, storage=True).findings == []
