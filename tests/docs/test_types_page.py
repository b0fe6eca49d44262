"""The tables in docs/types.md match the code and the engine."""

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.metadata import type_names as lake_types
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import DataError, DuckLakeOrchError, UnsupportedStatementError
from tests.docs.pages import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

PAGE = (REPOSITORY / "docs" / "types.md").read_text("utf-8")
REFUSED = "\N{EN DASH}"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without the header row."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


READ = rows("Read")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    """A lake with one table for each type on the page."""
    lake = DuckLake.local(tmp_path_factory.mktemp("types") / "lake")
    lake.execute([f"CREATE TABLE t{n} (v {duckdb})" for n, (_, duckdb, *_) in enumerate(READ)]).raise_for_error()
    return lake


def test_every_ducklake_type_is_on_the_page() -> None:
    ducklake_types = {word for word in lake_types._DUCKDB if lake_types.storable(word)} | set(lake_types.NESTED)
    alias = {"timestamp_us"}  # the name of `timestamp` in older catalogs
    assert {re.sub(r"\(.*", "", word) for word, *_ in READ} == ducklake_types - alias | {"decimal"}


@pytest.mark.parametrize(("number", "row"), list(enumerate(READ)), ids=[row[0] for row in READ])
def test_a_type_reads_as_the_page_says(lake: DuckLake, number: int, row: list[str]) -> None:
    from ducklake_orch.spark.types import spark_type

    word, duckdb, spark, arrow = row
    with lake.reading(entering=False) as session, reading(session, "Looking") as metadata:
        (column,) = metadata.table(table_name(f"t{number}"), metadata.latest().snapshot_id).columns
    assert (column.type, lake_types.duckdb_type(column).replace('"', "")) == (word, duckdb)
    try:
        in_spark = spark_type(column).simpleString()
    except UnsupportedStatementError:
        in_spark = REFUSED
    assert in_spark == spark
    try:
        in_arrow = re.sub(r"list<\w+: ", "list<", str(lake.read(f"t{number}").schema.field("v").type))
    except DuckLakeOrchError:
        in_arrow = REFUSED
    assert in_arrow == arrow


@pytest.mark.parametrize(("spark", "duckdb"), rows("Written by Spark"), ids=lambda cell: str(cell))
def test_a_spark_type_is_written_as_the_page_says(spark: str, duckdb: str) -> None:
    pytest.importorskip("pyspark")
    from ducklake_orch.spark.types import _TO_DUCKDB, duckdb_type

    kind = next(data_type for data_type in _spark_types() if data_type.simpleString() == spark)
    try:
        written = duckdb_type(kind)
    except DataError:
        written = "refused"
    assert written.replace('"', "") == duckdb
    assert set(_TO_DUCKDB) <= {row[0] for row in rows("Written by Spark")}


@pytest.mark.parametrize(("arrow", "duckdb"), rows("Written from Arrow, pandas, Polars"))
def test_an_arrow_type_is_written_as_the_page_says(lake: DuckLake, arrow: str, duckdb: str) -> None:
    text, number = pa.string(), pa.int32()
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(number, text), pa.large_binary(), pa.date64()]
    kinds += [pa.time32("s"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("us"), pa.large_list(number), pa.null()]
    kind = next(kind for kind in kinds if str(kind) == arrow)
    name = f"arrow_{kinds.index(kind)}"
    lake.write(pa.table({"v": pa.nulls(1, kind)}), name, mode="append")
    (column,) = lake.table(name).schema()
    assert column.type == duckdb


def _spark_types() -> "list[DataType]":
    from pyspark.sql import types

    number, text = types.IntegerType(), types.StringType()
    nested = [types.ArrayType(number), types.MapType(text, number), types.StructType().add("a", number)]
    flat = [types.BooleanType(), types.ByteType(), types.ShortType(), number, types.LongType(), types.FloatType()]
    flat += [types.DoubleType(), types.DecimalType(9, 2), text, types.BinaryType(), types.DateType()]
    flat += [types.TimestampType(), types.TimestampNTZType(), types.DayTimeIntervalType()]
    return [*flat, types.YearMonthIntervalType(), types.VariantType(), *nested]
