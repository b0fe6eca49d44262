"""Fixtures for test servers, which start once per run on first use, and for lakes on them."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.install_commands import install_extra
from tests.servers.azure import AzuriteServer
from tests.servers.base import ServerUnavailable
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import MotoS3, VersityS3
from tests.support.backends import MYSQL, Backend
from tests.support.lakes import MakeLake, Servers, catalog_fields, storage_fields

pytest_plugins = ["tests.support.hanging_tests", "tests.support.selection", "tests.support.time_limit"]

# Folders whose tests run inside a host.
HOSTS = {"dagster_host": "dagster", "airflow_host": "airflow"}
collect_ignore = [folder for folder, host in HOSTS.items() if find_spec(host) is None]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {one.longrepr[2].removeprefix("Skipped: ") for one in skipped if isinstance(one.longrepr, tuple)}
    for reason in sorted(reason for reason in reasons if ServerUnavailable.WORDS in reason):
        terminalreporter.write_line(f"SERVER ABSENT: tests were skipped: {reason}", yellow=True)
    for folder in collect_ignore:
        how = install_extra(HOSTS[folder])
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
