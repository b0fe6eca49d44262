"""Dagster config models of the databases that can hold a lake's metadata."""

from typing import Literal

from pydantic import Field

from ducklake_orch.dagster.configuration import Part


class _File(Part):
    """The fields that file catalogs share."""

    path: str = Field(
        description="Path of the catalog file; relative ones count from the working directory, or the TOML file."
    )


class SQLiteCatalog(_File):
    """A SQLite file: the embedded default, shared by many processes of one machine."""

    type: Literal["sqlite"] = "sqlite"
    busy_timeout: int | None = Field(default=None, description="How long SQLite waits for a lock; in ms.")


class DuckDBCatalog(_File):
    """A DuckDB file: one process at a time; ducklake-orch queues the others."""

    type: Literal["duckdb"] = "duckdb"


class _Server(Part):
    """The fields that server catalogs share."""

    host: str | None = Field(default=None, description="Host name, or the folder of the server's Unix socket.")
    port: int | None = Field(default=None, description="Port of the server.")
    database: str | None = Field(default=None, description="Database that holds the lake's tables.")
    user: str | None = Field(default=None, description="User to connect as.")
    password: str | None = Field(default=None, description="Password of the user.", repr=False)
    secret_name: str | None = Field(default=None, description="A DuckDB secret that is already there.")


class PostgresCatalog(_Server):
    """A schema in a PostgreSQL database: any number of machines."""

    type: Literal["postgres"] = "postgres"
    sslmode: str | None = Field(default=None, description="How the connection is encrypted.")
    service: str | None = Field(default=None, description="Entry of the pg_service.conf file.")
    options: str | None = Field(default=None, description="Command-line options for the server, as libpq takes them.")
    parameters: dict[str, str] | None = Field(default=None, description="Further libpq parameters, `sslrootcert` say.")


class MySQLCatalog(_Server):
    """A MySQL or MariaDB database."""

    type: Literal["mysql"] = "mysql"
    ssl_mode: str | None = Field(default=None, description="How the connection is encrypted.")


class MotherDuckCatalog(Part):
    """A DuckLake database at MotherDuck: managed, on your own bucket, or with your own compute too."""

    type: Literal["motherduck"] = "motherduck"
    database: str = Field(description="Name of the database at MotherDuck.")
    token: str | None = Field(default=None, description="Access token; else MotherDuck's own variable.", repr=False)
    mode: str | None = Field(
        default=None,
        description="Who stores and who computes: MotherDuck both, your bucket, or your bucket and this process.",
    )
    region: str | None = Field(default=None, description="Region of the MotherDuck organisation, `us-east-1` say.")
    secret_name: str | None = Field(default=None, description="A secret at MotherDuck that reaches the bucket.")


class UrlCatalog(Part):
    """A catalog given by its URL."""

    type: Literal["url"] = "url"
    url: str = Field(
        description="`sqlite:///lake.sqlite` or `postgresql://user:password@host/database`, say.", repr=False
    )


AnyCatalog = SQLiteCatalog | DuckDBCatalog | PostgresCatalog | MySQLCatalog | MotherDuckCatalog | UrlCatalog
