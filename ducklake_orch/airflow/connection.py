"""Reads a lake's configuration from an Airflow connection: its extra and fields, other connections, and a TOML file."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from airflow.sdk import Connection

from ducklake_orch.airflow.connection_references import catalog_fields, spark_settings, storage_fields
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.tables import Family
from ducklake_orch.errors import ConfigError
from ducklake_orch.lake import DuckLake

# The fields that every Airflow connection has, mapped to the fields of a server catalog.
_STANDARD = {"host": "host", "port": "port", "login": "user", "password": "password", "schema": "database"}
_SOURCES = ("catalog_conn_id", "storage_conn_id", "spark_conn_id", "config_file", "profile", "lake")
_SPARK = ("spark_master", "spark_remote", "spark_conf")
_PREFIXES = ("catalog__", "storage__")
# Fields of a lake that hold tables or lists. A form has them as JSON text.
_TABLES = ("attach_options", "options", "settings", "extensions", "retry", "pool", "maintenance")

# Names of Spark settings that hold secrets: fs.azure.account.key.…, fs.s3a.secret.key, spark.ssl.keyPassword.
_SECRET_CONF = re.compile(r"secret|passw|token|(access|account)[._-]?key|[.]key([.]|$)|[.]sas([.]|$)", re.IGNORECASE)

Find = Callable[[str], Connection]
Fields = dict[str, Any]


class SparkSettings(NamedTuple):
    """The Spark session to start for a connection if none runs yet."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, Any] = {}


class LakeConnectionSettings(NamedTuple):
    """The lake and the Spark settings of a connection."""

    lake: DuckLake
    spark: SparkSettings


def read_connection(connection: Connection, find: Find) -> LakeConnectionSettings:
    """Read a connection of type `ducklake`.

    Each key of the catalog and the storage comes from the first source that has it: the extra (`catalog`,
    `catalog__host`), the fields of the connection itself, the referenced connection (`catalog_conn_id`), the file
    (`config_file`). A source that names another type discards all later sources.

    Args:
        connection: The connection.
        find: A function that returns a connection by its id.

    Raises:
        ConfigError: If a value of the connection is invalid, unknown or missing.
    """
    if connection.conn_type != "ducklake":
        raise ConfigError(
            f"Connection `{connection.conn_id}` is of type `{connection.conn_type}`.",
            remedy="Give the id of a connection of type `ducklake`.",
        )
    extra = _extra(connection)
    if extra.pop("placeholder", "?") != "?":
        raise ConfigError(
            f"Connection `{connection.conn_id}` has another `placeholder` than `?`.",
            remedy="Leave it out: DuckDB's placeholders are `?` and `$name`.",
        )
    sources = {name: extra.pop(name) for name in _SOURCES if name in extra}
    spark = _spark(connection.conn_id, extra, sources, find)
    from_file = "config_file" in sources
    catalog, storage = extra.pop("catalog", {}), extra.pop("storage", {})
    standard = {field: value for name, field in _STANDARD.items() if (value := getattr(connection, name))}
    referred = catalog_fields(find(sources["catalog_conn_id"])) if "catalog_conn_id" in sources else {}
    catalog = _over(_over(referred, standard), catalog)
    if standard and not from_file:
        catalog.setdefault("type", "postgres")
    if "storage_conn_id" in sources:
        storage = _over(storage_fields(find(sources["storage_conn_id"])), storage)
    if catalog:
        extra["catalog"] = catalog
    if storage:
        extra["storage"] = storage
    if not from_file:
        _refuse_without_file(connection.conn_id, sources, extra)
        return LakeConnectionSettings(DuckLake(LakeConfig(**({"name": connection.conn_id} | extra))), spark)
    lake = DuckLake.from_toml(sources["config_file"], profile=sources.get("profile"), lake=sources.get("lake"), **extra)
    return LakeConnectionSettings(lake, spark)


def secrets_of(connected: LakeConnectionSettings) -> list[str]:
    """Return every secret of a connection and of its sources, for Airflow to mask."""
    lake, spark = connected
    found = lake.config.secret_values()
    # Airflow masks whole values, but drivers can log the parts of a connection string separately.
    if (text := getattr(lake.config.storage, "connection_string", None)) is not None:
        found += [part.partition("=")[2] for part in text.get_secret_value().split(";") if "Key=" in part]
    if spark.remote is not None:
        found += [unquote(part.partition("=")[2]) for part in spark.remote.split(";") if part.startswith("token=")]
    found += [str(value) for name, value in spark.conf.items() if _SECRET_CONF.search(name)]
    return [secret for secret in found if secret and secret.lower() not in ("true", "false")]


def is_extra_key(name: str) -> bool:
    """Return whether the extra of a connection can have a key of this name."""
    return name in (*LakeConfig.model_fields, *_SOURCES, *_SPARK, "placeholder") or name.startswith(_PREFIXES)


def _extra(connection: Connection) -> Fields:
    """Return the extra without the empty fields of a form, and with `a__b` as key `b` of the table `a`."""
    given = _json(f"The extra of connection `{connection.conn_id}`", connection.extra or "{}")
    if not isinstance(given, dict):
        raise ConfigError(f"The extra of connection `{connection.conn_id}` is not a JSON object.")
    extra: Fields = {name: value for name, value in given.items() if value not in (None, "", {})}
    for name in (*_TABLES, "spark_conf"):
        if isinstance(extra.get(name), str):
            extra[name] = _json(f"`{name}` of connection `{connection.conn_id}`", extra[name])
    for name, family in (("catalog", CATALOGS), ("storage", STORAGES)):
        table = _table(connection.conn_id, family, extra.pop(name, {}))
        prefix = f"{name}__"
        prefixed = {key.removeprefix(prefix): extra.pop(key) for key in list(extra) if key.startswith(prefix)}
        if fields := _over(table, prefixed):
            extra[name] = fields
    return extra


def _table(conn_id: str, family: Family, given: Any) -> Fields:
    """Return a catalog or storage as a table of fields."""
    if isinstance(given, str):
        text = given.strip()
        given = _json(f"The {family.what} of connection `{conn_id}`", text) if text.startswith("{") else {"url": given}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"The {family.what} of connection `{conn_id}` has the type `{type(given).__name__}`.",
            remedy="Give a URL, or an object with a `type`.",
        )
    fields = dict(given)
    if url := fields.pop("url", None):
        return _over(family.table(str(url)), fields)
    return fields


def _over(lower: Fields, upper: Fields) -> Fields:
    """Return the lower keys overridden by the upper ones. An upper table of another type replaces the lower table."""
    if lower.get("type") and upper.get("type") and lower["type"] != upper["type"]:
        return dict(upper)
    return lower | upper


def _json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # The message leaves the text out, because it can hold secrets.
        why = f"{error.msg}, line {error.lineno}, column {error.colno}"
    raise ConfigError(f"{place} is not valid JSON: {why}.")


def _spark(conn_id: str, extra: Fields, sources: Fields, find: Find) -> SparkSettings:
    given = {name.removeprefix("spark_"): extra.pop(name) for name in _SPARK if name in extra}
    if "spark_conn_id" in sources:
        given = spark_settings(find(sources["spark_conn_id"])) | given
    settings = SparkSettings(**given)
    if settings.master is not None and settings.remote is not None:
        raise ConfigError(
            f"Connection `{conn_id}` has both `spark_master` and `spark_remote`.",
            remedy="Give one of them.",
        )
    if not isinstance(settings.conf, Mapping):
        raise ConfigError(f"`spark_conf` of connection `{conn_id}` is not a JSON object.")
    return settings


def _refuse_without_file(conn_id: str, sources: Fields, fields: Fields) -> None:
    for name in ("profile", "lake"):
        if name in sources:
            raise ConfigError(f"Connection `{conn_id}` has `{name}` but no `config_file`.")
    known: dict[str, Any] = LakeConfig.model_fields | dict.fromkeys([*_SOURCES, *_SPARK])
    for name in fields:
        if name not in known:
            raise ConfigError(f"Connection `{conn_id}`: unknown key `{name}`.", remedy=nearest(name, known))
    if "catalog" not in fields:
        raise ConfigError(
            f"Connection `{conn_id}` does not name the lake's catalog.",
            remedy="Give host and schema, `catalog`, `catalog_conn_id` or `config_file`.",
        )
