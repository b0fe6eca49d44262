"""A session keeps the DataFrame of a table until the lake has another snapshot."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.spark import kept_frames, read_frame
from tests.support.spark_reads import execute


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    execute(lake, "CREATE TABLE t (k INTEGER, v VARCHAR)", "INSERT INTO t SELECT range, 'v' FROM range(20)")
    return lake


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The snapshots of the reads that are planned from the catalog."""
    planned: list[int] = []
    plan = read_frame._plan

    def counted(metadata: object, at: int, *rest: object) -> object:
        planned.append(at)
        return plan(metadata, at, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(read_frame, "_plan", counted)
    return planned


def test_an_unchanged_table_is_planned_once(lake: DuckLake, spark: SparkSession, plans: list[int]) -> None:
    for _ in range(2):
        assert lake.read("t", spark).count() == 20
        assert lake.read("t", spark, columns=["k"], where="k < 5").count() == 5
        assert DuckLake(lake.config).read("t", spark, columns=["k"]).columns == ["k"]
    assert len(plans) == 3
    execute(lake, "DELETE FROM t WHERE k < 3")
    for _ in range(2):
        assert lake.read("t", spark).count() == 17
    assert len(plans) == 4


def test_reads_of_the_past_and_of_other_sessions_are_planned_anew(
    lake: DuckLake, spark: SparkSession, plans: list[int]
) -> None:
    at = lake.snapshots(limit=1)[0].snapshot_id
    for _ in range(2):
        lake.read("t", spark, snapshot=at)
    lake.read("t", spark)
    lake.read("t", spark.newSession())
    assert len(plans) == 4
    spark.createDataFrame([], "x INT")  # makes the session active again


def test_a_lake_made_again_at_the_same_place_is_planned_anew(
    lake: DuckLake, spark: SparkSession, tmp_path: Path
) -> None:
    assert lake.read("t", spark).count() == 20
    (tmp_path / "lake.sqlite").unlink()
    shutil.rmtree(tmp_path / "lake.files")
    execute(lake, "CREATE TABLE t (k INTEGER, v VARCHAR)", "INSERT INTO t SELECT range, 'w' FROM range(30)")
    assert {tuple(row) for row in lake.read("t", spark).selectExpr("v", "k < 30").collect()} == {("w", True)}
    assert lake.read("t", spark).count() == 30


def test_two_reads_of_a_table_can_be_joined(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "DELETE FROM t WHERE k = 4", "COMMENT ON COLUMN t.k IS 'the key'")
    first, second, third = (lake.read("t", spark) for _ in range(3))
    for left, right in ((first, second), (second, third)):
        joined = left.join(right, left["k"] == right["k"] + 1)
        assert joined.count() == 17
        assert joined.select(left["k"], right["k"]).where(left["k"] == 1).collect() == [(1, 0)]
    assert second.schema == first.schema
    assert second.schema["k"].metadata == {"comment": "the key"}


def test_a_session_keeps_a_limited_number_of_frames_and_files(
    lake: DuckLake, spark: SparkSession, plans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_frames, "_MOST_FRAMES", 1)
    for columns in (["k"], ["v"], ["k"]):
        lake.read("t", spark, columns=columns)
    assert len(plans) == 3
    monkeypatch.setattr(kept_frames, "_MOST_FILES", 0)
    for _ in range(2):
        lake.read("t", spark, columns=["v"])
    assert len(plans) == 5
