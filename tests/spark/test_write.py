"""Writes of DataFrames: executors write the files, and the driver commits one snapshot."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ducklake_orch import DuckLake, errors
from tests.support.backends import AZURE, LOCAL, POSTGRES, S3_DISK, SQLITE, Backend, backends, catalogs
from tests.support.refusals import refused

MakeLake = Callable[..., DuckLake]
LARGE = [Backend(SQLITE, LOCAL), Backend(SQLITE, S3_DISK), Backend(SQLITE, AZURE)]
COMPACTED = [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK), Backend(SQLITE, AZURE)]


@pytest.fixture
def local_lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def numbers(spark: SparkSession, start: int, end: int, tasks: int = 2) -> DataFrame:
    """Return rows whose region is their id modulo three."""
    frame = spark.range(start, end, 1, tasks)
    return frame.select("id", F.concat(F.lit("r"), F.col("id") % 3).alias("region"), (F.col("id") / 2).alias("half"))


def ids(lake: DuckLake, table: str = "t") -> list[int]:
    return [row["id"] for row in lake.execute(f"SELECT id FROM {table} ORDER BY id", max_rows=None).rows]


def assert_consistent(lake: DuckLake) -> None:
    """Assert that the lake is consistent and that its storage holds no other file."""
    assert lake.fsck(deep=True, storage=True).findings == []


class TestModes:
    @catalogs()
    def test_each_mode_writes_on_each_catalog(self, spark: SparkSession, make_lake: MakeLake) -> None:
        lake = make_lake(data_inlining_row_limit=0)
        first = lake.write(numbers(spark, 0, 9), "s.t", mode="error", partition_by=["region"])
        assert (first.rows_written, first.engine, first.attempts) == (9, "duckdb", 1)
        assert {partition.values["region"]: partition.rows for partition in first.partitions} == {
            "r0": 3,
            "r1": 3,
            "r2": 3,
        }
        assert lake.write(numbers(spark, 9, 12), "s.t", mode="append").snapshot_id == first.snapshot_id + 1
        assert ids(lake, "s.t") == list(range(12))
        replaced = lake.write(numbers(spark, 30, 31), "s.t", mode="overwrite_partitions")
        assert (replaced.rows_written, replaced.rows_removed) == (1, 4)
        assert ids(lake, "s.t") == [1, 2, 4, 5, 7, 8, 10, 11, 30]
        lake.write(numbers(spark, 31, 32), "s.t", mode="replace_where", where="region = 'r1'")
        assert ids(lake, "s.t") == [2, 5, 8, 11, 30, 31]
        assert lake.write(numbers(spark, 0, 1), "s.t", mode="ignore").rows_written == 0
        refused(errors.ObjectExistsError, lambda: lake.write(numbers(spark, 0, 1), "s.t", mode="error"), "s.t")
        lake.write(numbers(spark, 5, 7), "s.t", mode="overwrite")
        assert ids(lake, "s.t") == [5, 6]
        assert_consistent(lake)

    @backends()
    def test_each_storage_is_written_and_compacted(self, spark: SparkSession, make_lake: MakeLake) -> None:
        lake = make_lake(data_inlining_row_limit=0)
        for start in (0, 6, 12):
            lake.write(numbers(spark, start, start + 6), "t", mode="append", partition_by=["region"])
        lake.write(numbers(spark, 20, 21), "t", mode="replace_where", where="region = 'r2'")
        assert_consistent(lake)
        if lake.config.catalog.type != "mysql":  # the engine cannot compact lakes on MySQL
            alias = lake.config.alias
            lake.execute(f"DELETE FROM t WHERE id = 0; CALL ducklake_rewrite_data_files('{alias}')").raise_for_error()
            lake.execute(f"CALL ducklake_merge_adjacent_files('{alias}', 't')").raise_for_error()
            orphans = f"CALL ducklake_delete_orphaned_files('{alias}', dry_run => true, cleanup_all => true)"
            assert lake.execute(orphans, force=True).raise_for_error().rows == []
            assert ids(lake) == [1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 20]
        else:
            assert len(ids(lake)) == 13

    @pytest.mark.parametrize("backend", COMPACTED, indirect=True, ids=str)
    def test_the_engine_compacts_the_files_of_each_mode(self, spark: SparkSession, make_lake: MakeLake) -> None:
        lake, alias = make_lake(data_inlining_row_limit=0), "lake"
        modes: list[dict[str, Any]] = [
            {"mode": "append"},
            {"mode": "overwrite_partitions"},
            {"mode": "replace_where", "where": "region = 'r1'", "outside": "drop"},
            {"mode": "replace_where", "where": "id < 9", "outside": "drop"},
            {"mode": "merge", "keys": ["id"]},
            {"mode": "overwrite"},
        ]
        lake.write(numbers(spark, 0, 30), "t", mode="error", partition_by=["region"])
        for number, arguments in enumerate(modes):
            lake.write(numbers(spark, number, number + 12), "t", **arguments)
            before = ids(lake)
            lake.delete("t", f"id = {before[0]}")
            calls = ["flush_inlined_data('{}')", "rewrite_data_files('{}', 't', delete_threshold => 0)"]
            calls += ["merge_adjacent_files('{}', 't')"]
            lake.execute("; ".join(f"CALL ducklake_{call.format(alias)}" for call in calls)).raise_for_error()
            orphans = f"CALL ducklake_delete_orphaned_files('{alias}', dry_run => true, cleanup_all => true)"
            assert lake.execute(orphans, force=True).raise_for_error().rows == [], arguments
            assert ids(lake) == [n for n in before if n != before[0]], arguments
            assert_consistent(lake)

    @pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions", "replace_where"])
    def test_empty_input_clears_only_what_its_mode_replaces(
        self, spark: SparkSession, local_lake: DuckLake, mode: str
    ) -> None:
        where = "region = 'r0'" if mode == "replace_where" else None
        local_lake.write(numbers(spark, 0, 6), "t", mode="append", partition_by=["region"])
        done = local_lake.write(numbers(spark, 0, 0), "t", mode=mode, where=where)
        assert (done.rows_written, done.files_added) == (0, 0)
        remaining = {"append": 6, "overwrite": 0, "overwrite_partitions": 6, "replace_where": 4}
        assert len(ids(local_lake)) == remaining[mode]
        assert_consistent(local_lake)

    @pytest.mark.parametrize("engine", ["duckdb", "native"])
    def test_an_empty_frame_creates_a_table_with_its_schema(
        self, spark: SparkSession, local_lake: DuckLake, engine: str
    ) -> None:
        done = local_lake.write(numbers(spark, 0, 0), "new.t", mode="append", engine=engine)
        assert (done.rows_written, done.snapshot_id - done.previous_snapshot_id) == (0, 1)
        assert [column.name for column in local_lake.table("new.t").schema()] == ["id", "region", "half"]
        assert_consistent(local_lake)

    def test_rows_outside_where_are_counted_over_all_tasks(self, spark: SparkSession, local_lake: DuckLake) -> None:
        local_lake.write(numbers(spark, 0, 6), "t", mode="append", partition_by=["region"])
        before = local_lake.snapshots(limit=1)[0].snapshot_id
        refused(
            errors.RowsOutsideError,
            lambda: local_lake.write(numbers(spark, 0, 9, 3), "t", mode="replace_where", where="region = 'r0'"),
            "6 rows",
            "(1, 'r1', 0.5)",
        )
        assert local_lake.snapshots(limit=1)[0].snapshot_id == before
        assert_consistent(local_lake)
        dropped = local_lake.write(
            numbers(spark, 30, 39), "t", mode="replace_where", where="region = 'r0'", outside="drop"
        )
        assert dropped.rows_written == 3
        assert ids(local_lake) == [1, 2, 4, 5, 30, 33, 36]
        assert_consistent(local_lake)

    def test_a_task_whose_rows_are_all_dropped_writes_no_file(self, spark: SparkSession, local_lake: DuckLake) -> None:
        local_lake.write(numbers(spark, 1, 2), "t", mode="append")
        local_lake.write(numbers(spark, 0, 4, 4), "t", mode="replace_where", where="id = 1", outside="drop")
        assert ids(local_lake) == [1]
        assert_consistent(local_lake)


class TestIdempotency:
    def test_an_append_with_an_idempotency_key_writes_once(self, spark: SparkSession, local_lake: DuckLake) -> None:
        for replayed in (False, True):
            done = local_lake.write(numbers(spark, 0, 3), "t", mode="append", idempotency_key="run-1")
            assert done.replayed is replayed
        assert ids(local_lake) == [0, 1, 2]

    def test_the_input_is_evaluated_once(self, spark: SparkSession, local_lake: DuckLake) -> None:
        seen = spark.sparkContext.accumulator(0)

        def note(batches: Any) -> Any:
            for batch in batches:
                seen.add(batch.num_rows)
                yield batch

        for engine in ("duckdb", "native"):
            frame = numbers(spark, 0, 10).mapInArrow(note, "id bigint, region string, half double")
            done = local_lake.write(frame, f"of_{engine}", mode="append", engine=engine)
            assert done.engine == engine
        assert seen.value == 20

    def test_an_overwrite_is_refused_if_the_table_changed_since_expect_snapshot(
        self, spark: SparkSession, local_lake: DuckLake
    ) -> None:
        read_at = local_lake.write(numbers(spark, 0, 3), "t", mode="append").snapshot_id
        local_lake.write(numbers(spark, 3, 4), "t", mode="append")
        refused(
            errors.SnapshotChangedError,
            lambda: local_lake.write(numbers(spark, 0, 3), "t", mode="overwrite", expect_snapshot=read_at),
            "main.t",
        )
        assert ids(local_lake) == [0, 1, 2, 3]
        assert_consistent(local_lake)


class TestColumns:
    def test_column_names_are_not_parsed_as_paths(self, spark: SparkSession, local_lake: DuckLake) -> None:
        frame = spark.sql(
            "SELECT named_struct('b', 1) AS a, 2 AS `a.b`, 3 AS `.c`, 4 AS `d``e`, 5 AS `*`, 6 AS `ü (x)`, 7 AS c0"
        )
        for distribution in ("none", "hash", "range"):
            lake_table = f"t_{distribution}"
            local_lake.write(
                frame, lake_table, mode="append", partition_by=["a.b", ".c", "d`e"], distribution=distribution
            )
            row = {"a": {"b": 1}, "a.b": 2, ".c": 3, "d`e": 4, "*": 5, "ü (x)": 6, "c0": 7}
            assert local_lake.execute(f"FROM {lake_table}").rows == [row]
            assert [tuple(row) for row in local_lake.read(lake_table, spark).collect()] == [((1,), 2, 3, 4, 5, 6, 7)]

    def test_columns_are_matched_by_name_and_get_their_defaults(
        self, spark: SparkSession, local_lake: DuckLake
    ) -> None:
        local_lake.execute(
            "CREATE TABLE t (id BIGINT, Name VARCHAR DEFAULT 'nobody', twice INTEGER DEFAULT 21 * 2, s STRUCT(a INT))"
        ).raise_for_error()
        frame = spark.sql("SELECT named_struct('a', 7) AS S, 'x' AS name, 1L AS ID")
        local_lake.write(frame, "t", mode="append")
        local_lake.write(spark.sql("SELECT 2L AS id, NULL AS name"), "t", mode="append")
        local_lake.write(spark.sql("SELECT 3L AS id"), "t", mode="append")
        assert local_lake.execute("FROM t ORDER BY id").rows == [
            {"id": 1, "Name": "x", "twice": 42, "s": {"a": 7}},
            {"id": 2, "Name": None, "twice": 42, "s": None},
            {"id": 3, "Name": "nobody", "twice": 42, "s": None},
        ]

    @pytest.mark.parametrize(
        ("sql", "words"),
        [
            ("SELECT 1 AS id, 2 AS regoin", ["`regoin`", "`region`"]),
            ("SELECT 'x' AS id", ["`id`", "VARCHAR", "BIGINT"]),
            ("SELECT 1L AS id, 2L AS ID", ["duplicate columns: id"]),
            ("SELECT interval '1' month AS id", ["`id`", "interval month", "integer"]),
            ("SELECT parse_json('1') AS id", ["`id`", "VARIANT", "BIGINT"]),
            ("SELECT array(parse_json('1')) AS id", ["`id`", "variant", "to_json"]),
            ("SELECT array(NULL) AS id", ["`id`", "void"]),
            ("SELECT map(named_struct('a', 1), make_interval(1)) AS id", ["`id`", "interval"]),
        ],
    )
    def test_mismatched_columns_are_named_before_any_job_starts(
        self, spark: SparkSession, local_lake: DuckLake, sql: str, words: list[str]
    ) -> None:
        local_lake.write(numbers(spark, 0, 1), "t", mode="append")
        spark.sparkContext.setJobGroup(sql, "must start no job")
        refused(errors.DataError, lambda: local_lake.write(spark.sql(sql), "t", mode="append"), *words)
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(sql)) == 0
        spark.sparkContext.setJobGroup("others", "jobs of other tests")
        assert_consistent(local_lake)

    def test_a_new_table_with_an_untyped_null_column_is_refused(
        self, spark: SparkSession, local_lake: DuckLake
    ) -> None:
        refused(
            errors.DataError, lambda: local_lake.write(spark.sql("SELECT NULL AS a"), "t", mode="append"), "`a`", "NULL"
        )

    def test_null_in_a_not_null_column_is_refused(self, spark: SparkSession, local_lake: DuckLake) -> None:
        local_lake.execute("CREATE TABLE t (id BIGINT NOT NULL)").raise_for_error()
        local_lake.write(spark.range(3), "t", mode="append")
        frame = spark.sql("SELECT CAST(NULL AS BIGINT) AS id")
        refused(errors.DataError, lambda: local_lake.write(frame, "t", mode="append"), "`id`", "NULL")
        assert ids(local_lake) == [0, 1, 2]
        assert_consistent(local_lake)

    def test_schema_evolution_adds_and_widens_columns(self, spark: SparkSession, local_lake: DuckLake) -> None:
        local_lake.write(spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s"), "t", mode="append")
        wider = spark.sql("SELECT 5000000000L AS id, named_struct('a', 2, 'b', 'x') AS s, 'new' AS c")
        refused(errors.DataError, lambda: local_lake.write(wider, "t", mode="append"), "`c`", "`id`")
        local_lake.write(wider, "t", mode="append", schema_evolution="promote")
        assert local_lake.execute("FROM t ORDER BY id").rows == [
            {"id": 1, "s": {"a": 1, "b": None}, "c": None},
            {"id": 5000000000, "s": {"a": 2, "b": "x"}, "c": "new"},
        ]
        assert_consistent(local_lake)


class TestFileLayout:
    def test_executors_write_files_and_no_row_passes_through_the_driver(
        self, spark: SparkSession, local_lake: DuckLake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The driver of the session refuses results above 1 MB; these are about 16 MB.
        frame = spark.range(0, 2_000_000, 1, 2).select("id", F.lit(os.getpid()).alias("driver"))

        def with_worker(batches: Any) -> Any:
            for batch in batches:
                workers = pa.array([os.getpid()] * batch.num_rows, pa.int64())
                yield pa.RecordBatch.from_arrays([*batch.columns, workers], ["id", "driver", "worker"])

        def in_the_driver(*_: Any) -> None:
            raise AssertionError("the driver writes a file")

        monkeypatch.setattr("ducklake_orch.catalog.writing.file_writer.copy_rows", in_the_driver)
        written = frame.mapInArrow(with_worker, "id bigint, driver int, worker bigint")
        local_lake.write(written, "t", mode="append", engine="duckdb")
        row = local_lake.execute("SELECT count(*) AS n, bool_or(driver = worker) AS same FROM t").rows[0]
        assert row == {"n": 2_000_000, "same": False}

    def test_files_are_rolled_at_their_target_size(self, spark: SparkSession, local_lake: DuckLake) -> None:
        local_lake.create_table("t", {"id": "BIGINT", "x": "DOUBLE"}, options={"target_file_size": "1MB"})
        frame = spark.range(0, 500_000, 1, 1).select("id", F.rand(1).alias("x"))
        assert local_lake.write(frame, "t", mode="append").files_added > 3
        assert_consistent(local_lake)

    @pytest.mark.parametrize(("distribution", "files"), [("none", 30), ("hash", 3), ("range", 3), ("auto", 3)])
    def test_a_shuffle_reduces_the_number_of_files(
        self, spark: SparkSession, local_lake: DuckLake, distribution: str, files: int
    ) -> None:
        frame = numbers(spark, 0, 300, 10)
        done = local_lake.write(frame, "t", mode="append", partition_by=["region"], distribution=distribution)
        assert (done.files_added, done.rows_written) == (files, 300)

    def test_transform_partitions_match_those_of_the_extension(self, spark: SparkSession, local_lake: DuckLake) -> None:
        keys = ["year(ts)", "month(ts)", "bucket(4, id)", "day(d)", "s"]
        sql = """SELECT id, timestamp_seconds(id * 86400 * 20 - 900000000) AS ts,
                        CASE WHEN id % 5 > 0 THEN date_add(DATE'1999-12-25', CAST(id AS INT)) END AS d,
                        element_at(array('a/b', 'x=y z', 'é%', NULL, ''), CAST(id % 5 AS INT) + 1) AS s
                 FROM range(0, 40, 1, 2)"""
        frame = spark.sql(sql)
        for table, distribution in (("hashed", "hash"), ("plain", "none")):
            local_lake.write(frame, table, mode="append", partition_by=keys, distribution=distribution)
        assert_consistent(local_lake)
        local_lake.execute(
            [
                "CREATE TABLE inserted AS FROM hashed WHERE false",
                "ALTER TABLE inserted SET PARTITIONED BY (year(ts), month(ts), bucket(4, id), day(d), s)",
                "INSERT INTO inserted FROM hashed",
            ]
        ).raise_for_error()
        values = {
            table: sorted(
                (repr(partition.values), partition.rows) for partition in local_lake.table(table).partitions()
            )
            for table in ("hashed", "plain", "inserted")
        }
        assert values["hashed"] == values["inserted"] == values["plain"]

    @pytest.mark.parametrize("backend", LARGE, indirect=True, ids=str)
    @pytest.mark.parametrize(("partitions", "rows"), [(8, 1_500_000), (500, 200_000)])
    def test_many_partitions_in_one_task_fit_its_memory(
        self, spark: SparkSession, make_lake: MakeLake, partitions: int, rows: int
    ) -> None:
        """DuckDB keeps the files of few large partitions open, and on S3 a buffer for each."""
        lake = make_lake(data_inlining_row_limit=0)
        frame = spark.range(0, rows, 1, 1).select((F.col("id") % partitions).alias("p"), F.uuid().alias("s"))
        done = lake.write(frame, "t", mode="append", partition_by=["p"], distribution="none")
        assert (len(done.partitions), done.rows_written) == (partitions, rows)


class TestSorting:
    def test_rows_are_sorted_by_expressions_within_their_files(self, spark: SparkSession, local_lake: DuckLake) -> None:
        frame = spark.sql("SELECT IF(id % 4 = 0, NULL, concat('K', 9 - id)) AS k, id FROM range(0, 8, 1, 1)")
        local_lake.write(frame, "t", mode="append", sort_by=["lower(k) DESC NULLS FIRST", "id"])
        assert [row["id"] for row in local_lake.execute("SELECT id FROM t").rows] == [0, 4, 1, 2, 3, 5, 6, 7]

    def test_range_distribution_orders_files_by_the_sort_keys(self, spark: SparkSession, local_lake: DuckLake) -> None:
        frame = spark.range(0, 500_000, 1, 4).select(F.xxhash64("id").alias("a b"), F.lit("x").alias("s"))
        keys = ['"a b" DESC NULLS FIRST', "lower(s)"]
        local_lake.write(frame, "t", mode="append", sort_by=keys, distribution="range")
        files = 'SELECT min("a b"), max("a b") FROM t GROUP BY filename ORDER BY 1'
        ranges = [tuple(row.values()) for row in local_lake.execute(files).rows]
        assert len(ranges) > 1
        assert all(high < low for (_, high), (low, _) in pairwise(ranges))


class TestInlining:
    def test_small_writes_are_inlined_in_the_catalog(self, spark: SparkSession, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=10)
        done = lake.write(numbers(spark, 0, 10), "t", mode="append", inline="auto")
        assert (done.rows_written, done.files_added, done.engine) == (10, 0, "duckdb")
        assert not list((tmp_path / "lake.files").rglob("*.parquet"))
        assert (ids(lake), lake.read("t", spark).count()) == (list(range(10)), 10)
        assert_consistent(lake)

    def test_writes_above_the_inlining_limit_become_files(self, spark: SparkSession, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=10)
        # Each of the two tasks is below the limit, both together are above it.
        in_tasks: dict[str, Any] = {"mode": "append", "inline": "auto", "engine": "duckdb"}
        assert lake.write(numbers(spark, 0, 12), "t", **in_tasks).files_added == 1
        uneven = numbers(spark, 12, 52).where("id < 35")
        assert lake.write(uneven, "t", **in_tasks).files_added == 2
        assert ids(lake) == list(range(35))
        assert_consistent(lake)

    def test_inlined_writes_refuse_rows_outside_where(self, spark: SparkSession, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=10)
        arguments: dict[str, Any] = {"mode": "replace_where", "where": "id < 5", "inline": "auto"}
        refused(errors.RowsOutsideError, lambda: lake.write(numbers(spark, 4, 6), "t", **arguments), "1 rows")
        lake.write(numbers(spark, 4, 6), "t", outside="drop", **arguments)
        assert ids(lake) == [4]
