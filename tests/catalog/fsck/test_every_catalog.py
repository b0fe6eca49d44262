"""On every catalog, a lake with a long history has no findings, and damage is found and repaired."""

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch.catalog.metadata import text
from tests.catalog.fsck.damage import damage, refused, repaired, value
from tests.support.backends import LOCAL, MYSQL, POSTGRES, SQLITE, Backend, catalogs
from tests.support.internal_names import plain
from tests.support.lakes import MakeLake
from tests.support.metadata_dump import dump

COLUMNS = (
    "i BIGINT, s VARCHAR, n STRUCT(a INTEGER, b VARCHAR[]), m MAP(VARCHAR, DOUBLE), ts TIMESTAMPTZ, d DECIMAL(9, 2)"
)
ROW = (
    "range, 'it''s ' || range, {'a': range, 'b': ['x', NULL]}, MAP {'k': range},"
    " TIMESTAMPTZ '2024-01-01' + range * INTERVAL 1 DAY, range / 4"
)
NULLS = "1, NULL, NULL, NULL, NULL, NULL"
HISTORY = [
    "CREATE SCHEMA sales",
    f"CREATE TABLE sales.t ({COLUMNS})",
    f"INSERT INTO sales.t SELECT {ROW} FROM range(5)",
    f"INSERT INTO sales.t SELECT {ROW} FROM range(5, 200)",
    f"INSERT INTO sales.t SELECT {NULLS} FROM range(30)",
    "DELETE FROM sales.t WHERE i = 7",
    "DELETE FROM sales.t WHERE i BETWEEN 20 AND 60",
    "UPDATE sales.t SET s = 'changed' WHERE i IN (3, 100)",
    "UPDATE sales.t SET d = 1 WHERE i > 150",
    "MERGE INTO sales.t USING (SELECT 199 AS i) u USING (i) WHEN MATCHED THEN UPDATE SET s = 'merged'",
    "ALTER TABLE sales.t SET PARTITIONED BY (year(ts), month(ts), bucket(2, i))",
    f"INSERT INTO sales.t SELECT {ROW} FROM range(100)",
    "ALTER TABLE sales.t RENAME COLUMN s TO words",
    "ALTER TABLE sales.t ADD COLUMN added INTEGER DEFAULT 5",
    "ALTER TABLE sales.t SET SORTED BY (i DESC)",
    "COMMENT ON TABLE sales.t IS 'it''s a table, \"really\"'",
    "COMMENT ON COLUMN sales.t.i IS 'a:1,b:2'",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
    f"INSERT INTO sales.t SELECT {ROW}, 6 FROM range(100)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "ALTER TABLE sales.t RESET PARTITIONED BY",
    f"INSERT INTO sales.t SELECT {ROW}, 7 FROM range(3)",
    "DELETE FROM sales.t WHERE i = 99",
    'CREATE TABLE "odd, name:1" AS SELECT range AS "a.b" FROM range(50)',
    'ALTER TABLE "odd, name:1" RENAME TO "other ""name"""',
    "CREATE VIEW v AS FROM sales.t",
    "CREATE MACRO twice(x) AS 2 * x",
    "CREATE TABLE gone AS SELECT range AS i FROM range(50)",
    "DELETE FROM gone WHERE i < 20",
    "DROP TABLE gone",
    "DROP VIEW v",
]
EXPIRY = [
    "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3, 5, 8, 13])",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
]
# The statements that the engine supports on MySQL: one INSERT per table, no nested columns with inlining, no comments.
MYSQL_HISTORY = [
    "CREATE TABLE t AS SELECT range AS i, 'it''s ' || range AS s FROM range(100)",
    "DELETE FROM t WHERE i = 7",
    "DELETE FROM t WHERE i < 30",
    "CREATE TABLE small AS SELECT 1 AS i, 'a\\b' AS s",
    "CREATE TABLE p (i INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (bucket(2, i))",
    "INSERT INTO p SELECT range FROM range(50)",
    "ALTER TABLE t ADD COLUMN added INTEGER DEFAULT 5",
    "CREATE TABLE gone AS SELECT range AS i FROM range(50)",
    "DROP TABLE gone",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
]


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_a_lake_with_a_long_history_has_no_findings_before_and_after_expiry(make_lake: MakeLake) -> None:
    lake = make_lake()
    for part in (HISTORY, EXPIRY):
        lake.execute(part, force=True).raise_for_error()
        report = lake.fsck(deep=True, storage=True)
        assert report.findings == [], str(report)
        assert (report.ok, report.counts, report.repaired) == (True, {}, [])
        assert report.checked["files_read"] == report.checked["data_files"] + report.checked["delete_files"] > 10
        assert report.checked["inlined_rows"] > 0


@catalogs(sql_writes=False)
def test_a_lake_on_a_catalog_with_limited_sql_has_no_findings(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.execute(MYSQL_HISTORY, force=True).raise_for_error()
    report = lake.fsck(deep=True, storage=True)
    assert report.findings == [], str(report)
    assert report.checked["files_read"] > 3


@catalogs(quick=[POSTGRES, MYSQL])
def test_a_lake_written_by_ducklake_orch_has_no_findings(make_lake: MakeLake) -> None:
    lake = make_lake()

    def rows(first: int, last: int) -> pa.Table:
        i = list(range(first, last))
        words, numbers = [f"it's \\ {n}" for n in i], [float("nan") if n == 3 else float(n) for n in i]
        return pa.table({"i": i, "s": words, "n": [[{"x": n, "y": "y"}] for n in i], "d": numbers})

    lake.write(rows(0, 50), "t", mode="append", partition_by=["bucket(3, i)"], idempotency_key="first")
    lake.write(rows(50, 60), "t", mode="append")
    lake.write(rows(0, 10), "p", mode="append", partition_by=["s"])
    lake.write(rows(3, 5), "p", mode="overwrite_partitions")
    lake.write(rows(0, 20), "w", mode="append")
    lake.write(rows(0, 20), "w", mode="replace_where", where="i < 20")
    lake.write(rows(7, 9), "w", mode="overwrite")
    report = lake.fsck(deep=True, storage=True)
    assert report.findings == [], str(report)


@catalogs()
def test_damage_is_found_and_repaired_in_one_snapshot(make_lake: MakeLake, backend: Backend) -> None:
    lake = make_lake()
    with lake.connect() as con:  # the engine, which keeps deletions in the catalog
        con.execute("CREATE TABLE t AS SELECT range AS i, 'it''s \\ ' || range AS s FROM range(100)")
        con.execute("DELETE FROM t WHERE i < 20")
        con.execute("DELETE FROM t WHERE i = 50")
    assert lake.fsck(deep=True, storage=True).findings == []
    with lake.connect_metadata() as con:
        stored = text(con.execute("SELECT path FROM ducklake_data_file").fetchall()[0][0])
    path = f"{lake.config.data_path}main/t/{stored}".replace("'", "''")
    damage(
        lake,
        "INSERT INTO ducklake_snapshot_changes VALUES (99, 'inserted_into_table:1', NULL, NULL, NULL)",
        "UPDATE ducklake_snapshot_changes SET changes_made = 'new:1,' || changes_made WHERE snapshot_id = 1"
        if backend.catalog.sql_writes
        else "UPDATE ducklake_snapshot_changes SET changes_made ="
        ' \'new:1,created_table:"main"."t",inserted_into_table:1\' WHERE snapshot_id = 1',
        "UPDATE ducklake_snapshot SET next_file_id = 1 WHERE snapshot_id >= 2",
        f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (0, '{path}', false, '2020-01-01')",
        "UPDATE ducklake_table_stats SET next_row_id = 3, record_count = 4",
        "UPDATE ducklake_table_column_stats SET max_value = min_value",
        "UPDATE ducklake_data_file SET record_count = 90, footer_size = 3",
        "UPDATE ducklake_file_column_stats SET min_value = max_value WHERE column_id = 2",
        "INSERT INTO ducklake_file_partition_value VALUES (77, 1, 0, 'x')",
        "INSERT INTO ducklake_inlined_delete_1 VALUES (0, 5, 3), (0, 50, 3)",
    )
    report = lake.fsck(deep=True, storage=True, repair=True)
    assert report.findings == [], str(report)
    assert {finding.code for finding in report.repaired} == {
        "changes-without-snapshot",
        "unknown-change-token",
        "next-file-id-behind",
        "next-file-id-not-bumped",
        "scheduled-but-in-use",
        "next-row-id-behind",
        "record-count-behind",
        "table-bounds-too-narrow",
        "table-bounds-exclude-values",
        "wrong-record-count",
        "wrong-footer-size",
        "file-bounds-exclude-values",
        "statistics-without-file",
        "deleted-twice-in-catalog",
        "deleted-twice",
    }
    assert report.repair_snapshot == report.checked["snapshot"] == 4
    assert lake.snapshots(1)[0].message == "ducklake-orch fsck --repair"
    assert value(lake, "SELECT count(*) FROM t WHERE s >= 'it''s \\ 6'") == 40
    assert (value(lake, "SELECT count(*) FROM t"), value(lake, "SELECT sum(i) FROM t")) == (
        79,
        sum(range(20, 100)) - 50,
    )
    assert value(lake, "SELECT count(*) FROM t AT (VERSION => 1)") == 100
    assert value(lake, "SELECT count(*) FROM t AT (VERSION => 2)") == 80
    assert repaired(lake, deep=True, storage=True) == []


def numbers(first: int, last: int) -> pa.Table:
    return pa.table({"i": list(range(first, last)), "s": [f"v{n}" for n in range(first, last)]})


@catalogs()
def test_damage_without_a_repair_is_found(make_lake: MakeLake, backend: Backend) -> None:
    lake = make_lake()
    for table in ("ended", "undeleted", "narrowed", "hung"):
        lake.write(numbers(0, 100), table, mode="append")
        lake.delete(table, "i < 20")
        lake.write(numbers(3_000_000_000, 3_000_000_100), table, mode="append")
    assert lake.fsck(deep=True, storage=True).findings == []
    with lake.connect_metadata() as con:
        rows = con.execute("SELECT table_name, table_id FROM ducklake_table").fetchall()
        ids = {text(name): number for name, number in rows}
        sql = f"FROM ducklake_data_file WHERE table_id = {ids['hung']}"
        ((first, last, newest),) = con.execute(
            f"SELECT min(data_file_id), max(data_file_id), max(begin_snapshot) {sql}"
        ).fetchall()
    damage(
        lake,
        f"UPDATE ducklake_data_file SET end_snapshot = {newest} WHERE table_id = {ids['ended']}",
        f"DELETE FROM ducklake_delete_file WHERE table_id = {ids['undeleted']}",
        f"UPDATE ducklake_column SET column_type = 'int32' WHERE table_id = {ids['narrowed']} AND column_name = 'i'",
        f"UPDATE ducklake_delete_file SET data_file_id = {last} WHERE data_file_id = {first}",
    )
    # The results of plain DuckDB on the damaged lake.
    assert value(lake, "SELECT count(*) FROM ended") == 0
    assert value(lake, "SELECT count(*) FROM undeleted WHERE i < 20") == 20
    assert value(lake, "SELECT count(*) FROM hung WHERE i < 20") == 20
    assert "INT32" in refused(lake, "SELECT sum(i) FROM narrowed")
    damage(lake, f"UPDATE ducklake_table_stats SET file_size_bytes = -1 WHERE table_id = {ids['hung']}")
    wanted = {
        ("main.ended", "ended-without-change"),
        ("main.undeleted", "deletion-without-delete-file"),
        ("main.narrowed", "bounds-beyond-type"),
        ("main.hung", "negative-count"),
    }
    assert wanted <= {(finding.table, finding.code) for finding in lake.fsck().findings if finding.severity == "error"}
    wanted |= {("main.narrowed", "column-narrower-than-file"), ("main.hung", "delete-file-of-other-data-file")}
    report = lake.fsck(deep=True)
    assert wanted <= {(finding.table, finding.code) for finding in report.findings if finding.severity == "error"}


@catalogs()
def test_nothing_is_repaired_from_swapped_files(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.write(numbers(1000, 1100), "t", mode="append")
    lake.write(numbers(2000, 2060), "t", mode="append")
    paths = [Path(file.path) for file in lake.table("t").files()]
    contents = [path.read_bytes() for path in paths]
    before = dump(lake)
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    report = lake.fsck(deep=True, repair=True)
    assert {"misplaced-file", "wrong-file-size"} <= set(report.counts)
    assert report.repaired == []
    assert dump(lake) == before
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert lake.fsck(deep=True, storage=True).findings == []
    with plain(lake) as query:
        assert query("SELECT sum(i) FROM t") == [(sum(range(1000, 1100)) + sum(range(2000, 2060)),)]


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL)], indirect=True, ids=str)
def test_lakes_that_share_a_database_are_checked_separately(make_lake: MakeLake) -> None:
    first, second = make_lake(metadata_schema="one"), make_lake(metadata_schema="other")
    for lake in (first, second):
        lake.execute("CREATE TABLE t AS SELECT 1 AS i").raise_for_error()
    damage(first, "UPDATE one.ducklake_table_stats SET next_row_id = 0")
    assert second.fsck(deep=True).findings == []
    assert repaired(first) == [("next-row-id-behind", "main.t", None)]


@catalogs(sql_writes=True)
def test_a_missing_inlined_table_after_an_alter_is_created(make_lake: MakeLake) -> None:
    inlines, alters = make_lake(data_inlining_row_limit=10), make_lake(data_inlining_row_limit=0)
    inlines.execute(["CREATE TABLE t (a INTEGER, b INTEGER)", "INSERT INTO t VALUES (1, 1)"]).raise_for_error()
    alters.execute("ALTER TABLE t RENAME COLUMN b TO c").raise_for_error()
    assert inlines.fsck().findings == []  # read by id, not by name
    alters.execute(["ALTER TABLE t DROP COLUMN c", "ALTER TABLE t ADD COLUMN d INTEGER"]).raise_for_error()
    assert repaired(inlines) == [("inlined-table-of-former-columns", "main.t", None)]
    inlines.execute("INSERT INTO t VALUES (2, 5)").raise_for_error()
    assert value(inlines, "SELECT list((a, d) ORDER BY a) FROM t") == [(1, None), (2, 5)]
    assert inlines.fsck().findings == []


@catalogs(sql_writes=True)
def test_rows_inlined_into_a_table_of_former_columns_are_found(make_lake: MakeLake) -> None:
    inlines, alters = make_lake(data_inlining_row_limit=10), make_lake(data_inlining_row_limit=0)
    inlines.execute(["CREATE TABLE t (a INTEGER, b INTEGER)", "INSERT INTO t VALUES (1, 1)"]).raise_for_error()
    alters.execute(["ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN d INTEGER"]).raise_for_error()
    inlines.execute("INSERT INTO t VALUES (2, 5)").raise_for_error()
    assert value(inlines, "SELECT list((a, d) ORDER BY a) FROM t") == [(1, None), (2, None)]
    codes = {finding.code: finding.detail for finding in inlines.fsck().findings}
    assert codes["inlined-row-of-former-columns"] == "1 rows in ducklake_inlined_data_1_1, from snapshot 5"


@catalogs(sql_writes=True)
def test_inlined_rows_and_deletes_of_other_tables_are_not_read(make_lake: MakeLake) -> None:
    lake = make_lake()
    for table in ("t", "u"):
        lake.execute(
            [
                f"CREATE TABLE {table} AS SELECT range AS i FROM range(50)",
                f"INSERT INTO {table} VALUES (1)",
                f"DELETE FROM {table} WHERE i = 7",
            ]
        ).raise_for_error()
    whole, chosen = lake.fsck(), lake.fsck(tables=["t"])
    assert chosen.findings == []
    for count in ("inlined_rows", "inlined_deletes", "data_files"):
        assert chosen.checked[count] * 2 == whole.checked[count], count
