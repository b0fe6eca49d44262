"""Reads what the context of an output or input says: its partitions and the kind of its frames."""

from zoneinfo import ZoneInfo

import dagster as dg

from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions import Key, Slice, Window, split_multi_key
from ducklake_orch.host_partitions.frame_kinds import Wanted, wanted


def slice_of(context: dg.OutputContext | dg.InputContext) -> Slice | None:
    """Return the partitions that are written or read; None for an unpartitioned asset, that is the whole table."""
    if not (context.has_asset_key and context.has_asset_partitions):
        return None
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return Slice.of(_key(definition, key) for key in keys)
    dimensions = {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
    cells = [
        {name: _key(dimensions[name], text) for name, text in split_multi_key(key, dimensions).items()} for key in keys
    ]
    return Slice.of_many(dimensions, cells)


def _key(definition: dg.PartitionsDefinition, text: str) -> Key:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return Key(str(text))
    window, zone = definition.time_window_for_partition_key(text), ZoneInfo(definition.timezone)
    return Key(str(text), Window(window.start.astimezone(zone), window.end.astimezone(zone)))


def wanted_frames(context: dg.InputContext) -> Wanted:
    """Return the frames that an input is annotated with; a pyarrow.Table without annotation."""
    try:
        annotation = context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        annotation = None  # the context of a unit test
    found = wanted(annotation)
    if found is None:
        name = annotation.__name__ if isinstance(annotation, type) else annotation
        raise ConfigError(
            f"An input cannot be read as `{name}`.",
            remedy="Annotate it with a frame: a DataFrame of Spark, pandas or Polars, a LazyFrame, a pyarrow.Table or"
            " RecordBatchReader, or a DuckDBPyRelation. `Optional[…]` of one is None while the table does not exist,"
            " and `list[…]` or `dict[str, …]` of one has a frame for each partition.",
        )
    return found


def may_be_none(context: dg.OutputContext) -> bool:
    """Return whether an output is annotated with `Optional[…]` of a frame, so that None is a value that it can have."""
    try:
        found = wanted(context.dagster_type.typing_type)
    except dg.DagsterInvariantViolationError:
        return False  # the context of a unit test
    return found is not None and found.optional
