"""What has changed in a lake, for those who wait for it."""

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
        snapshot_id: The snapshot that made it.
        snapshot_time: When that was.
    """

    snapshot_id: int
    snapshot_time: datetime

    def told(self, **more: Any) -> dict[str, Any]:
        """Return what an event or a sensor says about it."""
        when = self.snapshot_time.isoformat()
        return {"schema_version": 1, "snapshot_id": self.snapshot_id, "snapshot_time": when, **more}


def latest_change(lake: DuckLake, table: str | None) -> Change | None:
    """Return the latest snapshot that changed rows of a table; without one, the latest of the lake.

    Compaction moves rows and changes none. None where there is no such table, or lake, yet.
    """
    try:
        if table is None:
            found = [one for one in lake.snapshots(limit=1) if one.snapshot_id > 0]
        else:
            found = lake.table(table).history(limit=1, rows=True)
            if not found:
                return _before_history(lake, table)
    except ObjectNotFoundError:
        return None
    return Change(found[0].snapshot_id, found[0].snapshot_time) if found else None


def _before_history(lake: DuckLake, table: str) -> Change | None:
    """Return the latest change of a table whose snapshots have expired, as far as its files tell; None for no rows."""
    there = lake.table(table)
    if not there.count():
        return None
    oldest = lake.snapshots()[-1]
    newest = max((one.snapshot for one in there.files()), default=oldest.snapshot_id)
    return Change(min(newest, oldest.snapshot_id), oldest.snapshot_time)


def is_newer(change: Change | None, after: int | None, since: datetime | None) -> bool:
    """Whether a change came after a snapshot and since a time."""
    if change is None:
        return False
    return (after is None or change.snapshot_id > after) and (since is None or change.snapshot_time > since)


def previous_start(context: Mapping[str, Any]) -> datetime | None:
    """Return when the last run of this DAG that succeeded began."""
    found = context.get("prev_start_date_success")
    return found if isinstance(found, datetime) else None
