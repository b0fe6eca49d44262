"""`lake.sql`: what names mean, which files a query reads, and one snapshot for all tables."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    ConfigError,
    DuckLakeOrchError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
    StatementError,
    UnsupportedStatementError,
)
from tests.support.spark_reads import execute


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    """A lake of three snapshots: 1 creates `orders`, 2 adds rows to it, 3 creates `geo.regions` and more."""
    lake = DuckLake.local(tmp_path_factory.mktemp("sql") / "shop", data_inlining_row_limit=0)
    execute(
        lake,
        "CREATE TABLE orders (id BIGINT, region VARCHAR, day DATE); ALTER TABLE orders SET PARTITIONED BY (region)",
        "INSERT INTO orders SELECT range, 'r' || range % 3, DATE '2024-01-01' + range::INTEGER FROM range(9)",
        "INSERT INTO orders VALUES (99, 'r1', '2025-01-01')",
        "CREATE SCHEMA geo; CREATE TABLE geo.regions AS SELECT 'r' || range AS region, range AS pop FROM range(4)",
        "CREATE VIEW per_region AS SELECT region, count(*) AS n FROM orders GROUP BY region;"
        "CREATE SCHEMA shop; CREATE TABLE shop.orders (sole INTEGER)",
    )
    return lake


def values(frame: DataFrame) -> list[Any]:
    return sorted(row[0] for row in frame.collect())


def files(frame: DataFrame) -> set[str]:
    """Return the partitions whose files a plan reads."""
    return set(re.findall(r"region=(r\d)", " ".join(frame.inputFiles())))


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("geo.regions", ["region", "pop"]),
        ("shop.main.orders", ["id", "region", "day"]),
        ("shop.orders", ["sole"]),  # a schema comes before a lake of the same name
        ("`GEO`.`Regions`", ["region", "pop"]),
        ("other.orders", ["x"]),
        ("other.main.orders", ["x"]),
    ],
)
def test_a_name_has_one_two_or_three_parts(
    lake: DuckLake, spark: SparkSession, tmp_path: Path, name: str, columns: list[str]
) -> None:
    other = DuckLake.local(tmp_path / "lake")
    execute(other, "CREATE TABLE orders (x INTEGER)")
    assert lake.sql(spark, f"SELECT * FROM {name}", lakes={"other": other}).columns == columns


def test_frames_are_named_in_braces_and_as_tables(lake: DuckLake, spark: SparkSession) -> None:
    text = (
        "SELECT b.id FROM {new} a JOIN new b USING (id) JOIN orders USING (id) WHERE {new[id]} > :least AND new.id < 5"
    )
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        lake.sql(spark, text, {"least": 1}, new=spark.range(6))  # the alias of `new` is `b`
    text = text.replace("AND new.id < 5", "AND b.id < 5").replace("{new[id]}", "a.id")
    frame = lake.sql(spark, text, {"least": 1}, new=spark.range(6))
    assert values(frame) == [2, 3, 4]
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("_pyspark")] == []


def test_braces_are_text_without_frames(lake: DuckLake, spark: SparkSession) -> None:
    assert values(lake.sql(spark, """SELECT '{"a": {}}' FROM orders WHERE id = 1""")) == ['{"a": {}}']


def test_tables_of_the_session_join_those_of_the_lake(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).createOrReplaceTempView("session_view")
    spark.range(2).write.parquet(str(tmp_path / "files"))
    text = f"SELECT id FROM orders JOIN session_view USING (id) JOIN parquet.`{tmp_path}/files` USING (id)"
    assert values(lake.sql(spark, text)) == [0, 1]


def test_parameters_by_position(lake: DuckLake, spark: SparkSession) -> None:
    assert values(lake.sql(spark, "SELECT id FROM orders WHERE id > ? AND id < ?", [3, 6])) == [4, 5]


def test_tables_of_two_schemas_with_the_same_name_are_told_apart(lake: DuckLake, spark: SparkSession) -> None:
    text = "SELECT main.orders.id FROM main.orders LEFT JOIN shop.orders ON main.orders.id = shop.orders.sole"
    assert len(values(lake.sql(spark, text))) == 10


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clause",
    ["VERSION AS OF {}", "FOR VERSION AS OF '{}'", "FOR SYSTEM_VERSION AS OF {}", "VERSION AS OF :v"],
)
def test_a_table_is_read_at_a_snapshot(lake: DuckLake, spark: SparkSession, clause: str) -> None:
    at = lake.table("orders").history(rows=True)[-1].snapshot_id
    text = f"SELECT count(*) FROM orders {clause.format(at)} WHERE orders.id >= 0 UNION ALL SELECT count(*) FROM orders"
    assert values(lake.sql(spark, text, {"v": at} if ":v" in clause else None)) == [9, 10]


@pytest.mark.parametrize(
    "clause", ["VERSION AS OF 'q3'", "FOR SYSTEM_VERSION AS OF concat('q', 3)", "VERSION AS OF :v"]
)
def test_a_table_is_read_at_a_tag(lake: DuckLake, spark: SparkSession, clause: str) -> None:
    lake.tag("q3", lake.table("orders").history(rows=True)[-1].snapshot_id)
    text = f"SELECT count(*) FROM orders {clause} WHERE orders.id >= 0"
    assert values(lake.sql(spark, text, {"v": "q3"} if ":v" in clause else None)) == [9]


def test_a_tag_of_digits_is_found_before_a_snapshot(lake: DuckLake, spark: SparkSession) -> None:
    at = lake.table("orders").history(rows=True)[-1].snapshot_id
    lake.tag("20260930", at)
    assert values(lake.sql(spark, "SELECT count(*) FROM orders VERSION AS OF '20260930'")) == [9]


@pytest.mark.parametrize(
    "clause", ["TIMESTAMP AS OF '{}'", "FOR SYSTEM_TIME AS OF TIMESTAMP '{}'", "TIMESTAMP AS OF current_timestamp()"]
)
def test_a_table_is_read_at_a_time(lake: DuckLake, spark: SparkSession, clause: str) -> None:
    snapshots = lake.table("orders").history(rows=True)
    expected = 10 if "current" in clause else 9
    text = f"SELECT id FROM orders {clause.format(snapshots[-1].snapshot_time.isoformat())} AS o WHERE o.id >= 0"
    assert len(values(lake.sql(spark, text))) == expected


def test_changes_and_metadata_are_tables(lake: DuckLake, spark: SparkSession) -> None:
    first, last = (snapshot.snapshot_id for snapshot in reversed(lake.table("orders").history(rows=True)))
    assert values(
        lake.sql(spark, f"SELECT id FROM changes('orders', {last}, {last}) c WHERE c.change_type = 'insert'")
    ) == [99]
    assert len(values(lake.sql(spark, f"SELECT id FROM changes('main.orders', {first})"))) == 10
    assert values(lake.sql(spark, "SELECT row_count FROM orders.files")) == [1, 3, 3, 3]
    assert values(lake.sql(spark, "SELECT partition['region'] FROM shop.main.orders.partitions")) == ["r0", "r1", "r2"]
    assert first in values(lake.sql(spark, "SELECT snapshot_id FROM orders.history"))
    assert values(lake.sql(spark, "SELECT max(snapshot_id) FROM orders.snapshots")) == [
        lake.snapshots(1)[0].snapshot_id
    ]


# --- which files are read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT * FROM orders WHERE region = 'r1'", {"r1"}),
        ("SELECT * FROM orders WHERE region IN ('r0', 'r2') AND upper(region) <> 'x'", {"r0", "r2"}),
        ("SELECT * FROM orders WHERE region = :r", {"r1"}),
        ("SELECT id FROM orders o LEFT JOIN geo.regions g ON id = pop WHERE o.region = 'r1' AND o.id > 90", {"r1"}),
        ("SELECT o.id FROM geo.regions g LEFT JOIN orders o ON o.region = g.region WHERE o.region = 'r2'", {"r2"}),
        ("SELECT * FROM (SELECT * FROM orders WHERE orders.region = 'r0')", {"r0"}),
        ("WITH t AS (SELECT id FROM orders WHERE region = 'r0') SELECT * FROM t", {"r0"}),
        # Conditions that must not reach the table: on NULLs of an outer join, on a sample, or of another table.
        ("SELECT pop FROM geo.regions g LEFT JOIN orders o ON id = pop WHERE o.region IS NULL", {"r0", "r1", "r2"}),
        ("SELECT * FROM orders TABLESAMPLE (100 PERCENT) WHERE region = 'r1'", {"r0", "r1", "r2"}),
        ("SELECT * FROM orders WHERE region = 'r1' OR rand() < 2", {"r0", "r1", "r2"}),
        ("SELECT * FROM orders o JOIN geo.regions g ON o.id = g.pop WHERE g.region = 'r1'", {"r0", "r1", "r2"}),
    ],
)  # fmt: skip
def test_conditions_prune_files(lake: DuckLake, spark: SparkSession, text: str, read: set[str]) -> None:
    assert files(lake.sql(spark, text, {"r": "r1"} if ":r" in text else None)) == read


def test_all_tables_of_a_statement_are_read_at_one_snapshot(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    execute(lake, "CREATE TABLE a (i INTEGER)", "CREATE TABLE b (i INTEGER)")
    both = "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)"
    read = DuckLake.read

    def read_late(self: DuckLake, table: str, *args: Any, **arguments: Any) -> Any:
        frame = read(self, table, *args, **arguments)
        if table == "main.a" and arguments.get("snapshot") is None:
            lake.execute(list(both), atomic=True).raise_for_error()
        return frame

    monkeypatch.setattr(DuckLake, "read", read_late)
    frame = lake.sql(spark, "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)")
    assert frame.collect() == [(0, 0)]


def test_a_transaction_and_a_stage_see_their_own_changes(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    execute(lake, "CREATE TABLE a AS SELECT * FROM range(4) t(i)", "CREATE TABLE b AS SELECT * FROM range(4) t(i)")
    text = "SELECT a.i FROM a JOIN b USING (i)"
    with lake.transaction() as tx:
        tx.delete("a", "i = 1")
        assert values(tx.sql(spark, text)) == [0, 2, 3]
    lake.stage("s").delete("b", "i = 2")
    staged = lake.sql(spark, text, stage="s")
    assert (values(staged), values(lake.sql(spark, text))) == ([0, 3], [0, 2, 3])


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT * FROM ordrs", ObjectNotFoundError, "no.*has a table `ordrs`|has a table `ordrs`.* `orders`"),
        ("SELECT * FROM geo.region", ObjectNotFoundError, "Did you mean `geo.regions`"),
        ("SELECT * FROM shp.main.orders", ObjectNotFoundError, "has a table `shp.main.orders`"),
        ("SELECT * FROM twice", StatementError, "`twice` is ambiguous"),
        ("SELECT 1; SELECT 2", StatementError, "has 2 statements"),
        (" ; ", StatementError, "no statement"),
        ("SELEC 1", StatementError, "cannot be parsed as Spark's SQL"),
        ("SELECT * FROM orders WHERE id = = 1", StatementError, "line 1, column"),
        ("SELECT 'open", StatementError, "cannot be parsed"),
        ("SELECT * FROM per_region", UnsupportedStatementError, "`main.per_region` is a view that does more than"),
        ("SELECT * FROM orders VERSION AS OF 1000", SnapshotNotFoundError, "1000"),
        ("SELECT * FROM orders VERSION AS OF 'q33'", ObjectNotFoundError, "There is no tag `q33`"),
        ("SELECT * FROM orders VERSION AS OF 1.5", StatementError, "`1.5` is not the id or the tag"),
        ("SELECT * FROM orders TIMESTAMP AS OF 'soon'", StatementError, "`'soon'` is not a time"),
        ("SELECT * FROM changes(orders, 1)", StatementError, "first argument of `changes`"),
        ("SELECT * FROM changes('orders', 'x')", StatementError, "is not a snapshot"),
        ("SELECT * FROM {missing}", ConfigError, "names no argument"),
        ("EXPLAIN SELECT 1", UnsupportedStatementError, "does not run .*lake.execute"),
    ],
)  # fmt: skip
def test_a_statement_that_cannot_run_is_refused(
    lake: DuckLake, spark: SparkSession, text: str, error: type[DuckLakeOrchError], message: str
) -> None:
    if "twice" in text:
        spark.range(1).createOrReplaceTempView("twice")
        execute(lake, "CREATE TABLE IF NOT EXISTS twice (i INTEGER)")
    frames: dict[str, Any] = {"given": spark.range(1)} if "missing" in text else {}
    with pytest.raises(error, match=message):
        lake.sql(spark, text, **frames)
