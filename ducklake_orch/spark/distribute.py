"""Shuffle a DataFrame so that the rows of a partition meet in few tasks: each writes a file for each of its own."""

import logging
from typing import Any

from ducklake_orch.catalog.metadata import TableDef, free_name
from ducklake_orch.catalog.parquet import PartitionKey, partition_keys
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.spark.murmur import bucket_of
from ducklake_orch.spark.sql_text import name_sql

log = logging.getLogger("ducklake_orch")
# So many tasks may each write a file for each partition before a shuffle is the lesser evil.
_FEW_TASKS = 8
# Unsigned ones are hashed in other ways.
_INTEGERS = {"int8", "int16", "int32", "int64"}
_SORTED_ALIKE = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary"}
_SORTED_ALIKE |= {"date", "timestamp", "timestamp_ntz"}


def distributed(frame: Any, table: TableDef, distribution: str) -> Any:
    """Return the DataFrame as it is to be written.

    Args:
        frame: The DataFrame.
        table: What it is written for.
        distribution: `none`; `hash`: a partition's rows go to as few tasks as their number allows; `range`: in the
            order of the partitions, then of the columns that the table is sorted by; `auto`: `hash` where a shuffle
            saves many files.
    """
    keys = partition_keys(table)
    if distribution == "auto":
        distribution, why = _decide(frame, keys)
        log.info("writing `%s`: distribution `%s`, for %s", table, distribution, why)
    groups = [_group(frame, key) for key in keys]
    if distribution == "range" and (order := groups + _sort_columns(frame, table)):
        return frame.repartitionByRange(*order)
    if distribution == "none" or not keys:
        return frame
    # Spark splits what would be too much for one task, and joins what is too little; it takes names only.
    # Spark folds more letters than those of ASCII.
    taken = [name.lower() for name in frame.columns]
    named = {free_name(f"__ducklake_orch_group_{n}", taken): group for n, group in enumerate(groups)}
    return frame.withColumns(named).hint("rebalance", *named).drop(*named)


def _decide(frame: Any, keys: list[PartitionKey]) -> tuple[str, str]:
    if not keys:
        return "none", "a table without partitions"
    if any(_is_costly(key) for key in keys):
        return "none", "buckets of what only DuckDB can hash"
    tasks = _tasks(frame)
    if tasks is not None and tasks <= _FEW_TASKS:
        return "none", f"{tasks} tasks"
    return "hash", f"{tasks or 'an unknown number of'} tasks"


def _tasks(frame: Any) -> int | None:
    """Return how many tasks the DataFrame's plan ends with, None where it does not say; nothing is run for it."""
    if not hasattr(frame, "_jdf"):
        return None
    plan = frame._jdf.queryExecution().sparkPlan()
    known = int(plan.outputPartitioning().numPartitions())
    if known:
        return known
    # Scans of files say nothing before they run; they are cut by size.
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    context = frame.sparkSession._sc
    return max(int(context.defaultParallelism), size // (128 * 1024 * 1024))


def _is_costly(key: PartitionKey) -> bool:
    return key.field.transform.startswith("bucket(") and key.column.type not in _INTEGERS


def _sort_columns(frame: Any, table: TableDef) -> list[Any]:
    """Return the columns that a table is sorted by, up to the first that Spark cannot sort by as DuckDB does."""
    from pyspark.sql import functions

    simple = [field.name for field in frame.schema if field.dataType.typeName() in _SORTED_ALIKE]
    named = {folded(text): name for name in simple for text in (name, identifier(name))}
    found = []
    for key in table.sort:
        if (name := named.get(folded(key.expression))) is None:
            break
        column = functions.col(name_sql(name))
        found.append(getattr(column, f"{key.direction}_{key.nulls}".lower())())
    return found


def _group(frame: Any, key: PartitionKey) -> Any:
    """Return what is the same for the rows of a partition, or nearly so: it decides on tasks, never on folders."""
    from pyspark.sql import functions

    names = {folded(name): name for name in frame.columns}
    name = names.get(folded(key.column.name))
    if name is None:  # all rows get the column's default
        return functions.lit(0)
    column = functions.col(name_sql(name))
    transform = key.field.transform
    if transform == "identity":
        return column
    if transform.startswith("bucket("):
        return column if _is_costly(key) else bucket_of(column, int(transform[7:-1]))
    if key.column.type == "timestamptz":
        # In UTC, whatever the session's zone.
        seconds = functions.unix_seconds(column)
        if transform == "hour":
            return functions.floor(seconds / 3600) % 24
        column = functions.date_from_unix_date(functions.floor(seconds / 86400).cast("int"))
    part = {"year": functions.year, "month": functions.month, "day": functions.dayofmonth, "hour": functions.hour}
    return part[transform](column)
