"""The SQL that opens a lake, as text: what connecting runs, and its preview with secrets masked. Needs no engine."""

from datetime import datetime
from typing import Any, NamedTuple

from pydantic import SecretStr

from ducklake_orch.config.catalogs import (
    DuckDBCatalog,
    MotherDuckCatalog,
    MySQLCatalog,
    PostgresCatalog,
    SQLiteCatalog,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.redaction import MASK
from ducklake_orch.config.storages import (
    AzureStorage,
    BucketStorage,
    GCSStorage,
    R2Storage,
    S3Storage,
)
from ducklake_orch.engine.quoting import conninfo, identifier, literal, options

CATALOG_SECRET = "ducklake_orch_catalog"  # noqa: S105 - a name, not a secret
STORAGE_SECRET = "ducklake_orch_storage"  # noqa: S105
APPLICATION_NAME = "ducklake-orch"


class Pin(NamedTuple):
    """How a connection sees the lake: writable and current, or read-only at some point in time.

    Attributes:
        read_only: Whether the engine refuses writes.
        snapshot: The snapshot that is seen; None for the latest.
        as_of: The time that is seen; None for now.
        reads: Whether the user of the connection only reads, even where it is a writable one: a reader creates no lake.
    """

    read_only: bool = False
    snapshot: int | None = None
    as_of: datetime | None = None
    reads: bool = False

    @property
    def writable(self) -> bool:
        """Whether the connection can write."""
        return not self.read_only and self.snapshot is None and self.as_of is None

    def creates(self, config: LakeConfig) -> bool:
        """Whether a lake that does not exist is created."""
        return config.create_if_missing and self.writable and not self.reads


def preview(config: LakeConfig, pin: Pin, *, reveal: bool = False) -> str:
    """Return every statement that connecting runs, one a line."""
    statements = [f"LOAD {identifier(name)}" for name in config.required_extensions]
    statements += setting_statements(config)
    statements += secret_statements(config, reveal=reveal)
    statements += attach_statements(config, pin, create=config.create_if_missing, reveal=reveal)
    statements.append(f"USE {identifier(config.alias)}")
    return "\n".join(f"{statement};" for statement in statements)


def setting_statements(config: LakeConfig) -> list[str]:
    """Return the settings. UTC is last, fixed, and for all cursors: partition values of timestamps depend on it."""
    statements = [f"SET {identifier(name)} = {literal(value)}" for name, value in config.engine_settings.items()]
    return [*statements, "SET GLOBAL TimeZone = 'UTC'"]


def secret_statements(config: LakeConfig, *, reveal: bool) -> list[str]:
    """Return the CREATE SECRETs for catalog and storage; those that exist already by name need none."""
    catalog = config.catalog
    statements = []
    if isinstance(catalog, PostgresCatalog | MySQLCatalog) and not catalog.secret_name:
        statements.append(_create_secret(CATALOG_SECRET, _server_secret(catalog), reveal))
    if isinstance(catalog, MotherDuckCatalog) and catalog.token:
        statements.append(f"SET motherduck_token = {_shown(catalog.token, reveal)}")
    if not isinstance(catalog, MotherDuckCatalog):
        statements += storage_secret_statements(config, reveal=reveal)
    return statements


def storage_secret_statements(config: LakeConfig, *, reveal: bool) -> list[str]:
    """Return the CREATE SECRET for the storage, which MotherDuck keeps itself; none where it exists already by name."""
    storage = config.storage
    if not isinstance(storage, BucketStorage) or storage.secret_name:
        return []
    return [_create_secret(STORAGE_SECRET, storage_secret(storage), reveal)]


def attach_statements(config: LakeConfig, pin: Pin, *, create: bool, reveal: bool) -> list[str]:
    """Return what attaches the lake under its alias."""
    catalog = config.catalog
    statements: list[str] = []
    if isinstance(catalog, MotherDuckCatalog):
        statements = _motherduck_statements(config, catalog, create, reveal)
        if catalog.mode != "own_compute":
            return statements
    values = _attach_options(config, pin, create)
    path = literal(f"ducklake:{metadata_path(config)}")
    return [*statements, f"ATTACH {path} AS {identifier(config.alias)} {options(values)}".rstrip()]


def metadata_path(config: LakeConfig) -> str:
    """Return what stands behind `ducklake:` in ATTACH; credentials are in the secret, never here."""
    catalog = config.catalog
    match catalog:
        case DuckDBCatalog():
            return str(catalog.path)
        case SQLiteCatalog():
            return f"sqlite:{catalog.path}"
        case PostgresCatalog():
            return f"postgres:{_postgres_conninfo(catalog)}"
        case MySQLCatalog():
            return "mysql:"
        case MotherDuckCatalog():
            return f"md:__ducklake_metadata_{catalog.database}"


def metadata_attach(config: LakeConfig, alias: str, *, read_only: bool) -> str:
    """Return the ATTACH that opens the metadata database itself, under `alias`."""
    catalog, access = config.catalog, {"read_only": True} if read_only else {}
    target = identifier(alias)
    match catalog:
        case DuckDBCatalog():
            return f"ATTACH {literal(str(catalog.path))} AS {target} {options({'type': 'duckdb'} | access)}"
        case SQLiteCatalog():
            return f"ATTACH {literal(str(catalog.path))} AS {target} {options({'type': 'sqlite'} | access)}"
        case PostgresCatalog() | MySQLCatalog():
            secret = {"type": catalog.type, "secret": catalog.secret_name or CATALOG_SECRET}
            path = _postgres_conninfo(catalog) if isinstance(catalog, PostgresCatalog) else ""
            return f"ATTACH {literal(path)} AS {target} {options(secret | access)}"
        case MotherDuckCatalog():
            return f"ATTACH {literal(f'md:__ducklake_metadata_{catalog.database}')} AS {target}"


def _attach_options(config: LakeConfig, pin: Pin, create: bool) -> dict[str, Any]:
    catalog = config.catalog
    values: dict[str, Any] = {"data_path": config.data_path, "metadata_schema": config.metadata_schema}
    if isinstance(catalog, PostgresCatalog | MySQLCatalog):
        values["meta_secret"] = catalog.secret_name or CATALOG_SECRET
    if isinstance(catalog, DuckDBCatalog):
        # Else the engine looks into the file, and for a SQLite one it would fetch an extension.
        values["meta_type"] = "duckdb"
    if isinstance(catalog, SQLiteCatalog):
        # The plain BUSY_TIMEOUT option never reaches the pragma; these two do, and WAL lets readers and a writer meet.
        values["meta_busy_timeout"] = catalog.busy_timeout
        values["meta_journal_mode"] = "WAL" if pin.writable else None
    values["encrypted"] = config.encrypted or None
    values["data_inlining_row_limit"] = config.data_inlining_row_limit
    values["override_data_path"] = config.override_data_path
    values["automatic_migration"] = config.automatic_migration
    values["snapshot_version"] = pin.snapshot
    values["snapshot_time"] = pin.as_of
    values["read_only"] = True if pin.read_only else None
    values["create_if_not_exists"] = None if create and pin.writable else False
    return values | {key.lower(): value for key, value in config.attach_options.items()}


def _postgres_conninfo(catalog: PostgresCatalog) -> str:
    return conninfo(
        {"application_name": APPLICATION_NAME, "service": catalog.service, "sslmode": catalog.sslmode}
        | {"options": catalog.options}
        | catalog.parameters
    )


def _server_secret(catalog: PostgresCatalog | MySQLCatalog) -> dict[str, Any]:
    values: dict[str, Any] = {"type": catalog.type, "host": catalog.host, "port": catalog.port}
    values |= {"database": catalog.database, "user": catalog.user, "password": catalog.password}
    if isinstance(catalog, MySQLCatalog):
        values["ssl_mode"] = catalog.ssl_mode
        if catalog.host and catalog.host.startswith("/"):
            values["host"], values["socket"] = None, catalog.host
    return values


def storage_secret(storage: BucketStorage, *, at_motherduck: bool = False) -> dict[str, Any]:
    """Return the parameters of the secret that reaches a bucket."""
    match storage:
        case S3Storage():
            values = _s3_secret(storage, at_motherduck)
        case R2Storage():
            values = {"type": "r2", "account_id": storage.account_id, "key_id": storage.access_key_id}
            values |= {"secret": storage.secret_access_key, "session_token": storage.session_token}
            values |= _endpoint(storage)
        case GCSStorage():
            chain = storage.provider == "credential_chain"
            values = {"type": "gcs", "provider": "credential_chain" if chain else None}
            values |= {"key_id": storage.key_id, "secret": storage.secret} | _endpoint(storage)
        case AzureStorage():
            values = _azure_secret(storage)
        case _:  # pragma: no cover - the union is closed
            raise TypeError(type(storage).__name__)
    if _fixed_credentials(storage) and not at_motherduck:
        # The engine completes a secret from `AWS_ACCESS_KEY_ID` and its kin, unless each value is there, if only empty.
        values |= {name: values.get(name) or "" for name in ("key_id", "secret", "session_token")}
    # With its closing slash: the engine matches scopes as plain prefixes, and `s3://b` would also cover `s3://b2`.
    return values | {"scope": storage.scope or storage.root_path} | dict(storage.secret_parameters)


def _endpoint(storage: S3Storage | R2Storage | GCSStorage) -> dict[str, Any]:
    # Somebody else's server rarely has a host name for every bucket.
    style = storage.url_style or ("path" if storage.endpoint else None)
    return {
        "region": storage.region,
        "endpoint": storage.endpoint,
        "url_style": style,
        "use_ssl": storage.use_ssl,
    }


def _s3_secret(storage: S3Storage, at_motherduck: bool) -> dict[str, Any]:
    chain = storage.uses_credential_chain
    values: dict[str, Any] = {"type": "s3", "provider": "credential_chain" if chain else None}
    if storage.role_arn:
        values["chain"] = "sts"  # the engine assumes a role through this part of the chain only
    elif storage.profile:
        values["chain"] = "sso" if at_motherduck else "config;sso"
    values |= {"profile": storage.profile, "assume_role_arn": storage.role_arn}
    values |= {"key_id": storage.access_key_id, "secret": storage.secret_access_key}
    return values | {"session_token": storage.session_token} | _endpoint(storage)


def _fixed_credentials(storage: BucketStorage) -> bool:
    """Whether the configuration holds all credentials there are: an `AWS_…` variable of the process is not for them."""
    at_amazon = isinstance(storage, S3Storage) and not storage.access_key_id
    return not (at_amazon or storage.uses_credential_chain or isinstance(storage, AzureStorage))


def _azure_secret(storage: AzureStorage) -> dict[str, Any]:
    values: dict[str, Any] = {"type": "azure"}
    if storage.connection_string:
        return values | {"connection_string": storage.connection_string}
    if storage.account_key:
        parts = [
            "DefaultEndpointsProtocol=https",
            f"AccountName={storage.account_name}",
            f"AccountKey={storage.account_key.get_secret_value()}",
            f"EndpointSuffix={storage.endpoint_suffix}",
        ]
        return values | {"connection_string": SecretStr(";".join(parts))}
    values["account_name"] = storage.account_name
    if storage.client_secret:
        values |= {"provider": "service_principal", "tenant_id": storage.tenant_id, "client_id": storage.client_id}
        return values | {"client_secret": storage.client_secret}
    return values | {"provider": "credential_chain" if storage.provider == "credential_chain" else "config"}


def _create_secret(name: str, values: dict[str, Any], reveal: bool, *, at_motherduck: bool = False) -> str:
    shown = {key: MASK if isinstance(value, SecretStr) and not reveal else value for key, value in values.items()}
    temporary, place = ("", " IN MOTHERDUCK") if at_motherduck else (" TEMPORARY", "")
    return f"CREATE OR REPLACE{temporary} SECRET {identifier(name)}{place} {options(shown)}"


def _shown(secret: SecretStr, reveal: bool) -> str:
    return literal(secret) if reveal else literal(MASK)


def _motherduck_secret(config: LakeConfig, catalog: MotherDuckCatalog, reveal: bool) -> list[str]:
    storage = config.storage
    if not isinstance(storage, BucketStorage) or storage.secret_name or catalog.secret_name:
        return []
    values = storage_secret(storage, at_motherduck=True)
    return [_create_secret(f"ducklake_orch_{config.alias}", values, reveal, at_motherduck=True)]


def _motherduck_statements(config: LakeConfig, catalog: MotherDuckCatalog, create: bool, reveal: bool) -> list[str]:
    # A secret is kept at MotherDuck only through a connection to it.
    secret = _motherduck_secret(config, catalog, reveal)
    if not create and catalog.mode == "own_compute":
        return ["ATTACH 'md:'", *secret] if secret else []
    if not create:  # by its name, so that one that is not there is an error
        return [f"ATTACH {literal(f'md:{catalog.database}')}", *secret]
    values = {"data_path": config.data_path, "data_inlining_row_limit": config.data_inlining_row_limit}
    inner = options(values)[1:-1]
    lake = f"(TYPE DUCKLAKE{', ' if inner else ''}{inner})"
    return ["ATTACH 'md:'", *secret, f"CREATE DATABASE {identifier(catalog.database)} {lake}"]
