"""All supported catalogs and storages as data. A test names its capabilities and runs on all that have them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.azure import AzuriteServer
from tests.servers.base import Server
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import MotoS3, VersityS3


@dataclass(frozen=True)
class CatalogKind:
    """A catalog database and its capabilities.

    Attributes:
        name: The catalog's `type` in the configuration.
        server: The test server that provides it.
        sql_writes: Whether the engine's own SQL can insert and update repeatedly.
        sql_comments: Whether the engine's COMMENT ON works, and nested columns in tables that inline.
        shared: Whether several connections can be open at the same time.
        pooled: Whether connections stay open between uses.
    """

    name: str
    server: type[Server] | None = None
    sql_writes: bool = True
    sql_comments: bool = True
    shared: bool = True
    pooled: bool = False


@dataclass(frozen=True)
class StorageKind:
    """A storage for data files, and the test server that provides it."""

    name: str
    server: type[Server] | None = None


@dataclass(frozen=True)
class Backend:
    """A catalog with a storage."""

    catalog: CatalogKind
    storage: StorageKind

    def __str__(self) -> str:
        return f"{self.catalog.name}-{self.storage.name}"


DUCKDB = CatalogKind("duckdb", shared=False)
SQLITE = CatalogKind("sqlite")
POSTGRES = CatalogKind("postgres", PostgresServer, pooled=True)
MYSQL = CatalogKind("mysql", MariaDBServer, sql_writes=False, sql_comments=False, pooled=True)
CATALOGS = [SQLITE, DUCKDB, POSTGRES, MYSQL]

LOCAL = StorageKind("local")
S3_MEMORY = StorageKind("s3-memory", MotoS3)
S3_DISK = StorageKind("s3-disk", VersityS3)
GCS = StorageKind("gcs", VersityS3)
R2 = StorageKind("r2", VersityS3)
AZURE = StorageKind("azure", AzuriteServer)
STORAGES = [LOCAL, S3_MEMORY, S3_DISK, GCS, R2, AZURE]

on_sqlite = pytest.mark.parametrize("backend", [pytest.param(Backend(SQLITE, LOCAL), id="sqlite")], indirect=True)
CROSS = [Backend(catalog, storage) for catalog in CATALOGS for storage in STORAGES]


def in_every_run(backend: Backend) -> bool:
    """Return whether `make test` runs a backend: every catalog on local storage, every storage on Postgres."""
    return backend.storage is LOCAL or backend.catalog is POSTGRES


def backends(**needs: Any) -> pytest.MarkDecorator:
    """Parametrize a test over the backends whose catalog has the needed capabilities (`sql_writes=True`)."""
    return _parametrize([backend for backend in CROSS if _has(backend.catalog, needs)])


def catalogs(*, quick: Sequence[CatalogKind] = (), **needs: Any) -> pytest.MarkDecorator:
    """Parametrize a test over the catalogs alone, on local storage.

    Args:
        quick: The catalogs that `make test` runs, for a slow test; by default all.
        **needs: The capabilities that the catalog must have.
    """
    return _parametrize([Backend(catalog, LOCAL) for catalog in CATALOGS if _has(catalog, needs)], quick or CATALOGS)


def _has(catalog: CatalogKind, needs: dict[str, Any]) -> bool:
    return all(getattr(catalog, name) == value for name, value in needs.items())


def _parametrize(chosen: list[Backend], quick: Sequence[CatalogKind] = CATALOGS) -> pytest.MarkDecorator:
    params = [
        pytest.param(
            backend,
            id=str(backend),
            marks=() if in_every_run(backend) and backend.catalog in quick else pytest.mark.full,
        )
        for backend in chosen
    ]
    return pytest.mark.parametrize("backend", params, indirect=True)
