"""Airflow assets for tables: `ducklake://<connection>/<schema>/<table>`."""

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.sdk import Asset

from ducklake_orch.engine.quoting import TableName, table_name

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

SCHEME = "ducklake"


def ducklake_asset(table: str, *, lake: str = "ducklake_default", **fields: Any) -> Asset:
    """Return the asset of a table.

    Args:
        table: `table` or `schema.table`.
        lake: The name of the lake in assets. The operators use the id of its connection.
        **fields: Further fields of the asset: `name`, `group`, `extra`, `watchers`.
    """
    name = table_name(table)
    uri = f"{SCHEME}://{quote(lake, safe='')}/{quote(name.schema, safe='')}/{quote(name.table, safe='')}"
    return Asset(**({"uri": uri} | fields))


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
