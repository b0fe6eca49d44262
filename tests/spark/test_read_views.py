"""Spark reads views that select columns and rows of one table; it refuses all others by name."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import ObjectNotFoundError, UnsupportedStatementError
from tests.support.spark_reads import execute, expected, read_rows

READ = {
    "all": "SELECT * FROM orders",
    "some": 'SELECT id, price AS "the price", id AS again FROM orders WHERE price > 4 AND region IS NOT NULL',
    "by_alias": "SELECT o.region, o.id FROM main.orders AS o WHERE o.id % 3 = 1 AND lower(o.region) LIKE 'r_'",
    "of_field": "SELECT orders.id, place FROM orders WHERE orders.place.zip < 7 OR id IN (11, 12)",
    "of_float": "SELECT id, price FROM orders WHERE price * 0.1e0 = 0.30000000000000004e0 OR price = 1e0",
    "of_moment": "SELECT id FROM orders WHERE day < today()",
    "geo.own": "SELECT pop AS people FROM regions WHERE pop > 0",
    "geo.of_main": "SELECT id FROM orders",
}
REFUSED = {
    "grouped": "SELECT region, count(*) AS n FROM orders GROUP BY region",
    "computed": "SELECT id * 2 AS twice FROM orders",
    "joined": "SELECT id FROM orders JOIN geo.regions USING (region)",
    "limited": "SELECT id FROM orders ORDER BY id LIMIT 3",
    "distinct_rows": "SELECT DISTINCT region FROM orders",
    "all_but": "SELECT * EXCLUDE (day) FROM orders",
    "both": "SELECT id FROM orders UNION ALL SELECT pop FROM geo.regions",
    "nested": 'SELECT id FROM "some"',
    "by_query": "SELECT id FROM orders WHERE id > (SELECT max(pop) FROM geo.regions)",
    "sampled": "SELECT id FROM orders USING SAMPLE 3",
    "earlier": "SELECT id FROM orders AT (VERSION => 2)",
    "by_window": "SELECT id FROM orders QUALIFY row_number() OVER (ORDER BY id) = 1",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    lake = DuckLake.local(tmp_path_factory.mktemp("views") / "shop")
    execute(
        lake,
        "CREATE TABLE orders (id BIGINT, region VARCHAR, price DOUBLE, day DATE, place STRUCT(zip BIGINT))",
        "INSERT INTO orders SELECT range, CASE WHEN range % 5 > 0 THEN 'r' || range % 3 END, range / 2,"
        " DATE '2024-01-01' + range::INTEGER, {'zip': range} FROM range(20)",
        "CREATE SCHEMA geo; CREATE TABLE geo.regions AS SELECT 'r' || range AS region, range AS pop FROM range(4)",
        *(f"CREATE VIEW {_name(name)} AS {query}" for name, query in (READ | REFUSED).items()),
        'CREATE VIEW named(nr, "where") AS SELECT id, region FROM orders WHERE id < 9',
    )
    return lake


def _name(view: str) -> str:
    return ".".join(f'"{part}"' for part in view.split("."))


@pytest.mark.parametrize("view", [*READ, "named"])
def test_views_of_one_table_have_the_rows_that_duckdb_returns(lake: DuckLake, spark: SparkSession, view: str) -> None:
    frame = lake.read(view, spark)
    assert read_rows(frame) == expected(lake, f"FROM {_name(view)}")
    assert frame.columns == lake.read(view).column_names


def test_columns_and_conditions_are_those_of_the_view(lake: DuckLake, spark: SparkSession) -> None:
    condition = "\"where\" = 'r1' OR nr % 4 = 0 -- a comment"
    frame = lake.read("named", spark, columns=["NR"], where=condition)
    assert read_rows(frame) == expected(lake, f"SELECT nr FROM named WHERE {condition}\n")
    with pytest.raises(ObjectNotFoundError, match="no column `id`"):
        lake.read("named", spark, columns=["id"])
    with pytest.raises(ObjectNotFoundError, match="no column `id`"):
        lake.read("named", spark, where="id = 1")


@pytest.mark.parametrize("view", REFUSED)
def test_other_views_are_refused_by_name(lake: DuckLake, spark: SparkSession, view: str) -> None:
    with pytest.raises(UnsupportedStatementError, match=f"`main.{view}` is a view that does more than"):
        lake.read(view, spark)


def test_spark_sql_joins_a_view_at_the_snapshot_of_the_statement(spark: SparkSession, tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "shop")
    execute(
        lake,
        "CREATE TABLE orders (id BIGINT, region VARCHAR)",
        "CREATE VIEW eu AS SELECT id AS number FROM orders WHERE region = 'eu'",
        "INSERT INTO orders SELECT range, if(range % 2 = 0, 'eu', 'us') FROM range(10)",
        "DELETE FROM orders WHERE id < 4",
    )
    query = "SELECT e.number, o.region FROM eu {0} e JOIN orders {0} o ON o.id = e.number WHERE e.number > 1"
    assert sorted(row.number for row in lake.sql(spark, query.format("")).collect()) == [4, 6, 8]
    assert sorted(row.number for row in lake.sql(spark, query.format("VERSION AS OF 3")).collect()) == [2, 4, 6, 8]
