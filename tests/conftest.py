"""Fixtures for test servers, which start once per run on first use, and for lakes on them."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ducklake_orch import DuckLake
from tests.backends import MYSQL, POSTGRES, Backend, CatalogKind, StorageKind
from tests.servers.azure import AzuriteServer
from tests.servers.base import Server, ServerUnavailable
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import MotoS3, S3Server, VersityS3

# The password of every test lake that has one. It must never appear in any output.
CANARY = "canary-7f3a' \"\\;x @/%é"
AnyServer = TypeVar("AnyServer", bound=Server)
MakeLake = Callable[..., DuckLake]
# Folders whose tests run inside a host.
HOSTS = {"dagster_host": "dagster", "airflow_host": "airflow"}
collect_ignore = [folder for folder, host in HOSTS.items() if find_spec(host) is None]
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {one.longrepr[2].removeprefix("Skipped: ") for one in skipped if isinstance(one.longrepr, tuple)}
    for reason in sorted(reason for reason in reasons if ServerUnavailable.WORDS in reason):
        terminalreporter.write_line(f"SERVER ABSENT: tests were skipped: {reason}", yellow=True)
    for folder in collect_ignore:
        how = f"pip install 'ducklake-orch[{HOSTS[folder]}]'"
        terminalreporter.write_line(f"HOST ABSENT: tests/{folder} was left out; to run it: {how}", yellow=True)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres(servers: Servers) -> PostgresServer:
    return servers.get(PostgresServer)


@pytest.fixture(scope="session")
def mariadb(servers: Servers) -> MariaDBServer:
    return servers.get(MariaDBServer)


@pytest.fixture(scope="session")
def moto_s3(servers: Servers) -> MotoS3:
    return servers.get(MotoS3)


@pytest.fixture(scope="session")
def versity_s3(servers: Servers) -> VersityS3:
    return servers.get(VersityS3)


@pytest.fixture(scope="session")
def azurite(servers: Servers) -> AzuriteServer:
    return servers.get(AzuriteServer)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def make_lake(backend: Backend, servers: Servers, tmp_path: Path) -> Iterator[MakeLake]:
    """Return a function that opens a lake on the test's backend: the same lake for the same `name`."""
    places: dict[str, dict[str, Any]] = {}

    def make(name: str = "lake", **fields: Any) -> DuckLake:
        if name not in places:
            places[name] = {
                "catalog": catalog_fields(backend.catalog, servers, tmp_path, name),
                "storage": storage_fields(backend.storage, servers, tmp_path, name),
            }
        return DuckLake.from_url(name, **({"create_if_missing": True} | places[name] | fields))

    yield make
    if backend.catalog == MYSQL:  # every connection is slower the more tables the server has
        for place in places.values():
            servers.get(MariaDBServer).drop_database(place["catalog"]["url"].rpartition("/")[2])


@pytest.fixture
def lake(make_lake: MakeLake) -> DuckLake:
    return make_lake()


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
