"""Connections of type `ducklake`: where their settings come from, what is refused, and how secrets are masked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk._shared.secrets_masker import redact

from ducklake_orch import LakeConfig, PostgresCatalog, S3Storage, SQLiteCatalog
from ducklake_orch.airflow import DuckLakeHook
from ducklake_orch.airflow.connection import read_connection
from ducklake_orch.airflow.get_provider_info import get_provider_info
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ConfigError
from tests.support.airflow_connections import Connect
from tests.support.backends import POSTGRES, S3_MEMORY, Backend
from tests.support.lakes import CANARY, MakeLake

SQLITE = {"type": "sqlite", "path": "/data/lake.sqlite"}


def config_of(conn_id: str = "ducklake_default") -> LakeConfig:
    return DuckLakeHook(conn_id).lake().config


# --- sources of the settings ---------------------------------------------------------------------------------------


def test_connection_fields_configure_a_postgres_catalog(connect: Connect) -> None:
    connect(host="db", port=5433, login="etl", password=CANARY, schema="lake", extra={"storage": "s3://b/p"})
    config = config_of()
    assert isinstance(config.catalog, PostgresCatalog)
    catalog = config.catalog
    assert (catalog.host, catalog.port, catalog.user, catalog.database) == ("db", 5433, "etl", "lake")
    assert catalog.password is not None
    assert catalog.password.get_secret_value() == CANARY
    assert config.data_path == "s3://b/p/"
    assert config.name == "ducklake_default"


def test_catalog_type_in_the_extra_selects_mysql(connect: Connect) -> None:
    connect(host="db", schema="lake", extra={"catalog__type": "mysql", "storage": "/data"})
    assert config_of().catalog.type == "mysql"


@pytest.mark.parametrize(
    "catalog", [SQLITE, json.dumps(SQLITE), "sqlite:////data/lake.sqlite"], ids=["object", "json text", "url"]
)
def test_the_extra_holds_catalog_and_storage(connect: Connect, catalog: Any) -> None:
    storage = {"type": "s3", "bucket": "b", "region": "eu-west-1"}
    connect(extra={"catalog": catalog, "storage": storage, "threads": 2, "retry": {"max_attempts": 3}})
    config = config_of()
    assert isinstance(config.catalog, SQLiteCatalog)
    assert config.catalog.path == Path("/data/lake.sqlite")
    assert isinstance(config.storage, S3Storage)
    assert (config.storage.region, config.threads, config.retry.max_attempts) == ("eu-west-1", 2, 3)


def test_empty_form_fields_are_ignored(connect: Connect) -> None:
    empty = dict.fromkeys(get_provider_info()["connection-types"][0]["conn-fields"], "")
    connect(extra=empty | {"catalog": "sqlite:////data/lake.sqlite", "spark_conf": {}, "create_if_missing": False})
    assert config_of().catalog.type == "sqlite"


def test_form_fields_override_parameters_of_the_storage_url(connect: Connect) -> None:
    connect(extra={"catalog": SQLITE, "storage": "s3://b/p?region=eu-west-1", "storage__region": "eu-north-1"})
    storage = config_of().storage
    assert isinstance(storage, S3Storage)
    assert (storage.bucket, storage.region) == ("b", "eu-north-1")


def test_credentials_come_from_referenced_connections(connect: Connect) -> None:
    connect(
        "pg",
        "postgres",
        host="db",
        port=5433,
        login="etl",
        password="s3cret",
        schema="apps",
        extra={"sslmode": "require"},
    )
    connect(
        "cloud",
        "aws",
        login="AKIA",
        password="s3same",
        extra={"region_name": "eu-west-1", "endpoint_url": "http://s3:9000"},
    )
    connect(schema="lake", extra={"catalog_conn_id": "pg", "storage": "s3://b/p", "storage_conn_id": "cloud"})
    config = config_of()
    assert config.catalog.to_url(reveal=True) == "postgresql://etl:s3cret@db:5433/lake?sslmode=require"
    assert isinstance(config.storage, S3Storage)
    storage = config.storage
    assert (storage.bucket, storage.region, storage.endpoint) == ("b", "eu-west-1", "s3:9000")
    assert (storage.access_key_id, storage.secret_access_key.get_secret_value()) == ("AKIA", "s3same")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("conn_type", "fields", "storage", "expected"),
    [
        ("aws", {}, "s3://b", {"provider": "credential_chain"}),
        ("aws", {"extra": {"profile_name": "dev"}}, "s3://b", {"provider": "credential_chain", "profile": "dev"}),
        ("google_cloud_platform", {"login": "GOOG", "password": "x"}, "gs://b", {"key_id": "GOOG"}),
        ("google_cloud_platform", {}, "gs://b", {"provider": "credential_chain"}),
        ("wasb", {"login": "acc", "password": "a2V5"}, "az://c", {"account_name": "acc"}),
        ("wasb", {"extra": {"connection_string": "AccountName=a;AccountKey=a2V5"}}, "az://c", {"account_name": None}),
        ("wasb", {"host": "https://acc.blob.core.windows.net"}, "az://c", {"provider": "credential_chain"}),
        (
            "wasb",
            {"login": "app", "password": "x", "host": "acc.blob.core.windows.net", "extra": {"tenant_id": "t"}},
            "az://c",
            {"client_id": "app", "tenant_id": "t", "account_name": "acc"},
        ),
    ],
)
def test_cloud_connections_supply_storage_credentials(
    connect: Connect, conn_type: str, fields: dict[str, Any], storage: str, expected: dict[str, Any]
) -> None:
    connect("cloud", conn_type, **fields)
    connect(extra={"catalog": SQLITE, "storage": storage, "storage_conn_id": "cloud"})
    found = config_of().storage
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_config_file_supplies_what_the_connection_leaves_out(connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "ducklake.toml"
    file.write_text(
        """
        [lakes.sales]
        catalog = { type = "postgres", host = "db", database = "lake", user = "etl" }
        storage = "s3://prod/lake"
        [profiles.dev.lakes.sales]
        storage = "s3://dev/lake"
        """
    )
    connect(password="s3cret", extra={"config_file": str(file), "profile": "dev", "threads": 2})
    config = config_of()
    assert (config.name, config.data_path, config.threads) == ("sales", "s3://dev/lake/", 2)
    assert config.catalog.to_url(reveal=True) == "postgresql://etl:s3cret@db/lake"


def test_extra_overrides_fields_then_reference_then_config_file(connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "ducklake.toml"
    in_file = 'host = "file", port = 1, database = "file", user = "file"'
    file.write_text(f'[lakes.sales]\ncatalog = {{ type = "postgres", {in_file} }}\nstorage = "/data"\n')
    connect("pg", "postgres", host="reference", port=2, schema="reference")
    references = {"catalog_conn_id": "pg", "config_file": str(file), "catalog__host": "extra"}
    connect(port=3, host="field", extra=references)
    catalog = config_of().catalog
    assert isinstance(catalog, PostgresCatalog)
    assert (catalog.host, catalog.port, catalog.database, catalog.user) == ("extra", 3, "reference", "file")


def test_a_catalog_of_another_type_ignores_the_referenced_connection(connect: Connect) -> None:
    connect("pg", "postgres", host="db", schema="lake")
    connect(extra={"catalog_conn_id": "pg", "catalog": SQLITE, "storage": "/data"})
    assert config_of().catalog == SQLiteCatalog(path=Path("/data/lake.sqlite"))


# --- refused connections -------------------------------------------------------------------------------------------


def refusal(fields: dict[str, Any], connect: Connect, conn_type: str = "ducklake") -> str:
    connect(conn_type=conn_type, **fields)
    with pytest.raises(ConfigError) as refused:
        config_of()
    return str(refused.value)


def test_a_missing_connection_error_shows_how_to_add_it() -> None:
    with pytest.raises(ConfigError, match=r"no connection `nowhere`.*airflow connections add nowhere"):
        config_of("nowhere")


def test_a_missing_referenced_connection_is_named(connect: Connect) -> None:
    assert "no connection `nowhere`" in refusal({"extra": {"catalog_conn_id": "nowhere"}}, connect)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"extra": {"catalog": SQLITE, "storge": "/data"}}, "unknown key `storge`. Did you mean `storage`?"),
        (
            {"extra": {"catalog": '{"type": "sqlite"', "storage": "/data"}},
            "catalog of connection `ducklake_default` is no",
        ),
        ({"extra": {"catalog": 5}}, "The catalog of connection `ducklake_default` has the type `int`."),
        ({"extra": {"catalog": {"type": "oracle"}}}, "A catalog has the unknown type `oracle`"),
        ({"extra": {"catalog": {"type": "sqlite", "path": "/x", "pth": 1}}}, "unknown key `pth`. Did you mean `path`?"),
        ({"extra": {"storage": "/data"}}, "does not name the lake's catalog"),
        ({"extra": {"catalog": SQLITE, "profile": "dev"}}, "`profile` but no `config_file`"),
        (
            {"extra": {"catalog": SQLITE, "spark_master": "local", "spark_remote": "sc://x"}},
            "both `spark_master` and `spark_remote`",
        ),
    ],
)
def test_an_invalid_extra_is_refused_with_the_reason(connect: Connect, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(fields, connect)


@pytest.mark.parametrize(
    ("extra", "message"), [("{'a': 1", "is not valid JSON: Expecting property name"), ("[1]", "is not a JSON object")]
)
def test_an_unparsable_extra_is_refused_without_showing_its_content(extra: str, message: str) -> None:
    connection = Connection(conn_id="lake", conn_type="ducklake", extra=extra)
    with pytest.raises(ConfigError) as refused:
        read_connection(connection, lambda _: connection)
    assert message in str(refused.value)
    assert "'a'" not in str(refused.value)


def test_a_connection_of_another_type_is_refused(connect: Connect) -> None:
    assert "`ducklake_default` is of type `postgres`" in refusal({"host": "db"}, connect, "postgres")


def test_a_reference_of_another_type_is_refused(connect: Connect) -> None:
    connect("cloud", "ftp")
    extra = {"catalog": SQLITE, "storage": "s3://b", "storage_conn_id": "cloud"}
    assert "`storage_conn_id` = `cloud` is a connection of type `ftp`" in refusal({"extra": extra}, connect)


def test_a_service_account_key_is_refused_in_favour_of_hmac_keys(connect: Connect) -> None:
    connect("cloud", "google_cloud_platform", extra={"keyfile_dict": {"private_key": CANARY}})
    extra = {"catalog": SQLITE, "storage": "gs://b", "storage_conn_id": "cloud"}
    assert "HMAC" in refusal({"extra": extra}, connect)


# --- secrets -------------------------------------------------------------------------------------------------------


def test_airflow_masks_every_secret_of_a_lake(connect: Connect) -> None:
    key = "c3RvcmFnZS1rZXk="
    connect("pg", "postgres", host="db", schema="lake", password="secret of the catalog")
    storage = {"type": "azure", "container": "c", "account_name": "a", "account_key": key}
    connect(extra={"catalog_conn_id": "pg", "storage": storage})
    config_of()
    for secret in (key, "secret of the catalog", "secret%20of%20the%20catalog"):
        assert secret not in str(redact(f"failed with {secret}!"))


def test_airflow_masks_the_key_inside_a_connection_string(connect: Connect) -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=b25lLWtleQ==;EndpointSuffix=core.windows.net"
    connect(extra={"catalog": SQLITE, "storage": {"type": "azure", "container": "c", "connection_string": text}})
    config_of()
    assert "b25lLWtleQ==" not in str(redact("AccountKey b25lLWtleQ== is wrong"))


def test_logged_statements_hide_secrets(connect: Connect, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite")}
    connect(extra={"catalog": catalog, "storage": str(tmp_path), "create_if_missing": True, "extensions": ["httpfs"]})
    DuckLakeHook().run(f"CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET {literal(CANARY)})", autocommit=True)
    logged = capfd.readouterr().out
    assert "CREATE SECRET" in logged
    assert "canary" not in logged


# --- the connection form and the connection test -------------------------------------------------------------------


def test_provider_info_imports_no_heavy_package() -> None:
    code = """
import sys
from ducklake_orch.airflow.get_provider_info import get_provider_info
get_provider_info()
print(sorted({"airflow", "duckdb", "pyspark", "pyarrow", "pydantic", "sqlglot"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_airflow_registers_the_provider_and_its_hook() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    assert manager.providers["ducklake-orch"].data["name"] == "DuckLake"
    assert ("ducklake_orch.airflow.hook.DuckLakeHook", "ducklake-orch") in [
        (hook.hook_class_name, hook.package_name) for hook in manager._hook_provider_dict.values()
    ]


def test_every_form_field_maps_to_a_setting(connect: Connect) -> None:
    from ducklake_orch.airflow import connection

    known = {*LakeConfig.model_fields, *connection._SOURCES, *connection._SPARK}
    for name in get_provider_info()["connection-types"][0]["conn-fields"]:
        table, _, key = name.partition("__")
        fields = {"catalog": PostgresCatalog.model_fields, "storage": S3Storage.model_fields}.get(table, {})
        assert key in fields if key else name in known


def test_the_form_has_described_fields_in_the_documented_sections() -> None:
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    assert all(field["label"] and field["description"].endswith(".") for field in fields.values())
    sections = list(dict.fromkeys(field["schema"]["section"] for field in fields.values()))
    assert sections == ["Catalog", "Storage", "Lake", "Spark"]
    page = (Path(__file__).parents[2] / "docs" / "airflow.md").read_text().partition("| Section | Fields |")[2]
    documented = [line.split("|")[1].strip() for line in page.partition("\n\n")[0].splitlines()[2:]]
    assert documented == ["Standard fields", *sections]


def test_testing_a_connection_creates_no_lake(conn_id: str, tmp_path: Path) -> None:
    works, message = DuckLakeHook().test_connection()
    assert works
    assert "The first write creates it." in message
    assert list(tmp_path.iterdir()) == []
    DuckLakeHook().run("CREATE TABLE t (a INTEGER)")
    catalog, files = tmp_path / "catalog.sqlite", tmp_path / "files"
    message = f"The lake is at snapshot 1. Catalog: sqlite:///{catalog}, data files: {files}/"
    assert DuckLakeHook().test_connection() == (True, message)


def test_testing_a_connection_names_the_lake_and_not_airflows_random_id(connect: Connect, tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"

    def message(**extra: Any) -> str:
        return DuckLakeHook(connect("x7Kd2qPz", extra=extra)).test_connection()[1]

    assert message(catalog=catalog, storage="/data").startswith(f"There is no lake: {tmp_path}/lake.sqlite does not")
    assert message(storge="/data").startswith("Connection: unknown key `storge`. Did you mean `storage`?")
    assert "x7Kd2qPz" not in message(catalog="{") + message(catalog_conn_id="nowhere") + message(spark_conf="[]")
    made = message(catalog=catalog, storage="/data", create_if_missing=True)
    assert made == f"The lake does not exist yet. The first write creates it. Catalog: {catalog}, data files: /data/"
    assert message(catalog=catalog, storage="/data", create_if_missing=True, name="shop").startswith("Lake `shop` does")


def test_testing_a_connection_reports_the_failure_without_secrets(connect: Connect) -> None:
    connect(host="127.0.0.1", port=1, login="etl", password="s3cret!", schema="lake", extra={"storage": "/data"})
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert "127.0.0.1" in message
    assert "s3cret!" not in message
    connect(extra={"catalog": "sqlite:////nowhere/lake.sqlite", "storage": "/data"})
    assert "create_if_missing" in DuckLakeHook().test_connection()[1]
    connect(extra={"catalog": "oops"})
    assert DuckLakeHook().test_connection()[0] is False


@pytest.mark.parametrize("backend", [Backend(POSTGRES, S3_MEMORY)], indirect=True, ids=str)
def test_a_postgres_and_s3_lake_works_through_referenced_connections(
    connect: Connect, make_lake: MakeLake, backend: Backend
) -> None:
    config = make_lake().config
    assert isinstance(config.catalog, PostgresCatalog)
    assert isinstance(config.storage, S3Storage)
    catalog, storage = config.catalog, config.storage
    connect("pg", "postgres", host=catalog.host, port=catalog.port, login=catalog.user, password=CANARY)
    secret = storage.secret_access_key.get_secret_value() if storage.secret_access_key else None
    endpoint = {"region_name": storage.region, "endpoint_url": f"http://{storage.endpoint}"}
    connect("cloud", "aws", login=storage.access_key_id, password=secret, extra=endpoint)
    extra = {"catalog_conn_id": "pg", "storage": storage.data_path, "storage_conn_id": "cloud"}
    connect(schema=catalog.database, extra=extra | {"create_if_missing": True})
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t AS SELECT range AS a FROM range(1000)")
    assert hook.get_first("SELECT count(*), sum(a) FROM t") == (1000, 499500)
    assert hook.test_connection()[0]
