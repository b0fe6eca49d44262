"""Dagster config models of a lake: strict fields, values from environment variables, and hidden secrets."""

import os
from collections.abc import Mapping
from typing import Any, Literal, Self

import dagster as dg
from pydantic import BaseModel, Field

from ducklake_orch.config import lake
from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.model import Model, is_secret
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.errors import ConfigError

# The launchpad shows this text in place of a secret. A run launched with it would connect with it as the password.
HIDDEN = "********"
_MODELS: list[type[Model]] = [*CATALOGS.types.values(), *STORAGES.types.values(), lake.RetryPolicy, lake.PoolPolicy]
_BY_NAME = {model.__name__: model for model in _MODELS}


class Strict(BaseModel):
    """A Dagster model that refuses unknown arguments, which Dagster would ignore."""

    def __init__(self, **data: Any) -> None:
        fields = type(self).model_fields
        # Dagster passes names of fields, users pass their aliases.
        given = [name for name in data if name not in fields]
        refuse_unknown(type(self).__name__, given, (field.alias or name for name, field in fields.items()))
        super().__init__(**data)


class Resource(Strict):
    """A Dagster resource that is copied as it is if nothing in it changes.

    Dagster copies each resource of a run three times, and derives the schema of its configuration anew each time. For
    a lake, whose schema has every catalog and storage, that takes longer than opening the lake.
    """

    def _with_updated_values(self, values: Mapping[str, Any] | None) -> Self:
        if all(getattr(self, name, None) is value for name, value in (values or {}).items()):
            return self.model_copy()
        return super()._with_updated_values(values)  # type: ignore[misc, no-any-return]  # a sibling's method


class Part(Strict, dg.Config):
    """A part of a lake's configuration.

    Its fields, their descriptions and which of them are secret are those of the model of the same name in
    `ducklake_orch`. That model checks the values once they are known: while definitions load, a field can still be the
    name of an environment variable. The types are therefore those that a variable can have.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if cls.__name__ in _BY_NAME:
            describe(cls, _BY_NAME[cls.__name__])

    def fields(self) -> dict[str, Any]:
        """Return the given fields in the form that the `ducklake_orch` models take."""
        return given(self)


def describe(model: type[BaseModel], core: type[Model]) -> None:
    """Give the fields of a Dagster model the descriptions of the `ducklake_orch` model, and hide its secrets."""
    for name, field in model.model_fields.items():
        if (known := core.model_fields.get(name)) is not None:
            field.description = field.description or known.description
            field.repr = field.repr and not is_secret(known.annotation)


def given(model: dg.Config, *skipped: str) -> dict[str, Any]:
    """Return the fields of a model that have a value."""
    names = [name for name in type(model).model_fields if name not in skipped]
    found = {name: value for name in names if (value := getattr(model, name)) is not None}
    return {name: _resolved(name, value) for name, value in found.items()}


def _resolved(field: str, value: Any) -> Any:
    if isinstance(value, Part):
        return value.fields()
    if isinstance(value, Mapping) and set(value) == {"env"}:
        # Dagster resolves variables only in fields whose type it knows, not inside a `dict[str, Any]`.
        if (text := os.environ.get(value["env"])) is None:
            raise ConfigError(f"`{field}`: the environment variable `{value['env']}` is not set.")
        return text
    if isinstance(value, Mapping):
        return {key: _resolved(f"{field}.{key}", item) for key, item in value.items()}
    if value == HIDDEN:
        raise ConfigError(
            f"`{field}` is {HIDDEN}, which a form shows in place of a secret.",
            remedy="Write the secret as an EnvVar, in run config as {env: NAME}.",
        )
    return value


class RetryPolicy(Part):
    """Attempts at a transient failure, and the waits between them."""

    max_attempts: int | None = None
    max_seconds: float | None = None
    base_ms: float | None = None
    jitter: bool | None = None


class PoolPolicy(Part):
    """How many connections to a server catalog one process keeps."""

    size: int | None = None
    idle: str | None = None
    wait: str | None = None


class SQLiteCatalog(Part):
    """A SQLite file: the embedded default, shared by many processes of one machine."""

    type: Literal["sqlite"] = "sqlite"
    path: str
    busy_timeout: int | None = None


class DuckDBCatalog(Part):
    """A DuckDB file: one process at a time; ducklake-orch queues the others."""

    type: Literal["duckdb"] = "duckdb"
    path: str


class _Server(Part):
    """The fields that server catalogs share."""

    host: str | None = None
    port: int | None = None
    database: str | None = None
    user: str | None = None
    password: str | None = None
    secret_name: str | None = None


class PostgresCatalog(_Server):
    """A schema in a PostgreSQL database: any number of machines."""

    type: Literal["postgres"] = "postgres"
    sslmode: str | None = None
    service: str | None = None
    options: str | None = None
    parameters: dict[str, str] | None = None


class MySQLCatalog(_Server):
    """A MySQL or MariaDB database."""

    type: Literal["mysql"] = "mysql"
    ssl_mode: str | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None


class MotherDuckCatalog(Part):
    """A DuckLake database at MotherDuck: managed, on your own bucket, or with your own compute too."""

    type: Literal["motherduck"] = "motherduck"
    database: str
    token: str | None = None
    mode: str | None = None
    region: str | None = None
    secret_name: str | None = None


class UrlCatalog(Part):
    """A catalog given by its URL."""

    type: Literal["url"] = "url"
    url: str = Field(
        description="For example `sqlite:///lake.sqlite` or `postgresql://user:password@host/database`.", repr=False
    )


class LocalStorage(Part):
    """A folder that every machine of the lake sees under the same path."""

    type: Literal["local"] = "local"
    path: str


class _ObjectStore(Part):
    """The fields that object stores share."""

    prefix: str | None = None
    scope: str | None = None
    secret_name: str | None = None
    secret_parameters: dict[str, str] | None = None


class _Bucket(_ObjectStore):
    """The fields of a bucket at an S3-compatible endpoint, which need not be Amazon's."""

    bucket: str
    region: str | None = None
    endpoint: str | None = None
    url_style: str | None = None
    use_ssl: bool | None = None


class S3Storage(_Bucket):
    """A bucket at Amazon S3 or anything that speaks its protocol."""

    type: Literal["s3"] = "s3"
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    provider: str | None = None


class R2Storage(_Bucket):
    """A bucket at Cloudflare R2."""

    type: Literal["r2"] = "r2"
    account_id: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    provider: str | None = None


class GCSStorage(_Bucket):
    """A bucket at Google Cloud Storage, through its S3-compatible interface."""

    type: Literal["gcs"] = "gcs"
    key_id: str | None = None
    secret: str | None = None
    provider: str | None = None


class AzureStorage(_ObjectStore):
    """A container at Azure Blob Storage or Data Lake Storage Gen2."""

    type: Literal["azure"] = "azure"
    container: str
    account_name: str | None = None
    account_key: str | None = None
    connection_string: str | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    endpoint_suffix: str | None = None
    provider: str | None = None


class UrlStorage(Part):
    """A storage given by its URL."""

    type: Literal["url"] = "url"
    url: str = Field(description="A folder or, for example, `s3://bucket/prefix`.", repr=False)


class DefaultStorage(Part):
    """No storage is configured: `./<name>.files` in the working directory, or storage that MotherDuck manages."""

    type: Literal["default"] = "default"


AnyCatalog = SQLiteCatalog | DuckDBCatalog | PostgresCatalog | MySQLCatalog | MotherDuckCatalog | UrlCatalog
AnyStorage = LocalStorage | S3Storage | R2Storage | GCSStorage | AzureStorage | UrlStorage | DefaultStorage
