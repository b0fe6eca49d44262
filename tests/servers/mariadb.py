"""MariaDB from the distribution's binaries, as the test server for MySQL."""

import os
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pymysql
from pymysql.constants import ER

from tests.servers.base import LOOPBACK, Server, ServerProcess, free_port


class MariaDBServer(Server):
    """One MariaDB server. Its administrator has all privileges and logs in over TCP with a password."""

    name = "mariadb"
    how = "make servers"
    user = "tester"
    password = "secret"

    def __init__(self, process: ServerProcess, port: int) -> None:
        self._process = process
        self.host = LOOPBACK
        self.port = port

    @classmethod
    def start(cls, folder: Path) -> Self:
        install = cls.find_program("mariadb-install-db")
        program = cls.find_program("mariadbd")
        data = folder / "data"
        data.mkdir(parents=True)
        # MariaDB runs as root only with this option. Another user would need rights on the folder.
        common = [f"--datadir={data}", *(["--user=root"] if os.geteuid() == 0 else [])]
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        installed = subprocess.run([install, "--no-defaults", *common, *options], capture_output=True, text=True)
        if installed.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed:\n{installed.stdout}\n{installed.stderr}")
        first_statements = folder / "init.sql"
        first_statements.write_text(
            f"CREATE USER {cls.user}@'%' IDENTIFIED BY '{cls.password}';\n"
            f"GRANT ALL ON *.* TO {cls.user}@'%' WITH GRANT OPTION;\n"
        )
        port = free_port()
        process = ServerProcess(
            [
                program,
                "--no-defaults",
                *common,
                f"--port={port}",
                # The default is /tmp, where a starting server removes the temporary tables of running servers.
                f"--tmpdir={data}",
                f"--bind-address={LOOPBACK}",
                # Relative to the data folder: a socket path is limited to 108 bytes, and pytest's paths are long.
                "--socket=server.sock",
                # Without host names, every client is '127.0.0.1', which matches users of '%' and never 'localhost'.
                "--skip-name-resolve",
                f"--init-file={first_statements}",
                "--max-connections=200",
                # So that a wait for a lock of a killed client ends, which the time limit of a test cannot interrupt.
                "--lock-wait-timeout=300",
                # Tests kill clients and never the machine, so durability would only cost time.
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=64M",
                # Listing the columns of one database makes MariaDB open every table of the server, from disk unless
                # its definition is in this cache. DuckDB lists them at each connection.
                "--table-definition-cache=20000",
                *cls.more_options(folder),
            ],
            folder,
        )
        server = cls(process, port)
        process.wait_until(server._answers)
        return server

    @classmethod
    def more_options(cls, folder: Path) -> list[str]:
        """Return further options of the server, whose files are in `folder`."""
        return []

    def stop(self) -> None:
        self._process.stop()

    def create_database(self, name: str) -> None:
        # The default of MySQL 8. MariaDB's default is Latin-1, which cannot store most texts.
        self._run(f"CREATE DATABASE `{name.replace('`', '``')}` CHARACTER SET utf8mb4")

    def drop_database(self, name: str) -> None:
        """Drop the database. Leave it if a killed client still holds a lock on it, which does no harm."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            try:
                cursor.execute(f"DROP DATABASE `{name.replace('`', '``')}`")
            except pymysql.OperationalError as error:
                if error.args[0] != ER.LOCK_WAIT_TIMEOUT:
                    raise

    def create_role(self, user: str, password: str, *, superuser: bool = False) -> None:
        """Create a user. Without `superuser` it gets only the privileges on data, in every database."""
        self._run("CREATE USER %s@'%%' IDENTIFIED BY %s", user, password)
        rights = "ALL" if superuser else "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX"
        self._run(f"GRANT {rights} ON *.* TO %s@'%%'", user)

    def kill_connections(self, database: str) -> None:
        """End every connection to the database, as an administrator or a failover would."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (database,))
            for (connection_id,) in cursor.fetchall():
                try:
                    cursor.execute(f"KILL CONNECTION {connection_id}")
                except pymysql.OperationalError as error:
                    if error.args[0] != ER.NO_SUCH_THREAD:  # the connection ended by itself
                        raise

    def url(self, database: str, user: str | None = None, password: str | None = None) -> str:
        """Return the TCP address; without a user it is that of the administrator."""
        login = (self.user, self.password) if user is None else (user, password or "")
        return f"mysql://{':'.join(map(_escaped, login))}@{self.host}:{self.port}/{_escaped(database)}"

    def connect(self, database: str | None = None) -> "pymysql.Connection[Any]":
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            autocommit=True,
        )

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.OperationalError:
            return False
        return True

    def _run(self, statement: str, *values: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)


def _escaped(part: str) -> str:
    return quote(part, safe="")
