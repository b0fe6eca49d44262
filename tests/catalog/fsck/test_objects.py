"""Schemas, tables, columns, partition specs and options: every state in which a name is ambiguous or dangling."""

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import StatementError
from tests.catalog.fsck.damage import damage, found, refused

COLUMN = (
    "column_order, 'j', column_type, initial_default, default_value, nulls_allowed, parent_column,"
    " default_value_type, default_value_dialect FROM ducklake_column WHERE table_id = 1 AND column_id = 1"
)
DAMAGES = [
    (
        "table-lives-twice",
        "INSERT INTO ducklake_table SELECT table_id, table_uuid, 14, NULL, schema_id, 'second', path, path_is_relative"
        " FROM ducklake_table WHERE table_id = 1",
        "main.second",
    ),
    (
        "column-lives-twice",
        f"INSERT INTO ducklake_column SELECT column_id, 14, NULL, table_id, {COLUMN}",
        "main.t",
    ),
    ("layout-lives-twice", "INSERT INTO ducklake_partition_info VALUES (4, 2, 14, NULL)", "main.p"),
    ("duplicate-schema-name", "UPDATE ducklake_schema SET schema_name = 'MAIN' WHERE schema_id = 5", None),
    ("duplicate-table-name", "UPDATE ducklake_table SET table_name = 'T' WHERE table_id = 2", "main.T"),
    ("duplicate-table-name", "UPDATE ducklake_view SET view_name = 'T'", "main.t"),
    (
        "duplicate-column-name",
        "UPDATE ducklake_column SET column_name = 'I' WHERE table_id = 1 AND column_id = 2",
        "main.t",
    ),
    ("column-missing", "DELETE FROM ducklake_column WHERE table_id = 1 AND column_id = 2", "main.t"),
    (
        "column-order-twice",
        "UPDATE ducklake_column SET column_order = 1 WHERE table_id = 1 AND column_id = 2",
        "main.t",
    ),
    ("object-without-schema", "UPDATE ducklake_schema SET end_snapshot = 14 WHERE schema_id = 5", "other.u"),
    ("table-without-columns", "UPDATE ducklake_column SET end_snapshot = 14 WHERE table_id = 6", "other.u"),
    ("column-without-parent", "UPDATE ducklake_column SET parent_column = 9 WHERE table_id = 6", "other.u"),
    ("partition-key-without-column", "UPDATE ducklake_partition_column SET column_id = 7", "main.p"),
    ("no-schema-version", "DELETE FROM ducklake_schema_versions WHERE table_id = 6", "other.u"),
    (
        "duplicate-option",
        "INSERT INTO ducklake_metadata SELECT 'auto_compact', value, 'table', 6 FROM (SELECT 'true' AS value UNION"
        " SELECT 'false')",
        "other.u",
    ),
    ("odd-data-path", "UPDATE ducklake_metadata SET value = 'relative/' WHERE key = 'data_path'", None),
    ("odd-data-path", "UPDATE ducklake_metadata SET value = '/tmp//twice/' WHERE key = 'data_path'", None),
    ("odd-data-path", "UPDATE ducklake_metadata SET value = 's3a://bucket/' WHERE key = 'data_path'", None),
]


@pytest.mark.parametrize(("code", "statement", "table"), DAMAGES, ids=[f"{d[0]}-{n}" for n, d in enumerate(DAMAGES)])
def test_each_inconsistency_is_the_only_finding(lake: DuckLake, code: str, statement: str, table: str | None) -> None:
    damage(lake, statement)
    assert [(finding[0], finding[1]) for finding in found(lake.fsck())] == [(code, table)]


@pytest.mark.parametrize(
    ("statement", "sql"),
    [
        ("UPDATE ducklake_schema SET end_snapshot = 14 WHERE schema_id = 5", "FROM t"),
        ("UPDATE ducklake_column SET end_snapshot = 14 WHERE table_id = 6", "FROM other.u"),
        ("UPDATE ducklake_column SET parent_column = 9 WHERE table_id = 6", "FROM other.u"),
        (
            "UPDATE ducklake_partition_column SET column_id = 7",
            "INSERT INTO p SELECT range FROM range(20)",
        ),
    ],
)
def test_each_inconsistency_fails_a_statement(lake: DuckLake, statement: str, sql: str) -> None:
    damage(lake, statement)
    assert refused(lake, sql)


def test_names_with_dots_and_quotes_are_quoted(own: DuckLake) -> None:
    own.execute(['CREATE SCHEMA "a.b"', 'CREATE TABLE "a.b"."c""d" (i INTEGER)']).raise_for_error()
    damage(own, "DELETE FROM ducklake_column")
    assert found(own.fsck()) == [("table-without-columns", '"a.b"."c""d"', None)]


def test_a_bug_of_the_engine_that_ends_it_is_reported_and_found_by_fsck(lake: DuckLake) -> None:
    lake.execute("CREATE MACRO m(x) AS x + 1").raise_for_error()
    damage(lake, "DELETE FROM ducklake_macro_impl")
    with pytest.raises(StatementError, match=r"Opening lake `lake` failed: INTERNAL Error"):
        lake.read("t")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.detail) == ("macro-without-implementation", "macro m")
    damage(lake, "DELETE FROM ducklake_macro")
    assert lake.read("t").num_rows
