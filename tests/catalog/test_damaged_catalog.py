"""Errors about a damaged catalog name the value that is wrong."""

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import CatalogDamagedError
from tests.catalog.fsck.damage import damage
from tests.support.refusals import refused

ROWS = pa.table({"k": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(ROWS, "t", mode="append", partition_by=["bucket(2, k)"], sort_by=["k"])
    return lake


def test_a_value_of_another_type_is_named(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_sort_info SET end_snapshot = 'struct'")
    cell = "`ducklake_sort_info.end_snapshot` is 'struct', in a column of type BIGINT"
    refused(CatalogDamagedError, lambda: lake.write(ROWS, "t", mode="append"), cell, "Planning to write `main.t`")
    refused(CatalogDamagedError, lake.fsck, cell, "Restore the catalog from a backup")
    text = refused(CatalogDamagedError, lambda: lake.read("t"), 'column "end_snapshot"', "`ducklake-orch fsck`")
    assert "sqlite_all_varchar" not in text


def test_bytes_that_are_not_text_are_named(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_column SET begin_snapshot = X'FFFE'")
    refused(CatalogDamagedError, lambda: lake.read("t"), "can't decode byte")
    refused(CatalogDamagedError, lake.fsck, "`ducklake_column.begin_snapshot` is X'FFFE'")
    damage(lake, "UPDATE ducklake_column SET begin_snapshot = 1", "UPDATE ducklake_snapshot_changes SET author = X'FF'")
    refused(CatalogDamagedError, lake.snapshots, "`ducklake_snapshot_changes.author` is X'FF'")


def test_a_missing_value_is_named(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_snapshot SET next_file_id = NULL WHERE snapshot_id = 1")
    cell = "`ducklake_snapshot.next_file_id` is NULL"
    refused(CatalogDamagedError, lambda: lake.write(ROWS, "t", mode="append"), cell)


def test_a_missing_data_path_is_named(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_metadata SET scope_id = 2 WHERE key = 'data_path'")
    cell = "`ducklake_metadata` has no `data_path` of the lake"
    refused(CatalogDamagedError, lambda: lake.write(ROWS, "t", mode="append"), cell)
    refused(CatalogDamagedError, lambda: lake.read("t"), cell)


def test_a_value_is_named_although_it_hinders_the_search_for_others(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_partition_column SET column_id = X'FFFE'")
    cell = "`ducklake_partition_column.column_id` is X'FFFE'"
    refused(CatalogDamagedError, lake.fsck, cell)
    refused(CatalogDamagedError, lambda: lake.write(ROWS, "t", mode="append"), cell)


def test_bytes_in_statistics_that_a_condition_needs_are_an_error_of_the_family(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_file_column_stats SET table_id = X'FFFE' WHERE rowid = 1")
    refused(CatalogDamagedError, lambda: lake.read("t", where="k > 1"), "can't decode byte")


def test_the_table_of_a_delete_file_is_named(lake: DuckLake) -> None:
    lake.write(pa.table({"k": range(1000)}), "t", mode="append")
    lake.execute("DELETE FROM t WHERE k = 500").raise_for_error()
    damage(lake, "UPDATE ducklake_delete_file SET table_id = -1")
    cell = "`ducklake_delete_file.table_id` = -1 is in no row of `ducklake_table`"
    refused(CatalogDamagedError, lambda: lake.maintain(operations=["orphans"]), cell)


def test_an_unknown_id_is_named(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_partition_column SET column_id = 77")
    cell = "`ducklake_partition_column.column_id` = 77 is in no row of `ducklake_column`"
    refused(CatalogDamagedError, lambda: lake.table("t").partitions(), cell)


def test_an_error_without_damage_passes_unchanged(lake: DuckLake) -> None:
    with pytest.raises((AttributeError, TypeError)):
        lake.read("t", where=5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "change", ["DELETE FROM {} WHERE entry = 'stage'", "UPDATE {} SET data = 'eJw='", "UPDATE {} SET data = ''"]
)
def test_a_damaged_stage_is_named(change: str, lake: DuckLake) -> None:
    lake.stage("s").write(ROWS, "t", mode="append")
    damage(lake, change.replace("{}", "ducklake_orch_stages"))
    refused(CatalogDamagedError, lake.stages, "`ducklake_orch_stages`", "stage the work again")
    assert lake.read("t").num_rows == 3
