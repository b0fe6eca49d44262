"""Encrypted connections to a MySQL catalog, with certificates of both sides, on a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake, errors
from tests.servers.mariadb_tls import TlsMariaDBServer, make_certificates
from tests.support.lakes import CANARY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TlsMariaDBServer, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    server = TlsMariaDBServer.start(folder)
    make_certificates(folder, "other-ca", ["other-client"])
    server.create_database("lake")
    server.create_role("plain", CANARY, superuser=True)
    server.create_role("certified", CANARY, superuser=True)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER USER certified@'%' REQUIRE X509")
    yield server, folder
    server.stop()


def opened(server: tuple[TlsMariaDBServer, Path], user: str, **fields: str) -> str:
    """Open a lake, write to it, and return the cipher of its connection; empty without encryption."""
    running, folder = server
    login: dict[str, Any] = {
        "host": running.host,
        "port": running.port,
        "database": "lake",
        "user": user,
        "password": CANARY,
    }
    catalog: Any = {"type": "mysql", **login, **fields}
    lake = DuckLake.from_url("lake", catalog=catalog, storage=str(folder / "files"), create_if_missing=True)
    lake.write([{"i": 1}], "t", mode="append")
    with lake.connect_metadata() as con:
        query = "SHOW SESSION STATUS LIKE ''Ssl_cipher''"
        return str(con.execute(f"SELECT Value FROM mysql_query(current_catalog(), '{query}')").fetchall()[0][0])


def files(folder: Path, **names: str) -> dict[str, str]:
    return {f"ssl_{key}": str(folder / f"{name}.pem") for key, name in names.items()}


def test_connections_are_encrypted_and_the_servers_certificate_is_verified(
    server: tuple[TlsMariaDBServer, Path],
) -> None:
    trusted = files(server[1], ca="ca")
    assert opened(server, "plain", ssl_mode="disabled") == ""
    assert opened(server, "plain", ssl_mode="required").startswith("TLS")
    for mode in ("required", "verify_ca", "verify_identity"):
        assert opened(server, "plain", ssl_mode=mode, **trusted).startswith("TLS")


def test_a_user_that_needs_a_certificate_logs_in_with_it(server: tuple[TlsMariaDBServer, Path]) -> None:
    with_key = files(server[1], ca="ca", cert="client", key="client-key")
    assert opened(server, "certified", ssl_mode="verify_ca", **with_key).startswith("TLS")
    with pytest.raises(errors.AuthenticationError, match="Access denied"):
        opened(server, "certified", ssl_mode="verify_ca", **files(server[1], ca="ca"))
    strange = files(server[1], ca="ca", cert="other-client", key="other-client-key")
    with pytest.raises(errors.DuckLakeOrchError, match=r"unknown ca|Lost connection"):
        opened(server, "certified", ssl_mode="verify_ca", **strange)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"ca": "other-ca"}, "self-signed certificate in certificate chain"),
        ({"ca": "missing"}, "(?i)no such file"),
        ({"ca": "ca", "cert": "client", "key": "other-client-key"}, "key values mismatch"),
    ],
)
def test_certificates_that_do_not_fit_are_an_error_without_their_content(
    server: tuple[TlsMariaDBServer, Path], names: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = server[1]
    with pytest.raises(errors.AuthenticationError, match=reason) as refused:
        opened(server, "certified", ssl_mode="verify_ca", **files(folder, **names))
    shown = f"{refused.value!r} {refused.value} {caplog.text}"
    assert "`ssl_ca`" in str(refused.value)
    assert CANARY not in shown
    for file in folder.glob("*.pem"):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("-")]
        assert not any(line in shown for line in lines)


def test_the_files_are_named_in_the_secret_and_relative_to_the_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "ducklake.toml"
    file.write_text("""
        [lakes.sales]
        storage = "./files"
        [lakes.sales.catalog]
        type = "mysql"
        host = "db.example"
        ssl_mode = "verify_ca"
        ssl_ca = "tls/ca.pem"
        ssl_cert = "/etc/tls/client.pem"
        ssl_key = "/etc/tls/client-key.pem"
        """)
    secret = next(line for line in DuckLake.from_toml(file).preview_sql().splitlines() if "TYPE mysql" in line)
    assert f"SSL_CA '{tmp_path}/tls/ca.pem'" in secret
    assert "SSL_CERT '/etc/tls/client.pem', SSL_KEY '/etc/tls/client-key.pem'" in secret


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ssl_mode": "verify_ca"}, "needs `ssl_ca`"),
        ({"ssl_cert": "c.pem"}, "give both"),
        ({"ssl_mode": "disabled", "ssl_ca": "ca.pem"}, "uses no certificates"),
        ({"secret_name": "mine", "ssl_ca": "ca.pem"}, "exclude each other"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_connecting(fields: dict[str, str], reason: str) -> None:
    catalog: Any = {"type": "mysql", **fields}
    with pytest.raises(errors.ConfigError, match=reason):
        DuckLake.from_url("lake", catalog=catalog, storage="files")
