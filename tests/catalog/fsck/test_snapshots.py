"""Counters, changes and snapshot ids: damage that makes the next commit fail."""

from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, meta, path_of, refused, repaired, rows, value

NEW_SNAPSHOT = (
    "INSERT INTO ducklake_snapshot SELECT 15, snapshot_time, schema_version, next_catalog_id, next_file_id"
    " FROM ducklake_snapshot WHERE snapshot_id = 14",
    "INSERT INTO ducklake_snapshot_changes VALUES (15, 'altered_table:1,inserted_into_table:6', NULL, NULL, NULL)",
)
INSERT_INTO_FILES = "INSERT INTO t SELECT range, 'x', 0 FROM range(20)"


def test_an_unknown_format_version_is_the_only_finding(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_metadata SET value = '9.9' WHERE key = 'version'", "DELETE FROM ducklake_table_stats")
    assert found(lake.fsck()) == [("unknown-format", None, None)]
    assert "version" in refused(lake, "FROM t")


def test_a_missing_metadata_table_is_found(lake: DuckLake) -> None:
    damage(lake, "DROP TABLE ducklake_macro")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.detail) == ("missing-metadata-table", "ducklake_macro")
    assert "ducklake_macro" in refused(lake, "FROM t")


def test_a_lake_without_a_snapshot_is_found(lake: DuckLake) -> None:
    damage(lake, "DELETE FROM ducklake_snapshot")
    assert found(lake.fsck()) == [("no-snapshot", None, None)]
    assert "No snapshot found" in refused(lake, "FROM t")


def test_a_snapshot_without_changes_is_found(lake: DuckLake) -> None:
    damage(lake, "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 3")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.severity, finding.detail) == ("snapshot-without-changes", "warning", "snapshot 3")


def test_changes_of_a_future_snapshot_fail_its_commit_until_they_are_removed(
    lake: DuckLake,
) -> None:
    damage(lake, "INSERT INTO ducklake_snapshot_changes VALUES (15, 'inserted_into_table:1', NULL, NULL, NULL)")
    assert "ducklake_snapshot_changes" in refused(lake, INSERT_INTO_FILES)
    assert repaired(lake) == [("changes-without-snapshot", None, None)]
    rows(lake, INSERT_INTO_FILES)


def test_a_tag_whose_snapshot_another_program_has_expired_is_found(lake: DuckLake) -> None:
    lake.tag("q3", 2)
    damage(
        lake,
        *(f"DELETE FROM {name} WHERE snapshot_id = 2" for name in ("ducklake_snapshot", "ducklake_snapshot_changes")),
    )
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.severity, finding.detail) == (
        "tag-without-snapshot",
        "warning",
        "tag q3 of snapshot 2",
    )


UNREADABLE = [
    "bogus:1",
    "inserted_into_table",
    "inserted_into_table:x",
    "created_table:t",
    "created_schema:plain",
    ",altered_table:1",
    'created_table:"main"."half',
]


def test_changes_that_the_engine_cannot_read_are_removed(lake: DuckLake) -> None:
    for snapshot, changes in enumerate(UNREADABLE):
        damage(
            lake,
            "UPDATE ducklake_snapshot_changes SET changes_made = NULL",
            f"UPDATE ducklake_snapshot_changes SET changes_made = '{changes}' WHERE snapshot_id = {snapshot}",
        )
        assert refused(lake, "FROM ducklake_snapshots('lake')")
    for snapshot, changes in enumerate(UNREADABLE):
        damage(lake, f"UPDATE ducklake_snapshot_changes SET changes_made = '{changes}' WHERE snapshot_id = {snapshot}")
    report = lake.fsck(repair=True)
    assert [finding.code for finding in report.repaired] == ["unknown-change-token"] * len(UNREADABLE)
    # The changes of these snapshots are lost.
    assert {finding.code for finding in report.findings} <= {"begun-without-change", "ended-without-change"}
    assert value(lake, "SELECT count(*) FROM ducklake_snapshots('lake')") == 16


def test_a_repair_keeps_the_readable_change_tokens(lake: DuckLake) -> None:
    readable = 'created_table:"a,b"."it""s:1",inserted_into_table:1'
    damage(lake, f"UPDATE ducklake_snapshot_changes SET changes_made = 'new:1,{readable},more:2' WHERE snapshot_id = 3")
    assert repaired(lake) == [("unknown-change-token", None, None)]
    assert meta(lake, "SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id = 3") == readable


def test_readable_changes_have_no_finding_of_their_own(lake: DuckLake) -> None:
    readable = ["''", "NULL", "'ALTERED_table:1'", "'altered_table:1,'", "'compacted_table:7'", "'inline_flush:1'"]
    for snapshot, changes in enumerate(readable):
        damage(lake, f"UPDATE ducklake_snapshot_changes SET changes_made = {changes} WHERE snapshot_id = {snapshot}")
    assert value(lake, "SELECT count(*) FROM ducklake_snapshots('lake')") == 15
    # They are readable, but do not describe the changes of these snapshots.
    assert set(lake.fsck().counts) == {"begun-without-change"}


def test_an_outdated_next_file_id_fails_every_commit_until_it_is_raised(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_snapshot SET next_file_id = 7 WHERE snapshot_id = 14")
    damage(lake, "UPDATE ducklake_snapshot SET next_file_id = 7 WHERE snapshot_id = 13")
    assert "ducklake_data_file" in refused(lake, INSERT_INTO_FILES)
    assert ("next-file-id-behind", None, None) in repaired(lake)
    assert len(rows(lake, INSERT_INTO_FILES)) == 1


@pytest.mark.parametrize(
    ("counter", "behind", "code"),
    [("next_catalog_id", 7, "next-catalog-id-behind"), ("schema_version", 6, "schema-version-behind")],
)
def test_other_outdated_counters_are_raised(lake: DuckLake, counter: str, behind: int, code: str) -> None:
    damage(lake, f"UPDATE ducklake_snapshot SET {counter} = {behind} WHERE snapshot_id = 14")
    assert code in {finding[0] for finding in repaired(lake)}
    assert meta(lake, f"SELECT {counter} FROM ducklake_snapshot WHERE snapshot_id = 15") > behind


def test_open_connections_miss_a_file_added_without_a_new_file_id(lake: DuckLake) -> None:
    with lake.connect() as con:
        assert con.execute("SELECT count(*) FROM other.u WHERE i >= 1000").fetchone() == (0,)
        damage(
            lake,
            *NEW_SNAPSHOT,
            "UPDATE ducklake_data_file SET begin_snapshot = 15 WHERE data_file_id = 7",
            "UPDATE ducklake_table_column_stats SET max_value = '9999' WHERE table_id = 6",
        )
    assert [finding[:2] for finding in repaired(lake)] == [("next-file-id-not-bumped", "other.u")]


def test_open_connections_miss_a_rename_without_a_new_schema_version(
    lake: DuckLake,
) -> None:
    with lake.connect() as con:
        con.execute("FROM t").fetchall()
        damage(
            lake,
            *NEW_SNAPSHOT,
            "INSERT INTO ducklake_column SELECT column_id, 15, NULL, table_id, column_order, 'renamed', column_type,"
            " initial_default, default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect"
            " FROM ducklake_column WHERE table_id = 1 AND column_id = 2",
            "UPDATE ducklake_column SET end_snapshot = 15 WHERE table_id = 1 AND column_id = 2 AND begin_snapshot < 15",
        )
        assert [column[0] for column in con.execute("FROM t").description] == ["i", "s", "d"]
        assert set(repaired(lake)) == {("schema-version-not-bumped", "main.t", None)}
        assert [column[0] for column in con.execute("FROM t").description] == ["i", "renamed", "d"]


def test_rows_of_an_uncommitted_snapshot_are_found_and_not_repaired(
    lake: DuckLake,
) -> None:
    damage(
        lake,
        "UPDATE ducklake_data_file SET begin_snapshot = 15 WHERE data_file_id = 7",
        "INSERT INTO ducklake_snapshot_changes VALUES (99, '', NULL, NULL, NULL)",
    )
    report = lake.fsck(repair=True)
    assert {finding.code for finding in report.findings} == {"not-committed", "changes-without-snapshot"}
    assert (report.repaired, report.repair_snapshot) == ([], None)
    (finding,) = [finding for finding in report.findings if finding.code == "not-committed"]
    assert (finding.table, finding.file) == ("other.u", report.findings[-1].file)
    assert value(lake, "SELECT count(*) FROM other.u") == 0
    rows(lake, INSERT_INTO_FILES)
    assert value(lake, "SELECT count(*) FROM other.u") == 50


def test_a_file_that_ends_before_it_begins_is_found(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_data_file SET end_snapshot = 1 WHERE data_file_id = 0")
    assert ("ends-before-it-begins", "main.t", path_of(lake, 0)) in found(lake.fsck())
    assert value(lake, "SELECT count(*) FROM t AT (VERSION => 3)") == 50


def test_a_catalog_without_a_lake_is_refused(tmp_path: Path) -> None:
    import sqlite3

    from ducklake_orch import errors
    from tests.support.refusals import refused as refusing

    sqlite3.connect(tmp_path / "lake.sqlite").execute("CREATE TABLE other (i INTEGER)").connection.close()
    refusing(errors.LakeNotFoundError, DuckLake.local(tmp_path / "lake").fsck, "holds no lake")
    refusing(errors.LakeNotFoundError, DuckLake.local(tmp_path / "none").fsck, "does not exist")
