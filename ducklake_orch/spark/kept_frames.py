"""Keep the DataFrames of tables with their Spark session, so that an unchanged table is planned and listed once."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from ducklake_orch.catalog.commit import recording_of
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.scan import ScanPlan, Selection
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A session keeps this many DataFrames, which together have so many files; Spark holds about a kilobyte for each file.
_MOST_FRAMES, _MOST_FILES = 32, 20_000
_KEPT = "_ducklake_orch_frames"
_lock = Lock()


@dataclass(frozen=True)
class ReadKey:
    """What determines the rows of a read of the latest snapshot.

    No file of the latest snapshot is ever removed, and every change that readers see is a new snapshot. Its time tells
    it from the snapshot of the same id in a lake that was made again.
    """

    config: LakeConfig
    selection: tuple[Any, ...]
    engine: str
    snapshot: tuple[Any, ...]

    @classmethod
    def of(cls, session: Session, metadata: Metadata, selection: Selection, engine: str, at: int) -> "ReadKey | None":
        """Return the key of a read; None for a read of the past or of a draft, whose files may be removed any time."""
        is_draft = recording_of(metadata.config) is not None
        if is_draft or session.access.snapshot is not None or session.access.as_of is not None:
            return None
        dialect = metadata.dialect
        name, columns = dialect.table("ducklake_snapshot"), dialect.texts(["snapshot_id", "snapshot_time"])
        rows = metadata.rows(dialect.query(f"select {columns} from {name} where snapshot_id = {at}"))
        columns_read = None if selection.columns is None else tuple(selection.columns)
        return cls(metadata.config, (selection.table, columns_read, selection.where), engine, tuple(rows))


@dataclass(frozen=True)
class _KeptFrame:
    key: ReadKey
    frame: "DataFrame"
    files: int


def kept_frame(spark: "SparkSession", key: ReadKey | None) -> "DataFrame | None":
    """Return the DataFrame of an earlier read, with columns that joins tell from those of the earlier one."""
    with _lock:
        kept = next((kept for kept in vars(spark).get(_KEPT, ()) if kept.key == key), None)
    return None if kept is None else kept.frame.toDF(*kept.frame.columns)


def keep_frame(spark: "SparkSession", key: ReadKey | None, frame: "DataFrame", plan: ScanPlan) -> None:
    """Keep a DataFrame for later reads of the same snapshot, instead of the one of an earlier snapshot."""
    if key is None or len(plan.files) > _MOST_FILES:
        return
    frame.columns  # noqa: B018 - asks Spark once; the DataFrame remembers them
    with _lock:
        others = [
            kept
            for kept in vars(spark).get(_KEPT, ())
            if (kept.key.config, kept.key.selection, kept.key.engine) != (key.config, key.selection, key.engine)
        ]
        kept_frames = [*others, _KeptFrame(key, frame, len(plan.files))]
        while sum(kept.files for kept in kept_frames) > _MOST_FILES or len(kept_frames) > _MOST_FRAMES:
            del kept_frames[0]
        vars(spark)[_KEPT] = kept_frames
