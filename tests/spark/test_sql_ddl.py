"""`lake.sql` with statements that define and describe tables."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    ConfigError,
    DataError,
    DuckLakeOrchError,
    ObjectNotFoundError,
    UnsupportedStatementError,
)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> DuckLake:
    """A lake with four orders."""
    lake = DuckLake.local(tmp_path / "shop")
    lake.sql(spark, "CREATE TABLE orders AS SELECT id, 'r' || id % 2 AS region, CAST(id AS INT) AS n FROM range(4)")
    return lake


def columns(lake: DuckLake) -> list[tuple[str, str, bool, str | None]]:
    return [(c.name, c.type, c.nullable, c.comment) for c in lake.table("orders").schema()]


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("ADD COLUMN note STRING", {"note": ("VARCHAR", None)}),
        (
            "ADD COLUMNS (d DATE COMMENT 'day, of sale', `a b` ARRAY<INT>)",
            {"d": ("DATE", "day, of sale"), "a b": ("INTEGER[]", None)},
        ),
        ("ADD s STRUCT<a: INT, b: STRING>", {"s": ("STRUCT(a INTEGER, b VARCHAR)", None)}),
        ("DROP COLUMN n", {"n": None}),
        ("DROP COLUMNS (n, region)", {"n": None, "region": None}),
        ("DROP COLUMN `n`, REGION", {"n": None, "region": None}),
        ("DROP COLUMN IF EXISTS nn, N", {"n": None}),
        ("RENAME COLUMN n TO `m m`", {"n": None, "m m": ("INTEGER", None)}),
        ("ALTER COLUMN n TYPE BIGINT", {"n": ("BIGINT", None)}),
        ("ALTER COLUMN n COMMENT 'it\\'s n'", {"n": ("INTEGER", "it's n")}),
    ],
)  # fmt: skip
def test_columns_are_altered(
    lake: DuckLake, spark: SparkSession, statement: str, wanted: dict[str, tuple[str, str | None] | None]
) -> None:
    before = {name: (kind, comment) for name, kind, _, comment in columns(lake)}
    (result,) = lake.sql(spark, f"ALTER TABLE orders {statement}").collect()
    assert (result.table, result["mode"], result.snapshot_id) == ("main.orders", "alter", 2)
    expected = {name: kind for name, kind in {**before, **wanted}.items() if kind is not None}
    assert {name: (kind, comment) for name, kind, _, comment in columns(lake)} == expected
    assert lake.table("orders").count() == 4
    assert lake.fsck().findings == []


def test_drop_column_if_exists_ignores_missing_columns(lake: DuckLake, spark: SparkSession) -> None:
    assert lake.sql(spark, "ALTER TABLE orders DROP COLUMN IF EXISTS nn").collect() == []
    assert lake.snapshots(limit=1)[0].snapshot_id == 1


def test_the_default_of_a_time_is_an_instant(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "ALTER TABLE orders ADD COLUMN at TIMESTAMP")
    lake.sql(spark, "ALTER TABLE orders ALTER COLUMN at SET DEFAULT TIMESTAMP'2024-05-01 12:00:00+02:00'")
    assert lake.table("orders").schema()[-1].default == "2024-05-01 10:00:00+00"


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("INT", "-3", -3),
        ("INT", "3.9", 3),
        ("TIMESTAMP_NTZ", "TIMESTAMP'2024-05-01 12:00:00'", datetime(2024, 5, 1, 12)),
        ("DECIMAL(5,2)", "1.5", Decimal("1.50")),
        ("DATE", "DATE'2024-01-02'", date(2024, 1, 2)),
        ("STRING", "'it\\'s'", "it's"),
        ("BOOLEAN", "true", True),
    ],
)
def test_a_default_is_for_new_rows(lake: DuckLake, spark: SparkSession, kind: str, default: str, value: object) -> None:
    lake.sql(spark, f"ALTER TABLE orders ADD COLUMN x {kind}")
    lake.sql(spark, f"ALTER TABLE orders ALTER COLUMN x SET DEFAULT {default}")
    lake.sql(spark, "INSERT INTO orders (id) VALUES (9)")
    lake.sql(spark, "ALTER TABLE orders ALTER COLUMN x DROP DEFAULT")
    lake.sql(spark, "INSERT INTO orders (id) VALUES (10)")
    found = {row.id: row.x for row in lake.sql(spark, "SELECT id, x FROM orders").collect()}
    assert found == {0: None, 1: None, 2: None, 3: None, 9: value, 10: None}


def test_columns_may_have_any_time(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "CREATE TABLE times (at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE)")
    types = [column.type for column in lake.table("times").schema()]
    assert types == ["TIMESTAMP WITH TIME ZONE", "TIMESTAMP", "DATE"]


def test_not_null_is_dropped(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "CREATE TABLE keys (id BIGINT NOT NULL)")
    lake.sql(spark, "ALTER TABLE keys ALTER COLUMN id DROP NOT NULL")
    lake.sql(spark, "INSERT INTO keys VALUES (NULL)")
    assert lake.table("keys").count() == 1


def test_partition_and_sort_keys_are_altered(lake: DuckLake, spark: SparkSession) -> None:
    def keys() -> list[tuple[str, str]]:
        return [(column.name, column.partition) for column in lake.table("orders").schema() if column.partition]

    lake.sql(spark, "ALTER TABLE orders ADD COLUMN ts TIMESTAMP")
    lake.sql(spark, "ALTER TABLE orders ADD PARTITION FIELD days(ts)")
    lake.sql(spark, "ALTER TABLE main.orders ADD PARTITION FIELD `region`")
    assert keys() == [("region", "identity"), ("ts", "day")]
    lake.sql(spark, "ALTER TABLE orders REPLACE PARTITION FIELD days(ts) WITH months(ts)")
    assert keys() == [("region", "identity"), ("ts", "month")]
    lake.sql(spark, "ALTER TABLE orders DROP PARTITION FIELD region")
    assert keys() == [("ts", "month")]
    lake.sql(spark, "ALTER TABLE orders REPLACE PARTITION FIELD months(TS) WITH months(ts)")
    assert keys() == [("ts", "month")]
    with pytest.raises(ConfigError, match=r"not partitioned by region. Its keys are month\(ts\)"):
        lake.sql(spark, "ALTER TABLE orders DROP PARTITION FIELD region")
    lake.sql(spark, "ALTER TABLE orders WRITE ORDERED BY region DESC, `id`")
    lake.sql(spark, "INSERT INTO orders VALUES (7, 'a', 1, NULL), (8, 'b', 1, NULL), (6, 'b', 1, NULL)")
    assert lake.read("orders", snapshot=lake.snapshots(limit=1)[0].snapshot_id)["id"].to_pylist()[-3:] == [6, 8, 7]
    lake.sql(spark, "ALTER TABLE orders WRITE UNORDERED")
    assert lake.fsck().findings == []


def test_tables_and_columns_may_have_the_names_of_clauses(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, 'CREATE TABLE field (`wr"ite` INT, field INT)')
    lake.sql(spark, "ALTER TABLE field ADD PARTITION FIELD bucket(2, field)")
    lake.sql(spark, 'ALTER TABLE field WRITE ORDERED BY `wr"ite` DESC')
    lake.sql(spark, "INSERT INTO field VALUES (1, 1), (3, 1), (2, 1)")
    assert lake.read("field")['wr"ite'].to_pylist() == [3, 2, 1]


def test_comments_are_set_and_removed(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "COMMENT ON TABLE orders IS 'all orders'")
    lake.sql(spark, "COMMENT ON COLUMN shop.main.orders.id IS 'the key'")
    assert (lake.tables()[0].comment, columns(lake)[0][3]) == ("all orders", "the key")
    lake.sql(spark, "COMMENT ON TABLE orders IS ''")
    lake.sql(spark, "COMMENT ON COLUMN orders.id IS NULL;")
    assert (lake.tables()[0].comment, columns(lake)[0][3]) == (None, None)


def test_schemas_are_created_and_dropped(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "CREATE SCHEMA sales")
    lake.sql(spark, "CREATE DATABASE IF NOT EXISTS shop.sales")
    lake.sql(spark, "CREATE TABLE sales.items (id INT)")
    assert [row.namespace for row in lake.sql(spark, "SHOW SCHEMAS").collect()] == ["main", "sales"]
    assert [row.namespace for row in lake.sql(spark, "/* of */ SHOW SCHEMAS IN `Shop` 's*'").collect()] == ["sales"]
    assert [row.namespace for row in lake.sql(spark, "SHOW DATABASES LIKE 's*'").collect()] == ["sales"]
    lake.sql(spark, "DROP SCHEMA sales CASCADE")
    lake.sql(spark, "DROP SCHEMA IF EXISTS sales")
    assert [row.namespace for row in lake.sql(spark, "SHOW NAMESPACES").collect()] == ["main"]


def test_tables_columns_and_partitions_are_shown_as_spark_shows_them(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql(spark, "CREATE TABLE sales.items (id INT NOT NULL COMMENT 'key', day DATE) PARTITIONED BY (months(day))")
    lake.sql(spark, "INSERT INTO sales.items VALUES (1, DATE'2024-05-06'), (2, NULL)")

    def shown(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in lake.sql(spark, text).collect()]

    assert shown("SHOW TABLES") == [("main", "orders", False)]
    assert (
        shown("SHOW TABLES IN sales")
        == shown("SHOW TABLES FROM shop.sales LIKE 'x|it*'")
        == [("sales", "items", False)]
    )
    assert shown("SHOW TABLES LIKE 'x*'") == shown("SHOW TABLES IN sales 'x*'") == []
    assert shown("SHOW COLUMNS IN sales.items") == [("id",), ("day",)]
    assert sorted(shown("SHOW PARTITIONS sales.items"), key=str) == [("month(day)=5",), ("month(day)=null",)]
    described = [("id", "int", "key"), ("day", "date", None), ("# Partitioning", "", ""), ("Part 0", "month(day)", "")]
    assert shown("DESCRIBE sales.items") == shown("DESC TABLE sales.items") == described
    extended = {row[0]: row[1] for row in shown("DESCRIBE EXTENDED sales.items")}
    assert (extended["Name"], extended["Rows"], extended["Files"]) == ("sales.items", "2", "2")
    assert [row[0] for row in shown("DESCRIBE HISTORY orders")] == [1]


def test_procedures_are_called(lake: DuckLake, spark: SparkSession) -> None:
    for number in range(3):
        lake.sql(spark, f"INSERT INTO orders VALUES ({number}, 'x', {number})")
    steps = lake.sql(spark, "CALL maintain(array('merge', 'flush'), dry_run => true)").collect()
    assert {step.operation for step in steps} == {"merge", "flush"}
    assert {step.status for step in steps} <= {"planned", "skipped"}
    (result,) = lake.sql(spark, "CALL shop.rollback(table => 'orders', to_snapshot => 1)").collect()
    assert (result.table, result.to_snapshot, result.snapshot_id) == ("main.orders", 1, 5)
    assert lake.table("orders").count() == 4
    with lake.transaction() as tx:
        tx.sql(spark, "CALL rollback('orders', 2)")
        tx.sql(spark, "DELETE FROM orders WHERE region = 'x'")
    assert lake.table("orders").count() == 4
    (step,) = (step for step in lake.sql(spark, "CALL maintain('expire')").collect())
    assert step.operation == "expire"


@pytest.mark.parametrize("statement", ["ALTER TABLE orders ADD COLUMN x INT", "COMMENT ON TABLE orders IS 'c'"])
def test_definitions_are_part_of_a_transaction(lake: DuckLake, spark: SparkSession, statement: str) -> None:
    with lake.transaction() as tx:
        tx.sql(spark, statement)
        tx.sql(spark, "DELETE FROM orders WHERE id = 1")
        assert lake.snapshots(limit=1)[0].snapshot_id == 1
        described = tx.sql(spark, "DESCRIBE orders").collect()
        assert len(described) == 3 + ("ADD" in statement)
    assert lake.snapshots(limit=1)[0].snapshot_id == 2
    assert lake.table("orders").count() == 3


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("ALTER TABLE ordres ADD COLUMN x INT", ObjectNotFoundError, "orders"),
        ("ALTER TABLE orders RENAME TO o", UnsupportedStatementError, "does not run this ALTER TABLE"),
        ("ALTER TABLE orders SET TBLPROPERTIES ('a'='b')", UnsupportedStatementError, "does not run this ALTER TABLE"),
        ("ALTER TABLE orders ADD COLUMN x INT DEFAULT 3", UnsupportedStatementError, "SET DEFAULT"),
        ("ALTER TABLE orders ALTER COLUMN n SET DEFAULT 'x'", DataError, "has the type int"),
        ("CREATE TABLE t (BIGINT)", UnsupportedStatementError, "columns `BIGINT`"),
        ("CREATE TABLE t ()", UnsupportedStatementError, "columns ``"),
        ("ALTER TABLE orders ADD COLUMN x INT AFTER id", UnsupportedStatementError, "does not understand the columns"),
        ("ALTER TABLE orders ALTER COLUMN n SET DEFAULT rand()", UnsupportedStatementError, "constants"),
        ("ALTER TABLE orders ALTER COLUMN n TYPE STRING", ConfigError, "cannot become VARCHAR"),
        ("ALTER TABLE orders DROP COLUMN x.y", UnsupportedStatementError, "top-level columns only, not `x.y`"),
        ("ALTER TABLE orders ADD PARTITION FIELD truncate(3, region)", ConfigError, "Unknown transform"),
        ("ALTER VIEW orders ADD COLUMN x INT", UnsupportedStatementError, "does not run this ALTER TABLE"),
        ("ALTER TABLE IF EXISTS orders ADD COLUMN x INT", UnsupportedStatementError, "does not run this ALTER TABLE"),
        ("ALTER TABLE orders ALTER COLUMN n TYPE BIGINT COMMENT 'c'", UnsupportedStatementError, "this ALTER TABLE"),
        ("ALTER TABLE orders ALTER COLUMN n TYPE BIGINT USING n + 1", UnsupportedStatementError, "this ALTER COLUMN"),
        ("ALTER TABLE orders CHANGE COLUMN n m BIGINT", UnsupportedStatementError, "does not run"),
        ("ALTER TABLE orders ALTER COLUMN n SET NOT NULL", UnsupportedStatementError, "this ALTER COLUMN"),
        ("ALTER TABLE orders DROP COLUMN n CASCADE", UnsupportedStatementError, "not `n CASCADE`"),
        ("CREATE SCHEMA shop.sales COMMENT 'c'", UnsupportedStatementError, "further clauses"),
        ("CREATE TABLE t (x INT) AS SELECT 1 AS y", UnsupportedStatementError, "from columns, or from a query"),
        ("SHOW SCHEMAS IN nowhere", ObjectNotFoundError, "no lake `nowhere`"),
        ("SHOW COLUMNS IN orders LIKE 'i*'", UnsupportedStatementError, "does not understand"),
        ("SHOW PARTITIONS orders PARTITION (region = 'r1')", UnsupportedStatementError, "does not understand"),
        ("DESCRIBE SCHEMA orders", UnsupportedStatementError, "does not run `DESCRIBE SCHEMA orders`"),
        ("DESCRIBE orders PARTITION (region = 'r1')", UnsupportedStatementError, "does not run `DESCRIBE"),
        ("CALL maintain(dry_run => 'false')", UnsupportedStatementError, "true or false"),
        ("CALL rollback(table => 'orders', 1)", UnsupportedStatementError, "follows one with a name"),
        ("SHOW CREATE TABLE orders", UnsupportedStatementError, "SHOW TABLES, SCHEMAS"),
        ("SHOW TABLES IN nowhere", ObjectNotFoundError, "no schema `nowhere`"),
        ("SHOW COLUMNS", UnsupportedStatementError, "names no table"),
        ("DESCRIBE FUNCTION abs", DuckLakeOrchError, "abs"),
        ("CALL maintains()", UnsupportedStatementError, "Did you mean `maintain`"),
        ("CALL rollback('orders')", UnsupportedStatementError, "a table and a snapshot"),
        ("CALL maintain(speed => 3)", UnsupportedStatementError, "no argument `speed`"),
        ("CALL maintain(1 + 2)", UnsupportedStatementError, "not a constant"),
        ("ANALYZE TABLE orders COMPUTE STATISTICS", UnsupportedStatementError, "lake.execute"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(
    lake: DuckLake, spark: SparkSession, statement: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lake.sql(spark, statement)
    assert lake.snapshots(limit=1)[0].snapshot_id == 1
