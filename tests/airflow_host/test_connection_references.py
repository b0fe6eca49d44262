"""Settings of referenced connections are used or refused by name, and their secrets are masked."""

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import redact

from ducklake_orch import MySQLCatalog, PostgresCatalog
from ducklake_orch.airflow import DuckLakeHook
from ducklake_orch.airflow.connection import secrets_of
from ducklake_orch.errors import ConfigError
from tests.support.airflow_connections import Connect

SQLITE = {"type": "sqlite", "path": "/data/lake.sqlite"}


def test_tls_settings_of_a_referenced_connection_are_kept(connect: Connect) -> None:
    trust = {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "sslcert": "/c.pem", "sslkey": "/k.pem"}
    connect("pg", "postgres", host="db", schema="lake", extra=trust | {"cursor": "dictcursor", "iam": False})
    connect(extra={"catalog_conn_id": "pg", "storage": "/data"})
    catalog = DuckLakeHook().lake().config.catalog
    assert isinstance(catalog, PostgresCatalog)
    assert catalog.sslmode == "verify-full"
    assert catalog.parameters == {"sslrootcert": "/ca.pem", "sslcert": "/c.pem", "sslkey": "/k.pem"}
    ssl = {"ssl": {"ca": "/ca.pem", "cert": "/c.pem", "key": "/k.pem"}}
    connect("my", "mysql", host="db", schema="lake", extra={"ssl_mode": "VERIFY_CA", "charset": "utf8mb4"} | ssl)
    connect(extra={"catalog_conn_id": "my", "storage": "/data"})
    other = DuckLakeHook().lake().config.catalog
    assert isinstance(other, MySQLCatalog)
    assert (other.ssl_mode, other.ssl_ca, other.ssl_cert, other.ssl_key) == (
        "verify_ca",
        *map(Path, ssl["ssl"].values()),
    )


@pytest.mark.parametrize(
    ("conn_type", "extra", "name"),
    [
        ("postgres", {"iam": True}, "iam"),
        ("postgres", {"sslpassword": "canary"}, "sslpassword"),
        ("mysql", {"ssl": {"ca": "/ca.pem", "cipher": "x"}}, "ssl"),
        ("mysql", {"unix_socket": "/run/mysqld.sock"}, "unix_socket"),
        ("wasb", {"sas_token": "?sv=canary"}, "sas_token"),
        ("wasb", {"extra__wasb__sas_token": "?sv=canary"}, "extra__wasb__sas_token"),
        ("wasb", {"managed_identity_client_id": "canary"}, "managed_identity_client_id"),
    ],
)
def test_unsupported_settings_of_a_referenced_connection_are_refused(
    connect: Connect, conn_type: str, extra: dict[str, Any], name: str
) -> None:
    connect("other", conn_type, host="acc", login="acc", schema="lake", extra=extra)
    if conn_type == "wasb":
        connect(extra={"catalog": SQLITE, "storage": "az://c", "storage_conn_id": "other"})
    else:
        connect(extra={"catalog_conn_id": "other", "storage": "/data"})
    with pytest.raises(ConfigError, match=f"`other` has `{name}`") as refused:
        DuckLakeHook().lake()
    assert "canary" not in str(refused.value)


def test_an_azure_account_key_may_be_a_shared_access_key(connect: Connect) -> None:
    connect("other", "wasb", login="acc", extra={"shared_access_key": "a2V5"})
    connect(extra={"catalog": SQLITE, "storage": "az://c", "storage_conn_id": "other"})
    storage: Any = DuckLakeHook().lake().config.storage
    assert storage.account_key.get_secret_value() == "a2V5"


def test_secrets_in_spark_conf_are_masked(connect: Connect) -> None:
    secret = {  # not used in other tests: a masked value stays masked
        "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net": "kq7Zr1",
        "spark.hadoop.fs.azure.sas.fixed.token.acc": "w3Xbn0",
        "spark.hadoop.fs.s3a.secret.key": "p8Jty5",
        "spark.ssl.keyPassword": "v2Hcd9",
        "spark.hadoop.fs.s3a.access.key": "m6Lfg4",
    }
    plain = {"spark.executor.memory": "2 gigabytes", "spark.authenticate.secret.enabled": "false"}
    connect(extra={"catalog": SQLITE, "storage": "/data", "spark_conf": secret | plain})
    hook = DuckLakeHook()
    assert set(secrets_of(hook.connected)) == set(secret.values())
    assert redact(" ".join(secret.values())) == " ".join(["***"] * 5)
