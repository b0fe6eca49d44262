"""VARIANT in Spark: values keep their types in reads, feeds, streams and writes; metadata as of the extension."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import DataError, RowsOutsideError, UnsupportedStatementError
from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.metadata_contents import assert_same, contents, nulls_nobody_counted
from tests.support.spark_reads import ENGINES, execute

# Values in DuckDB's SQL, with their JSON and their type in Spark. The keys of the object are not in order.
VALUES = [
    (
        "{'b': DATE '2020-01-01', 'a': 12345678901234567890.5::DECIMAL(30, 1), 'c': [1, 2]}",
        '{"a":12345678901234567890.5,"b":"2020-01-01","c":[1,2]}',
        "OBJECT<a: DECIMAL(21,1), b: DATE, c: ARRAY<BIGINT>>",
    ),
    ("NULL", None, None),
    ("'text'", '"text"', "STRING"),
    ("'\\x00\\xFF'::BLOB", '"AP8="', "BINARY"),
    ("TIMESTAMPTZ '2020-01-01 00:00:00+00'", '"2020-01-01 00:00:00+00:00"', "TIMESTAMP"),
    ("[{'z': 1, 'y': 'x'}]", '[{"y":"x","z":1}]', "ARRAY<OBJECT<y: STRING, z: BIGINT>>"),
]
READ = [(n, json, kind) for n, (_, json, kind) in enumerate(VALUES)]
# The same values in Spark's SQL.
WRITTEN = """
    SELECT id, CASE id
        WHEN 0 THEN to_variant_object(
            named_struct('b', DATE'2020-01-01', 'a', 12345678901234567890.5BD, 'c', array(1, 2)))
        WHEN 2 THEN parse_json('"text"')
        WHEN 3 THEN CAST(X'00FF' AS VARIANT)
        WHEN 4 THEN CAST(TIMESTAMP'2020-01-01 00:00:00+00:00' AS VARIANT)
        WHEN 5 THEN parse_json('[{"z": 1, "y": "x"}]') END AS v
    FROM range(0, 6, 1, 2)"""
Write = Callable[[DuckLake, DataFrame], None]
# Whether two variants have the same value for SQL; Spark stores integers and decimals in the smallest types.
ALIKE = "CAST(t.v AS VARCHAR) IS NOT DISTINCT FROM CAST(s.v AS VARCHAR)"


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def fill(lake: DuckLake, table: str = "t") -> None:
    rows = ", ".join(f"({n}, {value}::VARIANT)" for n, (value, _, _) in enumerate(VALUES))
    execute(lake, f"CREATE TABLE {table} (id BIGINT, v VARIANT)", f"INSERT INTO {table} VALUES {rows}")


def read(frame: DataFrame, column: str = "v") -> list[Any]:
    found = frame.selectExpr("id", f"to_json({column}) AS json", f"schema_of_variant({column}) AS kind")
    return sorted(map(tuple, found.collect()))


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize("limit", [0, 10])
def test_variants_are_read_with_the_types_of_their_values(make_lake: MakeLake, spark: SparkSession, limit: int) -> None:
    lake = make_lake(data_inlining_row_limit=limit)
    fill(lake)
    for engine in ENGINES:
        frame = lake.read("t", spark, engine=engine)
        assert frame.schema["v"].dataType.typeName() == "variant"
        assert read(frame) == READ
    lake.register(spark)
    assert read(spark.read.format("ducklake").option("table", "t").load()) == READ
    assert read(lake.read("t", spark, where="v IS NULL")) == READ[1:2]
    assert read(lake.changes("t", spark=spark).where("change_type = 'insert'")) == READ
    execute(lake, "DELETE FROM t WHERE id = 0", "ALTER TABLE t RENAME v TO w")
    assert read(lake.read("t", spark), "w") == READ[1:]
    assert read(lake.changes("t", spark=spark).where("change_type = 'delete'"), "w") == READ[:1]


def test_all_keys_of_wide_objects_are_found(lake: DuckLake, spark: SparkSession) -> None:
    keys = [f"k{n * 37 % 100}" for n in range(50)]
    wide = "{" + ", ".join(f"'{key}': {n}" for n, key in enumerate(keys)) + "}"
    # The object is in the file as it is, because the values have no type in common.
    execute(
        lake,
        f"CREATE TABLE t AS SELECT range AS id, CASE WHEN range = 0 THEN {wide}::VARIANT ELSE 1::VARIANT END AS v"
        " FROM range(20)",
    )
    found = [f"variant_get(v, '$.{key}', 'int') AS {key}" for key in keys]
    for engine in ENGINES:
        (row,) = lake.read("t", spark, engine=engine).where("id = 0").selectExpr(*found).collect()
        assert list(row) == list(range(50))


@pytest.mark.parametrize("kind", ["STRUCT(x VARIANT)", "VARIANT[]", "MAP(VARCHAR, VARIANT)"])
def test_a_variant_inside_another_value_is_refused_by_name(lake: DuckLake, spark: SparkSession, kind: str) -> None:
    execute(lake, f"CREATE TABLE t (id BIGINT, nested {kind})")
    with pytest.raises(UnsupportedStatementError, match="`nested`: a VARIANT inside another value"):
        lake.read("t", spark)
    with pytest.raises(UnsupportedStatementError, match="`nested`: a VARIANT inside another value"):
        lake.changes("t", spark=spark)
    assert lake.read("t", spark, columns=["id"]).count() == 0
    assert lake.read("t").num_rows == 0
    value = {"S": "named_struct('x', v)", "V": "array(v)", "M": "map('x', v)"}[kind[0]]
    frame = spark.sql(f"SELECT id, {value} AS nested FROM ({WRITTEN})")
    with pytest.raises(DataError, match="`nested`: DuckDB writes no file with a variant inside another value"):
        lake.write(frame, "new", mode="append")


def test_variants_are_streamed(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    fill(lake)
    lake.register(spark)
    source = lake.read_stream(spark, "t", start="earliest")
    writer = source.writeStream.format("ducklake").option("table", "copy").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert read(lake.read("copy", spark)) == READ
    assert [column.type for column in lake.table("copy").schema()] == ["BIGINT", "VARIANT"]


def append(lake: DuckLake, frame: DataFrame) -> None:
    lake.write(frame, "t", mode="append")


def overwrite(lake: DuckLake, frame: DataFrame) -> None:
    lake.write(frame.where("id < 2"), "t", mode="append")
    lake.write(frame, "t", mode="overwrite")


def replace_where(lake: DuckLake, frame: DataFrame) -> None:
    lake.write(frame.where("id < 5"), "t", mode="append")
    with pytest.raises(RowsOutsideError, match="1 rows"):
        lake.write(frame.where("id = 1"), "t", mode="replace_where", where="v IS NOT NULL")
    lake.write(frame.where("id <> 1"), "t", mode="replace_where", where="v IS NOT NULL")


def merge(lake: DuckLake, frame: DataFrame) -> None:
    lake.write(frame.where("id < 2").selectExpr("id", "parse_json('1') AS v"), "t", mode="append")
    lake.merge(frame, "t", ["id"])


def data_source(lake: DuckLake, frame: DataFrame) -> None:
    lake.register(frame.sparkSession)
    frame.write.format("ducklake").option("table", "t").mode("append").save()


def sql(lake: DuckLake, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("given")
    lake.sql(frame.sparkSession, "CREATE TABLE t (id BIGINT, v VARIANT)")
    lake.sql(frame.sparkSession, "INSERT INTO t SELECT id, parse_json('1') FROM given WHERE id = 0")
    lake.sql(
        frame.sparkSession,
        "MERGE INTO t USING given ON t.id = given.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )


@pytest.mark.parametrize("write", [append, overwrite, replace_where, merge, data_source, sql])
def test_variants_are_written(lake: DuckLake, spark: SparkSession, write: Write) -> None:
    write(lake, spark.sql(WRITTEN))
    assert [column.type for column in lake.table("t").schema()] == ["BIGINT", "VARIANT"]
    fill(lake, "same")
    rows = "SELECT id, variant_normalize(v) AS v FROM {}"
    sql = f"SELECT count(*) AS n FROM ({rows.format('t')}) t JOIN ({rows.format('same')}) s USING (id) WHERE {ALIKE}"
    assert lake.execute(sql).rows == [{"n": len(VALUES)}]
    assert read(lake.read("t", spark)) == READ
    assert not lake.fsck(deep=True, storage=True).counts


@catalogs(quick=[SQLITE], sql_writes=True)
def test_written_variants_have_the_metadata_of_the_extension(make_lake: MakeLake, spark: SparkSession) -> None:
    theirs, ours = (make_lake(who, data_inlining_row_limit=0) for who in ("theirs", "ours"))
    frame = "SELECT id, {} AS v FROM range(0, 100, 1, 1)"
    both = [
        ("to_variant_object(named_struct('d', DATE'2020-01-01', 's', 'x'))", "{'d': DATE '2020-01-01', 's': 'x'}"),
        ("CAST(id AS VARIANT)", "range::TINYINT"),  # Spark stores integers in the smallest type
        ("parse_json('[1, 2]')", "[1::TINYINT, 2]"),
    ]
    for n, (in_spark, in_duckdb) in enumerate(both):
        execute(theirs, f"CREATE TABLE t{n} (id BIGINT, v VARIANT)")
        execute(ours, f"CREATE TABLE t{n} (id BIGINT, v VARIANT)")
        execute(theirs, f"INSERT INTO t{n} SELECT range, ({in_duckdb})::VARIANT FROM range(100)")
        ours.write(spark.sql(frame.format(in_spark)), f"t{n}", mode="append")
        now = contents(theirs), contents(ours)
        nulls_nobody_counted({}, *now)
        assert_same(*now)
