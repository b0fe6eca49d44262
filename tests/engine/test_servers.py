"""The test servers: each one serves a DuckLake of plain DuckDB, and each injected fault is observed."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import duckdb
import psycopg
import pymysql
import pytest

from tests.servers.azure import AzuriteServer
from tests.servers.base import ServerProcess, ServerUnavailable, accepts_connections
from tests.servers.disk import limit_file_size, small_disk
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy
from tests.servers.s3 import MotoS3, S3Server
from tests.support.fault_points import run_until_killed

HOSTILE = "p' \"\\;x @/%é"


@pytest.fixture
def duck() -> Iterator[Callable[..., duckdb.DuckDBPyConnection]]:
    """Open connections with the wheels' extensions loaded."""
    opened: list[duckdb.DuckDBPyConnection] = []

    def connect(*extensions: str) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        opened.append(connection)
        for name in extensions:
            wheel = Path(import_module(f"duckdb_extension_{name}").__file__ or "").parent
            (extension,) = wheel.glob(f"extensions/*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        return connection

    yield connect
    for connection in opened:
        connection.close()


Duck = Callable[..., duckdb.DuckDBPyConnection]


def check_inserted_rows(connection: duckdb.DuckDBPyConnection, rows: int) -> None:
    connection.execute(f"CREATE TABLE lake.t AS SELECT i FROM range({rows}) AS r(i)")
    assert connection.sql("SELECT count(*), sum(i) FROM lake.t").fetchone() == (rows, rows * (rows - 1) // 2)


def s3_secret(server: S3Server, endpoint: str) -> str:
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{server.access_key_id}', SECRET '{server.secret_access_key}', "
        f"REGION '{server.region}', ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
    )


# Catalog servers


@pytest.mark.parametrize("address", ["url", "socket_url"])
def test_postgres_stores_a_catalog(postgres: PostgresServer, duck: Duck, tmp_path: Path, address: str) -> None:
    postgres.create_database(f"lake over {address}")
    connection = duck("ducklake", "postgres_scanner")
    where = getattr(postgres, address)(f"lake over {address}")
    connection.execute(f"ATTACH 'ducklake:postgres:{where}' AS lake (DATA_PATH '{tmp_path}')")
    check_inserted_rows(connection, rows=100)


def test_postgres_accepts_any_password_and_checks_it(postgres: PostgresServer) -> None:
    postgres.create_role(HOSTILE, HOSTILE)
    with psycopg.connect(postgres.url("postgres", HOSTILE, HOSTILE)) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (HOSTILE,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url("postgres", HOSTILE, "wrong"))


def test_postgres_ends_connections_on_demand(postgres: PostgresServer) -> None:
    postgres.create_database("ended")
    with postgres.connect("ended") as connection:
        postgres.terminate_backends("ended")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_two_postgres_servers_run_side_by_side(postgres: PostgresServer, tmp_path: Path) -> None:
    second_server = PostgresServer.start(tmp_path)
    try:
        second_server.create_database("only here")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            postgres.connect("only here")
    finally:
        second_server.stop()
    assert not accepts_connections(second_server.port)


def test_mariadb_stores_a_catalog(mariadb: MariaDBServer, duck: Duck, tmp_path: Path) -> None:
    mariadb.create_database("lake")
    connection = duck("ducklake", "mysql_scanner")
    connection.execute(f"ATTACH 'ducklake:mysql:{mariadb.url('lake')}' AS lake (DATA_PATH '{tmp_path}')")
    check_inserted_rows(connection, rows=100)


def test_mariadb_accepts_any_password_and_checks_it(mariadb: MariaDBServer) -> None:
    mariadb.create_role(HOSTILE, HOSTILE)
    login = partial(pymysql.connect, host=mariadb.host, port=mariadb.port, user=HOSTILE)
    # As bytes, because pymysql sends text as Latin-1 and the server has the password in UTF-8.
    with login(password=HOSTILE.encode()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_user()")
        assert cursor.fetchone() == (f"{HOSTILE}@%",)
    with pytest.raises(pymysql.OperationalError, match="Access denied"):
        login(password="wrong")


def test_mariadb_ends_connections_on_demand(mariadb: MariaDBServer) -> None:
    mariadb.create_database("ended")
    connection = mariadb.connect("ended")
    mariadb.kill_connections("ended")
    with connection.cursor() as cursor, pytest.raises(pymysql.OperationalError):
        cursor.execute("SELECT 1")


# Storage servers


@pytest.mark.parametrize("kind", ["moto_s3", "versity_s3"])
def test_s3_stores_data_files(request: pytest.FixtureRequest, duck: Duck, tmp_path: Path, kind: str) -> None:
    server: S3Server = request.getfixturevalue(kind)
    server.create_bucket("lake")
    connection = duck("ducklake", "httpfs", "sqlite_scanner")
    connection.execute(s3_secret(server, server.endpoint))
    connection.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.sqlite' AS lake (DATA_PATH 's3://lake/data/')")
    check_inserted_rows(connection, rows=100)
    (key,) = server.list_keys("lake", "data/")
    assert key.endswith(".parquet")
    assert server.list_keys("lake", "elsewhere/") == []


def test_azurite_stores_data_files(azurite: AzuriteServer, duck: Duck, tmp_path: Path) -> None:
    azurite.create_container("lake")
    connection = duck("ducklake", "azure", "sqlite_scanner")
    connection.execute(f"CREATE SECRET (TYPE azure, CONNECTION_STRING '{azurite.connection_string}')")
    connection.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.sqlite' AS lake (DATA_PATH 'az://lake/data/')")
    check_inserted_rows(connection, rows=100)
    (name,) = azurite.list_blobs("lake", "data/")
    assert name.endswith(".parquet")
    assert azurite.list_blobs("lake", "elsewhere/") == []


# Faults


def test_proxy_delays_traffic(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy, through(proxy, postgres) as connection:
        proxy.delay(0.2)
        before = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - before >= 0.4
        assert proxy.connections == 1
        assert proxy.bytes_to_server > 0
        assert proxy.bytes_to_client > 0


def test_proxy_cuts_until_restored(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy:
        with through(proxy, postgres) as connection:
            proxy.cut()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                through(proxy, postgres)
        proxy.restore()
        with through(proxy, postgres) as connection:
            connection.execute("SELECT 1")


def test_proxy_cuts_after_some_bytes_to_the_client(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy, through(proxy, postgres) as connection:
        passed = proxy.bytes_to_client
        proxy.cut_after(1000)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('x', 100000)")
        assert proxy.bytes_to_client == passed + 1000
        through(proxy, postgres).close()


def test_proxy_cuts_before_a_request_reaches_the_server(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy, through(proxy, postgres) as connection:
        proxy.cut_after(0, "to_server", stay_down=True)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("CREATE TABLE never_made ()")
        with pytest.raises(psycopg.OperationalError):
            through(proxy, postgres)
    assert not has_table(postgres, "never_made")


def test_proxy_loses_the_answer_to_a_commit_that_happened(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy, through(proxy, postgres) as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE made ()")
        proxy.lose_answer_to(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT")
    assert has_table(postgres, "made")


def test_proxy_answers_503_and_the_client_retries(moto_s3: MotoS3, duck: Duck) -> None:
    moto_s3.create_bucket("busy")
    with FaultProxy(moto_s3.host, moto_s3.port) as proxy:
        connection = duck("httpfs")
        connection.execute(s3_secret(moto_s3, f"127.0.0.1:{proxy.port}"))
        proxy.answer_503(times=2)
        connection.execute("COPY (SELECT i FROM range(100) AS r(i)) TO 's3://busy/a.parquet'")
        assert proxy.answers_503 == 2
        assert connection.sql("SELECT count(*) FROM 's3://busy/a.parquet'").fetchone() == (100,)

        proxy.answer_503()
        with pytest.raises(duckdb.HTTPException, match="503"):
            connection.execute("COPY (SELECT 1 AS i) TO 's3://busy/b.parquet'")
        assert moto_s3.list_keys("busy") == ["a.parquet"]


def test_proxy_closes_all_connections(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.host, postgres.port) as proxy:
        [thread] = [thread for thread in threading.enumerate() if thread.name == "fault-proxy"]
        connection = through(proxy, postgres)
        proxy.delay(60)
        port = proxy.port
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert not thread.is_alive()
    assert not accepts_connections(port)


def test_small_disk_runs_full(tmp_path: Path) -> None:
    try:
        with small_disk(1 << 20, tmp_path / "disk") as folder:
            (folder / "fits").write_bytes(bytes(1 << 19))
            with pytest.raises(OSError, match="No space") as failure:
                (folder / "does not fit").write_bytes(bytes(1 << 20))
            assert failure.value.errno == errno.ENOSPC
    except ServerUnavailable as error:
        if os.environ.get("REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(error))
    assert list((tmp_path / "disk").iterdir()) == []


def test_limited_files_do_not_grow(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'wb', buffering=0).write(bytes(4097)) == 4096 or sys.exit('grew')"
    again = "; open(sys.argv[1], 'ab', buffering=0).write(b'x')"
    done = subprocess.run(
        [sys.executable, "-c", code + again, tmp_path / "file"],
        preexec_fn=partial(limit_file_size, 4096),
        capture_output=True,
        text=True,
    )
    assert f"[Errno {errno.EFBIG}]" in done.stderr


DIES_AT_MIDDLE = """
import os, signal
print("before", flush=True)
if os.environ["DUCKLAKE_ORCH_FAULT"] == "middle":
    os.kill(os.getpid(), signal.SIGKILL)
print("after")
"""


def test_killed_code_stops_at_the_fault() -> None:
    assert run_until_killed(DIES_AT_MIDDLE, "middle").stdout == "before\n"
    with pytest.raises(AssertionError, match="should die at 'elsewhere', and ended with 0"):
        run_until_killed(DIES_AT_MIDDLE, "elsewhere")


def test_the_error_of_a_server_that_cannot_start_has_its_log(tmp_path: Path) -> None:
    process = ServerProcess([sys.executable, "-c", "raise SystemExit('no such flag')"], tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)exit code 1.*no such flag"):
        process.wait_until(lambda: False)


def through(proxy: FaultProxy, server: PostgresServer) -> psycopg.Connection:
    url = server.url("postgres").replace(f":{server.port}/", f":{proxy.port}/")
    return psycopg.connect(url, autocommit=True)


def has_table(server: PostgresServer, name: str) -> bool:
    with server.connect() as connection:
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone() == (True,)
