"""Hand-written cases of what single statistics and partition values prove about a file."""

from collections.abc import Iterator
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.scan import classify
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.engine.session import open_session

# --- proofs by statistics --------------------------------------------------------------------------------------------

KNOWN = {"value_count": 10, "null_count": 0, "min_value": "'3'", "max_value": "'7'", "contains_nan": "NULL"}
UNMEASURED = {"value_count": 0, "null_count": 0, "min_value": "NULL", "max_value": "NULL"}


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metadata]:
    """Yield the metadata of a lake with a one-file table for every type. The tests write its statistics."""
    lake = DuckLake.local(tmp_path_factory.mktemp("crafted") / "lake", data_inlining_row_limit=0)
    kinds = [
        "INTEGER",
        "DOUBLE",
        "VARCHAR",
        "BOOLEAN",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMPTZ",
        "TIMETZ",
        "BLOB",
        "INTERVAL",
    ]
    with lake.connect() as con:
        for kind in kinds:
            con.execute(f"CREATE TABLE {kind.lower()}_table AS SELECT NULL::{kind} AS x FROM range(10)")
        con.execute("CREATE TABLE promoted (x FLOAT)")
        con.execute("INSERT INTO promoted SELECT 0.1 FROM range(10)")
        con.execute("ALTER TABLE promoted ALTER x TYPE DOUBLE")
    with lake.connect_metadata(read_only=False) as con:
        yield Metadata(con, lake.config)


@pytest.mark.parametrize(
    ("name", "stats", "where", "kept", "whole"),
    [
        ("integer_table", {}, "x = 5", True, False),
        ("integer_table", {}, "x = 8", False, False),
        ("integer_table", {}, "x BETWEEN 3 AND 7", True, True),
        ("integer_table", {}, "x IS NULL", False, False),
        ("integer_table", {"null_count": 1, "value_count": 9}, "x BETWEEN 3 AND 7", True, False),
        ("integer_table", {"null_count": 1, "value_count": 9}, "x IS NOT NULL", True, False),
        ("integer_table", {"null_count": 1, "value_count": 9}, "NOT (x < 3)", True, False),
        ("integer_table", {"null_count": 10, "value_count": 0}, "x IS NULL", True, True),
        ("integer_table", {"null_count": 10, "value_count": 0}, "x <> 5", False, False),
        # Other writers include NULLs in the value count, as the spec says.
        ("integer_table", {"null_count": 10, "value_count": 10}, "x IS NULL", True, True),
        ("integer_table", {"min_value": "NULL"}, "x < 0", True, False),
        ("integer_table", {"min_value": "NULL"}, "x > 7", False, False),
        ("integer_table", {"max_value": "'no number'"}, "x > 100", True, False),
        ("integer_table", {"value_count": "NULL", "null_count": "NULL"}, "x IS NOT NULL", True, False),
        ("integer_table", UNMEASURED, "x IS NULL", True, False),
        ("integer_table", UNMEASURED, "x = 5", True, False),
        ("timetz_table", UNMEASURED, "x IS NOT NULL", True, False),
        ("interval_table", UNMEASURED, "x > INTERVAL 1 DAY", True, False),
        ("double_table", {"contains_nan": 0}, "x > 7.5", False, False),
        ("double_table", {"contains_nan": 0}, "x < 7.5", True, True),
        ("double_table", {"contains_nan": 1}, "x > 7.5", True, False),
        ("double_table", {"contains_nan": 1}, "x < 7.5", True, False),
        ("double_table", {"contains_nan": 1}, "x < 3", False, False),
        ("double_table", {"contains_nan": "NULL"}, "x > 7.5", True, False),
        ("double_table", {"contains_nan": 0}, "x = 'nan'", False, False),
        ("double_table", {"contains_nan": 0, "max_value": "'inf'"}, "x > 1e308", True, False),
        # The engine truncates bounds, so no row has this value.
        ("varchar_table", {"min_value": "'aaa'", "max_value": "'aa{'"}, "x = 'aaaaaa'", True, False),
        ("varchar_table", {"min_value": "'aaa'", "max_value": "'aa{'"}, "starts_with(x, 'aa')", True, True),
        ("varchar_table", {"min_value": "'aaa'", "max_value": "'aa{'"}, "x LIKE 'aaa%'", True, False),
        ("varchar_table", {"min_value": "'aaa'", "max_value": "'aa{'"}, "x LIKE 'ab%'", False, False),
        ("varchar_table", {"max_value": "NULL"}, "x > 'é'", True, False),
        ("boolean_table", {"min_value": "'0'", "max_value": "'0'"}, "x", False, False),
        ("boolean_table", {"min_value": "'false'", "max_value": "'false'"}, "NOT x", True, True),
        ("boolean_table", {"min_value": "'0'", "max_value": "'true'"}, "x", True, False),
        ("date_table", {"min_value": "'2024-01-01'", "max_value": "'infinity'"}, "x > '9999-01-01'", True, False),
        ("date_table", {"min_value": "'2024-01-01'", "max_value": "'infinity'"}, "year(x) >= 2024", True, False),
        ("date_table", {"min_value": "'2024-01-01'", "max_value": "'2024-12-31'"}, "year(x) = 2024", True, True),
        (
            "timestamptz_table",
            {"min_value": "'2024-01-01 00:00:00+00'", "max_value": "'2024-01-01 10:30:00.5+00'"},
            "x < '2024-01-01 02:00:00+02'",
            False,
            False,
        ),
        ("timestamp_table", {"min_value": "'2024-01-01 00:00:00'", "max_value": "'2024-01-01 23:59:59.999999'"},
         "x::DATE = DATE '2024-01-01'", True, True),
        ("blob_table", {"min_value": "'61'", "max_value": "'61'"}, "x = 'zz'", True, False),
        # 0.1 in the narrower type of the file is greater than 0.1.
        ("promoted", {"min_value": "'0.1'", "max_value": "'0.1'", "contains_nan": 0}, "x > 0.1", True, False),
        ("promoted", {"min_value": "'0.1'", "max_value": "'0.1'", "contains_nan": 0}, "x > 0.2", False, False),
    ],
)  # fmt: skip
def test_statistics_prove_that_no_row_or_every_row_matches(
    crafted: Metadata, name: str, stats: dict[str, Any], where: str, kept: bool, whole: bool
) -> None:
    at = crafted.latest().snapshot_id
    table = crafted.table(table_name(name), at)
    changes = ", ".join(f"{column} = {value}" for column, value in (KNOWN | stats).items())
    crafted.con.execute(f"UPDATE ducklake_file_column_stats SET {changes} WHERE table_id = {table.table_id}")
    assert [all_match for _, all_match in classify(crafted, table, at, where)] == ([whole] if kept else [])


def test_a_file_without_statistics_is_neither_pruned_nor_matched_completely(crafted: Metadata) -> None:
    at = crafted.latest().snapshot_id
    table = crafted.table(table_name("integer_table"), at)
    crafted.con.execute(f"DELETE FROM ducklake_file_column_stats WHERE table_id = {table.table_id}")
    for where in ("x = 5", "x IS NULL", "x IS NOT NULL", "NOT (x = 5)", "x IN (1, 2)"):
        assert [all_match for _, all_match in classify(crafted, table, at, where)] == [False], where


# --- proofs by partition values --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metadata]:
    """Yield the metadata of tables with one layout each, without statistics."""
    lake = DuckLake.local(tmp_path_factory.mktemp("partitioned") / "lake", data_inlining_row_limit=0)
    moments = "['2023-12-31 23:59:59.999999', '2024-01-01', '2024-02-29 10:00:00', '2025-02-01', 'infinity', NULL]"
    layouts = {
        "by_text": ("VARCHAR", "['', 'a', NULL, 'NULL']", "x"),
        "by_year": ("TIMESTAMP", moments, "year(x)"),
        "by_month": ("TIMESTAMP", moments, "month(x)"),
        "by_year_and_month": ("TIMESTAMP", moments, "year(x), month(x)"),
        "by_day_of_zone": ("TIMESTAMPTZ", moments, "year(x), month(x), day(x)"),
        "by_bucket": ("VARCHAR", "['a', 'b', 'c', 'd', 'e', 'f', NULL]", "bucket(4, x)"),
    }
    with lake.connect() as con:
        for name, (kind, values, layout) in layouts.items():
            con.execute(f"CREATE TABLE {name} (x {kind})")
            con.execute(f"ALTER TABLE {name} SET PARTITIONED BY ({layout})")
            con.execute(f"INSERT INTO {name} SELECT unnest({values}::{kind}[])")
    with lake.connect_metadata(read_only=False) as con:
        con.execute("DELETE FROM ducklake_file_column_stats")
    with open_session(lake.config) as session:
        yield Metadata(session.instance.root.cursor(), lake.config)


@pytest.mark.parametrize(
    ("name", "where", "kept", "whole"),
    [
        ("by_text", "x = ''", {("",)}, {("",)}),
        ("by_text", "x IS NULL", {(None,)}, {(None,)}),
        ("by_text", "x = 'NULL'", {("NULL",)}, {("NULL",)}),
        ("by_text", "x <> 'a'", {("",), ("NULL",)}, {("",), ("NULL",)}),
        ("by_text", "x NOT LIKE 'N%'", {("",), ("a",)}, {("",), ("a",)}),
        ("by_year", "x >= '2024-01-01'", {("2024",), ("2025",), (None,)}, {("2024",), ("2025",)}),
        ("by_year", "x < '2024-01-01'", {("2023",), (None,)}, {("2023",)}),
        # Infinity has no year, so it is in the partition of NULL.
        ("by_year", "x IS NULL", {(None,)}, set()),
        ("by_year", "x IS NOT NULL", {("2023",), ("2024",), ("2025",), (None,)}, {("2023",), ("2024",), ("2025",)}),
        ("by_year", "year(x) = 2024", {("2024",), (None,)}, {("2024",)}),
        ("by_month", "month(x) = 2", {("2",), (None,)}, {("2",)}),
        ("by_month", "x >= '2025-01-01'", {("1",), ("2",), ("12",), (None,)}, set()),
        ("by_year_and_month", "x >= '2024-02-01'", {("2024", "2"), ("2025", "2"), (None, None)},
         {("2024", "2"), ("2025", "2")}),
        ("by_year_and_month", "x > '2024-02-10'", {("2024", "2"), ("2025", "2"), (None, None)}, {("2025", "2")}),
        ("by_year_and_month", "month(x) = 2 AND year(x) = 2024", {("2024", "2"), (None, None)}, {("2024", "2")}),
        # The days are in the unknown time zone of the writer.
        ("by_day_of_zone", "x > '2024-01-02'",
         {("2024", "1", "1"), ("2024", "2", "29"), ("2025", "2", "1"), (None, None, None)},
         {("2024", "2", "29"), ("2025", "2", "1")}),
    ],
)  # fmt: skip
def test_partition_values_prove_that_no_row_or_every_row_matches(
    partitioned: Metadata, name: str, where: str, kept: set[Any], whole: set[Any]
) -> None:
    at = partitioned.latest().snapshot_id
    judged = classify(partitioned, partitioned.table(table_name(name), at), at, where)
    assert {file.partition_values for file, _ in judged} == kept
    assert {file.partition_values for file, all_match in judged if all_match} == whole


def test_bucket_pruning_uses_the_engines_hash(partitioned: Metadata) -> None:
    at = partitioned.latest().snapshot_id
    table = partitioned.table(table_name("by_bucket"), at)
    for value in "abcdef":
        hashed = partitioned.rows(f"SELECT (murmur3_32('{value}') & 2147483647) % 4")[0][0]
        for where in (f"x = '{value}'", f"'{value}' = x", f"x IN ('{value}')", f"NOT (x <> '{value}')"):
            judged = classify(partitioned, table, at, where)
            assert [(file.partition_values, whole) for file, whole in judged] == [((str(hashed),), False)]
    assert [file.partition_values for file, _ in classify(partitioned, table, at, "x IS NULL")] == [(None,)]


def test_partition_values_under_a_wrong_index_prove_nothing(partitioned: Metadata) -> None:
    """The engine registers such indexes for files of two transforms of one column."""
    at = partitioned.latest().snapshot_id
    table = partitioned.table(table_name("by_year_and_month"), at)
    values = partitioned.table_sql("ducklake_file_partition_value")
    partitioned.con.execute("BEGIN")
    partitioned.con.execute(f"UPDATE {values} SET partition_key_index = 1 WHERE table_id = {table.table_id}")
    judged = classify(partitioned, table, at, "x < '2020-01-01'")
    partitioned.con.execute("ROLLBACK")
    assert [all_match for _, all_match in judged] == [False] * 5
