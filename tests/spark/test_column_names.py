"""Every verb on Spark works with columns named like internal columns of the package, the engine, or Spark."""

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

# Names of internal columns in the Spark code; aliases given in Python occur in no SQL.
SPARK_NAMES = [
    "_metadata",
    "metadata",
    "result",
    "asked",
    "numbers",
    "batches",
    "Wide0",
    "w0",
    "c0",
    "C1",
    "deletes",
    "pos",
]
# States of the files that readers handle differently: without deletes, with deletes, rolled back, merged.
READ_AFTER = ("write", "update", "rollback", "the data source")
DEFAULT_NAMES = [name for name in NAMES if name.startswith("__ducklake_orch_")][::8]
DEFAULT_NAMES += [
    *SPARK_NAMES,
    *RESERVED,
    *OWN_COLUMNS,
    "file_row_number",
    "source",
    "target",
    "a`b",
    "a.b",
    'a"b',
    "id_",
    " ",
    "é",
]


def as_frame(spark: SparkSession, table: Table, words: dict[int, Any]) -> DataFrame:
    return spark.createDataFrame(table.arrow(words)).repartition(2, "id")


def write(spark: SparkSession, table: Table, words: dict[int, Any], mode: str = "append", **options: Any) -> None:
    table.lake.write(as_frame(spark, table, words), "t", mode=mode, **options)
    table.rows |= {number: table.row(word) for number, word in words.items()}


def read(spark: SparkSession, table: Table, at: int | None = None) -> None:
    """Compare what both Spark readers return, also with a condition on every column."""
    for engine in ENGINES:
        frame = table.lake.read("t", spark, snapshot=at, engine=engine)
        assert as_rows(frame.toArrow().combine_chunks()) == table.rows, engine
    number = min(table.rows)
    found = table.lake.read("t", spark, snapshot=at, where=table.holds(number))
    assert as_rows(found.toArrow()) == {number: table.rows[number]}


def steps(spark: SparkSession, table: Table) -> Iterator[str]:
    """Change a table and its model with every verb that Spark runs."""
    lake, names, first, last = table.lake, table.names, table.names[0], table.names[-1]
    write(spark, table, {n: n for n in range(30)}, engine="duckdb")
    write(spark, table, {n: n for n in range(30, 60)}, engine="native", distribution="none")
    written, written_rows = latest(lake), dict(table.rows)
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
    changed = f"source.{identifier(last)} <> target.{identifier(last)}"
    merge: dict[str, Any] = {"keys": ["id"], "when_matched": matched, "matched_condition": changed, "engine": "spark"}
    write(spark, table, {9: "again", 41: "again"}, "merge", **merge)
    yield "merge by expressions"
    write(spark, table, {11: 11}, "replace_where", where=table.holds(11))
    yield "replace_where"
    known = [name for name in names if name.lower() not in OWN_COLUMNS]
    indexes = [names.index(name) for name in known]
    changes = lake.changes("t", before + 1, spark=spark, columns=["id", *known]).toArrow()
    images = changes.filter([kind == "update_preimage" for kind in changes["change_type"].to_pylist()])
    found = as_rows(images.select(["id", *known]))
    assert found == {n: tuple(kept[n][index] for index in indexes) for n in (8, 40, 9, 41)}
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
    current_rows, table.rows = table.rows, written_rows
    read(spark, table, written)
    table.rows = current_rows


@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        pytest.param(str.title, DEFAULT_NAMES, id="title"),
        pytest.param(str.lower, DEFAULT_NAMES, id="lower", marks=pytest.mark.full),
        pytest.param(str.upper, DEFAULT_NAMES, id="upper", marks=pytest.mark.full),
        pytest.param(str.title, NAMES, id="all", marks=pytest.mark.full),
    ],
)
def test_columns_named_like_internal_ones_survive_every_spark_verb(
    tmp_path: Path, spark: SparkSession, case: Callable[[str], str], chosen: list[str]
) -> None:
    cased = distinct([case(name) for name in chosen if name != SPARK_ALONE])
    names = [*{name.lower(): name for name in cased}.values()]  # Spark treats é and É as one name
    not_inlining = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    columns = ", ".join(f"{identifier(name)} VARCHAR" for name in names)
    not_inlining.execute(f"CREATE TABLE t (id BIGINT, {columns})").raise_for_error()
    table = Table(DuckLake.local(tmp_path / "lake"), names, text)
    for what in steps(spark, table):
        try:
            table.check()
            if what in READ_AFTER:
                read(spark, table)
        except AssertionError as error:
            raise AssertionError(f"after {what}") from error
    assert table.lake.fsck(deep=True, storage=True).findings == []
