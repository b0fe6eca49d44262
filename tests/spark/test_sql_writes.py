"""`lake.sql` with statements that write: what they do is what Spark does, or they are refused."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    DataError,
    DuckLakeOrchError,
    ObjectExistsError,
    ObjectNotFoundError,
    SnapshotChangedError,
    UnsupportedStatementError,
)
from ducklake_orch.spark.sql.run_query import run_query
from ducklake_orch.spark.sql.store_assignment import assigned

TYPES = ("TINYINT", "BIGINT", "DOUBLE", "DECIMAL(5,2)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
VALUES = (
    "1",
    "300",
    "1.256",
    "1e30D",
    "'12'",
    "true",
    "DATE'2024-01-02'",
    "TIMESTAMP_NTZ'2024-01-02 03:04:05'",
    "NULL",
)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> DuckLake:
    """A lake with nine orders in three regions."""
    lake = DuckLake.local(tmp_path / "shop")
    text = "CREATE TABLE orders PARTITIONED BY (region) AS SELECT id, 'r' || id % 3 AS region, id * 1.5D AS price"
    lake.sql(spark, f"{text} FROM range(9)")
    return lake


def rows(lake: DuckLake, spark: SparkSession, table: str = "orders") -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in lake.sql(spark, f"SELECT * FROM {table}").collect()), key=str)


@pytest.mark.parametrize("kind", TYPES)
def test_values_are_assigned_to_columns_as_spark_assigns_them(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE assigned_to (value {kind}) USING parquet LOCATION '{tmp_path / 'table'}'")
    try:
        column = StructField("value", spark.table("assigned_to").schema[0].dataType)
        for value in VALUES:
            try:
                spark.sql(f"INSERT OVERWRITE assigned_to SELECT {value}")
                wanted = spark.table("assigned_to").collect()
            except PySparkException:
                wanted = None
            try:
                found = assigned(spark.sql(f"SELECT {value}"), [column], "assigned_to").collect()
            except (DataError, PySparkException):
                found = None
            assert found == wanted, value
    finally:
        spark.sql("DROP TABLE assigned_to")


def test_insert_appends_by_position_or_by_named_columns(lake: DuckLake, spark: SparkSession) -> None:
    result = lake.sql(spark, "INSERT INTO orders VALUES (20, 'x', 1), (21, NULL, 2.5)").collect()[0]
    assert (result.table, result.mode, result.rows_written, result.snapshot_id) == ("main.orders", "append", 2, 2)
    lake.sql(spark, "INSERT INTO orders (region, id) WITH new AS (SELECT 'y', 22) SELECT * FROM new")
    text = "INSERT INTO TABLE orders PARTITION (region = 'z') SELECT id, :price FROM {new}"
    lake.sql(spark, text, {"price": 3}, new=spark.range(23, 24))
    assert [row for row in rows(lake, spark) if row[0] >= 20] == [
        (20, "x", 1.0),
        (21, None, 2.5),
        (22, "y", None),
        (23, "z", 3.0),
    ]


def test_insert_overwrite_replaces_all_rows_or_the_partitions_of_the_new_ones(
    lake: DuckLake, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lake.sql(spark, "INSERT OVERWRITE orders VALUES (30, 'r0', 1)")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert [row[0] for row in rows(lake, spark)] == [1, 2, 30, 4, 5, 7, 8]
    lake.sql(spark, "INSERT OVERWRITE TABLE orders SELECT * FROM orders WHERE id > 6")
    assert [row[0] for row in rows(lake, spark)] == [30, 7, 8]


def test_insert_overwrite_with_constants_replaces_that_partition(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "INSERT OVERWRITE orders PARTITION (region = 'r1') SELECT id + 40, price FROM orders WHERE id < 2")
    assert [row[:2] for row in rows(lake, spark) if row[1] == "r1"] == [(40, "r1"), (41, "r1")]
    assert lake.table("orders").count() == 8


def test_insert_by_name_assigns_columns_by_their_names(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "INSERT INTO orders BY NAME SELECT 'z' AS region, 60 AS ID")
    assert [row for row in rows(lake, spark) if row[0] >= 60] == [(60, "z", None)]


def test_tables_are_created_from_columns(lake: DuckLake, spark: SparkSession) -> None:
    columns = "id BIGINT NOT NULL COMMENT 'a (key)', place STRUCT<x: INT, y: INT>, day DATE"
    layout = "USING ducklake PARTITIONED BY (days(day)) COMMENT 'sales by day'"
    for _ in range(2):
        assert lake.sql(spark, f"CREATE TABLE IF NOT EXISTS sales.days ({columns}) {layout}").collect() == []
    found = lake.table("sales.days").schema()
    assert [(column.name, column.type, column.nullable, column.comment) for column in found] == [
        ("id", "BIGINT", False, "a (key)"),
        ("place", "STRUCT(x INTEGER, y INTEGER)", True, None),
        ("day", "DATE", True, None),
    ]
    assert [table.comment for table in lake.tables() if table.table == "days"] == ["sales by day"]


def test_tables_are_dropped(lake: DuckLake, spark: SparkSession) -> None:
    assert lake.sql(spark, "DROP TABLE orders").collect() == []
    assert not lake.exists("orders")
    lake.sql(spark, "DROP TABLE IF EXISTS orders")


def test_insert_overwrite_replaces_no_rows_that_its_query_has_not_read(
    lake: DuckLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_an_append(*arguments: Any) -> DataFrame:
        frame = run_query(*arguments)
        lake.write(
            spark.createDataFrame([(50, "x", 1.0)], "id LONG, region STRING, price DOUBLE"), "orders", mode="append"
        )
        return frame

    monkeypatch.setattr("ducklake_orch.spark.sql.statement_scope.run_query", after_an_append)
    with pytest.raises(SnapshotChangedError):
        lake.sql(spark, "INSERT OVERWRITE orders SELECT * FROM orders WHERE id > 6")
    assert lake.table("orders").count() == 10


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("id = 4", [0, 1, 2, 3, 5, 6, 7, 8]),
        ("o.id IN (1, :id) OR o.region = 'r0'", [4, 5, 7, 8]),
        ("NOT (region IN ('r0', 'r1')) AND price BETWEEN 2 AND 8", [0, 1, 3, 4, 6, 7, 8]),
        ("region IS NULL", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("region IS NOT NULL", []),
    ],
)
def test_delete_removes_rows_by_conditions_on_columns(
    condition: str, left: list[int], lake: DuckLake, spark: SparkSession
) -> None:
    lake.sql(spark, f"DELETE FROM orders AS o WHERE {condition}", {"id": 2})
    assert [row[0] for row in rows(lake, spark)] == left


def test_update_assigns_constants(lake: DuckLake, spark: SparkSession) -> None:
    result = lake.sql(spark, "UPDATE orders SET price = 7, region = NULL WHERE id >= 7").collect()[0]
    assert (result.mode, result.rows_written) == ("update", 2)
    assert [row for row in rows(lake, spark) if row[0] >= 6] == [(6, "r0", 9.0), (7, None, 7.0), (8, None, 7.0)]


def test_tables_are_created_from_queries_and_truncated(lake: DuckLake, spark: SparkSession) -> None:
    created = "CREATE TABLE IF NOT EXISTS sales.days USING ducklake PARTITIONED BY (bucket(4, id), months(day))"
    for _ in range(2):
        lake.sql(spark, f"{created} AS SELECT id, DATE'2024-05-06' AS day FROM orders")
    assert [column.partition for column in lake.table("sales.days").schema()] == ["bucket(4)", "month"]
    assert lake.table("sales.days").count() == 9
    lake.sql(spark, "TRUNCATE TABLE sales.days")
    assert lake.table("sales.days").count() == 0


def test_statements_of_a_transaction_are_committed_together(lake: DuckLake, spark: SparkSession) -> None:
    before = lake.snapshots(1)[0].snapshot_id
    with lake.transaction() as tx:
        tx.sql(spark, "INSERT INTO orders VALUES (40, 'x', 1)")
        tx.sql(spark, "DELETE FROM orders WHERE id < 40")
        assert tx.sql(spark, "SELECT count(*) AS n FROM orders").collect()[0].n == 1
        assert lake.table("orders").count() == 9
    assert rows(lake, spark) == [(40, "x", 1.0)]
    assert lake.snapshots(1)[0].snapshot_id == before + 1


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO orders VALUES (1, 'x', 'much')", DataError, "`price` of `main.orders` has the type double"),
        ("INSERT INTO orders VALUES (1, 'x')", DataError, "The query has 2 columns"),
        ("INSERT INTO order VALUES (1)", ObjectNotFoundError, "orders"),
        ("INSERT INTO orders BY NAME SELECT 1 AS idd", ObjectNotFoundError, "`id`"),
        (
            "INSERT OVERWRITE orders PARTITION (region = upper('x')) SELECT 1, 2D",
            UnsupportedStatementError,
            "replace_where",
        ),
        ("INSERT OVERWRITE orders PARTITION (region) SELECT 1, 2D, 'x'", UnsupportedStatementError, "constants"),
        ("DROP TABLE order", ObjectNotFoundError, "orders"),
        ("DROP VIEW orders", UnsupportedStatementError, "one table or one schema only"),
        ("UPDATE orders SET price = DEFAULT WHERE id % 2 = 0", UnsupportedStatementError, "one value"),
        ("UPDATE orders SET price = 1, price = 2", UnsupportedStatementError, "does not understand"),
        ("UPDATE orders SET price = id, PRICE = 2D", UnsupportedStatementError, "one value"),
        ("DELETE FROM orders WHERE id % 2 = ?", UnsupportedStatementError, "by position"),
        ("UPDATE orders SET price = upper(region)", DataError, "CAST"),
        ("UPDATE orders SET prise = id + 1", ObjectNotFoundError, "price"),
        ("UPDATE orders SET n.price = id + 1", UnsupportedStatementError, "whole columns"),
        ("TRUNCATE TABLE orders PARTITION (region = 'x')", UnsupportedStatementError, "one whole table"),
        ("CREATE TABLE t LIKE orders", UnsupportedStatementError, "lake.create_table"),
        ("CREATE TABLE t (id INT) PARTITIONED BY (p STRING)", UnsupportedStatementError, "lake.create_table"),
        ("CREATE TABLE orders (id INT)", ObjectExistsError, "orders"),
        ("CREATE TABLE t COMMENT 'x' AS SELECT 1 AS id", UnsupportedStatementError, "lake.create_table"),
        ("CREATE OR REPLACE TABLE orders AS SELECT 1 AS id", UnsupportedStatementError, "lake.create_table"),
        (
            "MERGE INTO orders o USING (SELECT 1 AS id UNION ALL SELECT 1) n ON o.id = n.id"
            " WHEN MATCHED THEN UPDATE SET price = n.id",
            DataError,
            "Several source rows",
        ),
        (
            "MERGE INTO orders o USING (SELECT 1 AS id) ON o.id = 1 WHEN MATCHED THEN DELETE",
            UnsupportedStatementError,
            "AS source",
        ),
    ],
)
def test_what_cannot_be_done_right_is_refused_with_what_to_do(
    text: str, error: type[DuckLakeOrchError], message: str, lake: DuckLake, spark: SparkSession
) -> None:
    before = lake.snapshots(1)[0].snapshot_id
    with pytest.raises(error) as caught:
        lake.sql(spark, text, [1] if "?" in text else None)
    assert message in str(caught.value)
    assert lake.snapshots(1)[0].snapshot_id == before


def test_a_stage_that_is_only_read_is_not_written(lake: DuckLake, spark: SparkSession) -> None:
    lake.stage("work")
    with pytest.raises(UnsupportedStatementError, match="A stage is only read here"):
        lake.sql(spark, "DELETE FROM orders", stage="work")
    with lake.stage("work").transaction() as tx:
        tx.sql(spark, "DELETE FROM orders WHERE id > 0")
    assert lake.sql(spark, "SELECT * FROM orders", stage="work").count() == 1
    assert lake.table("orders").count() == 9
