"""Statistics that the engine trusts, and the states in which they are wrong."""

from typing import Any

import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, meta, path_of, repaired, rows, script, value


def ids(lake: DuckLake, table: str = "t") -> tuple[Any, Any]:
    return value(lake, f"SELECT count(*) FROM {table}"), value(lake, f"SELECT count(DISTINCT rowid) FROM {table}")


class TestTableCounts:
    def test_missing_table_statistics_are_repaired(self, lake: DuckLake) -> None:
        damage(lake, "DELETE FROM ducklake_table_stats WHERE table_id = 6")
        assert repaired(lake) == [("table-statistics-missing", "other.u", None)]
        rows(lake, "INSERT INTO other.u SELECT range FROM range(50)")
        assert ids(lake, "other.u") == (100, 100)

    def test_missing_table_statistics_are_not_repaired_if_files_hold_row_ids(self, own: DuckLake) -> None:
        own.execute(
            [
                "CREATE TABLE t AS SELECT range AS i FROM range(100)",
                "DELETE FROM t WHERE i < 50",
                "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
            ]
        ).raise_for_error()
        damage(own, "DELETE FROM ducklake_table_stats")
        report = own.fsck(repair=True)
        assert (found(report), report.repaired) == ([("table-statistics-missing", "main.t", None)], [])

    @pytest.mark.parametrize("table", ["ducklake_table_stats", "ducklake_table_column_stats"])
    def test_duplicate_table_statistics_are_found(self, lake: DuckLake, table: str) -> None:
        damage(lake, f"INSERT INTO {table} SELECT * FROM {table} WHERE table_id = 6")
        assert ("table-statistics-twice", "other.u", None) in found(lake.fsck())

    def test_a_record_count_that_is_too_low_is_repaired(self, own: DuckLake) -> None:
        own.execute(["CREATE TABLE t AS SELECT range AS i FROM range(100)", "DELETE FROM t WHERE i >= 50"])
        damage(own, "UPDATE ducklake_table_stats SET record_count = 50")
        assert own.fsck().findings == []  # as after a rewrite; only the bounds show the difference
        assert value(own, "SELECT max(i) FROM t") == 99
        damage(own, "UPDATE ducklake_table_stats SET record_count = 49")
        assert repaired(own) == [("record-count-behind", "main.t", None)]
        assert value(own, "SELECT max(i) FROM t") == 49

    def test_a_next_row_id_below_the_row_ids_of_files_is_raised(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 20 WHERE table_id = 6")
        assert repaired(lake) == [("next-row-id-behind", "other.u", None)]
        rows(lake, "INSERT INTO other.u SELECT range FROM range(50)")
        assert ids(lake, "other.u") == (100, 100)

    def test_a_next_row_id_below_the_row_ids_of_inlined_rows_is_raised(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 100 WHERE table_id = 1")
        assert repaired(lake) == [("next-row-id-behind", "main.t", None)]

    def test_transaction_local_row_ids_of_the_engine_have_no_finding(self, own: DuckLake) -> None:
        own.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        sql = ["INSERT INTO t SELECT range FROM range(5)", "UPDATE t SET i = i + 1 WHERE i < 3"]
        own.execute(sql, atomic=True).raise_for_error()
        assert own.fsck(deep=True).findings == []


class TestTableBounds:
    def test_bounds_that_exclude_rows_of_files_are_repaired(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_table_column_stats SET max_value = '70' WHERE table_id = 1 AND column_id = 1")
        assert value(lake, "SELECT count(*) FROM t WHERE i > 90") == 0
        assert repaired(lake) == [("table-bounds-too-narrow", "main.t", path_of(lake, 1))]
        assert value(lake, "SELECT count(*) FROM t WHERE i > 90") == 10

    def test_bounds_that_exclude_inlined_rows_are_repaired(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_table_column_stats SET max_value = '99' WHERE table_id = 1 AND column_id = 1")
        assert value(lake, "SELECT count(*) FROM t WHERE i > 500") == 0
        assert repaired(lake) == [("table-bounds-too-narrow", "main.t", None)]
        assert value(lake, "SELECT count(*) FROM t WHERE i > 500") == 1

    @pytest.mark.parametrize("rows_each", [5, 50], ids=["inlined", "in files"])
    def test_the_engines_narrow_bounds_after_a_type_promotion_are_repaired(self, own: DuckLake, rows_each: int) -> None:
        insert = f"INSERT INTO t SELECT {{}} FROM range({rows_each})"
        script(
            own,
            "CREATE TABLE t (i INTEGER)",
            insert.format(1),
            "FROM t",  # caches the old statistics
            "ALTER TABLE t ALTER i TYPE BIGINT",
            insert.format(2),
            insert.format(3),
        )
        assert value(own, "SELECT count(*) FROM t WHERE i = 1") == 0
        assert [finding[:2] for finding in repaired(own)] == [("table-bounds-too-narrow", "main.t")]
        assert value(own, "SELECT count(*) FROM t WHERE i = 1") == rows_each

    def test_bounds_dropped_after_a_type_promotion_are_repaired_before_an_insert(self, own: DuckLake) -> None:
        script(
            own,
            "CREATE TABLE t (i INTEGER)",
            "INSERT INTO t SELECT 1 FROM range(50)",
            "FROM t",
            "ALTER TABLE t ALTER i TYPE BIGINT",
            "INSERT INTO t SELECT 2 FROM range(50)",
        )
        assert value(own, "SELECT count(*) FROM t WHERE i = 1") == 50
        assert repaired(own) == [("table-bounds-forgotten", "main.t", path_of(own, 0))]
        rows(own, "INSERT INTO t SELECT 3 FROM range(50)")
        assert own.fsck(deep=True).findings == []
        assert [value(own, f"SELECT count(*) FROM t WHERE i = {n}") for n in (1, 2, 3)] == [50, 50, 50]

    def test_bounds_dropped_by_a_rewrite_after_a_file_of_nulls_are_repaired(self, own: DuckLake) -> None:
        own.execute(
            [
                "CREATE TABLE t (i INTEGER, s VARCHAR)",
                "INSERT INTO t SELECT range, NULL FROM range(50)",
                "INSERT INTO t SELECT range, 'n' FROM range(50)",
                "INSERT INTO t SELECT range + 100, 'y' FROM range(50)",
                "DELETE FROM t WHERE i >= 120",
                "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
            ]
        ).raise_for_error()
        assert [(finding.code, finding.table) for finding in own.fsck().findings] == [
            ("table-bounds-forgotten", "main.t")
        ]
        rows(own, "INSERT INTO t SELECT 200, 'z' FROM range(50)")
        assert value(own, "SELECT count(*) FROM t WHERE s = 'n'") == 0
        assert [finding[0] for finding in repaired(own, deep=True)] == [
            "table-bounds-too-narrow",
            "table-bounds-exclude-values",
        ]
        assert value(own, "SELECT count(*) FROM t WHERE s = 'n'") == 50

    def test_a_file_without_bounds_leaves_the_table_bounds_unproven(self, own: DuckLake) -> None:
        own.execute(
            [
                "CREATE TABLE t (s VARCHAR)",
                "INSERT INTO t SELECT repeat('é', 300) FROM range(50)",  # too long for a bound of the engine
                "INSERT INTO t SELECT 'a' FROM range(50)",
            ]
        ).raise_for_error()
        assert value(own, "SELECT count(*) FROM t WHERE s > 'b'") == 0
        assert repaired(own, deep=True) == [
            ("table-bounds-unproven", "main.t", path_of(own, 0)),
            ("table-bounds-exclude-values", "main.t", path_of(own, 0)),
        ]
        assert value(own, "SELECT count(*) FROM t WHERE s > 'b'") == 50
        rows(own, "INSERT INTO t SELECT 'z' FROM range(50)")
        assert value(own, "SELECT count(*) FROM t WHERE s > 'b'") == 100
        assert own.fsck(deep=True).findings == []

    def test_unrecorded_nulls_are_repaired(self, own: DuckLake) -> None:
        own.execute("CREATE TABLE t AS SELECT nullif(range, 7) AS i FROM range(50)").raise_for_error()
        damage(own, "UPDATE ducklake_table_column_stats SET contains_null = 0")
        assert value(own, "SELECT count(*) FROM t WHERE i IS NULL") == 0
        assert repaired(own) == [("table-hides-nulls", "main.t", path_of(own, 0))]
        assert value(own, "SELECT count(*) FROM t WHERE i IS NULL") == 1

    def test_unrecorded_nan_is_repaired(self, own: DuckLake) -> None:
        sql = "SELECT CASE WHEN range = 7 THEN 'nan'::DOUBLE ELSE range END AS d FROM range(50)"
        own.execute(f"CREATE TABLE t AS {sql}").raise_for_error()
        assert own.fsck(deep=True).findings == []
        damage(
            own,
            "UPDATE ducklake_table_column_stats SET contains_nan = 0",
            "UPDATE ducklake_file_column_stats SET contains_nan = 1",
        )
        assert value(own, "SELECT count(*) FROM t WHERE d > 100") == 0
        assert repaired(own) == [("table-hides-nan", "main.t", path_of(own, 0))]
        assert value(own, "SELECT count(*) FROM t WHERE d > 100") == 1

    def test_bounds_are_compared_by_value_in_every_type(self, own: DuckLake) -> None:
        low = ", ".join(f"'{low}'::{kind} AS c{n}" for n, (kind, low, _) in enumerate(BOUNDS))
        high = ", ".join(f"'{high}'::{kind}" for kind, _, high in BOUNDS)
        own.execute(f"CREATE TABLE t AS SELECT {low} UNION ALL SELECT {high} FROM range(50)").raise_for_error()
        assert own.fsck(deep=True).findings == []
        before = rows(own, "SELECT min(COLUMNS(*)), max(COLUMNS(*)) FROM t")
        damage(own, "UPDATE ducklake_table_column_stats SET max_value = min_value")
        assert repaired(own) == [("table-bounds-too-narrow", "main.t", path_of(own, 0))] * len(BOUNDS)
        assert rows(own, "SELECT min(COLUMNS(*)), max(COLUMNS(*)) FROM t") == before


BOUNDS = [
    ("TINYINT", "-9", "10"),
    ("UBIGINT", "9", "18446744073709551615"),
    ("DOUBLE", "-1e300", "9.5"),
    ("DECIMAL(38,2)", "-100000000000000000000000000.25", "99.75"),
    ("DECIMAL(20,15)", "-9.000000000000001", "10.5"),
    ("DATE", "0099-12-31", "2024-01-01"),
    ("TIMESTAMP_NS", "1999-01-01 00:00:00.000000001", "2024-01-01 00:00:00"),
    ("TIMESTAMPTZ", "1999-01-01 00:00:00+00", "2024-01-01 00:00:00+00"),
    ("TIME", "09:00:00", "10:00:00.5"),
    ("BOOLEAN", "false", "true"),
    ("VARCHAR", "10", "9"),
    ("UUID", "00000000-0000-0000-0000-000000000001", "f0000000-0000-0000-0000-000000000001"),
]


# For each type: a value at its limit, a value beyond it, and a type that holds both.
LIMITS = {
    "int8": ("-128", "128", "SMALLINT"),
    "uint8": ("255", "-1", "SMALLINT"),
    "int16": ("32767", "-32769", "INTEGER"),
    "uint16": ("65535", "65536", "UINTEGER"),
    "int32": ("-2147483648", "2147483648", "BIGINT"),
    "uint32": ("4294967295", "4294967296", "BIGINT"),
    "int64": ("9223372036854775807", "9223372036854775808", "UBIGINT"),
    "uint64": ("0", "-1", "BIGINT"),
    "float32": ("3.4028234663852886e38", "-3.5e38", "DOUBLE"),
    "decimal(5,2)": ("-999.99", "1000.00", "DECIMAL(9, 2)"),
    "decimal(4,4)": ("0.9999", "1.0000", "DECIMAL(9, 4)"),
}


class TestFileStatistics:
    @pytest.mark.parametrize("narrow", LIMITS)
    def test_bounds_beyond_a_narrowed_type_are_found(self, own: DuckLake, narrow: str) -> None:
        last, beyond, wide = LIMITS[narrow]
        own.execute([f"CREATE TABLE t (x {wide})", f"INSERT INTO t SELECT {last}::{wide} FROM range(20)"])
        damage(own, f"UPDATE ducklake_column SET column_type = '{narrow}'")
        assert found(own.fsck()) == []
        own.execute(f"INSERT INTO t SELECT {last}::{wide} FROM range(20)").raise_for_error()
        damage(own, f"UPDATE ducklake_file_column_stats SET max_value = '{beyond}' WHERE data_file_id = 1")
        codes = {finding.code: finding.file for finding in own.fsck().findings}
        assert codes["bounds-beyond-type"] == path_of(own, 1)

    def test_inverted_bounds_hide_the_file(self, lake: DuckLake) -> None:
        where = "data_file_id = 1 AND column_id = 1"
        damage(lake, f"UPDATE ducklake_file_column_stats SET min_value = '99', max_value = '50' WHERE {where}")
        assert found(lake.fsck()) == [("file-bounds-inverted", "main.t", path_of(lake, 1))]
        assert value(lake, "SELECT count(*) FROM t WHERE i = 70") == 0

    def test_duplicate_file_statistics_are_found_and_read_rows_twice(self, lake: DuckLake) -> None:
        same = "SELECT * FROM ducklake_file_column_stats WHERE data_file_id = 1 AND column_id = 1"
        damage(lake, f"INSERT INTO ducklake_file_column_stats {same}")
        assert found(lake.fsck()) == [("file-statistics-twice", "main.t", path_of(lake, 1))]
        assert [i for (i,) in rows(lake, "SELECT i FROM t ORDER BY i DESC LIMIT 3")] == [1000, 99, 99]

    def test_statistics_of_missing_files_are_removed(self, lake: DuckLake) -> None:
        tables = {
            "ducklake_file_column_stats": "99, 1, 1, 1, 1, 0, '1', '1', NULL, NULL",
            "ducklake_file_variant_stats": "99, 1, 1, 'a', 'int32', 1, 1, 0, '1', '1', NULL, NULL",
            "ducklake_file_partition_value": "99, 1, 0, '1'",
        }
        kept = [meta(lake, f"SELECT count(*) FROM {table}") for table in tables]
        damage(lake, *(f"INSERT INTO {table} VALUES ({values})" for table, values in tables.items()))
        assert repaired(lake) == [("statistics-without-file", "main.t", None)] * 3
        assert [meta(lake, f"SELECT count(*) FROM {table}") for table in tables] == kept

    def test_a_file_without_statistics_is_only_information(self, lake: DuckLake) -> None:
        damage(lake, "DELETE FROM ducklake_file_column_stats WHERE data_file_id = 1")
        (finding,) = lake.fsck().findings
        assert (finding.code, finding.severity) == ("file-without-statistics", "info")
        assert value(lake, "SELECT count(*) FROM t WHERE i = 70") == 1
