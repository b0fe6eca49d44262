"""Where a simulation has its lake: a catalog that returns to its first state before each run."""

import importlib
import os
import pkgutil
import shutil
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401

import ducklake_orch.catalog
import ducklake_orch.engine
import ducklake_orch.maintenance
from ducklake_orch import DuckLake, LakeConfig
from ducklake_orch.engine.extensions import open_database
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.simulation.late_commits import LateCommits
from tests.simulation.operations import FIRST_ROWS
from tests.support.random_verbs import TABLES, frame

T = TypeVar("T")
Create = Callable[[LakeConfig], None]
_DATABASE, _TEMPLATE = "lake", "template"


class Place(Protocol):
    """A catalog and a storage.

    Attributes:
        has_engine: Whether another program can change tables by the extension's own SQL meanwhile.
        has_clock: Whether the catalog has a clock of its own, so that those of the workers may be wrong.
    """

    config: LakeConfig
    has_engine: bool
    has_clock: bool

    @property
    def late(self) -> LateCommits | None:
        """Holds back a COMMIT to the server, if there is one."""
        ...

    @property
    def drop(self) -> Callable[[], None] | None:
        """Ends all connections to the server, if there is one."""
        ...

    def reset(self) -> None:
        """Return the lake to its first state."""
        ...

    def stop(self) -> None:
        """Stop the server."""
        ...


class _Files:
    """A lake whose catalog is a file. Its folder is copied back."""

    drop = late = None
    has_clock = False  # all workers are on one host

    def __init__(self, folder: Path, kind: str, create: Create) -> None:
        self._lake, self._first = folder / "lake", folder / "first"
        self._lake.mkdir()
        self.has_engine = kind == "sqlite"  # a second process cannot open a DuckDB file
        self.config = _configure({"type": kind, "path": self._lake / "catalog"}, self._lake)
        in_child(lambda: create(self.config))
        self._lake.rename(self._first)

    def reset(self) -> None:
        shutil.rmtree(self._lake, ignore_errors=True)
        shutil.copytree(self._first, self._lake)

    def stop(self) -> None:
        """Do nothing: there is no server."""


class _Postgres:
    """A lake in PostgreSQL. Its database is created again from a template."""

    has_engine = has_clock = True

    def __init__(self, folder: Path, create: Create) -> None:
        self._server = PostgresServer.start(folder / "server")
        self._server.create_database(_DATABASE)
        self._files, self._first = folder / "lake", folder / "first"
        self.late = LateCommits(self._server.host, self._server.port)
        self.config = _configure(_through(self.late, self._server), self._files)
        in_child(lambda: create(self.config))
        self._files.rename(self._first)
        self._run(f"CREATE DATABASE {_TEMPLATE} TEMPLATE {_DATABASE}")

    def reset(self) -> None:
        shutil.rmtree(self._files, ignore_errors=True)
        shutil.copytree(self._first, self._files)
        self._run(f"DROP DATABASE {_DATABASE} WITH (FORCE)")
        self._run(f"CREATE DATABASE {_DATABASE} TEMPLATE {_TEMPLATE}")

    def drop(self) -> None:
        """End all connections to the lake's database."""
        self._server.terminate_backends(_DATABASE)

    def stop(self) -> None:
        self.late.stop()
        self._server.stop()

    def _run(self, statement: Any) -> None:
        with self._server.connect() as con:
            con.autocommit = True
            con.execute(statement)


class _MySQL:
    """A lake in MariaDB, which is created again. The extension cannot insert into its tables."""

    has_engine = False
    has_clock = False  # with libfaketime, the client of MariaDB cannot connect

    def __init__(self, folder: Path, create: Create) -> None:
        self._create = create
        self._server = MariaDBServer.start(folder / "server")
        self._files = folder / "lake"
        self._server.create_database(_DATABASE)
        self.late = LateCommits(self._server.host, self._server.port)
        self.config = _configure(_through(self.late, self._server), self._files)

    def reset(self) -> None:
        shutil.rmtree(self._files, ignore_errors=True)
        self._server.drop_database(_DATABASE)
        self._server.create_database(_DATABASE)
        in_child(lambda: self._create(self.config))

    def drop(self) -> None:
        """End all connections to the lake's database."""
        self._server.kill_connections(_DATABASE)

    def stop(self) -> None:
        self.late.stop()
        self._server.stop()


def _through(proxy: LateCommits, server: PostgresServer | MariaDBServer) -> str:
    return server.url(_DATABASE).replace(f":{server.port}/", f":{proxy.port}/")


def create_tables(config: LakeConfig) -> None:
    """Create a lake with the first rows in each table."""
    lake = DuckLake(config)
    for table in TABLES:
        lake.write(frame(FIRST_ROWS), table, mode="error", partition_by=["p"], inline="never")


def open_place(kind: str, folder: Path, create: Create = create_tables) -> Place:
    """Return a place for lakes whose catalog is of a kind.

    Args:
        kind: The type of the catalog.
        folder: An empty folder.
        create: Creates the lake to which the place returns.

    Raises:
        ServerUnavailable: When the server is not installed.
    """
    kinds: dict[str, Callable[[], Place]] = {
        "postgres": lambda: _Postgres(folder, create),
        "mysql": lambda: _MySQL(folder, create),
    }
    place = kinds.get(kind, lambda: _Files(folder, kind, create))()
    # Forked workers share what is loaded here; each of them would need a second for it.
    open_database(place.config.required_extensions, {}).close()
    for package in (ducklake_orch.catalog, ducklake_orch.engine, ducklake_orch.maintenance):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return place


def in_child(work: Callable[[], T]) -> T:
    """Return what work returns in a forked child: a process that forks workers must have no open engine itself."""
    ours, theirs = Pipe()
    child = os.fork()
    if child == 0:
        try:
            theirs.send(work())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    theirs.close()
    try:
        result: T = ours.recv()
    except EOFError:
        raise AssertionError("the child failed; its error is in the output") from None
    finally:
        os.waitpid(child, 0)
    return result


def _configure(catalog: Any, folder: Path) -> LakeConfig:
    storage = {"type": "local", "path": folder / "files"}
    return DuckLake.from_url("lake", catalog=catalog, storage=storage, create_if_missing=True, threads=1).config
