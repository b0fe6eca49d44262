"""Generate the commented TOML file that `ducklake-orch init` writes."""

import re
from typing import Any

from pydantic import SecretStr

from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.origins import key_path, toml_string
from ducklake_orch.config.storages import STORAGES, LocalStorage

# The usual environment variable of a secret, by type and field.
_VARIABLES = {
    ("postgres", "password"): "PGPASSWORD",
    ("mysql", "password"): "MYSQL_PASSWORD",
    ("motherduck", "token"): "MOTHERDUCK_TOKEN",
    ("s3", "secret_access_key"): "AWS_SECRET_ACCESS_KEY",
    ("s3", "session_token"): "AWS_SESSION_TOKEN",
    ("r2", "secret_access_key"): "R2_SECRET_ACCESS_KEY",
    ("r2", "session_token"): "R2_SESSION_TOKEN",
    ("gcs", "secret"): "GCS_HMAC_SECRET",
    ("azure", "account_key"): "AZURE_STORAGE_KEY",
    ("azure", "connection_string"): "AZURE_STORAGE_CONNECTION_STRING",
    ("azure", "client_secret"): "AZURE_CLIENT_SECRET",
}

_HEAD = """\
## Lakes of ducklake-orch. Lines with `##` are comments; to use a line with a single `#`, remove that sign.
## ${VAR} and ${VAR:-default} come from the environment, so that this file needs no secrets. Relative paths count from
## this file's folder. DUCKLAKE_CATALOG__PASSWORD and the like override a single value.
"""

_ALTERNATIVES = """\
# create_if_missing = true  # let the first write create the lake
# metadata_schema = "lake"  # Postgres: many lakes in one database

## --- Catalogs: a lake uses one by its name, `catalog = "postgres"` ---------------------------------------------

## DuckDB file: one process at a time, the others wait.
# [catalogs.duckdb]
# type = "duckdb"
# path = "lake.ducklake"

## SQLite file: many processes of one machine.
# [catalogs.sqlite]
# type = "sqlite"
# path = "lake.sqlite"

## PostgreSQL: many machines.
# [catalogs.postgres]
# type = "postgres"
# host = "${PGHOST:-localhost}"
# port = "${PGPORT:-5432}"
# database = "lake"
# user = "${PGUSER}"
# password = "${PGPASSWORD}"
# sslmode = "prefer"

## MySQL or MariaDB.
# [catalogs.mysql]
# type = "mysql"
# host = "${MYSQL_HOST:-localhost}"
# port = 3306
# database = "lake"
# user = "${MYSQL_USER}"
# password = "${MYSQL_PASSWORD}"

## MotherDuck, with your own bucket at S3 or R2 (mode = "managed" takes no storage).
# [catalogs.motherduck]
# type = "motherduck"
# database = "lake"
# token = "${MOTHERDUCK_TOKEN}"
# mode = "own_bucket"
# region = "us-east-1"

## --- Storages: a lake uses one by its name, `storage = "s3"`; each lake has its own folder in it ------------

## A folder that every machine of the lake sees.
# [storages.local]
# type = "local"
# path = "./lake.files"

## Amazon S3, or anything that speaks its protocol (then with `endpoint`).
# [storages.s3]
# type = "s3"
# bucket = "my-bucket"
# prefix = "lake"
# region = "us-east-1"
# access_key_id = "${AWS_ACCESS_KEY_ID}"
# secret_access_key = "${AWS_SECRET_ACCESS_KEY}"

## Amazon S3 with the credentials of the machine.
# [storages.s3_chain]
# type = "s3"
# bucket = "my-bucket"
# prefix = "lake"
# provider = "credential_chain"

## Cloudflare R2.
# [storages.r2]
# type = "r2"
# account_id = "${R2_ACCOUNT_ID}"
# bucket = "my-bucket"
# prefix = "lake"
# access_key_id = "${R2_ACCESS_KEY_ID}"
# secret_access_key = "${R2_SECRET_ACCESS_KEY}"

## Google Cloud Storage, with an HMAC key.
# [storages.gcs]
# type = "gcs"
# bucket = "my-bucket"
# prefix = "lake"
# key_id = "${GCS_HMAC_KEY_ID}"
# secret = "${GCS_HMAC_SECRET}"

## Azure Blob Storage or Data Lake Storage.
# [storages.azure]
# type = "azure"
# container = "my-container"
# prefix = "lake"
# account_name = "${AZURE_STORAGE_ACCOUNT}"
# account_key = "${AZURE_STORAGE_KEY}"

## --- Profiles: overrides for an environment, `--profile dev` or DUCKLAKE_PROFILE ----------------------------------

# [profiles.dev.lakes.@lake@]
# catalog = "sqlite:///dev.sqlite"
# storage = "./dev.files"
"""


def starter_toml(name: str, catalog_url: str, storage_url: str | None = None) -> str:
    """Return a commented configuration file with one lake and an example of every catalog and storage.

    Args:
        name: Name of the lake.
        catalog_url: Its catalog. A `${VAR}` replaces a password in it.
        storage_url: Its storage, treated likewise; None if MotherDuck keeps the data.

    Raises:
        ConfigError: When a URL is invalid.
    """
    lines = [f"[lakes.{key_path(name)}]", f"catalog = {_location(CATALOGS.read(catalog_url))}"]
    if storage_url is not None:
        lines.append(f"storage = {_location(STORAGES.read(storage_url))}")
    return "\n".join([_HEAD, *lines, _ALTERNATIVES.replace("@lake@", key_path(name))])


def _location(model: Any) -> str:
    secrets = {key: value for key in type(model).model_fields if isinstance(value := getattr(model, key), SecretStr)}
    url = model.model_copy(update=dict.fromkeys(secrets)).to_url()
    if isinstance(model, LocalStorage) and not re.match(r"\.{0,2}/", url):
        url = f"./{url}"
    url = toml_string(url.replace("${", "$${"))
    if not secrets:
        return url
    fields = [f"url = {url}", *(f'{key} = "${{{_VARIABLES[model.type, key]}}}"' for key in secrets)]
    return f"{{ {', '.join(fields)} }}"
