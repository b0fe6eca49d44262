"""Finds the partitions of an asset whose rows were changed outside Dagster."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb

from ducklake_orch.host_partitions import PartitionColumn, multi_key, partition_columns
from ducklake_orch.host_partitions.key_columns import Kind
from ducklake_orch.host_partitions.slice_model import ONLY, SEPARATOR, split_multi_key

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake

_TIMES = (Kind.TIMESTAMP, Kind.INSTANT)


@dataclass(frozen=True)
class Keys:
    """The partition keys of changed rows.

    Attributes:
        found: The keys; some may belong to no partition.
        left_out: How many distinct values cannot be a key.
    """

    found: frozenset[str]
    left_out: int


def changed_keys(
    lake: "DuckLake",
    table: str,
    what: str,
    definition: dg.PartitionsDefinition,
    partition_expr: object,
    snapshots: Collection[int],
) -> Keys:
    """Return the partition keys of the rows that some snapshots changed.

    Args:
        lake: The lake.
        table: The table.
        what: The asset, for messages.
        definition: The partitions of the asset.
        partition_expr: The asset's `partition_expr`: the columns that hold the keys.
        snapshots: The ids of the snapshots.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    dimensions = _dimensions(definition)
    rows = lake.changes(table, min(snapshots), max(snapshots))
    rows = rows.filter(pc.is_in(rows.column(0), pa.array(snapshots, rows.column(0).type)))
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        changes = con.from_arrow(rows)
        types = dict(zip(changes.columns, map(str, changes.types), strict=True))
        columns = partition_columns(what, list(dimensions), partition_expr, types)
        rows_of_keys = changes.project(", ".join(_moments(column) for column in columns.values())).distinct().fetchall()
    keys = [_key(dimensions, columns, values) for values in rows_of_keys]
    return Keys(frozenset(key for key in keys if key is not None), keys.count(None))


def may_become(definition: dg.PartitionsDefinition, key: str) -> bool:
    """Return whether a key can become a partition later: a time in the future, or a dynamic partition."""
    dimensions = _dimensions(definition)
    parts = {ONLY: key} if ONLY in dimensions else split_multi_key(key, dimensions)
    return all(_may_be(dimensions[name], text) for name, text in parts.items())


def _may_be(definition: dg.PartitionsDefinition, text: str) -> bool:
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return True
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return text in definition.get_partition_keys()
    try:
        window = definition.time_window_for_partition_key(text)
        is_one = definition.get_partition_key_for_timestamp(window.start.timestamp()) == text
    except (ValueError, OverflowError, dg.DagsterError):
        return False  # the text is not in the format of the keys
    return is_one and window.start >= definition.start and (definition.end is None or window.end <= definition.end)


def _dimensions(definition: dg.PartitionsDefinition) -> dict[str, dg.PartitionsDefinition]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
    return {ONLY: definition}


def _moments(column: PartitionColumn) -> str:
    # Truncating bounds the distinct values, which can be as many as rows. No partition is shorter than a minute.
    return f"date_trunc('minute', {column.sql})" if column.kind in _TIMES else column.sql


def _key(
    dimensions: Mapping[str, dg.PartitionsDefinition], columns: Mapping[str, PartitionColumn], values: tuple[Any, ...]
) -> str | None:
    """Return the key that the values make; None if they cannot be the key of any partition."""
    if None in values:
        return None
    try:
        parts = dict(_parts(dimensions, columns, values))
    except (ValueError, OverflowError):
        return None  # infinity, or a year that `datetime` does not support
    if ONLY in parts:
        return parts[ONLY]
    return None if any(SEPARATOR in text for text in parts.values()) else multi_key(parts)


def _parts(
    dimensions: Mapping[str, dg.PartitionsDefinition], columns: Mapping[str, PartitionColumn], values: tuple[Any, ...]
) -> Iterator[tuple[str, str]]:
    for (name, column), value in zip(columns.items(), values, strict=True):
        definition = dimensions[name]
        timed = column.kind in (*_TIMES, Kind.DATE)
        if timed and isinstance(definition, dg.TimeWindowPartitionsDefinition):
            moment = _moment(value, ZoneInfo(definition.timezone))
            yield name, definition.get_partition_key_for_timestamp(moment.timestamp())
        else:
            yield name, value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def _moment(value: date | datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a value; a value without a zone is in the zone of the partitions."""
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.replace(tzinfo=zone) if value.tzinfo is None else value.astimezone(UTC)
