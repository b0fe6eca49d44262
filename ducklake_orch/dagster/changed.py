"""Which partitions of an asset have rows that changed between two snapshots."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb

from ducklake_orch.slices import PartitionColumn, multi_key, partition_columns
from ducklake_orch.slices.columns import Kind
from ducklake_orch.slices.model import ONLY

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake

_TIMES = (Kind.TIMESTAMP, Kind.INSTANT)


def changed_keys(
    lake: "DuckLake",
    table: str,
    what: str,
    definition: dg.PartitionsDefinition,
    partition_expr: object,
    snapshots: tuple[int, int],
    instance: dg.DagsterInstance,
) -> list[str]:
    """Return the keys of the partitions whose rows changed; rows of none are left out.

    Args:
        lake: The lake.
        table: Its table.
        what: The asset, for messages.
        definition: Its partitions.
        partition_expr: Where their keys are, as the asset says it.
        snapshots: The first and the last snapshot.
        instance: Knows the keys of dynamic partitions.
    """
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimensions = {one.name: one.partitions_def for one in definition.partitions_defs}
    else:
        dimensions = {ONLY: definition}
    rows = lake.changes(table, *snapshots)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        changes = con.from_arrow(rows)
        types = dict(zip(changes.columns, map(str, changes.types), strict=True))
        columns = partition_columns(what, list(dimensions), partition_expr, types)
        found = changes.project(", ".join(_moments(one) for one in columns.values())).distinct().fetchall()
    keys = {_key(dimensions, columns, values) for values in found if None not in values}
    return sorted(keys & set(definition.get_partition_keys(dynamic_partitions_store=instance)))


def _moments(column: PartitionColumn) -> str:
    # No window is shorter than a minute, and there can be as many times as rows.
    return f"date_trunc('minute', {column.sql})" if column.kind in _TIMES else column.sql


def _key(
    dimensions: Mapping[str, dg.PartitionsDefinition], columns: Mapping[str, PartitionColumn], values: tuple[Any, ...]
) -> str:
    parts = dict(_parts(dimensions, columns, values))
    return parts[ONLY] if ONLY in parts else multi_key(parts)


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
    """Return when a value was: without a zone of its own, on the clock of the partitions."""
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.replace(tzinfo=zone) if value.tzinfo is None else value.astimezone(UTC)
