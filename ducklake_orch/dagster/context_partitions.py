"""Converts the partitions of a Dagster context to a slice of a table.

It reads only the partitions definition and the keys. Other attributes of a context are not set in every case: for one
partition, for a range in one run, for a range with gaps, and for inputs through partition mappings.
"""

from zoneinfo import ZoneInfo

import dagster as dg

from ducklake_orch.host_partitions import Key, Slice, Window, split_multi_key


def slice_of(context: dg.OutputContext | dg.InputContext) -> Slice | None:
    """Return the partitions that are written or read; None for an unpartitioned asset, that is the whole table."""
    if not (context.has_asset_key and context.has_asset_partitions):
        return None
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return Slice.of(_key(definition, key) for key in keys)
    dimensions = {partitions_def.name: partitions_def.partitions_def for partitions_def in definition.partitions_defs}
    cells = [
        {name: _key(dimensions[name], text) for name, text in split_multi_key(key, dimensions).items()} for key in keys
    ]
    return Slice.of_many(dimensions, cells)


def _key(definition: dg.PartitionsDefinition, text: str) -> Key:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return Key(str(text))
    window, zone = definition.time_window_for_partition_key(text), ZoneInfo(definition.timezone)
    return Key(str(text), Window(window.start.astimezone(zone), window.end.astimezone(zone)))
