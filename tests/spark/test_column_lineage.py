"""The column lineage of a DataFrame says what its plan proves, and neither more nor less than its data show."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ducklake_orch import DuckLake
from ducklake_orch.spark.column_lineage import column_sources

ORDERS: dict[str, list[Any]] = {
    "id": [1, 2, 3, 4, 5, 6],
    "customer": [1, 2, 3, 1, 2, 3],
    "region": ["eu", "us", "eu", "as", "us", "eu"],
    "amount": [10, 20, 30, 40, 50, 60],
    "price": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
    "tags": [[1], [2, 3], [4], [5], [6, 7, 8], [9]],
}
CUSTOMERS: dict[str, list[Any]] = {"customer": [1, 2, 3], "name": ["ann", "bob", "cat"], "score": [7, 8, 9]}
TABLES: dict[str, dict[str, list[Any]]] = {"o": ORDERS, "c": CUSTOMERS}
NAMES = {"o": "sales.orders", "c": "customers"}


def others(column: list[Any]) -> list[Any]:
    """Return other values: numbers in the opposite order, texts in other groups, lists of another length."""
    return [_other(number, value) for number, value in enumerate(column)]


def _other(number: int, value: Any) -> Any:
    if isinstance(value, list):
        return [0, *(_other(number, part) for part in value)]
    return f"{value}{number // 2}" if isinstance(value, str) else 1000 - 3 * value


@dataclass(frozen=True)
class Tables:
    """Two tables of a lake.

    Attributes:
        lake: The lake.
        frames: The tables, as Spark reads them.
        variants: For each column, the same tables with other values in this column; as they are under the empty name.
    """

    lake: DuckLake
    frames: tuple[DataFrame, DataFrame]
    variants: Mapping[str, tuple[DataFrame, DataFrame]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Tables:
    lake = DuckLake.local(tmp_path_factory.mktemp("lineage") / "lake")
    for short, table in TABLES.items():
        lake.write(pa.table(table), NAMES[short], mode="append")
    plain = {short: spark.createDataFrame(pa.table(table)) for short, table in TABLES.items()}
    variants = {"": plain}
    for short, table in TABLES.items():
        for column in table:
            changed = {**table, column: others(table[column])}
            variants[f"{short}.{column}"] = {**plain, short: spark.createDataFrame(pa.table(changed))}
    o, c = (lake.read(name, spark) for name in NAMES.values())
    return Tables(lake, (o, c), {name: (frames["o"], frames["c"]) for name, frames in variants.items()})


Build = Callable[[DataFrame, DataFrame], DataFrame]


def sql(query: str) -> Build:
    """Return the result of a query on the tables `{o}` and `{c}`."""
    return lambda o, c: o.sparkSession.sql(query, o=o, c=c)


def in_steps(o: DataFrame, c: DataFrame) -> DataFrame:
    frame = o.withColumn("total", F.col("amount") * F.col("price")).withColumnRenamed("region", "area")
    return frame.filter(frame["amount"] > 0).drop("tags", "price").withColumn("total", F.round("total") + F.col("id"))


def from_view(o: DataFrame, c: DataFrame) -> DataFrame:
    o.createOrReplaceTempView("lineage_orders")
    return o.sparkSession.sql("SELECT id, upper(region) AS region FROM lineage_orders")


def self_joined(o: DataFrame, c: DataFrame) -> DataFrame:
    left, right = o.alias("l"), o.alias("r")
    return left.join(right, F.col("l.id") == F.col("r.id")).select("l.id", "r.region", F.col("r.amount").alias("x"))


def ranked(o: DataFrame, c: DataFrame) -> DataFrame:
    window = Window.partitionBy("region").orderBy("amount")
    return o.select("id", F.row_number().over(window).alias("n"), F.sum("price").over(window).alias("s"))


# Name: what computes a frame, the lineage of its columns, and the columns that decide which rows there are.
CASES: dict[str, tuple[Build, dict[str, str], str]] = {
    "table": (lambda o, c: o, {name: f"o.{name}" for name in ORDERS}, ""),
    "columns": (
        lambda o, c: o.select("id", o.price, o["amount"].alias("a")),
        {"id": "o.id", "price": "o.price", "a": "o.amount"},
        "",
    ),
    "expression": (
        sql("SELECT id, amount * price AS total, 1 AS one, rand() < 2 AS yes FROM {o}"),
        {"id": "o.id", "total": "o.amount o.price"},
        "",
    ),
    "case": (
        sql("SELECT id, CASE WHEN region = 'eu' THEN amount ELSE -price END AS x FROM {o}"),
        {"id": "o.id", "x": "o.region o.amount o.price"},
        "",
    ),
    "nvl": (
        sql("SELECT id, nvl(nullif(region, 'eu'), string(tags[0])) AS x FROM {o}"),
        {"id": "o.id", "x": "o.region o.tags"},
        "",
    ),
    "struct": (
        sql("SELECT id, named_struct('a', amount, 'b', price) AS x FROM {o}"),
        {"id": "o.id", "x": "o.amount o.price"},
        "",
    ),
    "lambda": (
        sql("SELECT id, transform(tags, t -> t + amount) AS x FROM {o}"),
        {"id": "o.id", "x": "o.tags o.amount"},
        "",
    ),
    "steps": (
        in_steps,
        {
            "id": "o.id",
            "customer": "o.customer",
            "area": "o.region",
            "amount": "o.amount",
            "total": "o.amount o.price o.id",
        },
        "o.amount",
    ),
    "view": (from_view, {"id": "o.id", "region": "o.region"}, ""),
    "filter": (
        sql("SELECT id, price FROM {o} WHERE amount > 20 ORDER BY price DESC"),
        {"id": "o.id", "price": "o.price"},
        "o.amount",
    ),
    "limit": (
        lambda o, c: o.orderBy("id").limit(3).select("id", "amount"),
        {"id": "o.id", "amount": "o.amount"},
        "o.id",
    ),
    "distinct": (lambda o, c: o.select("region").distinct(), {"region": "o.region"}, ""),
    "first rows": (
        lambda o, c: o.dropDuplicates(["id"]).select("id", "amount"),
        {"id": "o.id", "amount": "o.amount"},
        "o.id",
    ),
    "groups": (
        sql(
            "SELECT region, sum(amount) AS s, count(*) AS n, max(price) FILTER (WHERE id < 6) AS m FROM {o} GROUP BY 1"
        ),
        {"region": "o.region", "s": "o.amount", "m": "o.price o.id"},
        "o.region",
    ),
    "group by expression": (
        lambda o, c: o.groupBy(F.upper("region").alias("r")).agg(F.collect_set("price").alias("p")),
        {"r": "o.region", "p": "o.price"},
        "o.region",
    ),
    "having": (
        sql("SELECT region AS id, sum(amount) AS s FROM {o} GROUP BY region HAVING sum(price) > 0"),
        {"id": "o.region", "s": "o.amount"},
        "o.region o.price",
    ),
    "pivot": (
        lambda o, c: o.groupBy("customer").pivot("region", ["eu", "us"]).agg(F.sum("amount")),
        {"customer": "o.customer", "eu": "o.amount o.region", "us": "o.amount o.region"},
        "o.customer",
    ),
    "window": (ranked, {"id": "o.id", "n": "o.region o.amount", "s": "o.region o.amount o.price"}, ""),
    "join": (
        lambda o, c: o.join(c, "customer").select("id", "customer", "name", (c.score + o.amount).alias("x")),
        {"id": "o.id", "customer": "o.customer", "name": "c.name", "x": "c.score o.amount"},
        "o.customer c.customer",
    ),
    "outer join": (
        lambda o, c: o.join(c, "customer", "full").select("id", "customer", "name"),
        {"id": "o.id", "customer": "o.customer c.customer", "name": "c.name"},
        "o.customer c.customer",
    ),
    "semi join": (
        lambda o, c: o.join(c, "customer", "semi").select("id", "amount"),
        {"id": "o.id", "amount": "o.amount"},
        "o.customer c.customer",
    ),
    "self join": (self_joined, {"id": "o.id", "region": "o.region", "x": "o.amount"}, "o.id"),
    "in": (
        sql("SELECT id, amount FROM {o} WHERE customer IN (SELECT customer FROM {c})"),
        {"id": "o.id", "amount": "o.amount"},
        "o.customer c.customer",
    ),
    "union": (
        sql("SELECT id, region AS x FROM {o} UNION ALL SELECT customer, name FROM {c}"),
        {"id": "o.id c.customer", "x": "o.region c.name"},
        "",
    ),
    "union by name": (
        lambda o, c: o.select("region", "id").unionByName(
            c.select(F.col("customer").alias("id"), F.col("score").alias("s")), allowMissingColumns=True
        ),
        {"region": "o.region", "id": "o.id c.customer", "s": "c.score"},
        "",
    ),
    "union with itself": (
        lambda o, c: o.select("id", "amount").union(o.select("id", "price")),
        {"id": "o.id", "amount": "o.amount o.price"},
        "",
    ),
    "except": (
        sql("SELECT customer AS id FROM {o} EXCEPT SELECT score FROM {c}"),
        {"id": "o.customer"},
        "o.customer c.score",
    ),
    "intersect": (
        sql("SELECT customer AS id FROM {o} INTERSECT SELECT customer FROM {c}"),
        {"id": "o.customer"},
        "o.customer c.customer",
    ),
    "explode": (lambda o, c: o.select("id", F.explode("tags").alias("t")), {"id": "o.id", "t": "o.tags"}, "o.tags"),
    "lateral view": (
        sql("SELECT id, p + amount AS x FROM {o} LATERAL VIEW posexplode(tags) AS p, t"),
        {"id": "o.id", "x": "o.tags o.amount"},
        "o.tags",
    ),
    "common table": (
        sql(
            "WITH t AS (SELECT id, amount + 1 AS a, price FROM {o})"
            " SELECT x.id, x.a, y.price FROM t x, t y WHERE x.id = y.id"
        ),
        {"id": "o.id", "a": "o.amount", "price": "o.price"},
        "o.id",
    ),
    "range": (
        lambda o, c: o.crossJoin(o.sparkSession.range(2).toDF("k")).selectExpr("id", "k", "amount + k AS x"),
        {"id": "o.id", "x": "o.amount"},
        "",
    ),
    "hint and repartition": (
        lambda o, c: o.hint("rebalance").repartition(2, "id").coalesce(1).select("id", "tags"),
        {"id": "o.id", "tags": "o.tags"},
        "",
    ),
    "unpersisted": (lambda o, c: o.cache().unpersist().select("id"), {"id": "o.id"}, ""),
    "missing values": (lambda o, c: o.select("id", "amount").na.fill(0), {"id": "o.id", "amount": "o.amount"}, ""),
}


def shown(frame: DataFrame) -> dict[str, set[str]]:
    """Return the lineage of a frame, with the short names of the tables."""
    short = {"orders": "o", "customers": "c"}
    return {
        name: {f"{short[source.table]}.{source.column}" for source in sources}
        for name, sources in column_sources(frame).items()
    }


@pytest.mark.parametrize("name", CASES)
def test_the_lineage_is_what_changed_values_show(name: str, tables: Tables) -> None:
    build, lineage, deciding = CASES[name]
    expected = {column: set(sources.split()) for column, sources in lineage.items()}
    base = build(*tables.frames)
    assert shown(base) == expected
    results = rows_by_variant({changed: build(*frames) for changed, frames in tables.variants.items()})
    for changed in results.keys() - {""}:
        for column in base.columns:
            anchor = "id" if "id" in base.columns and changed not in expected.get("id", ()) else column
            differs = values(results[""], anchor, column) != values(results[changed], anchor, column)
            if changed in expected.get(column, ()):
                assert differs, f"{column} does not depend on {changed}"
            elif changed not in deciding.split():
                assert not differs, f"{column} depends on {changed}"


def rows_by_variant(frames: Mapping[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of several frames, which one job computes."""
    together = reduce(DataFrame.unionAll, (frame.withColumn("variant", F.lit(name)) for name, frame in frames.items()))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in frames}
    for row in together.collect():
        found[row["variant"]].append(row.asDict())
    return found


def values(rows: list[dict[str, Any]], *columns: str) -> Counter[str]:
    return Counter(repr([row[column] for column in columns]) for row in rows)


# --- what is unknown has no entry ----------------------------------------------------------------------------------


def in_pandas(frame: DataFrame) -> DataFrame:
    return frame.select("id", "amount").mapInPandas(lambda batches: batches, "id bigint, amount bigint")


UNKNOWN: dict[str, tuple[Build, dict[str, str]]] = {
    "whole partitions": (lambda o, c: in_pandas(o), {}),
    "checkpoint": (lambda o, c: o.localCheckpoint(), {}),
    "collected": (lambda o, c: o.sparkSession.createDataFrame(o.select("id").collect()), {}),
    "from an RDD": (lambda o, c: o.select("id").rdd.toDF(), {}),
    "subquery": (sql("SELECT id, amount + (SELECT max(score) FROM {c}) AS x FROM {o}"), {"id": "o.id"}),
    "correlated": (
        sql("SELECT id, (SELECT max(score) FROM {c} k WHERE k.customer = t.customer) AS x FROM {o} t"),
        {"id": "o.id"},
    ),
    "exists": (sql("SELECT id, exists(SELECT 1 FROM {c} WHERE score > id) AS x FROM {o}"), {"id": "o.id"}),
    "rollup": (lambda o, c: o.rollup("region").agg(F.sum("amount").alias("s")), {}),
    "melted": (lambda o, c: o.unpivot(["id"], ["amount", "customer"], "name", "value"), {}),
    "joined with unknown": (
        lambda o, c: o.join(in_pandas(o).toDF("id", "x"), "id").selectExpr("id", "x", "price", "x + price AS y"),
        {"id": "o.id", "price": "o.price"},
    ),
    "union with unknown": (lambda o, c: o.select("id", "amount").union(in_pandas(o)), {}),
    "hidden column": (lambda o, c: o.select("id", "_metadata.file_name"), {"id": "o.id"}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_plan_does_not_prove_has_no_entry(name: str, tables: Tables) -> None:
    build, expected = UNKNOWN[name]
    frame = build(*tables.frames)
    assert frame.limit(1).collect()  # the plan is valid
    assert shown(frame) == {column: set(sources.split()) for column, sources in expected.items()}


def test_changes_are_not_the_table(tables: Tables) -> None:
    assert column_sources(tables.lake.changes("customers", spark=tables.frames[0].sparkSession)) == {}


# --- every way to read ---------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


@pytest.mark.parametrize("engine", ["auto", "native", "duckdb"])
@pytest.mark.parametrize(
    "state", ["empty", "inlined", "files", "deletes", "mixed", "renamed", "commented", "odd names"]
)
def test_every_way_to_read_is_marked(state: str, engine: Any, lake: DuckLake, spark: SparkSession) -> None:
    statements = {
        "empty": ["CREATE TABLE t (a INTEGER, b VARCHAR)"],
        "inlined": ["CREATE TABLE t AS SELECT 1 AS a, 'x' AS b"],
        "files": ["CREATE TABLE t AS SELECT range::INTEGER AS a, 'x' AS b FROM range(100)"],
    }
    files = statements["files"]
    statements["deletes"] = [*files, "DELETE FROM t WHERE a % 7 = 0"]
    statements["mixed"] = [*files, "DELETE FROM t WHERE a % 7 = 0", "INSERT INTO t VALUES (1000, 'y')"]
    statements["renamed"] = [
        *files,
        "ALTER TABLE t RENAME COLUMN a TO c",
        "ALTER TABLE t ADD COLUMN a INTEGER DEFAULT 5",
    ]
    statements["commented"] = [*files, "COMMENT ON COLUMN t.a IS 'the first'"]
    statements["odd names"] = ['CREATE SCHEMA "s.`x"', """CREATE TABLE "s.`x"."t é['" AS SELECT 1 AS "a.`#1", 2 AS b"""]
    lake.execute("; ".join(statements[state])).raise_for_error()
    table = """"s.`x"."t é['\"""" if state == "odd names" else "t"
    frame = lake.read(table, spark, engine=engine)
    expected = {
        name: {("s.`x", "t é['", name) if state == "odd names" else ("main", "t", name)} for name in frame.columns
    }
    found = column_sources(frame)
    assert {n: {(s.schema, s.table, s.column) for s in sources} for n, sources in found.items()} == expected


def test_lakes_are_told_apart(tmp_path: Path, spark: SparkSession) -> None:
    marks = set()
    for name in ("one", "two"):
        lake = DuckLake.local(tmp_path / name)
        lake.write(pa.table({"a": [1]}), "t", mode="append")
        (source,) = column_sources(lake.read("t", spark))["a"]
        marks.add(source.lake)
    assert len(marks) == 2
    assert "" not in marks


# --- the mark disturbs nobody --------------------------------------------------------------------------------------


def test_a_marked_frame_is_used_like_any_other(tables: Tables) -> None:
    o, c = tables.frames
    assert [field.name for field in o.schema] == list(ORDERS)
    assert all(not field.metadata for field in o.schema)
    again = tables.lake.read(NAMES["o"], o.sparkSession)
    assert o.join(again, o["id"] == again["id"]).select(o.id, again["amount"]).count() == 6
    assert o.join(o, "id").select("id").count() == 6
    assert o.alias("x").join(o.alias("y"), F.col("x.id") == F.col("y.customer")).select("x.*").columns == o.columns
    assert o.alias("x").select("x.id", "id", "x.tags").count() == 6
    assert o.select("_metadata.file_name").distinct().count() == 1
    assert o.join(c.hint("broadcast"), ["customer"], "left").filter(c.name.isNotNull()).count() == 6
    assert o.sparkSession.sql("SELECT t.id FROM {t} AS t WHERE t.id > 3", t=o).count() == 3
    assert "ducklake:" not in o._jdf.queryExecution().optimizedPlan().toString()


def test_every_column_of_a_wide_table_has_a_lineage(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    columns = ", ".join(f"id + {n} AS c{n}" for n in range(100))
    lake.write(spark.sql(f"SELECT id, {columns} FROM range(10)"), "wide", mode="append")
    wide = lake.read("wide", spark)
    joined = wide.join(wide.select("id", F.expr("c1 + c2 AS x")), "id").withColumn("y", F.expr("x + c5"))
    found = column_sources(joined)
    assert list(found) == joined.columns
    assert {source.column for source in found["y"]} == {"c1", "c2", "c5"}


def test_a_deep_plan_has_no_lineage_or_the_right_one(tables: Tables) -> None:
    frame = tables.frames[0].select("id", "amount")
    for _ in range(300):
        frame = frame.withColumn("amount", F.col("amount") + 1)
    assert shown(frame) in ({}, {"id": {"o.id"}, "amount": {"o.amount"}})
