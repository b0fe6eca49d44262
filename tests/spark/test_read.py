"""Both Spark engines read the same rows as DuckDB at every snapshot of a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import FileNotUsableError
from tests.support.spark_reads import (
    ENGINES,
    check,
    check_every_snapshot,
    execute,
    is_native,
    no_fallback,
    plan_of,
    read_rows,
)


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "it's a [lake] 100%")


# --- row changes ---------------------------------------------------------------------------------------------------


def test_every_snapshot_is_read_across_deletes_updates_and_compaction(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, v VARCHAR)",
        "INSERT INTO t SELECT range, 'row ' || range FROM range(100)",
        "INSERT INTO t VALUES (1000, 'é'), (1001, NULL), (1002, '')",
        "DELETE FROM t WHERE k BETWEEN 10 AND 40",
        "DELETE FROM t WHERE k = 50",
        "DELETE FROM t WHERE k BETWEEN 60 AND 75",
        "UPDATE t SET v = v || '!' WHERE k % 9 = 0",
        "CALL ducklake_flush_inlined_data('it_s_a__lake__100_')",
        "INSERT INTO t SELECT range, 'late' FROM range(2000, 2040)",
        "INSERT INTO t SELECT range, 'later' FROM range(3000, 3040)",
        "CALL ducklake_merge_adjacent_files('it_s_a__lake__100_')",
        "DELETE FROM t WHERE k >= 3000",
        "CALL ducklake_flush_inlined_data('it_s_a__lake__100_')",
        "CALL ducklake_rewrite_data_files('it_s_a__lake__100_', delete_threshold => 0.1)",
    )
    check_every_snapshot(lake, spark)


@pytest.mark.parametrize("engine", ENGINES)
def test_structs_that_another_program_has_inlined_are_read(
    lake: DuckLake, spark: SparkSession, engine: Literal["native", "duckdb"]
) -> None:
    with open_session(lake.config) as session:
        session.con.execute("CREATE TABLE t AS SELECT {'d': DATE '2024-01-01', 'v': 'it''s'} AS s")
    assert read_rows(lake.read("t", spark=spark, engine=engine)) == ["[{'d': 19723, 'v': \"it's\"}]"]


@pytest.mark.parametrize("inlined", [0, 1000])
def test_deleted_rows_at_block_edges_of_large_files_are_skipped(
    lake: DuckLake, spark: SparkSession, inlined: int
) -> None:
    # Rows 63, 64, 511 and 512 are at the edges of the words and blocks of the deletion bitmap.
    edges = "k IN (0, 63, 64, 511, 512, 1023, 1024, 5998, 5999) OR k BETWEEN 2048 AND 2559"
    execute(
        lake,
        f"CALL it_s_a__lake__100_.set_option('data_inlining_row_limit', {inlined})",
        "CREATE TABLE t (k INTEGER)",
        "INSERT INTO t SELECT range FROM range(6_000)",
        "INSERT INTO t SELECT range FROM range(6_000, 8_000)",
        "INSERT INTO t SELECT range FROM range(8_000, 10_000)",
        f"DELETE FROM t WHERE {edges} OR k - 8_000 IN (1, 65, 513, 1025, 1999)",
        "DELETE FROM t WHERE k BETWEEN 2600 AND 5800 AND hash(k) % 20 = 0",
        "DELETE FROM t WHERE k BETWEEN 2800 AND 3800 AND hash(k) % 3 = 0",
    )
    check(lake, spark)


def test_a_table_without_rows_or_files_has_its_columns(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER, s STRUCT(a DATE, b DECIMAL(9, 2)[]))")
    frame = lake.read("t", spark)
    assert frame.collect() == []
    assert frame.schema.simpleString() == "struct<k:int,s:struct<a:date,b:array<decimal(9,2)>>>"


# --- schema changes ------------------------------------------------------------------------------------------------


def test_renamed_dropped_added_and_promoted_columns_are_read(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (a INTEGER, b VARCHAR DEFAULT 'new', c FLOAT, d UTINYINT)",
        "INSERT INTO t SELECT range, 'x' || range, range / 3, range FROM range(30)",
        "INSERT INTO t VALUES (-1, NULL, 'nan', NULL)",
        "ALTER TABLE t RENAME b TO bb",
        "ALTER TABLE t ALTER a TYPE BIGINT",
        "ALTER TABLE t ALTER c TYPE DOUBLE",
        "ALTER TABLE t ALTER d TYPE UINTEGER",
        "INSERT INTO t SELECT 5000000000 + range, 'y', range / 7, 4000000000 FROM range(30)",
        "ALTER TABLE t ADD COLUMN n DECIMAL(8, 2) DEFAULT 1.50",
        "ALTER TABLE t ADD COLUMN ts TIMESTAMPTZ DEFAULT '2024-02-03 04:05:06.789+05'",
        "ALTER TABLE t ADD COLUMN q VARCHAR DEFAULT 'it''s \\ 100%'",
        "INSERT INTO t SELECT range, NULL, NULL, NULL, NULL, NULL, NULL FROM range(20)",
        "ALTER TABLE t DROP COLUMN bb",
        "ALTER TABLE t ADD COLUMN bb INTEGER DEFAULT 7",
        "INSERT INTO t SELECT range, 1, 2, 3.5, now(), 'z', 9 FROM range(20)",
        "DELETE FROM t WHERE a BETWEEN 3 AND 15",
        "CALL ducklake_flush_inlined_data('it_s_a__lake__100_')",
        # A rewritten file keeps its old column names although it is newer than the rename.
        "CALL ducklake_rewrite_data_files('it_s_a__lake__100_', delete_threshold => 0.1)",
        "CALL ducklake_merge_adjacent_files('it_s_a__lake__100_')",
    )
    check_every_snapshot(lake, spark)


def test_schema_changes_inside_structs_lists_and_maps_are_read(lake: DuckLake, spark: SparkSession) -> None:
    filled = "INSERT INTO t SELECT range, {{'a': range, 'b': {}}}, [{{'x': range}}, NULL], MAP {{'k': {{'y': range}}}}"
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, s STRUCT(a INTEGER, b STRUCT(c VARCHAR)), l STRUCT(x INTEGER)[],"
        " m MAP(VARCHAR, STRUCT(y INTEGER)))",
        filled.format("{'c': 'c' || range}") + " FROM range(20)",
        "INSERT INTO t SELECT range, NULL, NULL, NULL FROM range(20)",
        filled.format("NULL") + " FROM range(20)",
        "ALTER TABLE t RENAME s.a TO aa",
        "ALTER TABLE t ADD COLUMN s.b.d INTEGER DEFAULT 3",
        "ALTER TABLE t ADD COLUMN l.element.z VARCHAR DEFAULT 'zz'",
        "ALTER TABLE t ADD COLUMN m.value.w BIGINT",
        "INSERT INTO t SELECT range, {'aa': 5, 'b': {'c': NULL, 'd': 5}}, [{'x': 1, 'z': NULL}],"
        " MAP {'k': {'y': 1, 'w': 2}} FROM range(20)",
        "DELETE FROM t WHERE k = 3",
    )
    check_every_snapshot(lake, spark)


def test_a_struct_that_lost_all_its_original_fields_is_read(lake: DuckLake, spark: SparkSession) -> None:
    # DuckDB turns a NULL struct of that kind into a struct of the defaults of its new fields; Spark keeps the NULL.
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, s STRUCT(a INTEGER))",
        "INSERT INTO t SELECT range, {'a': range} FROM range(20)",
        "ALTER TABLE t ADD COLUMN s.b INTEGER DEFAULT 3",
        "ALTER TABLE t DROP COLUMN s.a",
        "INSERT INTO t SELECT range, {'b': NULL} FROM range(20)",
        "INSERT INTO t SELECT range, NULL FROM range(20)",
    )
    check(lake, spark)


def test_a_table_filled_and_altered_in_one_transaction_is_read(lake: DuckLake, spark: SparkSession) -> None:
    lake.execute(
        ["CREATE TABLE t (a INTEGER)", "INSERT INTO t SELECT range FROM range(20)", "ALTER TABLE t RENAME a TO b"],
        atomic=True,
    ).raise_for_error()
    lake.execute(
        ["INSERT INTO t SELECT range FROM range(20)", "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5"], atomic=True
    ).raise_for_error()
    execute(lake, "INSERT INTO t SELECT range, NULL FROM range(20)")
    check_every_snapshot(lake, spark)


def test_a_default_that_spark_cannot_express_is_read_by_duckdb(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    execute(
        lake,
        "CREATE TABLE t (a INTEGER)",
        "INSERT INTO t SELECT range FROM range(20)",
        "ALTER TABLE t ADD COLUMN d TIMESTAMP DEFAULT 'infinity'",
        "INSERT INTO t SELECT range, NULL FROM range(20)",
    )
    check(lake, spark)
    assert "has no form in Spark" in caplog.text


# --- partitions and added files ------------------------------------------------------------------------------------


def test_partition_folders_neither_add_nor_change_columns(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (p VARCHAR, ts TIMESTAMPTZ, v INTEGER)",
        "ALTER TABLE t SET PARTITIONED BY (p, year(ts))",
        "INSERT INTO t SELECT p, '2023-12-31 23:30:00+00'::TIMESTAMPTZ + INTERVAL (range) HOUR, range"
        " FROM range(4), (VALUES ('007'), ('a/b=c %20 é'), ('[x]*?{y}'), (NULL), ('')) n(p)",
        "ALTER TABLE t SET PARTITIONED BY (v)",
        "INSERT INTO t SELECT '008', now(), range FROM range(12)",
        "DELETE FROM t WHERE v = 2",
    )
    check_every_snapshot(lake, spark)
    assert lake.read("t", spark).where("p = '007'").count() == 3


@pytest.mark.parametrize("copied", [False, True])
def test_added_files_are_read_by_their_column_names(
    lake: DuckLake, spark: SparkSession, tmp_path: Path, copied: bool
) -> None:
    execute(lake, "CREATE TABLE t (id BIGINT, name VARCHAR, s STRUCT(a INTEGER, b INTEGER), region VARCHAR)")
    with lake.connect() as con:
        con.execute(
            f"COPY (SELECT range::INTEGER AS ID, 'n' || range AS Name, {{'B': 1::INTEGER, 'A': range::INTEGER}} AS s,"
            f" 'eu' AS region FROM range(20)) TO '{tmp_path}/a.parquet'"
        )
        con.execute(
            f"COPY (SELECT range AS id, NULL::VARCHAR AS name, NULL::STRUCT(a INTEGER, b INTEGER) AS s, 'us' AS region"
            f" FROM range(20)) TO '{tmp_path}/_hidden.parquet'"
        )
        con.execute(
            f"COPY (SELECT range AS id, 'c' AS name, {{'a': 1, 'b': 2}} AS s, 'us' AS region FROM range(20))"
            f" TO '{tmp_path}/c.parquet._COPYING_' (FORMAT parquet)"
        )
    names = ("a.parquet", "_hidden.parquet", "c.parquet._COPYING_")
    lake.add_files("t", [tmp_path / name for name in names], copy=copied)
    execute(lake, "ALTER TABLE t RENAME name TO title", "DELETE FROM t WHERE id = 3")
    check_every_snapshot(lake, spark)


@pytest.mark.parametrize("deleted", ["by file", "inlined"])
def test_a_column_named_metadata_brings_no_deleted_row_back(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture, deleted: str
) -> None:
    # Spark exposes a hidden file column of that name; a column of the table would shadow it.
    execute(
        lake,
        "CREATE TABLE t (i INTEGER, _metadata STRUCT(file_path VARCHAR, row_index BIGINT))",
        "INSERT INTO t SELECT range, {'file_path': 'x', 'row_index': range} FROM range(20)",
    )
    lake.set_option("data_inlining_row_limit", 10 if deleted == "inlined" else 0)
    execute(lake, "DELETE FROM t WHERE i = 3")
    check(lake, spark)
    assert "column `_metadata`" in caplog.text
    check(lake, spark, select="i", columns=["i"])


def test_a_cached_frame_does_not_affect_later_reads(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t SELECT range FROM range(20)")
    before = lake.read("t", spark).cache()
    try:
        assert before.count() == 20
        execute(lake, "DELETE FROM t WHERE i = 7")
        check(lake, spark)
        assert before.count() == 20
    finally:
        before.unpersist()


def test_a_file_added_to_a_table_twice_is_read_twice(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    execute(lake, "CREATE TABLE t (i BIGINT)")
    with lake.connect() as con:
        con.execute(f"COPY (SELECT range AS i FROM range(5)) TO '{tmp_path}/a.parquet'")
        for path in (f"{tmp_path}/a.parquet", f"{tmp_path}/a.parquet", f"{tmp_path}//a.parquet"):
            con.execute(f"CALL ducklake_add_data_files({literal(lake.config.alias)}, 't', '{path}')")
    check(lake, spark)


def test_julian_calendar_dates_match_what_duckdb_reads(
    lake: DuckLake, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        spark.sql("SELECT DATE'1500-01-01' AS d, 1 AS i").write.parquet(f"{tmp_path}/old")
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    execute(lake, "CREATE TABLE t (d DATE, i INTEGER)")
    lake.add_files("t", [tmp_path / "old" / "*.parquet"])
    check(lake, spark)
    assert "calendar" in caplog.text
    assert is_native(lake.read("t", spark, columns=["i"]))


def test_values_stored_only_in_hive_paths_are_read(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    execute(lake, "CREATE TABLE t (id BIGINT, region VARCHAR, day DATE)")
    execute(lake, "ALTER TABLE t SET PARTITIONED BY (region, day)")
    with lake.connect() as con:
        con.execute(
            f"COPY (SELECT range AS id, 'e u' AS region, DATE '2024-01-02' AS day FROM range(20))"
            f" TO '{tmp_path}/hive' (FORMAT parquet, PARTITION_BY (region, day))"
        )
        con.execute(
            f"CALL ducklake_add_data_files('it_s_a__lake__100_', 't', '{tmp_path}/hive/**', hive_partitioning => true)"
        )
    check(lake, spark)


# --- Spark plans ---------------------------------------------------------------------------------------------------


def test_a_table_without_deletes_is_read_natively_with_pushed_filters(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, v VARCHAR, n BIGINT)",
        "INSERT INTO t SELECT range, 'v' || range, range FROM range(100)",
        "INSERT INTO t SELECT range, 'v' || range, range FROM range(100, 200)",
    )
    frame = lake.read("t", spark, where="k < 50 AND v IS NOT NULL").where("n > 40")
    plan = plan_of(frame)
    assert is_native(frame)
    assert "Join" not in plan
    pushed = plan.partition("PushedFilters: [")[2].partition("]")[0]
    assert {"IsNotNull(v)", "LessThan(k,50)", "GreaterThan(n,40)"} <= set(pushed.split(", "))
    assert "InMemoryFileIndex(1 paths)" in plan  # the other file is pruned by its statistics
    assert frame.count() == 9
    assert "ReadSchema: struct<k:int>" in plan_of(lake.read("t", spark, columns=["k"]))


def test_only_files_with_deletes_are_joined(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (k INTEGER)",
        "INSERT INTO t SELECT range FROM range(100)",
        "INSERT INTO t SELECT range FROM range(100, 200)",
        "DELETE FROM t WHERE k BETWEEN 20 AND 60",
    )
    plan = plan_of(lake.read("t", spark))
    assert plan.count("BroadcastHashJoin [__ducklake_orch_chunk") == 1
    assert "InArrow" not in plan
    check(lake, spark)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.parquet.fieldId.read.enabled", "true"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.parser.escapedStringLiterals", "true"),
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
        ("spark.sql.retainGroupColumns", "false"),
    ],
)
def test_session_settings_do_not_change_what_is_read(
    lake: DuckLake, new_session: Callable[[], SparkSession], setting: str, value: str
) -> None:
    execute(
        lake,
        "CREATE TABLE t (Id INTEGER, v VARCHAR, s STRUCT(x INTEGER), ts TIMESTAMP, p VARCHAR)",
        "INSERT INTO t SELECT range, 'v\\' || range, {'x': range}, '2024-01-01', 'x' FROM range(30)",
        "ALTER TABLE t RENAME v TO w",
        "ALTER TABLE t ADD COLUMN v VARCHAR DEFAULT 'a\\b''c'",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t SELECT range, 'x', NULL, now(), 'y', 'z' FROM range(30)",
    )
    session = new_session()
    where = "p = 'x' AND ts >= '2024-01-01' AND w <> 'v\\5'"
    before = [lake.read("t", session), lake.read("t", session, where=where)]
    rows_before = [read_rows(frame) for frame in before]
    session.conf.set(setting, value)
    for frames in (before, [lake.read("t", session), lake.read("t", session, where=where)]):
        assert [read_rows(frame) for frame in frames] == rows_before
    check(lake, session, where=where)


def test_ancient_dates_match_duckdb_in_every_time_zone(lake: DuckLake, new_session: Callable[[], SparkSession]) -> None:
    execute(
        lake,
        "CREATE TABLE t (d DATE, ts TIMESTAMP, tz TIMESTAMPTZ)",
        "INSERT INTO t SELECT d, d, d FROM range(5),"
        " (VALUES ('0001-01-01'::DATE), ('1582-10-04'), ('1582-10-15'), ('1900-01-01'), (NULL)) v(d)",
    )
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        session = new_session()
        session.conf.set("spark.sql.session.timeZone", zone)
        check(lake, session)


def test_schema_changes_and_deletes_are_read_natively(
    lake: DuckLake, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    execute(
        lake,
        "CREATE TABLE t (a INTEGER, s STRUCT(x INTEGER))",
        "INSERT INTO t SELECT range, {'x': range} FROM range(30)",
        "ALTER TABLE t RENAME a TO b",
        "ALTER TABLE t ADD COLUMN s.y INTEGER DEFAULT 2",
        "DELETE FROM t WHERE b = 3",
        "DELETE FROM t WHERE b > 15",
    )
    assert is_native(lake.read("t", spark, engine="native"))
    assert no_fallback(caplog)


def test_footers_are_read_only_for_columns_in_doubt(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (a INTEGER, b INTEGER DEFAULT 5, c INTEGER)",
        "INSERT INTO t SELECT range, range, range FROM range(30)",
        "ALTER TABLE t RENAME c TO d",
        "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 6",
    )
    for path in Path(str(lake.config.data_path)).rglob("*.parquet"):
        path.write_bytes(b"no footer to be read")
    for columns in (["a"], ["b"], ["a", "e"]):
        assert is_native(lake.read("t", spark, columns=columns))
    with pytest.raises(FileNotUsableError, match="cannot be read"):
        lake.read("t", spark, columns=["d"])
