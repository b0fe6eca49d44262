"""Reads fields of a lake from connections of other types, so that each credential is stored once."""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from airflow.sdk import Connection

from ducklake_orch.config.catalogs import LIBPQ_PARAMETERS, SSL_FILES
from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError

_CATALOGS = {"postgres": "postgres", "mysql": "mysql"}
# Names of parameters in their extra, mapped to fields of a catalog.
_CATALOG_EXTRA = {
    "postgres": {"sslmode": "sslmode", "options": "options"},
    "mysql": {name: name for name in ("ssl_mode", *SSL_FILES)},
}
# Parameters of Airflow's own hooks, which do not affect the server or the login.
_CLIENT_ONLY = {
    "postgres": ("cursor", "sqlalchemy_scheme", "sqlalchemy_query", "enable_log_db_messages"),
    "mysql": ("cursor", "sqlalchemy_scheme", "sqlalchemy_query", "charset", "client", "local_infile"),
}
_AWS_EXTRA = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region_name": "region",
    "endpoint_url": "endpoint",
    "profile_name": "profile",
    "role_arn": "role_arn",
}
_AZURE_EXTRA = {
    "connection_string": "connection_string",
    "tenant_id": "tenant_id",
    "account_key": "account_key",
    "shared_access_key": "account_key",
}
# Login methods that DuckDB does not support.
_AZURE_UNSUPPORTED = (
    "sas_token",
    "client_secret_auth_config",
    "managed_identity_client_id",
    "workload_identity_tenant_id",
)
Fields = dict[str, Any]


def catalog_fields(connection: Connection) -> Fields:
    """Return the fields of a catalog from a connection to a database."""
    kind = _CATALOGS.get(_type(connection))
    if kind is None:
        raise _wrong_type(connection, "catalog_conn_id", _CATALOGS)
    names = {"host": "host", "port": "port", "login": "user", "password": "password", "schema": "database"}
    fields = {field: value for name, field in names.items() if (value := getattr(connection, name))}
    return {"type": kind} | _catalog_extra(connection, kind) | fields


def storage_fields(connection: Connection) -> Fields:
    """Return the credentials and the endpoint of a storage from a connection to a cloud. It has no bucket."""
    readers = {"aws": _aws, "google_cloud_platform": _google, "wasb": _azure}
    if _type(connection) not in readers:
        raise _wrong_type(connection, "storage_conn_id", readers)
    return readers[_type(connection)](connection)


def spark_settings(connection: Connection) -> Fields:
    """Return the Spark settings of a connection to Spark."""
    kind, host = _type(connection), connection.host or ""
    if kind == "spark":
        return {"master": f"{host}:{connection.port}" if connection.port else host}
    if kind != "spark_connect":
        raise _wrong_type(connection, "spark_conn_id", ("spark", "spark_connect"))
    host = host.removeprefix("sc://")
    options = {"user_id": connection.login, "token": connection.password}
    options |= {"use_ssl": "true" if _extra(connection).get("use_ssl") else None}
    suffix = "".join(f";{name}={quote(str(value), safe='')}" for name, value in options.items() if value)
    port = f":{connection.port}" if connection.port else ""
    return {"remote": f"sc://{host}{port}" + (f"/{suffix}" if suffix else "")}


def _catalog_extra(connection: Connection, kind: str) -> Fields:
    """Return the fields in the extra of a server. Refuse unsupported ones, because they can decide whom to trust."""
    extra = _extra(connection)
    known = _CATALOG_EXTRA[kind]
    fields = {known[name]: value for name, value in extra.items() if name in known and value}
    if kind == "postgres":
        parameters = {name: value for name, value in extra.items() if name in LIBPQ_PARAMETERS}
        fields |= {"parameters": parameters} if parameters else {}
    elif "ssl_mode" in fields:
        fields["ssl_mode"] = str(fields["ssl_mode"]).lower()
    if kind == "mysql" and (files := _certificates(extra.get("ssl"))):
        fields, known = fields | files, known | {"ssl": "ssl"}
    supported = {*known, *_CLIENT_ONLY[kind], *fields.get("parameters", ())}
    _refuse(connection, [name for name in extra if name not in supported])
    return fields


def _certificates(ssl: Any) -> Fields | None:
    """Return the fields of what Airflow's own hook for MySQL calls `ssl`; None if it is more than files."""
    given = json.loads(ssl) if isinstance(ssl, str) else ssl
    is_files = isinstance(given, dict) and all(f"ssl_{name}" in SSL_FILES for name in given)
    return {f"ssl_{name}": path for name, path in given.items()} if is_files else None


def _refuse(connection: Connection, names: Iterable[str]) -> None:
    for name in names:
        if _extra(connection)[name]:
            raise ConfigError(
                f"Connection `{connection.conn_id}` has `{name}` in its extra, which a lake does not support.",
                remedy="Refer to a connection without it, or set the values in the lake's own connection.",
            )


def _aws(connection: Connection) -> Fields:
    fields = _renamed(connection, _AWS_EXTRA)
    if connection.login:
        fields |= {"access_key_id": connection.login, "secret_access_key": connection.password}
    if "access_key_id" not in fields:
        fields["provider"] = "credential_chain"
    return {"type": "s3"} | fields


def _google(connection: Connection) -> Fields:
    if connection.login and connection.password:
        return {"type": "gcs", "key_id": connection.login, "secret": connection.password}
    if any(name.endswith(("key_path", "keyfile_dict", "key_secret_name")) for name in _extra(connection)):
        raise ConfigError(
            f"Connection `{connection.conn_id}` has the key of a service account, which DuckDB cannot use.",
            remedy="Create an HMAC key for that account, and store it in login and password.",
        )
    return {"type": "gcs", "provider": "credential_chain"}


def _azure(connection: Connection) -> Fields:
    extra = _extra(connection)
    _refuse(connection, [name for name in extra if name.removeprefix("extra__wasb__") in _AZURE_UNSUPPORTED])
    fields: Fields = {"type": "azure"} | _renamed(connection, _AZURE_EXTRA)
    if "connection_string" in fields:
        return fields
    host = (connection.host or "").removeprefix("https://").partition(".")[0]
    if "tenant_id" in fields:
        secret = {"client_id": connection.login, "client_secret": connection.password, "provider": "service_principal"}
        return fields | secret | ({"account_name": host} if host else {})
    if connection.password:
        return fields | {"account_name": connection.login or host, "account_key": connection.password}
    if "account_key" in fields:
        return fields | {"account_name": connection.login or host}
    return fields | {"account_name": connection.login or host, "provider": "credential_chain"}


def _renamed(connection: Connection, names: dict[str, str]) -> Fields:
    extra = _extra(connection)
    return {field: extra[name] for name, field in names.items() if extra.get(name)}


def _extra(connection: Connection) -> Fields:
    try:
        found = json.loads(connection.extra or "{}")
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"The extra of connection `{connection.conn_id}` is not a JSON object.")
    return found


def _type(connection: Connection) -> str:
    return str(connection.conn_type or "")


def _wrong_type(connection: Connection, field: str, known: Any) -> ConfigError:
    return ConfigError(
        f"`{field}` = `{connection.conn_id}` is a connection of type `{connection.conn_type}`.",
        remedy=nearest(_type(connection), known),
    )
