"""Compares rows read by Spark with those read by DuckDB, value by value."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake

ENGINES: list[Literal["native", "duckdb"]] = ["native", "duckdb"]


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type whose values Python can represent: timestamps as integers, because years may exceed 9999."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return kind


def rows(table: pa.Table) -> list[str]:
    """Return the rows of a table as sorted texts."""
    schema = pa.schema([pa.field(field.name, plain(field.type)) for field in table.schema])
    return sorted(repr(list(row.values())) for row in table.cast(schema).to_pylist())


def execute(lake: DuckLake, *statements: str) -> None:
    lake.execute(list(statements)).raise_for_error()


def expected(lake: DuckLake, sql: str) -> list[str]:
    """Return the rows that DuckDB reads."""
    with lake.connect() as con:
        return rows(con.execute(sql).to_arrow_table())


def read_rows(frame: DataFrame) -> list[str]:
    return rows(frame.toArrow())


def check(
    lake: DuckLake,
    spark: SparkSession,
    table: str = "t",
    *,
    engines: Sequence[Literal["native", "duckdb"]] = ENGINES,
    select: str = "*",
    snapshot: int | None = None,
    **wanted: Any,
) -> None:
    """Compare all rows of a table with those of DuckDB, for each engine."""
    at = f" AT (VERSION => {snapshot})" if snapshot is not None else ""
    where = f" WHERE {wanted['where']}" if "where" in wanted else ""
    theirs = expected(lake, f"SELECT {select} FROM {table}{at}{where}")
    for engine in engines:
        frame = lake.read(table, spark, snapshot=snapshot, engine=engine, **wanted)
        assert read_rows(frame) == theirs, f"{engine} at snapshot {snapshot}"


def check_every_snapshot(lake: DuckLake, spark: SparkSession, table: str = "t", *, first: int = 1) -> None:
    """Compare a table at every snapshot, in as few Spark jobs as possible, because each job is slow."""
    theirs: dict[int, list[str]] = {}
    with lake.connect() as con:
        for at in range(first, latest(lake) + 1):
            theirs[at] = rows(con.execute(f"SELECT {at} AS at, * FROM {table} AT (VERSION => {at})").to_arrow_table())
    for engine in ENGINES:
        frames: dict[str, DataFrame] = {}
        # Reads by DuckDB are also tested without Spark, so every second snapshot and the last one suffice here.
        snapshots = [*theirs] if engine == "native" else [*theirs][::-2]
        for at in snapshots:
            frame = lake.read(table, spark, snapshot=at, engine=engine).selectExpr(f"{at} AS at", "*")
            shape = frame.schema.simpleString()
            frames[shape] = frames[shape].unionAll(frame) if shape in frames else frame
        ours = [row for frame in frames.values() for row in read_rows(frame)]
        for at in snapshots:
            assert sorted(row for row in ours if row.startswith(f"[{at},")) == theirs[at], f"{engine} at snapshot {at}"


def plan_of(frame: DataFrame) -> str:
    """Return the physical plan."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_native(frame: DataFrame) -> bool:
    return "FileScan parquet" in plan_of(frame) and "InArrow" not in plan_of(frame)


def latest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def no_fallback(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record for record in caplog.records if record.levelno >= logging.WARNING]
