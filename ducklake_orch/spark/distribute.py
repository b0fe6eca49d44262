"""Shuffle a DataFrame so that fewer tasks write to each partition, as each task writes its own file: `distributed`."""

import logging
from typing import Any

from ducklake_orch.catalog.metadata import TableDef, free_name
from ducklake_orch.catalog.parquet import PartitionKey, partition_keys
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.spark.bucket_hash import bucket_of
from ducklake_orch.spark.spark_quoting import name_sql

log = logging.getLogger("ducklake_orch")
# Up to this many tasks, a file from each task in each partition costs less than a shuffle.
_FEW_TASKS = 8
# Unsigned integers are hashed differently.
_INTEGERS = {"int8", "int16", "int32", "int64"}
_SORTED_ALIKE = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary"}
_SORTED_ALIKE |= {"date", "timestamp", "timestamp_ntz"}


def distributed(frame: Any, table: TableDef, distribution: str) -> Any:
    """Return the DataFrame, shuffled for writing.

    Args:
        frame: The DataFrame.
        table: The target table.
        distribution: `none`; `hash`: each partition's rows are sent to as few tasks as their number allows; `range`:
            sorted by partition, then by the table's sort columns; `auto`: `hash` if a shuffle saves many files.
    """
    keys = partition_keys(table)
    if distribution == "auto":
        distribution, reason = _decide(frame, keys)
        log.info("writing `%s`: distribution `%s`, because %s", table, distribution, reason)
    groups = [_group(frame, key) for key in keys]
    if distribution == "range" and (order := groups + _sort_columns(frame, table)):
        return frame.repartitionByRange(*order)
    if distribution == "none" or not keys:
        return frame
    # Spark splits groups that are too large for one task and merges small ones. The hint accepts column names only.
    # The names are compared in lower case, because Spark ignores the case of more letters than ASCII.
    taken = [name.lower() for name in frame.columns]
    named = {free_name(f"__ducklake_orch_group_{n}", taken): group for n, group in enumerate(groups)}
    return frame.withColumns(named).hint("rebalance", *named).drop(*named)


def _decide(frame: Any, keys: list[PartitionKey]) -> tuple[str, str]:
    if not keys:
        return "none", "the table has no partitions"
    if any(_is_costly(key) for key in keys):
        return "none", "only DuckDB can hash the column of its buckets"
    tasks = _tasks(frame)
    if tasks is not None and tasks <= _FEW_TASKS:
        return "none", f"there are {tasks} tasks"
    return "hash", f"there are {tasks} tasks" if tasks else "the number of tasks is unknown"


def _tasks(frame: Any) -> int | None:
    """Return how many tasks the DataFrame's plan ends with, None if it does not say; nothing is run."""
    if not hasattr(frame, "_jdf"):
        return None
    plan = frame._jdf.queryExecution().sparkPlan()
    known = int(plan.outputPartitioning().numPartitions())
    if known:
        return known
    # A scan of files does not know its number of tasks before it runs; Spark divides it by size.
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    context = frame.sparkSession._sc
    return max(int(context.defaultParallelism), size // (128 * 1024 * 1024))


def _is_costly(key: PartitionKey) -> bool:
    return key.field.transform.startswith("bucket(") and key.column.type not in _INTEGERS


def _sort_columns(frame: Any, table: TableDef) -> list[Any]:
    """Return a table's sort columns, up to the first that Spark does not sort as DuckDB does."""
    from pyspark.sql import functions

    simple = [field.name for field in frame.schema if field.dataType.typeName() in _SORTED_ALIKE]
    named = {folded(text): name for name in simple for text in (name, identifier(name))}
    columns = []
    for key in table.sort:
        if (name := named.get(folded(key.expression))) is None:
            break
        column = functions.col(name_sql(name))
        columns.append(getattr(column, f"{key.direction}_{key.nulls}".lower())())
    return columns


def _group(frame: Any, key: PartitionKey) -> Any:
    """Return an expression that is equal, or nearly so, for the rows of a partition; it chooses tasks, not folders."""
    from pyspark.sql import functions

    names = {folded(name): name for name in frame.columns}
    name = names.get(folded(key.column.name))
    if name is None:  # every row gets the column's default
        return functions.lit(0)
    column = functions.col(name_sql(name))
    transform = key.field.transform
    if transform == "identity":
        return column
    if transform.startswith("bucket("):
        return column if _is_costly(key) else bucket_of(column, int(transform[7:-1]))
    if key.column.type == "timestamptz":
        # Computed in UTC, whatever the session's time zone.
        seconds = functions.unix_seconds(column)
        if transform == "hour":
            return functions.floor(seconds / 3600) % 24
        column = functions.date_from_unix_date(functions.floor(seconds / 86400).cast("int"))
    part = {"year": functions.year, "month": functions.month, "day": functions.dayofmonth, "hour": functions.hour}
    return part[transform](column)
