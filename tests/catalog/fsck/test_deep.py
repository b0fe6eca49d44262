"""Deep checks: compares the catalog with the content of the files."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import ROW_ID, ROW_ID_FIELD, SNAPSHOT_ID, SNAPSHOT_ID_FIELD
from tests.catalog.fsck.damage import damage, found, meta, path_of, refused, repaired, rows, value

NUMBERS = "CREATE TABLE t AS SELECT range AS i, 'v' || range AS s FROM range(100)"


@pytest.fixture
def numbers(own: DuckLake) -> DuckLake:
    own.execute([NUMBERS, "DELETE FROM t WHERE i < 20"]).raise_for_error()
    return own


def deep(lake: DuckLake) -> list[tuple[str, str | None, str | None]]:
    return found(lake.fsck(deep=True))


def write(path: str, sql: str, field_ids: str | None = None) -> None:
    """Write a Parquet file."""
    ids = f", FIELD_IDS {field_ids}" if field_ids else ""
    duckdb.connect().execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet{ids})")


def replace(lake: DuckLake, file_id: int, sql: str, field_ids: str | None, kind: str = "data", table: str = "t") -> str:
    """Replace the content of a file of the lake, and update its size in the catalog."""
    path = path_of(lake, file_id, kind, table)
    write(path, sql, field_ids)
    size, footer = (
        duckdb.connect()
        .execute(f"SELECT file_size_bytes, footer_size FROM parquet_file_metadata('{path}')")
        .fetchall()[0]
    )
    sizes = f"file_size_bytes = {size}, footer_size = {footer}"
    damage(lake, f"UPDATE ducklake_{kind}_file SET {sizes} WHERE {kind}_file_id = {file_id}")
    return path


class TestUnreadableFiles:
    def test_a_missing_live_file_is_found_though_a_count_succeeds(self, numbers: DuckLake) -> None:
        path = path_of(numbers, 0)
        Path(path).unlink()
        assert numbers.fsck().findings == []
        assert deep(numbers) == found(numbers.fsck(storage=True)) == [("missing-file", "main.t", path)]
        assert value(numbers, "SELECT count(*) FROM t") == 80
        assert "No such file" in refused(numbers, "SELECT sum(i) FROM t")

    def test_a_missing_file_of_a_retained_snapshot_is_an_error(self, numbers: DuckLake) -> None:
        path, deletes = path_of(numbers, 0), path_of(numbers, 1, "delete")
        numbers.truncate("t")
        Path(path).unlink()
        Path(deletes).unlink()
        assert [finding[0] for finding in deep(numbers)] == ["missing-file", "missing-old-file"]
        assert {finding.severity for finding in numbers.fsck(storage=True).findings} == {"error"}
        assert value(numbers, "SELECT count(*) FROM t") == 0
        assert "No such file" in refused(numbers, "SELECT sum(i) FROM t AT (VERSION => 2)")
        damage(numbers, "DELETE FROM ducklake_snapshot WHERE snapshot_id IN (1, 2)")
        assert {(finding.code, finding.severity) for finding in numbers.fsck(deep=True).findings} >= {
            ("missing-expired-file", "info")
        }

    def test_truncated_files_and_files_of_other_formats_are_named(self, own: DuckLake) -> None:
        own.execute(
            ["CREATE TABLE t (i INTEGER)", *["INSERT INTO t SELECT range FROM range(20)"] * 9]
        ).raise_for_error()
        broken = [path_of(own, n) for n in (1, 2, 5, 8)]
        for path, keep in zip(broken, (0, 3, 100, -4), strict=True):
            Path(path).write_bytes(Path(path).read_bytes()[:keep])
        Path(path_of(own, 4)).write_text("no Parquet at all")
        broken.append(path_of(own, 4))
        assert sorted(deep(own)) == sorted(("unreadable-file", "main.t", path) for path in broken)
        assert refused(own, "SELECT sum(i) FROM t")

    def test_a_file_with_damaged_pages_and_an_intact_footer_is_found(self, own: DuckLake) -> None:
        own.execute("CREATE TABLE t AS SELECT hash(range) AS i FROM range(10000)").raise_for_error()
        path = Path(path_of(own, 0))
        content = bytearray(path.read_bytes())
        content[10:2000] = b"\xff" * 1990
        path.write_bytes(content)
        assert deep(own) == [("unreadable-file", "main.t", str(path))]


class TestCountsAndSizes:
    @pytest.mark.parametrize(
        ("column", "code"), [("file_size_bytes", "wrong-file-size"), ("footer_size", "wrong-footer-size")]
    )
    def test_wrong_file_and_footer_sizes_are_repaired(self, numbers: DuckLake, column: str, code: str) -> None:
        for kind in ("data", "delete"):
            damage(numbers, f"UPDATE ducklake_{kind}_file SET {column} = {column} - 1")
        if code == "wrong-footer-size":
            assert "footer length" in refused(numbers, "SELECT sum(i) FROM t")
        paths = [path_of(numbers, 1, "delete"), path_of(numbers, 0)]
        assert repaired(numbers, deep=True) == [(code, "main.t", path) for path in sorted(paths)]
        assert value(numbers, "SELECT sum(i) FROM t") == sum(range(20, 100))

    def test_a_wrong_record_count_is_repaired(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_data_file SET record_count = 90")
        assert value(numbers, "SELECT count(*) FROM t") == 70
        assert repaired(numbers, deep=True) == [("wrong-record-count", "main.t", path_of(numbers, 0))]
        assert value(numbers, "SELECT count(*) FROM t") == 80

    def test_a_wrong_delete_count_is_repaired(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_delete_file SET delete_count = 5")
        assert value(numbers, "SELECT count(*) FROM t") == 95
        assert repaired(numbers, deep=True) == [("wrong-delete-count", "main.t", path_of(numbers, 1, "delete"))]
        assert value(numbers, "SELECT count(*) FROM t") == 80


class TestFieldIds:
    def test_without_field_ids_a_dropped_column_shifts_the_values(self, numbers: DuckLake) -> None:
        path = replace(numbers, 0, "SELECT range AS i, 'v' || range AS s FROM range(100)", None)
        assert deep(numbers) == [("file-without-field-ids", "main.t", path)]
        assert rows(numbers, "SELECT s FROM t ORDER BY ALL DESC LIMIT 1") == [("v99",)]
        numbers.execute("ALTER TABLE t DROP COLUMN i").raise_for_error()
        assert rows(numbers, "SELECT s FROM t ORDER BY ALL DESC LIMIT 1") == [("99",)]

    def test_missing_field_ids_inside_lists_and_maps_are_found(self, own: DuckLake) -> None:
        columns = [
            ("INTEGER[]", "[1, 2]", "1", "c0"),
            ("MAP(VARCHAR, INTEGER)", "MAP {'a': 1}", "1", "c0"),
            ("STRUCT(a INTEGER[])", "{'a': [1, 2]}", "{__duckdb_field_id: 1, a: 2}", "c0.a"),
        ]
        for n, (kind, sql, _, _) in enumerate(columns):
            own.execute([f"CREATE TABLE t{n} (c0 {kind})", f"INSERT INTO t{n} SELECT {sql} FROM range(50)"])
        assert own.fsck(deep=True).findings == []
        for n, (kind, sql, ids, _) in enumerate(columns):
            replace(own, n, f"SELECT {sql}::{kind} AS c0 FROM range(50)", f"{{c0: {ids}}}", table=f"t{n}")
        assert [(finding.code, finding.table, finding.detail) for finding in own.fsck(deep=True).findings] == [
            ("nested-column-without-field-id", f"main.t{n}", f"inside {inside}")
            for n, (*_, inside) in enumerate(columns)
        ]
        assert rows(own, "FROM t0 LIMIT 1") == [([None, None],)]
        assert "key" in refused(own, "FROM t1")

    def test_a_column_type_narrower_than_its_files_is_found(self, own: DuckLake) -> None:
        values = "range + 3000000000 AS i, {'x': range::DOUBLE} AS s, range::DECIMAL(18, 2) AS d"
        own.execute(f"CREATE TABLE t AS SELECT {values} FROM range(50)").raise_for_error()
        assert deep(own) == []
        for narrow, wide in (("int32", "int64"), ("float32", "float64"), ("decimal(9,2)", "decimal(18,2)")):
            damage(own, f"UPDATE ducklake_column SET column_type = '{narrow}' WHERE column_type = '{wide}'")
        found = [
            (finding.code, finding.detail)
            for finding in own.fsck(deep=True).findings
            if finding.code.startswith("column")
        ]
        assert found == [
            ("column-narrower-than-file", "column d is decimal(9,2), the file has DECIMAL(18,2)"),
            ("column-narrower-than-file", "column i is int32, the file has BIGINT"),
            ("column-narrower-than-file", "column x is float32, the file has DOUBLE"),
        ]
        # Bounds alone prove the finding without reading files. The values of the other two columns fit.
        (finding,) = own.fsck().findings
        detail = "column i is int32, values go from 3000000000 to 3000000049"
        assert (finding.code, finding.severity, finding.detail) == ("bounds-beyond-type", "error", detail)
        assert refused(own, "SELECT sum(i) FROM t")

    def test_types_with_another_physical_type_in_parquet_have_no_finding(self, own: DuckLake) -> None:
        kinds = (
            "BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, UTINYINT, USMALLINT, UINTEGER, UBIGINT, HUGEINT, UHUGEINT,"
            " FLOAT, DOUBLE, DATE, TIME, TIMETZ, TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS, TIMESTAMPTZ,"
            " INTERVAL, VARCHAR, JSON, BLOB, UUID, VARCHAR[], VARIANT"
        ).split(", ")
        columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
        own.execute([f"CREATE TABLE t ({columns})", f"INSERT INTO t SELECT {'NULL, ' * len(kinds)} FROM range(50)"])
        own.execute(["CREATE TABLE w (i INTEGER, f FLOAT)", "INSERT INTO w SELECT range, range FROM range(50)"])
        own.execute(["ALTER TABLE w ALTER i TYPE BIGINT", "ALTER TABLE w ALTER f TYPE DOUBLE"]).raise_for_error()
        assert own.fsck(deep=True).checked["files_read"] == 2
        assert deep(own) == []

    def test_variants_need_no_inner_field_ids(self, own: DuckLake) -> None:
        rows = "SELECT {'a': 1, 'l': [1, 2]}::VARIANT FROM range(50)"
        own.execute(["CREATE TABLE va (v VARIANT)", f"INSERT INTO va {rows}"]).raise_for_error()
        assert own.fsck(deep=True).findings == []

    def test_a_name_mapping_replaces_field_ids(self, own: DuckLake, tmp_path: Path) -> None:
        create = "CREATE TABLE t (a INTEGER, l STRUCT(x INTEGER, y VARCHAR)[], m MAP(VARCHAR, DOUBLE), p INTEGER)"
        (tmp_path / "p=7").mkdir()
        sql = "SELECT 5::INTEGER AS A, [{'y': 'q', 'x': 9::INTEGER}] AS l, MAP {'k': 0.5::DOUBLE} AS m FROM range(50)"
        write(f"{tmp_path}/p=7/f.parquet", sql)
        add = f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/p=7/f.parquet')"
        own.execute([create, add]).raise_for_error()
        assert deep(own) == []
        damage(own, "UPDATE ducklake_file_column_stats SET min_value = '10', max_value = '10' WHERE min_value = '9'")
        details = {finding.code: finding.detail for finding in own.fsck(deep=True).findings}
        assert details["file-bounds-exclude-values"] == "column x: from 10 to 10, really from 9 to 9"


class TestRowIdsAndHistory:
    def test_a_file_without_row_ids_is_found_and_cannot_be_updated(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_data_file SET row_id_start = NULL")
        assert deep(numbers) == [("file-without-row-ids", "main.t", path_of(numbers, 0))]
        assert value(numbers, "SELECT sum(i) FROM t") == sum(range(20, 100))
        assert refused(numbers, "UPDATE t SET i = 0")

    def test_a_merged_file_without_snapshot_ids_is_found(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_data_file SET partial_max = 2")
        assert deep(numbers) == [("file-without-snapshot-ids", "main.t", path_of(numbers, 0))]

    def test_overlapping_row_ids_are_found_in_retired_files(self, numbers: DuckLake) -> None:
        numbers.execute(["DELETE FROM t WHERE i < 50", "INSERT INTO t SELECT range, 'x' FROM range(50)"], atomic=True)
        last = meta(numbers, "SELECT max(data_file_id) FROM ducklake_data_file")
        damage(numbers, f"UPDATE ducklake_data_file SET row_id_start = 0 WHERE data_file_id = {last}")
        assert numbers.fsck().findings == []  # the catalog cannot tell whether the file holds its own row ids
        assert [finding[0] for finding in deep(numbers)] == ["row-ids-overlap"]


VALUES = [
    ("INTEGER", "range"),
    ("VARCHAR", "'v' || range"),
    ("DOUBLE", "range"),
    ("DECIMAL(10, 2)", "range"),
    ("DATE", "DATE '2024-01-01' + range::INTEGER"),
    ("TIMESTAMPTZ", "TIMESTAMPTZ '2024-01-01 00:00:00+00' + range * INTERVAL 1 HOUR"),
    ("STRUCT(a INTEGER, b VARCHAR[])", "{'a': range, 'b': ['x' || range, NULL]}"),
    ("INTEGER[][]", "[[range, NULL], NULL, []]"),
    ("MAP(VARCHAR, STRUCT(d DOUBLE)[])", "MAP {'k' || range: [{'d': range}]}"),
]


class TestStatisticsOfFiles:
    def test_bounds_that_exclude_values_are_found_for_every_type(self, own: DuckLake) -> None:
        columns = ", ".join(f"({sql})::{kind} AS c{n}" for n, (kind, sql) in enumerate(VALUES))
        own.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(10, 90)").raise_for_error()
        assert deep(own) == []
        for table in ("file", "table"):
            damage(own, f"UPDATE ducklake_{table}_column_stats SET max_value = min_value")
        leaves = meta(own, "SELECT count(*) FROM ducklake_file_column_stats")
        assert leaves == 11
        codes = [finding[0] for finding in repaired(own, deep=True)]
        assert codes == ["file-bounds-exclude-values"] * leaves + ["table-bounds-exclude-values"] * leaves

    def test_wrong_bounds_hide_rows_until_they_are_repaired(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_file_column_stats SET max_value = '50' WHERE column_id = 1")
        assert value(numbers, "SELECT count(*) FROM t WHERE i > 60") == 0
        assert repaired(numbers, deep=True) == [("file-bounds-exclude-values", "main.t", path_of(numbers, 0))]
        assert value(numbers, "SELECT count(*) FROM t WHERE i > 60") == 39

    def test_a_wrong_value_count_hides_rows_until_it_is_repaired(self, numbers: DuckLake) -> None:
        damage(numbers, "UPDATE ducklake_file_column_stats SET value_count = 0")
        assert value(numbers, "SELECT count(*) FROM t WHERE i > 60") == 0
        assert {finding[0] for finding in repaired(numbers, deep=True)} == {"file-bounds-exclude-values"}
        assert value(numbers, "SELECT count(*) FROM t WHERE i > 60") == 39

    def test_unrecorded_nulls_and_nan_are_repaired(self, own: DuckLake) -> None:
        sql = "SELECT nullif(range, 7) AS i, CASE WHEN range = 7 THEN 'nan'::DOUBLE ELSE range END AS d FROM range(50)"
        own.execute(f"CREATE TABLE t AS {sql}").raise_for_error()
        damage(own, "UPDATE ducklake_file_column_stats SET null_count = 0, contains_nan = 0")
        assert value(own, "SELECT count(*) FROM t WHERE d > 100") == 0
        assert {finding[0] for finding in repaired(own, deep=True)} == {"file-hides-nulls", "file-hides-nan"}
        assert meta(own, "SELECT null_count FROM ducklake_file_column_stats WHERE column_id = 1") == 1
        assert value(own, "SELECT count(*) FROM t WHERE d > 100") == 1

    def test_bounds_that_are_too_wide_have_no_finding(self, numbers: DuckLake) -> None:
        for table in ("file", "table"):
            wide = "min_value = '-5', max_value = CASE column_id WHEN 1 THEN '500' ELSE 'zzz' END"
            damage(numbers, f"UPDATE ducklake_{table}_column_stats SET {wide}")
        assert deep(numbers) == []


class TestPartitions:
    def test_wrong_partition_values_are_repaired_from_the_rows(self, own: DuckLake) -> None:
        keys = [
            ("bucket(4, i)", "'3'"),
            ("s", "'elsewhere'"),
            ("s", "NULL"),
            ("year(ts)", "'1999'"),
            ("month(ts)", "'12'"),
            ("day(ts)", "NULL"),
            ("hour(ts)", "'23'"),
            ("b", "'false'"),
            ("d", "'2020-01-01'"),
            ("n", "'1'"),
        ]
        columns = "i INTEGER, s VARCHAR, ts TIMESTAMPTZ, b BOOLEAN, d DATE, n INTEGER"
        row = "1, 'it''s', '2024-03-05 07:08:09+00', true, '2024-03-05', NULL"
        for n, (key, _) in enumerate(keys):
            create, insert = f"CREATE TABLE t{n} ({columns})", f"INSERT INTO t{n} SELECT {row} FROM range(50)"
            own.execute([create, f"ALTER TABLE t{n} SET PARTITIONED BY ({key})", insert]).raise_for_error()
        assert deep(own) == []
        values = (
            "SELECT string_agg(coalesce(partition_value, 'NULL')) FROM (FROM ducklake_file_partition_value ORDER BY 1)"
        )
        with own.connect_metadata() as con:
            right = con.execute(values).fetchall()
        for n, (_, wrong) in enumerate(keys):
            where = f"WHERE data_file_id = {n}"
            damage(own, f"UPDATE ducklake_file_partition_value SET partition_value = {wrong} {where}")
        assert {finding[:2] for finding in repaired(own, deep=True)} == {
            ("wrong-partition-value", f"main.t{n}") for n in range(len(keys))
        }
        with own.connect_metadata() as con:
            assert con.execute(values).fetchall() == right

    def test_a_wrong_bucket_hides_rows_until_it_is_repaired(self, own: DuckLake, tmp_path: Path) -> None:
        (tmp_path / "bucket=3").mkdir()
        path = f"{tmp_path}/bucket=3/f.parquet"
        with own.connect() as con:  # plain DuckDB lacks the hash function of buckets
            bucket = "(murmur3_32(range::INTEGER) & 2147483647) % 4"
            ((first,),) = con.execute(f"SELECT min(range) FROM range(100) WHERE {bucket} = 2").fetchall()
            rows_of_bucket = f"SELECT range::INTEGER AS i FROM range(100) WHERE {bucket} = 2"
            con.execute(f"COPY ({rows_of_bucket}) TO '{path}' (FORMAT parquet)")
        own.execute(
            [
                "CREATE TABLE t (i INTEGER)",
                "ALTER TABLE t SET PARTITIONED BY (bucket(4, i))",
                f"CALL ducklake_add_data_files('lake', 't', '{path}')",
            ]
        ).raise_for_error()
        assert value(own, f"SELECT count(*) FROM t WHERE i = {first}") == 0
        assert repaired(own, deep=True) == [("wrong-partition-value", "main.t", path)]
        assert value(own, f"SELECT count(*) FROM t WHERE i = {first}") == 1

    def test_a_file_with_rows_of_two_partitions_is_not_repaired(self, own: DuckLake) -> None:
        own.execute(
            [
                "CREATE TABLE t (i INTEGER)",
                "ALTER TABLE t SET PARTITIONED BY (i)",
                "INSERT INTO t SELECT 1 FROM range(50)",
            ]
        ).raise_for_error()
        path = replace(own, 0, "SELECT (range % 2)::INTEGER AS i FROM range(50)", "{i: 1}")
        damage(own, "UPDATE ducklake_file_column_stats SET min_value = '0'")
        damage(own, "UPDATE ducklake_table_column_stats SET min_value = '0'")
        report = own.fsck(deep=True, repair=True)
        assert (found(report), report.repaired) == ([("wrong-partition-value", "main.t", path)], [])
        assert "the rows have 0 to 1" in report.findings[0].detail


def test_rows_after_the_latest_snapshot_are_found(own: DuckLake) -> None:
    own.execute(["CREATE TABLE t AS SELECT range AS i FROM range(50)", "INSERT INTO t FROM range(50)"])
    own.maintain({"merge": {"min_files": 2, "settled_after": 0}}, ["merge"]).raise_for_error()
    snapshot = f"CASE WHEN range % 50 = 49 THEN 99 ELSE 1 + range // 50 END AS {SNAPSHOT_ID}"
    source = f"SELECT range % 50 AS i, range AS {ROW_ID}, {snapshot} FROM range(100)"
    ids = f"{{i: 1, {ROW_ID}: {ROW_ID_FIELD}, {SNAPSHOT_ID}: {SNAPSHOT_ID_FIELD}}}"
    path = replace(own, 2, source, ids)
    assert deep(own) == [("row-snapshot-missing", "main.t", path)]
    assert value(own, "SELECT len(list(i)) FROM t AT (VERSION => 1)") == 49


POSITIONS = "file_path: 2147483646, pos: 2147483645"
IDS = f"{{{POSITIONS}}}"


def replace_with_snapshots(lake: DuckLake, snapshot: str) -> str:
    """Replace the delete file by one whose deletions have a snapshot."""
    columns = f"'{path_of(lake, 0)}' AS file_path, range AS pos, CAST({snapshot} AS BIGINT) AS {SNAPSHOT_ID}"
    ids = f"{{{POSITIONS}, {SNAPSHOT_ID}: {SNAPSHOT_ID_FIELD}}}"
    return replace(lake, 1, f"SELECT {columns} FROM range(20)", ids, "delete")


class TestDeleteFiles:
    @pytest.fixture
    def positions(self, numbers: DuckLake) -> Any:
        def write_positions(sql: str, path: str | None = None) -> str:
            named = path or path_of(numbers, 0)
            content = f"SELECT '{named}' AS file_path, pos::BIGINT AS pos FROM ({sql}) q(pos)"
            return replace(numbers, 1, content, IDS, "delete")

        return write_positions

    def test_positions_beyond_the_data_file_are_found(self, numbers: DuckLake, positions: Any) -> None:
        path = positions("SELECT range + 85 FROM range(20)")
        assert deep(numbers) == [("deleted-position-beyond-file", "main.t", path)]
        assert value(numbers, "SELECT count(*) FROM t") < value(numbers, "SELECT len(list(i)) FROM t")

    def test_unsorted_positions_are_found(self, numbers: DuckLake, positions: Any) -> None:
        path = positions("SELECT 19 - range FROM range(20)")
        assert deep(numbers) == [("delete-file-out-of-order", "main.t", path)]
        assert "sorted" in refused(numbers, "SELECT sum(i) FROM t")

    def test_deletions_after_the_latest_snapshot_are_found(self, numbers: DuckLake) -> None:
        path = replace_with_snapshots(numbers, "99")
        assert deep(numbers) == [("row-snapshot-missing", "main.t", path)]
        assert value(numbers, "SELECT len(list(i)) FROM t") == 100

    def test_deletions_without_a_snapshot_are_found(self, numbers: DuckLake) -> None:
        path = replace_with_snapshots(numbers, "NULL")
        assert deep(numbers) == [("row-snapshot-missing", "main.t", path)]
        assert "snapshot_id cannot be NULL" in refused(numbers, "SELECT sum(i) FROM t")

    def test_a_delete_file_that_names_another_data_file_is_a_warning(self, numbers: DuckLake, positions: Any) -> None:
        path = positions("SELECT range FROM range(20)", "/elsewhere/another.parquet")
        (finding,) = numbers.fsck(deep=True).findings
        assert (finding.code, finding.severity, finding.file) == ("delete-file-names-other-file", "warning", path)
        assert value(numbers, "SELECT len(list(i)) FROM t") == 80

    def test_a_relocated_lake_has_no_findings(self, numbers: DuckLake, tmp_path: Path) -> None:
        Path(tmp_path / "lake.files").rename(tmp_path / "moved")
        moved = DuckLake.local(
            tmp_path / "lake", storage={"type": "local", "path": tmp_path / "moved"}, override_data_path=True
        )
        assert value(moved, "SELECT sum(i) FROM t") == sum(range(20, 100))
        assert moved.fsck(deep=True, storage=True).findings == []

    def test_a_delete_file_assigned_to_another_data_file_is_found(self, numbers: DuckLake) -> None:
        numbers.execute("INSERT INTO t SELECT range + 1000, 'v' || range FROM range(100)").raise_for_error()
        damage(
            numbers,
            "UPDATE ducklake_delete_file SET data_file_id = (SELECT max(data_file_id) FROM ducklake_data_file)",
        )
        assert value(numbers, "SELECT count(*) FROM t WHERE i < 20") == 20  # the deleted rows
        (finding,) = numbers.fsck(deep=True).findings
        assert (finding.code, finding.severity) == ("delete-file-of-other-data-file", "error")
        assert finding.file == path_of(numbers, 1, "delete")

    def test_a_file_that_is_not_a_delete_file_is_found(self, numbers: DuckLake) -> None:
        path = replace(numbers, 1, "SELECT 1 AS other FROM range(20)", None, "delete")
        assert deep(numbers) == [("unreadable-file", "main.t", path)]


class TestSwappedFiles:
    """After a restore under swapped names, the content of a file describes another one."""

    @pytest.mark.parametrize("counts", [(100, 60), (100, 100)], ids=["other size", "same size"])
    def test_nothing_is_repaired_from_swapped_data_files(self, own: DuckLake, counts: tuple[int, int]) -> None:
        first, second = (
            f"SELECT {n} + range AS i, 'v' || range AS s FROM range({count})"
            for n, count in zip((1000, 2000), counts, strict=True)
        )
        own.execute([f"CREATE TABLE t AS {first}", f"INSERT INTO t {second}"]).raise_for_error()
        paths = [Path(path_of(own, n)) for n in (0, 1)]
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
        facts = "SELECT group_concat(data_file_id || record_count || file_size_bytes || footer_size) FROM"
        before = meta(own, f"{facts} ducklake_data_file")
        report = own.fsck(deep=True, repair=True)
        assert {"misplaced-file", "file-bounds-exclude-values"} <= set(report.counts)
        assert (report.repaired, report.repair_snapshot) == ([], None)
        assert not any(finding.repairable for finding in report.findings)
        assert "Restore the correct file" in next(
            finding.remedy for finding in report.findings if finding.code == "file-bounds-exclude-values"
        )
        assert meta(own, f"{facts} ducklake_data_file") == before
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        assert deep(own) == []
        assert value(own, "SELECT sum(i) FROM t") == sum(range(1000, 1100)) + sum(range(2000, 2000 + counts[1]))

    def test_nothing_is_repaired_from_a_foreign_file(self, numbers: DuckLake) -> None:
        write(path_of(numbers, 0), "SELECT range + 500 AS i, 'w' || range AS s FROM range(90)", "{i: 1, s: 2}")
        report = numbers.fsck(deep=True, repair=True)
        assert {"wrong-file-size", "wrong-record-count"} <= set(report.counts)
        assert report.repaired == []

    def test_nothing_is_repaired_from_swapped_delete_files(self, numbers: DuckLake) -> None:
        statements = [
            "INSERT INTO t SELECT range + 1000, 'v' || range FROM range(100)",
            "DELETE FROM t WHERE i BETWEEN 1030 AND 1099",
        ]
        numbers.execute(statements).raise_for_error()
        last = meta(numbers, "SELECT max(delete_file_id) FROM ducklake_delete_file")
        paths = [Path(path_of(numbers, n, "delete")) for n in (1, last)]
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
        report = numbers.fsck(deep=True, repair=True)
        assert {"wrong-delete-count", "delete-file-of-other-data-file"} <= set(report.counts)
        assert report.repaired == []

    def test_delete_files_are_not_merged_if_one_contradicts_the_catalog(self, numbers: DuckLake) -> None:
        path = Path(path_of(numbers, 1, "delete"))
        copy = path.with_name("copy-delete.parquet")
        content = f"SELECT '{path_of(numbers, 0)}' AS file_path, range + 50 AS pos FROM range(5)"
        write(str(copy), content, IDS)
        columns = "data_file_id, path_is_relative, format, encryption_key, partial_max"
        damage(
            numbers,
            f"INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, path, delete_count,"
            f" file_size_bytes, footer_size, {columns}) SELECT 7, table_id, begin_snapshot, 'copy-delete.parquet', 9,"
            f" 1, 1, {columns} FROM ducklake_delete_file",
            "UPDATE ducklake_snapshot SET next_file_id = 8 WHERE snapshot_id = (SELECT max(snapshot_id)"
            " FROM ducklake_snapshot)",
        )
        (finding,) = [finding for finding in numbers.fsck().findings if finding.code == "two-live-delete-files"]
        assert finding.repairable  # according to the catalog alone
        report = numbers.fsck(repair=True)
        finding = next(finding for finding in report.findings if finding.code == "two-live-delete-files")
        assert (finding.repairable, report.repaired) == (False, [])


def test_flushed_nulls_of_timetz_and_interval_have_no_finding(own: DuckLake) -> None:
    rows_of_both = "(NULL, NULL, 1), ('10:00:00+01', INTERVAL 1 DAY, 2)"
    own.execute(["CREATE TABLE t (c TIMETZ, v INTERVAL, i INTEGER)", f"INSERT INTO t VALUES {rows_of_both}"])
    own.execute("CALL ducklake_flush_inlined_data('lake')").raise_for_error()
    assert deep(own) == []
    assert value(own, "SELECT i FROM t WHERE c IS NULL AND v IS NULL") == 1
    damage(own, "UPDATE ducklake_file_column_stats SET value_count = 2 WHERE column_id = 1")
    assert [finding[0] for finding in deep(own)] == ["file-hides-nulls"]
