"""Reads the table of an input, as the frames that it is annotated with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_orch.dagster.io_context import slice_of
from ducklake_orch.dagster.output_run import known
from ducklake_orch.dagster.table_names import described, described_input
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, ObjectNotFoundError
from ducklake_orch.host_partitions import Slice, condition, conjunction, partition_columns
from ducklake_orch.host_partitions.empty_frames import empty_frame
from ducklake_orch.host_partitions.frame_kinds import Wanted, read_as
from ducklake_orch.lake import DuckLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class InputRead:
    """The read of one input.

    Attributes:
        context: The input.
        lake: The lake.
        table: The table.
        partition_expr: The setting of the table's asset.
        settings: The settings of the input.
        session: Provides the Spark session; called only for Spark DataFrames.
    """

    context: dg.InputContext
    lake: DuckLake
    table: TableName
    partition_expr: object
    settings: Mapping[str, Any]
    session: "Callable[[], SparkSession]"

    def frames(self, wanted: Wanted) -> Any:
        """Return the frame, or the frames of the partitions, of the rows that the input is about."""
        part = slice_of(self.context)
        if wanted.shape != "frame" and part is None:
            raise ConfigError(
                f"{described_input(self.context)} is a {wanted.shape} of frames, one for each partition, but"
                f" `{self.table}` is read as a whole.",
                remedy="Annotate it with one frame, or give the asset that it reads partitions.",
            )
        try:
            return self._read(wanted, part)
        except ObjectNotFoundError:
            if self.lake.exists(str(self.table)):
                raise
            if wanted.optional:
                return None
            if part is None or (part.cells and not self._is_own()):
                raise
            return self._nothing(wanted)  # the first run of an asset that depends on itself

    def _is_own(self) -> bool:
        """Return whether the asset that is read is one that the step itself writes."""
        step = known(self.context, "step_context")
        asset = step.assets_def if step is not None else None
        return asset is not None and self.context.asset_key in asset.keys

    def _nothing(self, wanted: Wanted) -> Any:
        """Return empty frames, for a table that does not exist yet."""
        if wanted.shape == "frame":
            return empty_frame(wanted.kind, self.session)
        frames = {str(key): empty_frame(wanted.kind, self.session) for key in self.context.asset_partition_keys}
        return frames if wanted.shape == "dict" else list(frames.values())

    def _read(self, wanted: Wanted, part: Slice | None) -> Any:
        at = self._time()
        if wanted.shape == "frame" or part is None:
            return self._frame(wanted.kind, part, at)
        if not any(at.values()) and (latest := self.lake.snapshots(1)):
            at = {"snapshot": latest[0].snapshot_id}  # all partitions are read at one snapshot
        parts = dict(part.each())
        frames = {key: self._frame(wanted.kind, parts[key], at) for key in map(str, self.context.asset_partition_keys)}
        return frames if wanted.shape == "dict" else list(frames.values())

    def _frame(self, kind: str, part: Slice | None, at: Mapping[str, Any]) -> Any:
        where = conjunction(self._partitions(part, at), self._where())
        columns = self.settings.get("columns")
        return read_as(self.lake, kind, str(self.table), self.session, columns=columns, where=where, **at)

    def _partitions(self, part: Slice | None, at: Mapping[str, Any]) -> str | None:
        if part is None:
            return None
        types = {column.name: column.type for column in self.lake.table(str(self.table)).schema(**at)}
        what = described(self.context) if self.context.has_asset_key else described_input(self.context)
        return condition(part, partition_columns(what, part.dimensions, self.partition_expr, types))

    def _time(self) -> dict[str, Any]:
        """Return the snapshot or the time that the input names, as arguments of `DuckLake.read`.

        A tag is looked up once, so that all partitions are read at one snapshot also if it moves.
        """
        snapshot, as_of, tag = map(self.settings.get, ("snapshot", "as_of", "tag"))
        if snapshot is not None and (not isinstance(snapshot, int) or isinstance(snapshot, bool)):
            raise ConfigError(f"`snapshot` = {snapshot!r} is not a snapshot id.", remedy="Give a number.")
        if as_of is not None and not isinstance(as_of, str | datetime):
            raise ConfigError(f"`as_of` = {as_of!r} is not a time.", remedy="Give a datetime or a text in ISO format.")
        return {"snapshot": self.lake._snapshot_of(tag, snapshot, as_of), "as_of": as_of}

    def _where(self) -> str | None:
        where = self.settings.get("where")
        if where is None or isinstance(where, str):
            return where
        raise ConfigError(f"`where` = {where!r} is not a condition.", remedy="Give a condition in DuckDB's SQL.")
