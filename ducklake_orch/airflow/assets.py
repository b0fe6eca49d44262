"""Airflow assets for tables, `ducklake://<connection>/<schema>/<table>`, and the events of their writes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.sdk import Asset

from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

SCHEME = "ducklake"
_FIGURES = ("table", "mode", "snapshot_id", "previous_snapshot_id", "rows_written", "rows_removed", "bytes_written")
_KEYS, _COUNT = f"{SCHEME}/partition_keys", f"{SCHEME}/partition_count"
# An event lists at most this many partitions.
_LISTED = 100
# The maximum length of a key in Airflow.
_LONGEST_KEY = 250


def ducklake_asset(table: str, *, lake: str = "ducklake_default", **fields: Any) -> Asset:
    """Return the asset of a table: `ducklake_default.sales.orders` in the group `ducklake`.

    Airflow accepts one name for each URI, so DAGs should all refer to a table by this function.

    Args:
        table: `table` or `schema.table`.
        lake: The name of the lake in assets. The operators use the id of its connection.
        **fields: Further fields of the asset: `name`, `group`, `extra`, `watchers`.
    """
    parts = [quote(part, safe="") for part in (lake.lower(), *table_name(table))]
    name = ".".join(part.replace(".", "%2E") for part in parts)
    return Asset(**({"name": name, "uri": f"{SCHEME}://{'/'.join(parts)}", "group": SCHEME} | fields))


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Normalize the URI of a table, and refuse a URI that names no table."""
    parts = [part for part in uri.path.split("/") if part]
    if not uri.netloc or len(parts) not in (1, 2):
        raise ValueError(f"{uri.geturl()} names no table: write {SCHEME}://<connection>/<schema>/<table>")
    parts = parts if len(parts) == 2 else ["main", *parts]
    return uri._replace(netloc=uri.netloc.lower(), path="/" + "/".join(parts))


def create_asset(*, lake: str, table: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a table, for Airflow's collection of hook lineage."""
    return ducklake_asset(table, lake=lake, extra=extra or {})


def table_of(asset: Asset) -> tuple[str, TableName]:
    """Return the lake and the table of an asset."""
    lake, schema, table = str(asset.uri).removeprefix(f"{SCHEME}://").split("/")
    return unquote(lake), TableName(unquote(schema), unquote(table))


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> "Dataset":
    """Return the OpenLineage dataset of an asset."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    lake, table = table_of(asset)
    return Dataset(namespace=f"{SCHEME}://{lake}", name=str(table))


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
        event.extra = dict(event.extra or {}) | {f"{SCHEME}/{name}": written[name] for name in _FIGURES}
        event.extra |= {_KEYS: keys[:_LISTED], _COUNT: len(keys)}
        # Airflow has partitions of assets since 3.3.
        if keys and hasattr(event, "add_partitions"):
            event.add_partitions([key for key in keys if 0 < len(key) <= _LONGEST_KEY])


def report_snapshot(context: Mapping[str, Any], outlets: list[Any], ducklake_conn_id: str, snapshot: int) -> None:
    """Add the snapshot after a task's commands to the events of the lake's assets.

    Args:
        context: The context of the task.
        outlets: The outlets of the task.
        ducklake_conn_id: The connection to the lake.
        snapshot: The snapshot.
    """
    if (events := context.get("outlet_events")) is None:
        return
    for outlet in _lake_assets(outlets):
        if table_of(outlet)[0] == ducklake_conn_id.lower():
            events[outlet].extra = dict(events[outlet].extra or {}) | {f"{SCHEME}/snapshot_id": snapshot}


def _lake_assets(outlets: list[Any]) -> list[Asset]:
    return [outlet for outlet in outlets if isinstance(outlet, Asset) and str(outlet.uri).startswith(f"{SCHEME}://")]


def _assets_of(outlets: list[Any], written: Mapping[str, Any]) -> list[Asset]:
    """Return the outlets of the table. Prefer those that name the lake by this connection, if there are any."""
    wanted = table_name(written["table"])
    found = [lake for lake in _lake_assets(outlets) if wanted.names(*table_of(lake)[1])]
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
                    remedy='Start the run with a partition key, or give the task `partition_key="…"`.',
                )
            found |= {str(key) for key in keys}
    return sorted(found)
