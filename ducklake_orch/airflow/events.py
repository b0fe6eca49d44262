"""What an asset's event says about a write."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset

from ducklake_orch.airflow.assets import SCHEME

_TOLD = ("table", "mode", "snapshot_id", "previous_snapshot_id", "rows_written", "rows_removed", "bytes_written")
# Airflow keeps keys of this length.
_LONGEST_KEY = 250


def report(context: Mapping[str, Any], outlets: list[Any], written: Mapping[str, Any], keys: list[str]) -> None:
    """Put snapshot, rows and partitions into the events of a task's assets.

    Args:
        context: The context of the task.
        outlets: Its outlets.
        written: What the write did.
        keys: The partitions that it wrote.
    """
    events = context.get("outlet_events")
    if events is None:
        return
    for outlet in outlets:
        if not isinstance(outlet, Asset) or not str(outlet.uri).startswith(f"{SCHEME}://"):
            continue
        event = events[outlet]
        event.extra = dict(event.extra or {}) | {f"{SCHEME}/{name}": written[name] for name in _TOLD}
        event.extra[f"{SCHEME}/partition_keys"] = keys[:100]
        # Partitions of assets came with Airflow 3.3.
        if keys and hasattr(event, "add_partitions"):
            event.add_partitions([key for key in keys if 0 < len(key) <= _LONGEST_KEY])
