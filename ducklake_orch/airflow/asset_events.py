"""Adds the figures of a write to the asset's event, and reads partitions from the events that triggered a run."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset

from ducklake_orch.airflow.assets import SCHEME, table_of
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import ConfigError

_TOLD = ("table", "mode", "snapshot_id", "previous_snapshot_id", "rows_written", "rows_removed", "bytes_written")
_KEYS, _COUNT = f"{SCHEME}/partition_keys", f"{SCHEME}/partition_count"
# An event lists at most this many partitions.
_LISTED = 100
# The maximum length of a key in Airflow.
_LONGEST_KEY = 250


def report(context: Mapping[str, Any], outlets: list[Any], written: Mapping[str, Any], keys: list[str]) -> None:
    """Add snapshot, rows and partitions to the event of the table's asset, and not to events of other outlets.

    Args:
        context: The context of the task.
        outlets: The outlets of the task.
        written: The result of the write.
        keys: The partitions that the task wrote.
    """
    events = context.get("outlet_events")
    if events is None:
        return
    for outlet in _assets_of(outlets, written):
        event = events[outlet]
        event.extra = dict(event.extra or {}) | {f"{SCHEME}/{name}": written[name] for name in _TOLD}
        event.extra |= {_KEYS: keys[:_LISTED], _COUNT: len(keys)}
        # Airflow has partitions of assets since 3.3.
        if keys and hasattr(event, "add_partitions"):
            event.add_partitions([key for key in keys if 0 < len(key) <= _LONGEST_KEY])


def _assets_of(outlets: list[Any], written: Mapping[str, Any]) -> list[Asset]:
    """Return the outlets of the table. Prefer those that name the lake by this connection, if there are any."""
    lakes = [outlet for outlet in outlets if isinstance(outlet, Asset) and str(outlet.uri).startswith(f"{SCHEME}://")]
    wanted = table_name(written["table"])
    found = [lake for lake in lakes if wanted.names(table_of(lake)[1].schema, table_of(lake)[1].table)]
    own = str(written["ducklake_conn_id"]).lower()
    return [asset for asset in found if table_of(asset)[0] == own] or found


def triggering_keys(what: str, context: Mapping[str, Any]) -> list[str]:
    """Return the partitions of the writes that triggered a run.

    Args:
        what: The task, for messages.
        context: The context of the task.

    Raises:
        ConfigError: If one of the events does not name all partitions of its write.
    """
    found: set[str] = set()
    for events in (context.get("triggering_asset_events") or {}).values():
        for event in events:
            if not str(event.asset.uri).startswith(f"{SCHEME}://"):
                continue
            extra = event.extra or {}
            keys, count = extra.get(_KEYS) or [], extra.get(_COUNT)
            if not keys or (isinstance(count, int) and count > len(keys)):
                raise ConfigError(
                    f"{what}: its run was triggered by a write of {event.asset.uri} that names "
                    + (f"only {len(keys)} of its {count} partitions." if keys else "no partitions."),
                    remedy='Start it with a partition key, or give the task `partition_key="…"`.',
                )
            found |= {str(key) for key in keys}
    return sorted(found)
