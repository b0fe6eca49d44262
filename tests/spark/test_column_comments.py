"""Column comments: from the schema of a DataFrame into the lake and back."""

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ducklake_orch import DuckLake
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake

SCHEMA = StructType(
    [StructField("id", LongType(), True, {"comment": 'it\'s the "key"'}), StructField("na.me", StringType())]
)


def comments(lake: DuckLake) -> dict[str, str | None]:
    return {column.name: column.comment for column in lake.table("t").schema()}


@catalogs()
def test_comments_of_new_columns_are_written_and_read(spark: SparkSession, make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(spark.createDataFrame([(1, "x")], SCHEMA), "t", mode="append")
    assert comments(lake) == {"id": 'it\'s the "key"', "na.me": None}
    more = StructType([StructField("id", LongType(), True, {"comment": "another"})])
    more.add("extra", LongType(), True, {"comment": "later"})
    lake.write(spark.createDataFrame([(2, 3)], more), "t", mode="append", schema_evolution="add")
    assert comments(lake) == {"id": 'it\'s the "key"', "na.me": None, "extra": "later"}
    for engine in ("native", "duckdb"):
        frame = lake.read("t", spark, engine=engine)
        read_comments = {field.name: field.metadata.get("comment") for field in frame.schema}
        assert read_comments == comments(lake)
        assert sorted(tuple(row) for row in frame.collect()) == [(1, "x", None), (2, None, 3)]
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(sql_comments=True)
def test_comments_set_by_schema_or_sql_are_read(spark: SparkSession, make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.create_table("t", SCHEMA, comment="of the table")
    assert comments(lake) == {"id": 'it\'s the "key"', "na.me": None}
    lake.execute("COMMENT ON COLUMN t.id IS 'new'").raise_for_error()
    assert lake.read("t", spark).schema["id"].metadata == {"comment": "new"}
