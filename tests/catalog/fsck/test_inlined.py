"""Tables of inlined rows, and their registry."""

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import CatalogDamagedError
from tests.catalog.fsck.damage import damage, found, refused, value

INLINED = "ducklake_inlined_data_1_1"


def test_a_missing_registered_inlined_table_is_found_and_fails_every_read(lake: DuckLake) -> None:
    damage(lake, f"DROP TABLE {INLINED}")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.table, finding.detail) == (
        "inlined-table-missing",
        "main.t",
        f"there is no {INLINED}",
    )
    assert INLINED in refused(lake, "SELECT sum(i) FROM t")


def test_rows_of_an_unregistered_inlined_table_are_invisible(lake: DuckLake) -> None:
    assert value(lake, "SELECT count(*) FROM t WHERE i = 1000") == 1
    damage(lake, f"DELETE FROM ducklake_inlined_data_tables WHERE table_name = '{INLINED}'")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.table) == ("inlined-table-not-registered", "main.t")
    assert finding.detail == f"{INLINED} holds 1 rows"
    assert value(lake, "SELECT len(list(i)) FROM t WHERE i = 1000") is None


def test_leftover_inlined_tables_are_found(lake: DuckLake) -> None:
    columns = "(row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT)"
    damage(
        lake,
        f"CREATE TABLE ducklake_inlined_data_99_1 {columns}",
        f"CREATE TABLE ducklake_inlined_data_1_77 {columns}",
        "CREATE TABLE ducklake_inlined_delete_99 (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)",
    )
    findings = lake.fsck().findings
    assert {(finding.code, finding.severity) for finding in findings} == {("inlined-table-left-behind", "info")}
    assert sorted(finding.detail for finding in findings) == [
        "ducklake_inlined_data_1_77 is empty and not registered",
        "ducklake_inlined_data_99_1 belongs to table 99, which does not exist",
        "ducklake_inlined_delete_99 belongs to table 99, which does not exist",
    ]


def test_a_duplicate_inlined_row_is_read_twice(lake: DuckLake) -> None:
    damage(lake, f"INSERT INTO {INLINED} SELECT * FROM {INLINED}")
    assert found(lake.fsck()) == [("inlined-row-lives-twice", "main.t", None)]
    assert value(lake, "SELECT len(list(i)) FROM t WHERE i = 1000") == 2


@pytest.mark.parametrize("column", ["row_id", "begin_snapshot"])
def test_an_inlined_row_without_a_row_id_or_snapshot_is_found(column: str, lake: DuckLake) -> None:
    damage(lake, f"UPDATE {INLINED} SET {column} = NULL")
    assert ("inlined-row-damaged", "main.t", None) in found(lake.fsck())


def test_an_error_about_an_inlined_row_names_the_missing_value(lake: DuckLake) -> None:
    damage(lake, f"UPDATE {INLINED} SET begin_snapshot = NULL")
    with pytest.raises(CatalogDamagedError, match=f"`{INLINED}.begin_snapshot` is NULL"):
        lake.maintain()


def test_an_inlined_delete_without_a_file_is_found(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_inlined_delete_1 SET file_id = NULL")
    findings = lake.fsck().findings
    assert "1 rows of ducklake_inlined_delete_1 lack a file id, a row id or a snapshot" in [f.detail for f in findings]


def test_a_registration_for_another_table_or_version_is_found(lake: DuckLake) -> None:
    damage(lake, f"UPDATE ducklake_inlined_data_tables SET schema_version = 7 WHERE table_name = '{INLINED}'")
    assert ("inlined-table-misregistered", "main.t", None) in found(lake.fsck())


def test_a_table_that_is_registered_twice_is_found(lake: DuckLake) -> None:
    damage(lake, "INSERT INTO ducklake_inlined_data_tables SELECT * FROM ducklake_inlined_data_tables")
    assert "inlined-table-misregistered" in {finding.code for finding in lake.fsck().findings}
