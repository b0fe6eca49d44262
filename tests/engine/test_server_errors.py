"""Servers that are unreachable, refuse a login or answer in another language cause one ducklake-orch error."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake, RetryPolicy, errors
from ducklake_orch.engine.locks import FileQueue
from tests.servers.azure import AzuriteServer
from tests.servers.base import LOOPBACK, free_port
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import VersityS3
from tests.support.lakes import Servers
from tests.support.refusals import refused

ROWS = "CREATE TABLE t AS SELECT range AS i FROM range(30)"
SCHEMES: dict[str, type[PostgresServer | MariaDBServer]] = {"postgresql": PostgresServer, "mysql": MariaDBServer}
ONCE = RetryPolicy(max_attempts=1)
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


@pytest.fixture
def server(scheme: str, servers: Servers) -> PostgresServer | MariaDBServer:
    return servers.get(SCHEMES[scheme])


def lake_at(url: str, folder: Path, **fields: Any) -> DuckLake:
    return DuckLake.from_url("lake", catalog=url, storage=str(folder / "files"), **fields)


def assert_no_connection(server: PostgresServer | MariaDBServer, database: str) -> None:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
    if isinstance(server, MariaDBServer):
        sql = "SELECT count(*) FROM information_schema.processlist WHERE db = %s"
    deadline, count = time.monotonic() + 3, 1
    while count and time.monotonic() < deadline:
        with server.connect() as con, con.cursor() as cursor:
            cursor.execute(sql, (database,))
            (count,) = cursor.fetchone() or (1,)
    assert count == 0


@each_scheme
class TestLogin:
    @pytest.mark.parametrize("secret", ["'", '"', ";", "\\", " x ", "@", "/", "%", "é", "a'b\"c;d\\e f@g/h%é", "\\'"])
    def test_a_password_with_special_characters_logs_in(
        self, server: PostgresServer | MariaDBServer, scheme: str, secret: str, tmp_path: Path
    ) -> None:
        name = f"login_{secret.encode().hex()}"
        server.create_database(name)
        server.create_role(name, f"{secret}x-canary{secret}", superuser=True)
        encoded = server.url(name, name, f"{secret}x-canary{secret}")
        raw = f"{scheme}://{name}:{secret}x-canary{secret}@{server.host}:{server.port}/{name}"
        lake_at(encoded, tmp_path, create_if_missing=True).execute("SELECT 1").raise_for_error()
        # A password without percent-encoding, as users paste it.
        assert lake_at(raw, tmp_path).execute("SELECT 1 AS one").rows == [{"one": 1}]

    def test_a_wrong_password_or_user_is_refused_after_one_retry(
        self, server: PostgresServer | MariaDBServer, scheme: str, tmp_path: Path
    ) -> None:
        server.create_database(f"closed_{scheme}")
        for user in (server.user, "nobody"):
            url = server.url(f"closed_{scheme}", user, "canary")
            started = time.monotonic()
            words = (user, f"{user}:***@{server.host}:{server.port}/closed_{scheme}", "user and password")
            refused(errors.AuthenticationError, partial(lake_at(url, tmp_path).execute, "SELECT 1"), *words)
            assert time.monotonic() - started < 10
        assert_no_connection(server, f"closed_{scheme}")

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize("name", ["nowhere", 'it\'s "no" `where`'])
    def test_the_error_for_a_missing_database_has_the_statement_that_creates_it(
        self, server: PostgresServer | MariaDBServer, scheme: str, name: str, create: bool, tmp_path: Path
    ) -> None:
        mark = {"postgresql": '"', "mysql": "`"}[scheme]
        statement = f"CREATE DATABASE {mark}{name.replace(mark, 2 * mark)}{mark};"
        lake = lake_at(server.url(name), tmp_path, create_if_missing=create)
        refused(errors.DatabaseNotFoundError, lambda: lake.execute("SELECT 1"), "`lake`", name, statement)
        assert not (tmp_path / "files").exists()


@each_scheme
@pytest.mark.parametrize("place", [f"{LOOPBACK}:PORT", "no-such-host.invalid"])
def test_the_error_for_an_unreachable_server_names_its_address(scheme: str, place: str, tmp_path: Path) -> None:
    place = place.replace("PORT", str(free_port()))
    lake = lake_at(f"{scheme}://me:canary@{place}/db", tmp_path, create_if_missing=True)
    started = time.monotonic()
    refused(errors.CatalogUnreachableError, lambda: lake.execute("SELECT 1"), f"{scheme}://me:***@{place}/db", "runs")
    assert time.monotonic() - started < 10  # one retry, not two minutes of retries
    assert list(tmp_path.iterdir()) == []


class TestTranslatedErrors:
    """Errors are classified without the messages of the server, which may be translated."""

    @pytest.fixture
    def german(self, mariadb: MariaDBServer) -> Iterator[MariaDBServer]:
        self.speak(mariadb, "de_DE")
        yield mariadb
        self.speak(mariadb, "en_US")

    @staticmethod
    def speak(mariadb: MariaDBServer, language: str) -> None:
        with mariadb.connect() as con, con.cursor() as cursor:
            cursor.execute(f"SET GLOBAL lc_messages = '{language}'")

    def test_mariadb_errors_in_german_are_classified(self, german: MariaDBServer, tmp_path: Path) -> None:
        missing, closed = german.url("nowhere"), german.url("mysql", german.user, "canary")
        refused(errors.DatabaseNotFoundError, lambda: lake_at(missing, tmp_path).execute("SELECT 1"), "`nowhere`;")
        refused(errors.AuthenticationError, lambda: lake_at(closed, tmp_path).execute("SELECT 1"), "Benutzer")

    def test_translated_postgres_errors_are_classified(self, postgres: PostgresServer, tmp_path: Path) -> None:
        # The wheel has no translations, so a proxy replaces the messages by translations of the same length.
        words = {
            b"does not exist": b"existiert nich",
            b"password authentication failed": b"Anmeldung mit Passwort faellt ",
        }
        with translating(postgres, words) as port:
            url_template = f"postgresql://{postgres.user}:PASSWORD@{LOOPBACK}:{port}/"
            missing, closed = url_template.replace("PASSWORD", postgres.password) + "nowhere", url_template + "postgres"
            refused(errors.DatabaseNotFoundError, lambda: lake_at(missing, tmp_path).execute("SELECT 1"), '"nowhere";')
            refused(errors.AuthenticationError, lambda: lake_at(closed, tmp_path).execute("SELECT 1"), "Anmeldung")


@contextmanager
def translating(server: PostgresServer, words: dict[bytes, bytes]) -> Iterator[int]:
    """Yield the port of a proxy that forwards all requests, and replaces words in the answers."""
    listener = socket.create_server((LOOPBACK, 0))

    def forward(source: socket.socket, target: socket.socket, change: dict[bytes, bytes]) -> None:
        try:
            while data := source.recv(65536):
                for old, new in change.items():
                    data = data.replace(old, new)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((server.host, server.port))
            threading.Thread(target=forward, args=(client, upstream, {}), daemon=True).start()
            threading.Thread(target=forward, args=(upstream, client, words), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


class TestStorageErrors:
    def s3(self, server: VersityS3, **fields: Any) -> dict[str, Any]:
        login = {"access_key_id": server.access_key_id, "secret_access_key": server.secret_access_key}
        return {
            "type": "s3",
            "bucket": "bucket",
            "endpoint": f"http://{server.endpoint}",
            "region": server.region,
            **login,
            **fields,
        }

    def fails(self, kind: type[errors.DuckLakeOrchError], storage: Any, folder: Path, *words: str) -> None:
        lake = DuckLake.local(folder / "lake", storage=storage, retry=ONCE)
        refused(kind, lambda: lake.execute(ROWS).raise_for_error(), *words)
        assert lake.tables() == []
        assert FileQueue(folder / "lake.sqlite").holder() is None

    def test_wrong_s3_credentials_are_an_authentication_error(self, versity_s3: VersityS3, tmp_path: Path) -> None:
        for wrong in ({"secret_access_key": "canary"}, {"access_key_id": "nobody"}):
            storage = self.s3(versity_s3, **wrong)
            self.fails(errors.AuthenticationError, storage, tmp_path, "s3://bucket/", "credentials of the storage")

    def test_digits_in_a_path_are_not_read_as_an_http_status(self, versity_s3: VersityS3, tmp_path: Path) -> None:
        storage = self.s3(versity_s3, prefix="01a-429-503/404", secret_access_key="canary")
        self.fails(errors.AuthenticationError, storage, tmp_path, "429-503/404", "credentials of the storage")

    def test_a_wrong_azure_key_is_an_authentication_error(self, azurite: AzuriteServer, tmp_path: Path) -> None:
        azurite.create_container("closed")
        for key in (azurite.account_key.replace("E", "F"), "canary"):
            text = azurite.connection_string.replace(azurite.account_key, key)
            storage = {"type": "azure", "container": "closed", "connection_string": text}
            self.fails(errors.AuthenticationError, storage, tmp_path, "credentials of the storage")

    def test_a_missing_s3_region_is_named(self, versity_s3: VersityS3, tmp_path: Path) -> None:
        self.fails(errors.ConfigError, self.s3(versity_s3, region=None), tmp_path, "s3://bucket/", "`region`")

    def test_a_missing_bucket_is_named(self, versity_s3: VersityS3, tmp_path: Path) -> None:
        self.fails(errors.StorageError, self.s3(versity_s3, bucket="no-bucket"), tmp_path, "s3://no-bucket/", "exists")

    def test_an_unreachable_storage_server_is_named(self, versity_s3: VersityS3, tmp_path: Path) -> None:
        storage = self.s3(versity_s3, endpoint=f"http://{LOOPBACK}:{free_port()}")
        self.fails(errors.StorageBusyError, storage, tmp_path, storage["endpoint"], "reached")
