"""Reads what the context of an output or input says: its partitions, the kind of its frame, and its settings."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions import Key, Slice, Window, split_multi_key
from ducklake_orch.host_partitions.frame_kinds import as_kind, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUT_SETTINGS = (
    "comment",
    "merge_keys",
    "partition_by",
    "partition_expr",
    "preview",
    "renamed_from",
    "schema",
    "schema_evolution",
    "sort_by",
    "table",
    "where",
    "write_mode",
)
INPUT_SETTINGS = ("columns", "snapshot")
# An input without an upstream output names its table itself.
_TABLE_SETTINGS = ("schema", "table")
_PREFIX = "ducklake/"
_SIMILARITY = 0.8


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


def wanted_kind(context: dg.InputContext) -> str:
    """Return the kind of frame that an input is annotated with; a pyarrow.Table without annotation."""
    try:
        annotation = context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        annotation = None  # the context of a unit test
    if annotation is Any or annotation is None:
        return "arrow"
    kind = kind_of(annotation)
    if kind is None:
        raise ConfigError(
            f"An input cannot be read as `{getattr(annotation, '__name__', annotation)}`.",
            remedy="Annotate it with a DataFrame of Spark, pandas or Polars, a pyarrow.Table or RecordBatchReader, or a"
            " DuckDBPyRelation.",
        )
    return kind


def empty_frame(kind: str, session: "Callable[[], SparkSession]") -> Any:
    """Return a frame without columns, for a table that does not exist yet."""
    import pyarrow as pa

    if kind != "spark":
        return as_kind(kind, pa.table({}))
    from pyspark.sql.types import StructType

    return session().createDataFrame([], StructType([]))


def refuse_misspelt(what: str, given: Iterable[str], *, of_input: bool = False) -> None:
    """Refuse metadata that are meant as settings but are not.

    Refused are names that begin with `ducklake/` (the prefix of metadata in events), misspelt names of settings with
    several words, and settings of outputs on an input. All other metadata belong to the user.

    Args:
        what: The asset, output or input that has the metadata, for the message.
        given: The names of the metadata.
        of_input: Whether the metadata are those of an input.

    Raises:
        ConfigError: Names the first refused one and the nearest setting.
    """
    known: Sequence[str] = (*INPUT_SETTINGS, *_TABLE_SETTINGS) if of_input else OUTPUT_SETTINGS
    for name in given:
        if name in known:
            continue
        word = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) or _is_nearly(word, known) or (of_input and word in OUTPUT_SETTINGS):
            remedy = nearest(word, known)
            raise ConfigError(f"{what}: `{name}` in the metadata is not a setting.", remedy=remedy)


def _is_nearly(name: str, known: Iterable[str]) -> bool:
    """Return whether a name is a misspelt setting. Names of one word are often the user's own, so they pass."""
    candidates = [setting for setting in known if "_" in setting or setting in INPUT_SETTINGS]
    return bool(difflib.get_close_matches(name.lower().replace("-", "_"), candidates, n=1, cutoff=_SIMILARITY))


def snapshot_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the snapshot that an input reads; None for the latest.

    Raises:
        ConfigError: If it is not a number.
    """
    snapshot = metadata.get("snapshot")
    if snapshot is None or (isinstance(snapshot, int) and not isinstance(snapshot, bool)):
        return snapshot
    raise ConfigError(f"`snapshot` = {snapshot!r} is not a snapshot id.", remedy="Give a number.")
