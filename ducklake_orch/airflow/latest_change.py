"""Finds the latest change in a lake, for sensors and triggers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.lake import DuckLake


@dataclass(frozen=True)
class Change:
    """The latest change of the rows of a table, or of the lake.

    Attributes:
        snapshot_id: The snapshot of the change.
        snapshot_time: The commit time of the snapshot.
    """

    snapshot_id: int
    snapshot_time: datetime

    def payload(self, **more: Any) -> dict[str, Any]:
        """Return the change as the payload of an event or a sensor."""
        when = self.snapshot_time.isoformat()
        return {"schema_version": 1, "snapshot_id": self.snapshot_id, "snapshot_time": when, **more}


def latest_change(lake: DuckLake, table: str | None) -> Change | None:
    """Return the latest snapshot that changed rows of a table or, without a table, the latest snapshot of the lake.

    Compaction moves rows but changes none. The result is None while the table or the lake does not exist.
    """
    try:
        if table is None:
            changes = [snapshot for snapshot in lake.snapshots(limit=1) if snapshot.snapshot_id > 0]
        else:
            changes = lake.table(table).history(limit=1, rows=True)
            if not changes:
                return _before_history(lake, table)
    except ObjectNotFoundError:
        return None
    return Change(changes[0].snapshot_id, changes[0].snapshot_time) if changes else None


def _before_history(lake: DuckLake, table: str) -> Change | None:
    """Return the latest change of a table whose snapshots have expired, judged by its files; None without rows."""
    handle = lake.table(table)
    if not handle.count():
        return None
    oldest = lake.snapshots()[-1]
    newest = max((file.snapshot for file in handle.files()), default=oldest.snapshot_id)
    return Change(min(newest, oldest.snapshot_id), oldest.snapshot_time)


def is_newer(change: Change | None, after: int | None, since: datetime | None) -> bool:
    """Return whether a change is later than a snapshot and a time."""
    if change is None:
        return False
    return (after is None or change.snapshot_id > after) and (since is None or change.snapshot_time > since)


def previous_start(context: Mapping[str, Any]) -> datetime | None:
    """Return the start time of this DAG's last successful run."""
    start = context.get("prev_start_date_success")
    return start if isinstance(start, datetime) else None
