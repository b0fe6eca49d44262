"""Lakes for tests: their servers, which start once per run on first use, and new catalogs and storages."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ducklake_orch import DuckLake
from tests.servers.azure import AzuriteServer
from tests.servers.base import Server, ServerUnavailable
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Server
from tests.support.backends import MYSQL, POSTGRES, CatalogKind, StorageKind

# The password of every test lake that has one. It must never appear in any output.
CANARY = "canary-7f3a' \"\\;x @/%é"
AnyServer = TypeVar("AnyServer", bound=Server)
MakeLake = Callable[..., DuckLake]
_numbers = count(1)


class Servers:
    """The running test servers."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._running: dict[type[Server], Server] = {}

    def get(self, kind: type[AnyServer]) -> AnyServer:
        """Return a running server, or skip the test if this machine cannot run it."""
        if kind not in self._running:
            try:
                self._running[kind] = kind.start(self._folders.mktemp(kind.name))
            except ServerUnavailable as error:
                if os.environ.get("REQUIRE_SERVERS") == "1":
                    raise
                pytest.skip(str(error))
        server = self._running[kind]
        assert isinstance(server, kind)
        return server

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()


def catalog_fields(kind: CatalogKind, servers: Servers, folder: Path, name: str) -> dict[str, Any]:
    """Create an empty catalog for a lake, and return its fields."""
    if kind.server is None:
        return {"type": kind.name, "path": folder / f"{name} it's.{kind.name}"}
    server = servers.get(kind.server)
    database = f"lake_{next(_numbers)}_{os.getpid()}"
    assert isinstance(server, PostgresServer | MariaDBServer)
    server.create_database(database)
    user = f"user_{database}"
    server.create_role(user, CANARY, superuser=True)
    assert kind in (POSTGRES, MYSQL)
    return {"url": server.url(database, user, CANARY)}


def storage_fields(kind: StorageKind, servers: Servers, folder: Path, name: str) -> dict[str, Any]:
    """Create an empty storage for a lake, and return its fields."""
    if kind.server is None:
        return {"type": "local", "path": folder / f"{name} it's.files"}
    server = servers.get(kind.server)
    root = f"bucket-{next(_numbers)}-{os.getpid()}"
    prefix = f"some/{name}"
    if isinstance(server, AzuriteServer):
        server.create_container(root)
        return {"type": "azure", "container": root, "prefix": prefix, "connection_string": server.connection_string}
    assert isinstance(server, S3Server)
    server.create_bucket(root)
    common = {"bucket": root, "prefix": prefix, "endpoint": f"http://{server.endpoint}", "region": server.region}
    login = {"access_key_id": server.access_key_id, "secret_access_key": server.secret_access_key}
    if kind.name == "gcs":
        return {"type": "gcs", "key_id": server.access_key_id, "secret": server.secret_access_key, **common}
    if kind.name == "r2":
        return {"type": "r2", "account_id": "test", **common, **login}
    return {"type": "s3", **common, **login}
