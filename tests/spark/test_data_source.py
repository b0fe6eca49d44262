"""The Spark data source `ducklake`: reads, writes with one commit on the driver, options and errors."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from ducklake_orch import DuckLake
from ducklake_orch.spark.data_source_steps import abandon_write, plan_write, write_partition
from ducklake_orch.spark.task_values import unpacked
from tests.support.retained_files import check_retained_files
from tests.support.spark_reads import check, execute, expected, read_rows

VALUES = """
    SELECT CAST(id AS INT) AS i, id AS l, CAST(id AS DECIMAL(9, 2)) AS d,
           CASE WHEN id % 3 > 0 THEN concat('é', id) END AS s,
           timestamp_seconds(id) AS ts, timestamp_ntz '2025-01-01' AS n,
           date_add(date '2020-02-29', CAST(id AS INT)) AS day,
           map('k', array(id, NULL)) AS m, named_struct('a', id, 'b', 'it''s') AS st, CAST('x' AS BINARY) AS b
    FROM range(0, 30, 1, 3)"""


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake")
    lake.register(spark)
    return lake


def load(spark: SparkSession, table: str = "t", **options: str) -> DataFrame:
    return spark.read.format("ducklake").option("table", table).options(**options).load()


def save(frame: DataFrame, table: str = "t", mode: str = "append", **options: str) -> None:
    frame.write.format("ducklake").option("table", table).options(**options).mode(mode).save()


def test_the_data_source_matches_the_lake_for_every_type(lake: DuckLake, spark: SparkSession) -> None:
    save(spark.sql(VALUES), author="ann", message="first")
    check(lake, spark, engines=["duckdb"])
    assert read_rows(load(spark)) == expected(lake, "FROM t")
    snapshot = lake.snapshots(1)[0]
    assert (snapshot.author, snapshot.message) == ("ann", "first")
    assert len(lake.table("t").files()) == 3
    assert not lake.fsck(deep=True, storage=True).counts


def test_inlined_rows_conditions_and_earlier_snapshots_are_read(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER, v VARCHAR)", "INSERT INTO t SELECT range, 'v' FROM range(40)")
    execute(lake, "INSERT INTO t VALUES (100, 'few')", "DELETE FROM t WHERE k < 5")
    assert read_rows(load(spark)) == expected(lake, "FROM t")
    assert read_rows(load(spark, where="k > 30 AND v = 'few'")) == ["[100, 'few']"]
    assert load(spark, snapshot="2").count() == 40
    when = lake.snapshots()[-3].snapshot_time.isoformat()
    assert load(spark, as_of=when).count() == 40
    assert load(spark, snapshot="1").collect() == []
    assert load(spark).select("v").where("k = 100").collect()[0].v == "few"


def test_only_the_named_columns_are_read(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER)", "INSERT INTO t VALUES (1, 2, 3)")
    assert read_rows(load(spark, columns="C, a", where="b = 2")) == ["[3, 1]"]
    with pytest.raises(PySparkException, match="no column `bb`"):
        load(spark, columns="bb")


def test_overwrite_replaces_all_rows_or_those_that_match_where(lake: DuckLake, spark: SparkSession) -> None:
    lake.create_table("t", {"id": "BIGINT", "p": "VARCHAR"}, partition_by=["p"])
    save(spark.sql("SELECT id, concat('p', id % 2) AS p FROM range(10)"))
    save(spark.sql("SELECT id, 'p0' AS p FROM range(3)"), mode="overwrite", where="p = 'p0'")
    assert [row.p for row in load(spark).orderBy("p").collect()] == ["p0"] * 3 + ["p1"] * 5
    before = lake.snapshots(1)[0].snapshot_id
    with pytest.raises(PySparkException, match="RowsOutsideError"):
        save(spark.sql("SELECT 1L AS id, 'p1' AS p"), mode="overwrite", where="p = 'p0'")
    assert lake.snapshots(1)[0].snapshot_id == before
    save(spark.sql("SELECT 1L AS id, 'all' AS p"), mode="overwrite")
    assert read_rows(load(spark)) == ["[1, 'all']"]
    assert not lake.fsck(deep=True, storage=True).counts


def test_overwriting_part_of_a_file_keeps_its_other_rows(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (id BIGINT)", "INSERT INTO t FROM range(1000)")
    save(spark.range(3), mode="overwrite", where="id < 990")  # so few rows are retained that they are copied
    check_retained_files(lake)
    assert read_rows(load(spark)) == expected(lake, "FROM t") == [f"[{n}]" for n in (0, 1, 2, *range(990, 1000))]
    execute(lake, "INSERT INTO t FROM range(1000, 2000)")
    save(
        spark.range(1000, 1003), mode="overwrite", where="id BETWEEN 1000 AND 1009"
    )  # here most rows are retained, and the replaced ones are deleted
    check_retained_files(lake)
    assert load(spark).count() == 13 + 3 + 990
    execute(lake, "DELETE FROM t WHERE id = 1995")
    before = lake.snapshots(1)[0].snapshot_id
    save(spark.range(1), mode="overwrite")
    check_retained_files(lake)
    assert (load(spark).count(), load(spark, snapshot=str(before)).count()) == (1, 1005)
    lake.tag("before", before)
    assert load(spark, tag="before").count() == 1005


def test_an_idempotency_key_is_committed_once(lake: DuckLake, spark: SparkSession) -> None:
    for _ in range(2):
        save(spark.range(10), idempotency_key="run 7")
    assert lake.table("t").count() == 10
    assert not lake.fsck(storage=True).counts


def test_a_retried_task_writes_each_row_once(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    mark = str(tmp_path / f"failed {uuid.uuid4()}")

    def fail_once(batches):  # type: ignore[no-untyped-def]
        yield from batches
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("once")

    save(spark.range(0, 20, 1, 2).mapInArrow(fail_once, "id long"))
    assert lake.table("t").count() == 20
    assert not lake.fsck(deep=True, storage=True).counts


def test_a_failed_job_leaves_no_snapshot_or_file(lake: DuckLake, spark: SparkSession) -> None:
    save(spark.range(3))
    before = lake.snapshots(1)[0].snapshot_id
    failing = spark.sql(
        "SELECT CASE WHEN id = 99 THEN CAST(raise_error('boo') AS BIGINT) ELSE id END AS id FROM range(100)"
    )
    with pytest.raises(PySparkException, match="boo"):
        save(failing)
    assert lake.snapshots(1)[0].snapshot_id == before
    assert not lake.fsck(storage=True).counts


def test_a_task_that_outlasts_its_write_deletes_its_files(lake: DuckLake) -> None:
    execute(lake, "CREATE TABLE t (id BIGINT)")
    schema = StructType([StructField("id", LongType())])
    planned, task = plan_write(lake.config, ({"table": "t"}, schema, False))

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        abandon_write(lake.config, (planned, False))
        yield pa.record_batch({"id": [2]})

    (result,) = write_partition((task, batches()))
    assert "ended before its task" in str(unpacked(result).error)
    assert not lake.fsck(storage=True).counts


def test_invalid_options_and_tables_are_refused(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (id INTEGER)")
    for work, words in (
        (lambda: load(spark, tablo="t"), "no option `tablo`"),
        (lambda: spark.read.format("ducklake").load(), "needs the option `table`"),
        (lambda: load(spark, "nothing"), "no table `main.nothing`"),
        (lambda: load(spark, snapshot="x"), "not a snapshot id"),
        (lambda: load(spark, snapshot="1", tag="x"), "Only one of the options"),
        (lambda: load(spark, tag="x"), "There is no tag `x`"),
        (lambda: save(spark.range(3).toDF("other")), "`other` is not a column"),
        (lambda: save(spark.range(3), where="id = 1"), "mode is `append`"),
        (lambda: save(spark.range(3), "u", mode="error"), "cannot be written in the"),
    ):
        with pytest.raises(PySparkException, match=words):
            work()


def test_a_temporary_view_is_read_and_written_by_name(lake: DuckLake, spark: SparkSession) -> None:
    save(spark.range(3))
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW by_name USING ducklake OPTIONS (table 't')")
    spark.sql("INSERT INTO by_name VALUES (7)")
    assert [row.id for row in spark.sql("SELECT id FROM by_name WHERE id > 0 ORDER BY id").collect()] == [1, 2, 7]


@pytest.mark.parametrize(
    "work",
    [
        lambda spark, name: spark.range(3).write.format("ducklake").saveAsTable(name),
        lambda spark, name: spark.range(3).writeTo(name).using("ducklake").create(),
        lambda spark, name: spark.sql(f"CREATE TABLE {name} USING ducklake OPTIONS (table 't') AS SELECT 1 AS id"),
        lambda spark, name: spark.sql(f"CREATE TABLE {name} USING ducklake OPTIONS (table 't')"),
        lambda spark, name: spark.sql(f"CREATE TABLE {name} (id BIGINT) USING ducklake") and spark.table(name).count(),
    ],
    ids=["saveAsTable", "writeTo", "create as", "create", "read"],
)
def test_tables_of_sparks_own_catalog_are_refused(
    lake: DuckLake, spark: SparkSession, work: Callable[[SparkSession, str], object]
) -> None:
    save(spark.range(3))
    name = f"own_{uuid.uuid4().hex}"
    try:
        with pytest.raises(PySparkException, match=r"tables of its own catalog.*lake\.sql"):
            work(spark, name)
        assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 3}]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_two_lakes_register_under_different_names(tmp_path: Path, spark: SparkSession) -> None:
    lakes = [DuckLake.local(tmp_path / name) for name in ("one", "two")]
    for number, lake in enumerate(lakes):
        lake.register(spark, f"lake_{number}")
        spark.range(number + 1).write.format(f"lake_{number}").option("table", "t").mode("append").save()
    assert [lake.table("t").count() for lake in lakes] == [1, 2]
