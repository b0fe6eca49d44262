"""Delete files of ours from the storage; DuckDB has no statement for that, so it goes through pyarrow."""

import logging
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import AzureStorage, BucketStorage, GCSStorage, R2Storage, S3Storage
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, literal

log = logging.getLogger("ducklake_orch")


def remove_written(config: LakeConfig, folder: str, write_id: str, keep: Set[str] = frozenset()) -> int:
    """Delete the files of a write that came to nothing, and only those; return how many there were.

    A failure is only logged: it would hide the error that led here, and the files can be found by their names.

    Args:
        config: The lake.
        folder: The table's folder.
        write_id: Part of the names of the write's files, and of no others.
        keep: Those of its files that did come to something.
    """
    try:
        lost = [path for path in _written(config, folder, write_id) if path not in keep]
        remove(config, lost)
        return len(lost)
    except (duckdb.Error, OSError) as error:
        log.warning("files of write %s are left in %s: %s", write_id, folder, config.scrubber(str(error)))
        return 0


def remove_unused(config: LakeConfig, paths: list[str]) -> None:
    """Delete files that nothing refers to; a failure is only logged, for the work itself is done."""
    try:
        remove(config, paths)
    except OSError as error:
        log.warning("%d unused files are left, such as %s: %s", len(paths), paths[0], config.scrubber(str(error)))


def _written(config: LakeConfig, folder: str, write_id: str) -> list[str]:
    name = f"ducklake-{write_id}-*.parquet"
    if "://" not in folder:
        # Spark's own writer has a folder for each write, in which it names the files.
        found = [*Path(folder).rglob(name), *Path(folder).glob(f"ducklake-{write_id}-*/*")]
        return [str(path) for path in found]
    pattern = literal(f"{exactly(folder)}**/{name}")
    with working_connection(config) as con:
        return [str(row[0]) for row in con.execute(f"SELECT file FROM glob({pattern})").fetchall()]


def remove(config: LakeConfig, paths: list[str]) -> None:
    """Delete files."""
    if not paths:
        return
    if "://" not in paths[0]:
        for file in map(Path, paths):
            file.unlink(missing_ok=True)
            if file.parent.name.startswith("ducklake-"):
                with suppress(OSError):  # the others are still in it
                    file.parent.rmdir()
        return
    system = _file_system(config)
    for path in paths:
        system.delete_file(path.partition("://")[2])


def _file_system(config: LakeConfig) -> Any:
    """Return pyarrow's view of the lake's storage.

    Raises:
        OSError: When its credentials are only in a secret that the engine keeps.
    """
    from pyarrow import fs

    storage = config.storage
    if isinstance(storage, BucketStorage) and storage.secret_name:
        raise OSError(f"the secret `{storage.secret_name}` is the engine's own")
    match storage:
        case S3Storage() | R2Storage():
            endpoint = storage.endpoint
            if isinstance(storage, R2Storage) and endpoint is None:
                endpoint = f"https://{storage.account_id}.r2.cloudflarestorage.com"
            keys = {"access_key": storage.access_key_id, "secret_key": storage.secret_access_key}
            keys["session_token"] = storage.session_token
            return fs.S3FileSystem(**_revealed(keys), **_endpoint(endpoint, storage.use_ssl), region=storage.region)
        case GCSStorage():
            keys = {"access_key": storage.key_id, "secret_key": storage.secret}
            endpoint = storage.endpoint or "https://storage.googleapis.com"
            return fs.S3FileSystem(**_revealed(keys), **_endpoint(endpoint, storage.use_ssl), region=storage.region)
        case AzureStorage():
            return fs.AzureFileSystem(**_azure(storage))
    raise OSError("the storage is not this package's to delete from")


def _revealed(keys: dict[str, Any]) -> dict[str, str]:
    return {
        name: value.get_secret_value() if hasattr(value, "get_secret_value") else str(value)
        for name, value in keys.items()
        if value is not None
    }


def _endpoint(endpoint: str | None, use_ssl: bool | None) -> dict[str, str]:
    if endpoint is None:
        return {}
    scheme, found, host = endpoint.rpartition("://")
    return {"endpoint_override": host, "scheme": scheme if found else ("http" if use_ssl is False else "https")}


def _azure(storage: AzureStorage) -> dict[str, str]:
    if storage.connection_string is None:
        keys = {"account_name": storage.account_name, "account_key": storage.account_key}
        keys |= {"tenant_id": storage.tenant_id, "client_id": storage.client_id}
        return _revealed(keys | {"client_secret": storage.client_secret})
    parts = dict(one.split("=", 1) for one in storage.connection_string.get_secret_value().split(";") if "=" in one)
    given = {"account_name": parts.get("AccountName"), "account_key": parts.get("AccountKey")}
    if blob := parts.get("BlobEndpoint"):
        scheme, _, address = blob.partition("://")
        given |= {"blob_storage_scheme": scheme, "blob_storage_authority": address.partition("/")[0]}
    return _revealed(given)
