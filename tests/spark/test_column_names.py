"""Columns that are called like ours, the engine's or Spark's own go through every verb that Spark runs, unharmed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.catalog.feed import OWN_COLUMNS
from ducklake_orch.catalog.metadata.reserved_names import RESERVED
from ducklake_orch.engine.quoting import identifier
from tests.support.internal_names import NAMES, SPARK_ALONE, Table, as_rows, distinct, text
from tests.support.spark_reads import ENGINES, latest

# What Spark's side calls columns of its own; an alias that Python gives is in no SQL.
SPARKS = ["_metadata", "metadata", "result", "asked", "numbers", "batches", "Wide0", "w0", "c0", "C1", "deletes", "pos"]
# Each state of the files that readers treat in their own way: without deletions, with them, rolled back, merged.
READ_AFTER = ("write", "update", "rollback", "the data source")
OFTEN = [name for name in NAMES if name.startswith("__ducklake_orch_")][::8]
OFTEN += [*SPARKS, *RESERVED, *OWN_COLUMNS, "file_row_number", "source", "target", "a`b", "a.b", 'a"b', "id_", " ", "é"]


def as_frame(spark: SparkSession, table: Table, words: dict[int, Any]) -> DataFrame:
    return spark.createDataFrame(table.arrow(words)).repartition(2, "id")


def write(spark: SparkSession, table: Table, words: dict[int, Any], mode: str = "append", **options: Any) -> None:
    table.lake.write(as_frame(spark, table, words), "t", mode=mode, **options)
    table.rows |= {number: table.row(word) for number, word in words.items()}


def read(spark: SparkSession, table: Table, at: int | None = None) -> None:
    """Compare what both readers of Spark return; conditions need every column."""
    for engine in ENGINES:
        frame = table.lake.read("t", spark, snapshot=at, engine=engine)
        assert as_rows(frame.toArrow().combine_chunks()) == table.rows, engine
    one = min(table.rows)
    found = table.lake.read("t", spark, snapshot=at, where=table.holds(one))
    assert as_rows(found.toArrow()) == {one: table.rows[one]}


def steps(spark: SparkSession, table: Table) -> Iterator[str]:
    """Change a table with every verb that Spark runs; the model changes with it."""
    lake, names, first, last = table.lake, table.names, table.names[0], table.names[-1]
    write(spark, table, {n: n for n in range(30)}, engine="duckdb")
    write(spark, table, {n: n for n in range(30, 60)}, engine="native", distribution="none")
    written, then = latest(lake), dict(table.rows)
    yield "write"
    assert lake.delete("t", table.holds(3), spark=spark, engine="spark").engine == "spark"
    table.drop(3)
    yield "delete"
    value = {first: table.literal("set", first)} | {name: identifier(name) for name in names[1:]}
    assert lake.update("t", value, table.holds(31), spark=spark, engine="spark").engine == "spark"
    table.rows[31] = (table.value("set", first), *table.row(31)[1:])
    yield "update"
    before, kept = latest(lake), dict(table.rows)
    write(spark, table, {8: "merged", 40: "merged", 70: "new"}, "merge", keys=["id"], engine="spark")
    yield "merge"
    matched = {name: f"coalesce(source.{identifier(name)}, target.{identifier(name)})" for name in names}
    other = f"source.{identifier(last)} <> target.{identifier(last)}"
    merge: dict[str, Any] = {"keys": ["id"], "when_matched": matched, "matched_condition": other, "engine": "spark"}
    write(spark, table, {9: "again", 41: "again"}, "merge", **merge)
    yield "merge by expressions"
    write(spark, table, {11: 11}, "replace_where", where=table.holds(11))
    yield "replace_where"
    known = [name for name in names if name.lower() not in OWN_COLUMNS]
    place = [names.index(name) for name in known]
    changes = lake.changes("t", before + 1, spark=spark, columns=["id", *known]).toArrow()
    images = changes.filter([kind == "update_preimage" for kind in changes["change_type"].to_pylist()])
    found = as_rows(images.select(["id", *known]))
    assert found == {n: tuple(kept[n][one] for one in place) for n in (8, 40, 9, 41)}
    lake.rollback("t", to_snapshot=before)
    table.rows = kept
    yield "rollback"
    lake.maintain({"merge": {"engine": "spark", "min_files": 2}}, operations=["merge"], spark=spark).raise_for_error()
    yield "merge of files"
    lake.register(spark)
    source = spark.read.format("ducklake").option("table", "t").load()
    assert as_rows(source.toArrow()) == table.rows
    as_frame(spark, table, {90: 90}).write.format("ducklake").option("table", "t").mode("append").save()
    table.rows[90] = table.row(90)
    yield "the data source"
    now, table.rows = table.rows, then
    read(spark, table, written)
    table.rows = now


@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        pytest.param(str.title, OFTEN, id="title"),
        pytest.param(str.lower, OFTEN, id="lower", marks=pytest.mark.full),
        pytest.param(str.upper, OFTEN, id="upper", marks=pytest.mark.full),
        pytest.param(str.title, NAMES, id="all", marks=pytest.mark.full),
    ],
)
def test_columns_named_like_internal_ones_survive_every_spark_verb(
    tmp_path: Path, spark: SparkSession, case: Callable[[str], str], chosen: list[str]
) -> None:
    cased = distinct([case(name) for name in chosen if name != SPARK_ALONE])
    names = [*{name.lower(): name for name in cased}.values()]  # to Spark, é and É are one name
    without = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    columns = ", ".join(f"{identifier(name)} VARCHAR" for name in names)
    without.execute(f"CREATE TABLE t (id BIGINT, {columns})").raise_for_error()
    table = Table(DuckLake.local(tmp_path / "lake"), names, text)
    for what in steps(spark, table):
        try:
            table.check()
            if what in READ_AFTER:
                read(spark, table)
        except AssertionError as error:
            raise AssertionError(f"after {what}") from error
    assert table.lake.fsck(deep=True, storage=True).findings == []
