"""Appends by programs that write the metadata directly, with one mistake each."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, meta, refused, repaired, rows, value


def append(lake: DuckLake, **mistakes: Any) -> str:
    """Append 1000 to 1099 to `t` by changing the metadata, correctly except for the given mistakes."""
    path = Path(f"{lake.config.data_path}main/t/external.parquet")
    ids = mistakes.get("field_ids", ", FIELD_IDS {i: 1}")
    duckdb.connect().execute(
        f"COPY (SELECT range::INTEGER AS i FROM range(1000, 1100)) TO '{path}' (FORMAT parquet{ids})"
    )
    size, footer = (
        duckdb.connect()
        .execute(f"SELECT file_size_bytes, footer_size FROM parquet_file_metadata('{path}')")
        .fetchall()[0]
    )
    damage(
        lake,
        "INSERT INTO ducklake_snapshot SELECT snapshot_id + 1, snapshot_time, schema_version, next_catalog_id,"
        f" next_file_id + {mistakes.get('files', 1)} FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,"
        " record_count, file_size_bytes, footer_size, row_id_start) SELECT next_file_id - 1, 1, snapshot_id,"
        f" 'external.parquet', 1, 'parquet', 100, {size}, {footer}, {mistakes.get('row_id_start', 50)}"
        " FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        "UPDATE ducklake_table_stats SET record_count = record_count + 100, next_row_id = next_row_id + 100",
    )
    if mistakes.get("file_stats", True):
        damage(
            lake,
            "INSERT INTO ducklake_file_column_stats"
            " SELECT max(data_file_id), 1, 1, 400, 100, 0, '1000', '1099', NULL, NULL FROM ducklake_data_file",
        )
    if mistakes.get("table_stats", True):
        damage(lake, "UPDATE ducklake_table_column_stats SET max_value = '1099'")
    if (token := mistakes.get("token", "inserted_into_table:1")) is not None:
        last = "SELECT max(snapshot_id) FROM ducklake_snapshot"
        damage(lake, f"INSERT INTO ducklake_snapshot_changes VALUES (({last}), '{token}', 'external', NULL, NULL)")
    return str(path)


@pytest.fixture
def numbers(own: DuckLake) -> DuckLake:
    own.execute(["CREATE TABLE t AS SELECT range::INTEGER AS i FROM range(50)", "CREATE TABLE other (i INTEGER)"])
    return own


def added(lake: DuckLake) -> Any:
    return value(lake, "SELECT count(*) FROM t WHERE i >= 1000")


def test_a_correct_external_append_has_no_findings(numbers: DuckLake) -> None:
    append(numbers)
    assert numbers.fsck(deep=True, storage=True).findings == []
    rows(numbers, "UPDATE t SET i = i + 1 WHERE i >= 1000")
    assert (added(numbers), numbers.fsck(deep=True, storage=True).findings) == (100, [])


def test_an_append_without_a_new_file_id_is_repaired(numbers: DuckLake) -> None:
    damage(numbers, "UPDATE ducklake_snapshot SET next_file_id = 5 WHERE snapshot_id = 2")  # leaves a free file id
    with numbers.connect() as con:
        assert con.execute("SELECT count(*) FROM t WHERE i >= 1000").fetchone() == (0,)
        path = append(numbers, files=0)
        assert con.execute("SELECT count(*) FROM t WHERE i >= 1000").fetchone() == (0,)
        assert found(numbers.fsck(deep=True)) == [("next-file-id-not-bumped", "main.t", path)]
        repaired(numbers, deep=True)
        assert con.execute("SELECT count(*) FROM t WHERE i >= 1000").fetchone() == (100,)


def test_an_append_without_wider_table_bounds_is_repaired(numbers: DuckLake) -> None:
    path = append(numbers, table_stats=False)
    assert added(numbers) == 0
    assert repaired(numbers) == [("table-bounds-too-narrow", "main.t", path)]
    assert added(numbers) == 100


def test_an_append_without_file_statistics_is_found(numbers: DuckLake) -> None:
    path = append(numbers, file_stats=False)
    assert found(numbers.fsck(deep=True)) == [("file-without-statistics", "main.t", path)]
    assert added(numbers) == 100


def test_an_append_without_any_statistics_is_repaired(numbers: DuckLake) -> None:
    path = append(numbers, file_stats=False, table_stats=False)
    assert added(numbers) == 0
    report = numbers.fsck(deep=True, repair=True)
    assert found(report) == [("file-without-statistics", "main.t", path)]
    assert [finding.code for finding in report.repaired] == ["table-bounds-exclude-values"]
    assert added(numbers) == 100


def test_an_append_with_an_unknown_change_token_is_repaired(numbers: DuckLake) -> None:
    append(numbers, token="appended:1")
    assert refused(numbers, "FROM ducklake_snapshots('lake')")
    assert repaired(numbers) == [("unknown-change-token", None, None)]
    assert meta(numbers, "SELECT author FROM ducklake_snapshot_changes WHERE author IS NOT NULL") == "external"


def test_an_append_without_recorded_changes_is_found(numbers: DuckLake) -> None:
    append(numbers, token=None)
    assert [finding[0] for finding in found(numbers.fsck(deep=True))] == ["snapshot-without-changes"]


def test_an_append_without_row_ids_is_found(numbers: DuckLake) -> None:
    path = append(numbers, row_id_start="NULL")
    assert found(numbers.fsck(deep=True)) == [("file-without-row-ids", "main.t", path)]
    assert refused(numbers, "DELETE FROM t WHERE i > 1050")


def test_an_append_with_overlapping_row_ids_is_found(numbers: DuckLake) -> None:
    path = append(numbers, row_id_start=20)
    assert found(numbers.fsck()) == [("row-ids-overlap", "main.t", path)]


def test_an_append_without_field_ids_is_found(numbers: DuckLake) -> None:
    path = append(numbers, field_ids="")
    assert found(numbers.fsck(deep=True)) == [("file-without-field-ids", "main.t", path)]
