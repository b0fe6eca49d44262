"""The SQL databases that can hold a lake's metadata."""

from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from ducklake_orch.config.fields import HomePath, Milliseconds
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.redaction import SECRET_WORD
from ducklake_orch.config.tables import Family, Parameters, UrlModel
from ducklake_orch.config.urls import (
    build_url,
    file_path,
    parse_query,
    refuse_unknown,
    split_url,
)

# Further libpq parameters besides the fields of `PostgresCatalog`, passed on in the connection string.
LIBPQ_PARAMETERS = (
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "gssencmode",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "passfile",
    "require_auth",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
)
# Fields of `MySQLCatalog` that name files.
SSL_FILES = ("ssl_ca", "ssl_cert", "ssl_key")


class FileCatalog(UrlModel):
    """A catalog in one file: attached only while it is used, so that many processes can share it."""

    is_file: ClassVar[bool] = True
    needs_storage: ClassVar[bool] = True
    scheme: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]] = ()

    path: HomePath = Field(
        description="Path of the catalog file; relative to the working directory, or to the TOML file."
    )

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form. A file catalog has no secrets to reveal."""
        return f"{self.scheme}:///{quote(str(self.path))}"

    @model_validator(mode="after")
    def _names_a_file(self) -> Self:
        if not self.path.name or str(self.path).endswith("/"):
            raise ValueError(f"`{self.path}` names no file")
        return self


class DuckDBCatalog(FileCatalog):
    """A DuckDB file: one process at a time; this package queues the others."""

    scheme: ClassVar[str] = "duckdb"
    type: Literal["duckdb"] = Field(default="duckdb", description="Kind of the catalog.")

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `duckdb:///relative.ducklake` or `duckdb:////absolute.ducklake`."""
        path, query = file_path(url, "DuckDB")
        refuse_unknown(url, query, ())
        return {"path": path}


class SQLiteCatalog(FileCatalog):
    """A SQLite file: the embedded default, shared by many processes of one machine."""

    scheme: ClassVar[str] = "sqlite"
    extensions: ClassVar[tuple[str, ...]] = ("sqlite_scanner",)
    type: Literal["sqlite"] = Field(default="sqlite", description="Kind of the catalog.")
    busy_timeout: Milliseconds = Field(
        default=30_000, ge=0, description="How long SQLite waits for a lock, in milliseconds."
    )

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `sqlite:///relative.sqlite` or `sqlite:////absolute.sqlite`."""
        path, query = file_path(url, "SQLite")
        refuse_unknown(url, query, {"busy_timeout"})
        return {"path": path, **query}

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form."""
        changed = self.busy_timeout != type(self).model_fields["busy_timeout"].default
        return super().to_url() + (f"?busy_timeout={self.busy_timeout}" if changed else "")


class ServerCatalog(UrlModel):
    """A catalog on a database server."""

    is_file: ClassVar[bool] = False
    needs_storage: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = ()

    host: str | None = Field(default=None, description="Host name, or the folder of the server's Unix socket.")
    port: int | None = Field(default=None, ge=1, le=65535, description="Port of the server.")
    database: str | None = Field(default=None, description="Database that holds the lake's tables.")
    user: str | None = Field(default=None, description="User to connect as.")
    password: SecretStr | None = Field(default=None, description="Password of the user.")
    secret_name: str | None = Field(default=None, description="Name of an existing DuckDB secret.")

    @model_validator(mode="after")
    def _one_source_of_credentials(self) -> Self:
        given = [f for f in ("host", "port", "database", "user", "password") if getattr(self, f) is not None]
        if self.secret_name and given:
            raise ValueError(f"`secret_name` and {', '.join(f'`{f}`' for f in given)} exclude each other: give one")
        return self


class PostgresCatalog(ServerCatalog):
    """A schema in a PostgreSQL database: any number of machines."""

    extensions: ClassVar[tuple[str, ...]] = ("postgres_scanner",)
    type: Literal["postgres"] = Field(default="postgres", description="Kind of the catalog.")
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        default=None, description="How the connection is encrypted."
    )
    service: str | None = Field(default=None, description="Entry of the pg_service.conf file.")
    options: str | None = Field(default=None, description="Command-line options for the server, as libpq takes them.")
    parameters: Parameters = Field(default_factory=dict, description="Further libpq parameters, such as `sslrootcert`.")

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        if self.options and SECRET_WORD.search(self.options):
            raise ValueError(
                "`options` holds a password or token, which would be shown: use the field `password`, or `ALTER ROLE …"
                " SET` for a setting of the server"
            )
        for key in self.parameters:
            if key not in LIBPQ_PARAMETERS:
                raise ValueError(f"unknown libpq parameter `{key}`. {nearest(key, LIBPQ_PARAMETERS)}")
        return self

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `postgresql://user:password@host:port/database?sslmode=…`, or with the host in the query."""
        parts = split_url(url, raw_password=True)
        fields = {"host", "port", "user", "password", "dbname", "sslmode", "service", "options", "secret_name"}
        refuse_unknown(url, parts.query, fields | set(LIBPQ_PARAMETERS))
        query = dict(parts.query)
        parameters = {key: query.pop(key) for key in list(query) if key in LIBPQ_PARAMETERS}
        query = {"database" if key == "dbname" else key: value for key, value in query.items()}
        return parts.login_fields() | query | ({"parameters": parameters} if parameters else {})

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form, with secrets only when `reveal` is set."""
        folder = self.host is not None and self.host.startswith("/")
        query = {"host": self.host if folder else None, "sslmode": self.sslmode, "service": self.service}
        query |= {"options": self.options, "secret_name": self.secret_name, **self.parameters}
        return build_url(
            "postgresql",
            host="" if folder else self.host or "",
            port=self.port,
            user=self.user,
            password=self.password,
            path=self.database or "",
            query=query,
            reveal=reveal,
        )


class MySQLCatalog(ServerCatalog):
    """A MySQL or MariaDB database."""

    extensions: ClassVar[tuple[str, ...]] = ("mysql_scanner",)
    type: Literal["mysql"] = Field(default="mysql", description="Kind of the catalog.")
    ssl_mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = Field(
        default=None, description="How the connection is encrypted, and what of the server's certificate is verified."
    )
    ssl_ca: HomePath | None = Field(
        default=None, description="File of the certificate authority that the server's certificate must come from."
    )
    ssl_cert: HomePath | None = Field(default=None, description="File of the client's certificate; needs `ssl_key`.")
    ssl_key: HomePath | None = Field(default=None, description="File of the private key of `ssl_cert`.")

    @model_validator(mode="after")
    def _certificates_fit(self) -> Self:
        files = {name: getattr(self, name) for name in SSL_FILES}
        if self.secret_name and (given := [name for name, path in files.items() if path is not None]):
            raise ValueError(f"`secret_name` and `{given[0]}` exclude each other: give one")
        if (self.ssl_cert is None) != (self.ssl_key is None):
            raise ValueError("`ssl_cert` and `ssl_key` belong together: give both")
        if self.ssl_ca is None and not self.secret_name and (self.ssl_mode or "").startswith("verify"):
            raise ValueError(f"`ssl_mode` = `{self.ssl_mode}` needs `ssl_ca`, the certificate authority to trust")
        if self.ssl_mode == "disabled" and any(files.values()):
            raise ValueError("`ssl_mode` = `disabled` uses no certificates: leave out `ssl_ca`, `ssl_cert`, `ssl_key`")
        return self

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `mysql://user:password@host:port/database?ssl_mode=…`."""
        parts = split_url(url, raw_password=True)
        refuse_unknown(url, parts.query, {"ssl_mode", *SSL_FILES, "secret_name", "host"})
        return parts.login_fields() | {k: v.lower() if k == "ssl_mode" else v for k, v in parts.query.items()}

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form, with secrets only when `reveal` is set."""
        folder = self.host is not None and self.host.startswith("/")
        return build_url(
            "mysql",
            host="" if folder else self.host or "",
            port=self.port,
            user=self.user,
            password=self.password,
            path=self.database or "",
            query={
                "host": self.host if folder else None,
                "ssl_mode": self.ssl_mode,
                **{name: None if (path := getattr(self, name)) is None else str(path) for name in SSL_FILES},
                "secret_name": self.secret_name,
            },
            reveal=reveal,
        )


class MotherDuckCatalog(UrlModel):
    """A DuckLake database at MotherDuck: managed, on your own bucket, or with your own compute too."""

    is_file: ClassVar[bool] = False
    needs_storage: ClassVar[bool] = False  # MotherDuck may keep the files itself
    extensions: ClassVar[tuple[str, ...]] = ("motherduck",)
    type: Literal["motherduck"] = Field(default="motherduck", description="Kind of the catalog.")
    database: str = Field(min_length=1, description="Name of the database at MotherDuck.")
    token: SecretStr | None = Field(default=None, description="Access token; default is MotherDuck's own variable.")
    mode: Literal["managed", "own_bucket", "own_compute"] = Field(
        default="managed",
        description="`managed`: MotherDuck stores and computes; `own_bucket`: your bucket, MotherDuck computes;"
        " `own_compute`: your bucket, this process computes.",
    )
    region: str | None = Field(default=None, description="Region of the MotherDuck organisation, such as `us-east-1`.")
    secret_name: str | None = Field(default=None, description="Secret at MotherDuck that gives access to the bucket.")

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `md:database`, `md:///database` or `motherduck:database`."""
        rest = url.partition(":")[2].lstrip("/")
        name, _, tail = rest.partition("?")
        query = parse_query(url, tail)
        refuse_unknown(url, query, {"token", "motherduck_token", "mode", "region", "secret_name"})
        token = query.pop("motherduck_token", None)
        return {"database": unquote(name), **query} | ({"token": token} if token else {})

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form, with secrets only when `reveal` is set."""
        query = {"mode": self.mode, "region": self.region, "secret_name": self.secret_name, "token": self.token}
        if self.mode == "managed":
            del query["mode"]
        return build_url("md", path=self.database, query=query, reveal=reveal)


CATALOGS = Family(
    "catalog",
    types={
        "duckdb": DuckDBCatalog,
        "sqlite": SQLiteCatalog,
        "postgres": PostgresCatalog,
        "mysql": MySQLCatalog,
        "motherduck": MotherDuckCatalog,
    },
    schemes={
        "duckdb": DuckDBCatalog,
        "sqlite": SQLiteCatalog,
        "postgresql": PostgresCatalog,
        "postgres": PostgresCatalog,
        "mysql": MySQLCatalog,
        "mariadb": MySQLCatalog,
        "md": MotherDuckCatalog,
        "motherduck": MotherDuckCatalog,
    },
    has_drivers=True,
)
Catalog = Annotated[
    Annotated[
        DuckDBCatalog | SQLiteCatalog | PostgresCatalog | MySQLCatalog | MotherDuckCatalog,
        Field(discriminator="type"),
    ],
    BeforeValidator(CATALOGS.read),
]
