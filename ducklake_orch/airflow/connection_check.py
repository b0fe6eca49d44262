"""The check behind *Test connection* in Airflow: opens the lake for reading, and describes it."""

import re
from collections.abc import Callable

from ducklake_orch.errors import DuckLakeOrchError, LakeNotFoundError
from ducklake_orch.lake import DuckLake


def check_connection(conn_id: str, lake: Callable[[], DuckLake]) -> tuple[bool, str]:
    """Open a lake for reading, and return success and a message.

    The message names catalog and storage. It leaves out the connection's id and the lake's default name, because
    Airflow tests a connection under a random id.

    Args:
        conn_id: The id of the connection.
        lake: Returns the lake of the connection.
    """
    try:
        works, message = _open(conn_id, lake())
    except DuckLakeOrchError as error:
        works, message = False, str(error)
    return works, re.sub(rf"\b(lake|connection) `{re.escape(conn_id)}`", r"\1", message, flags=re.IGNORECASE)


def _open(conn_id: str, lake: DuckLake) -> tuple[bool, str]:
    config = lake.config
    name = "The lake" if config.name == conn_id else f"Lake `{config.name}`"
    where = f"Catalog: {config.catalog.to_url()}"
    if config.data_path is not None:
        where += f", data files: {config.data_path}"
    try:
        latest = DuckLake(config.model_copy(update={"create_if_missing": False})).snapshots(limit=1)
    except LakeNotFoundError:
        if not config.create_if_missing:
            raise
        return True, f"{name} does not exist yet. The first write creates it. {where}"
    return True, f"{name} is at snapshot {latest[0].snapshot_id if latest else 0}. {where}"
