"""DELETE, UPDATE, MERGE and INSERT of `lake.sql` leave the rows that plain Spark computes from the same expressions."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake

BASE = """
    SELECT id, if(id % 10 = 9, NULL, concat('r', id % 3)) AS region, id * 1.5D AS price,
        CAST(id * 0.25 AS DECIMAL(9, 2)) AS amount, date_add(DATE '2024-01-01', CAST(id AS INT)) AS day,
        timestamp_seconds(1704067200 + id * 3600) AS at, if(id % 4 = 0, NULL, concat('n', id % 4)) AS note,
        id % 2 = 0 AS flag, transform(sequence(1, id % 3 + 1), i -> concat('t', i)) AS tags,
        named_struct('city', concat('c', id % 2), 'zip', id) AS place
    FROM range(0, 30, 1, 1)"""
REGIONS = "SELECT if(id = 4, NULL, concat('r', id)) AS region, id AS pop, id * 10 AS area FROM range(0, 5, 1, 1)"
CHANGES = """
    SELECT if(id = 7, NULL, id * 5) AS id, id * 4D AS price, substring('dui', CAST(id % 3 + 1 AS INT), 1) AS op
    FROM range(0, 9, 1, 1)"""
CONDITIONS = [
    "true", "false", "id = 5", "id <=> NULL", "region IS NULL", "NOT (region = 'r1')", "region <> 'r1'",
    "-id % 4 = -1", "pmod(-id, 4) = 1", "price / 2 > 10", "id / 4 = 2.5", "id DIV 4 = 2", "amount > 3.3",
    "amount = 2.50", "price = 4.5", "id = '12'", "CAST(id AS STRING) = '12'", "CAST(price AS INT) = 7",
    "region LIKE 'r_'", "region LIKE 'R%'", "note RLIKE '^n[12]'", "upper(region) = 'R2'", "region > 'r0'",
    "day < DATE '2024-01-09'", "day BETWEEN '2024-01-05' AND '2024-01-09'", "date_add(day, 2) = DATE '2024-01-12'",
    "day = to_date('03/01/2024', 'dd/MM/yyyy')", "month(at) = 1 AND hour(at) < 5", "dayofweek(day) = 1",
    "at > TIMESTAMP '2024-01-01 12:00:00'", "date_trunc('day', at) = at", "flag", "NOT flag AND id > 7",
    "array_contains(tags, 't2')", "size(tags) = 3", "get(tags, 1) IS NULL", "place.city = 'c1'", "id IN (1, 3, NULL)",
    "id NOT IN (1, NULL)", "id NOT IN (1, 2)", "region IN (SELECT region FROM regions WHERE pop > 1)",
    "id NOT IN (SELECT pop FROM regions)", "price > (SELECT avg(price) FROM orders)",
    "EXISTS (SELECT 1 FROM regions g WHERE g.region = orders.region AND g.pop > 0)",
    "CASE WHEN id > 9 THEN region = 'r0' ELSE note IS NULL END", "if(flag, id, -id) > 5",
    "coalesce(note, 'none') = 'none'", "nullif(region, 'r1') IS NULL", "length(concat(region, note)) = 4",
    "abs(price - 10) < 3", "round(price) = 12", "bround(price) = 12", "substring(note, -1, 1) = '2'",
    "id BETWEEN 3 AND 6 OR id BETWEEN 20 AND 22", "id > 3 AND id < 9 AND region IS NOT NULL AND price > 6",
    "concat_ws('-', region, note) = 'r1-n1'", "hash(id) % 2 = 0", "isnull(note) <> flag", "price > id + 10.0",
]  # fmt: skip
UPDATES: list[tuple[dict[str, str], str | None]] = [
    ({"price": "price / 3"}, "id % 2 = 0"),
    ({"note": "concat(region, '-', id)"}, None),
    ({"amount": "amount * 2"}, "amount < 3"),
    ({"amount": "id"}, "flag"),
    ({"amount": "amount / 3"}, None),
    ({"region": "note", "note": "region"}, "id > 3"),
    ({"id": "id + 1", "price": "id"}, "id > 20"),
    ({"id": "CAST(price AS BIGINT)"}, "price > 20"),
    ({"tags": "array('x', region)"}, "region IS NOT NULL"),
    ({"tags": "filter(tags, t -> t > 't1')"}, None),
    ({"place": "named_struct('city', upper(place.city), 'zip', id * 2)"}, "place.zip < 9"),
    ({"day": "date_add(day, 7)", "at": "at + INTERVAL 1 DAY"}, "day > DATE '2024-01-20'"),
    ({"at": "date_trunc('day', at)", "day": "CAST(at AS DATE)"}, None),
    ({"flag": "NOT flag"}, "note IS NULL"),
    ({"flag": "price > 9"}, None),
    ({"note": "NULL"}, "flag"),
    ({"note": "upper(substring(note, 2))"}, "length(note) = 2"),
    ({"price": "if(price > 20, 0D, -price)"}, None),
    ({"region": "CASE WHEN id < 10 THEN 'low' END"}, "id < 15"),
    ({"price": "(SELECT max(area) FROM regions)"}, "region IS NULL"),
    ({"region": "'r7'"}, "region = 'r1'"),
    ({"price": "1", "note": "'it''s; \"so\"'"}, "id IN (SELECT pop FROM regions)"),
    ({"note": "date_format(at, 'yyyy-MM-dd HH')"}, "id < 5"),
    ({"note": "CAST(price AS STRING)"}, "id < 12"),
    ({"note": "CAST(amount AS STRING)"}, "id < 12"),
    ({"note": "to_json(place)"}, "id = 3"),
]
INSERTS = [
    "SELECT * FROM orders WHERE id > 25",
    "SELECT id + 100, region, price, amount, day, at, note, flag, tags, place FROM orders WHERE flag LIMIT 20",
    "SELECT id, 'all', sum(price) OVER (ORDER BY id), amount, day, at, note, flag, tags, place FROM orders",
    "SELECT max(id) + 1, region, avg(price), sum(amount), min(day), max(at), first(note), any(flag), array(region),"
    " named_struct('city', region, 'zip', count(*)) FROM orders WHERE region = 'r1' GROUP BY region",
    "VALUES (1L, 'v', 1D, 1.25BD, DATE '2024-05-05', TIMESTAMP '2024-05-05 05:05:05', NULL, true, array('a'),"
    " named_struct('city', 'c', 'zip', 1L))",
    "SELECT pop, o.region, area, amount, day, at, note, flag, tags, place FROM orders o JOIN regions USING (region)",
]
MATCHED: list[tuple[str | None, dict[str, str] | None]] = [
    ("s.op = 'd'", None),
    ("t.price < s.price", {"price": "s.price", "note": "concat(t.note, s.op)"}),
    ("t.flag AND s.op <> 'i'", {"region": "upper(s.op)", "flag": "t.id > 20"}),
    (None, {"price": "s.price + t.price", "tags": "array(s.op)"}),
    ("length(t.note) = 2", {"note": "concat(s.op, t.region)"}),
]
INSERTED: list[tuple[str | None, dict[str, str] | None]] = [
    ("s.op = 'i'", {"id": "s.id", "price": "s.price", "region": "'new'"}),
    (None, {"id": "s.id + 100", "note": "s.op", "flag": "s.price > 9"}),
]
UNMATCHED: list[tuple[str | None, dict[str, str] | None]] = [
    ("t.id > 20", None),
    ("t.region IS NULL", {"note": "'gone'"}),
    (None, {"price": "-t.price"}),
]
MATCHES = ["t.id = s.id", "t.id <=> s.id", "t.id = s.id AND t.id > 10", "t.id = s.id AND t.region = 'r0'"]


@dataclass(frozen=True)
class Clause:
    """A clause of MERGE.

    Attributes:
        when: `MATCHED`, `NOT MATCHED` or `NOT MATCHED BY SOURCE`.
        condition: Its condition.
        values: What it assigns; None if it deletes.
    """

    when: str
    condition: str | None
    values: Mapping[str, str] | None

    @property
    def sql(self) -> str:
        head = f"WHEN {self.when}{f' AND {self.condition}' if self.condition else ''} THEN"
        if self.values is None:
            return f"{head} DELETE"
        if self.when == "NOT MATCHED":
            return f"{head} INSERT ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())})"
        return f"{head} UPDATE SET {', '.join(f'{name} = {value}' for name, value in self.values.items())}"

    @property
    def applies(self) -> str:
        here = {"MATCHED": ("", ""), "NOT MATCHED": ("NOT ", ""), "NOT MATCHED BY SOURCE": ("", "NOT ")}[self.when]
        sides = f"{here[0]}coalesce(t.here, false) AND {here[1]}coalesce(s.here, false)"
        return f"{sides} AND coalesce({self.condition or 'true'}, false)"


def merges(count: int) -> Iterator[tuple[str, list[Clause]]]:
    """Return statements of random clauses."""
    rng = random.Random(7)
    kinds = {"MATCHED": MATCHED, "NOT MATCHED": INSERTED, "NOT MATCHED BY SOURCE": UNMATCHED}
    while count:
        clauses = [
            Clause(when, *chosen)
            for when, known in kinds.items()
            for chosen in sorted(rng.sample(known, rng.randint(0, len(known))), key=lambda one: one[0] is None)
        ]
        if clauses:
            count -= 1
            yield rng.choice(MATCHES), clauses


class Plain:
    """What plain Spark computes on views with the same rows.

    Args:
        spark: A session of its own.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        for name, query in {"orders": BASE, "regions": REGIONS, "changes": CHANGES}.items():
            spark.sql(query).createOrReplaceTempView(name)
        self.types = {field.name: field.dataType.simpleString() for field in spark.table("orders").schema}

    def rows(self, query: str) -> list[str]:
        return rows(self.spark.sql(query))

    def deleted(self, condition: str) -> list[str]:
        return self.rows(f"SELECT * FROM orders WHERE NOT coalesce({condition}, false)")

    def updated(self, values: Mapping[str, str], condition: str | None) -> list[str]:
        columns = {
            name: f"if(coalesce({condition or 'true'}, false), CAST({values.get(name, name)} AS {kind}), {name})"
            for name, kind in self.types.items()
        }
        return self.rows(f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in columns.items())} FROM orders")

    def merged(self, match: str, clauses: list[Clause]) -> list[str]:
        numbers = " ".join(f"WHEN {clause.applies} THEN {number}" for number, clause in enumerate(clauses))
        columns = []
        for name, kind in self.types.items():
            values = {n: clause.values.get(name) for n, clause in enumerate(clauses) if clause.values is not None}
            given = " ".join(f"WHEN {n} THEN CAST({value} AS {kind})" for n, value in values.items() if value)
            columns.append(f"CASE clause {given or f'WHEN -2 THEN t.{name}'} ELSE t.{name} END AS {name}")
        deletes = ", ".join(str(n) for n, clause in enumerate(clauses) if clause.values is None)
        return self.rows(
            f"SELECT {', '.join(columns)} FROM ("
            f"SELECT struct(t.*) AS t, struct(s.*) AS s, CASE {numbers} ELSE -1 END AS clause"
            " FROM (SELECT *, true AS here FROM orders) t FULL OUTER JOIN"
            f" (SELECT *, true AS here FROM changes) s ON {match})"
            f" WHERE clause NOT IN ({deletes or '-2'}) AND NOT (clause = -1 AND t.here IS NULL)"
        )


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


class Shop:
    """The same tables in a lake; `orders` is written anew for each statement.

    Args:
        lake: The lake.
        spark: The session of the statements.
    """

    def __init__(self, lake: DuckLake, spark: SparkSession) -> None:
        self.lake, self.spark = lake, spark
        self.orders = spark.sql(BASE).toArrow()
        for name, query in {"regions": REGIONS, "changes": CHANGES}.items():
            lake.write(spark.sql(query), name, mode="append")
        lake.write(self.orders, "orders", mode="append", partition_by=["region"])

    def after(self, statement: str) -> list[str]:
        """Return the rows of `orders` after a statement."""
        self.lake.write(self.orders, "orders", mode="overwrite")
        self.lake.sql(self.spark, statement)
        return rows(self.lake.sql(self.spark, "SELECT * FROM orders"))


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Plain:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return Plain(session)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Shop:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return Shop(DuckLake.local(tmp_path_factory.mktemp("dml") / "shop"), session)


def differences(shop: Shop, expected: Mapping[str, list[str]]) -> list[str]:
    """Return the statements that leave other rows, each with the reason."""
    different = []
    for statement, wanted in expected.items():
        try:
            if (found := shop.after(statement)) != wanted:
                different.append(f"{statement}: {sorted(set(found) ^ set(wanted))[:4]}")
        except Exception as error:
            different.append(f"{statement}: {error}")
    return different


def test_delete_leaves_the_rows_that_spark_leaves(shop: Shop, plain: Plain) -> None:
    expected = {f"DELETE FROM orders WHERE {condition}": plain.deleted(condition) for condition in CONDITIONS}
    assert differences(shop, expected) == []


def test_update_leaves_the_rows_that_spark_computes(shop: Shop, plain: Plain) -> None:
    expected = {}
    for values, condition in UPDATES:
        assigned = ", ".join(f"{name} = {value}" for name, value in values.items())
        where = f" WHERE {condition}" if condition else ""
        expected[f"UPDATE orders SET {assigned}{where}"] = plain.updated(values, condition)
    assert differences(shop, expected) == []


def test_insert_adds_the_rows_that_spark_computes(shop: Shop, plain: Plain) -> None:
    expected = {
        f"INSERT INTO orders {query}": plain.rows(f"SELECT * FROM orders UNION ALL ({query})") for query in INSERTS
    }
    assert differences(shop, expected) == []


def test_merge_leaves_the_rows_that_spark_computes(shop: Shop, plain: Plain) -> None:
    expected = {}
    for match, clauses in merges(24):
        parts = " ".join(clause.sql for clause in clauses)
        expected[f"MERGE INTO orders t USING changes s ON {match} {parts}"] = plain.merged(match, clauses)
    assert differences(shop, expected) == []
