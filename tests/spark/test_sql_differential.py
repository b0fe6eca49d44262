"""`lake.sql` returns what Spark returns for the same query on plain Parquet: rows, types and nullability."""

from pathlib import Path

import pytest
import sqlglot
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake

TABLES = {
    "main.orders": """
        SELECT id, if(id % 10 = 9, NULL, concat('r', id % 3)) AS region, id * 1.5D AS price,
            CAST(id * 0.25 AS DECIMAL(9, 2)) AS amount, date_add(DATE '2024-01-01', CAST(id AS INT)) AS day,
            timestamp_seconds(1704067200 + id * 3600) AS at, if(id % 4 = 0, NULL, concat('n', id % 4)) AS note,
            id % 2 = 0 AS flag, transform(sequence(1, id % 3 + 1), i -> concat('t', i)) AS tags,
            named_struct('city', concat('c', id % 2), 'zip', id) AS place
        FROM range(0, 30, 1, 1)""",
    "geo.regions": """
        SELECT if(id = 4, NULL, if(id = 3, 'r9', concat('r', id))) AS region, id AS pop, id * 10 AS area
        FROM range(0, 5, 1, 1)""",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> DuckLake:
    lake = DuckLake.local(tmp_path_factory.mktemp("sql") / "shop")
    for name, text in TABLES.items():
        keys = ["region"] if name == "main.orders" else None
        lake.write(spark.sql(text), name, mode="append", partition_by=keys)
    return lake


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[SparkSession, SparkSession]:
    """A session for the lake, and one in which the tables are plain files; both have a view of their own."""
    ours, plain = spark.newSession(), spark.newSession()
    folder = tmp_path_factory.mktemp("plain")
    for name, text in TABLES.items():
        path = str(folder / name)
        plain.sql(text).write.parquet(path)
        plain.read.parquet(path).createOrReplaceTempView(name.partition(".")[2])
    for session in (ours, plain):
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.sql("SELECT id, concat('name ', id) AS name FROM range(8)").createOrReplaceTempView("names")
    return ours, plain


def queries() -> list[str]:
    """Return the queries of the file; semicolons in quotes or comments do not separate them."""
    text = (Path(__file__).parent / "differential_queries.sql").read_text("utf-8")
    tokens = sqlglot.tokenize(text, dialect="spark")
    ends = [token.start for token in tokens if token.token_type is sqlglot.TokenType.SEMICOLON]
    starts = [0, *(end + 1 for end in ends)]
    return [text[start:end].strip() for start, end in zip(starts, [*ends, len(text)], strict=True)]


def result(frame: DataFrame) -> tuple[str, list[str]]:
    return frame.schema.json(), sorted(map(repr, frame.collect()))


def test_queries_return_what_spark_returns_for_plain_files(
    lake: DuckLake, sessions: tuple[SparkSession, SparkSession]
) -> None:
    ours, plain = sessions
    different = []
    for query in queries():
        try:
            expected = result(plain.sql(query.replace("shop.main.", "").replace("geo.", "")))
            if result(lake.sql(ours, query)) != expected:
                different.append(query)
        except Exception as error:
            different.append(f"{query}: {error}")
    assert different == []
    assert len(queries()) >= 150
