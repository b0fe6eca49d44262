"""Catalog models: accepted values, and values that are refused before connecting."""

from pathlib import Path
from typing import Any

import pytest

from ducklake_orch.config.catalogs import (
    CATALOGS,
    DuckDBCatalog,
    MotherDuckCatalog,
    MySQLCatalog,
    PostgresCatalog,
    SQLiteCatalog,
)
from ducklake_orch.errors import ConfigError


@pytest.mark.parametrize("kind", CATALOGS.types)
def test_every_field_has_a_description_and_unknown_fields_are_refused(kind: str) -> None:
    model = CATALOGS.types[kind]
    assert all(field.description for field in model.model_fields.values())
    with pytest.raises(ConfigError, match="unknown key `nonsense`"):
        CATALOGS.read({"type": kind, "path": "x", "database": "x", "nonsense": 1})


def test_the_error_for_an_unknown_key_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"postgres: unknown key `pasword`.*Did you mean `password`"):
        CATALOGS.read({"type": "postgres", "pasword": "x"})


def test_the_error_for_an_unknown_type_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"`postgre`.*Did you mean `postgres`"):
        CATALOGS.read({"type": "postgre"})


def test_a_table_needs_a_type() -> None:
    with pytest.raises(ConfigError, match=r"no `type`.*`duckdb`"):
        CATALOGS.read({"path": "lake.sqlite"})


def test_a_model_is_used_unchanged() -> None:
    model = SQLiteCatalog(path=Path("lake.sqlite"))
    assert CATALOGS.read(model) is model


def test_models_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        PostgresCatalog(host="h").host = "other"  # type: ignore[misc]


@pytest.mark.parametrize("model", [SQLiteCatalog, DuckDBCatalog])
@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_file_catalog_names_a_file(model: Any, path: str) -> None:
    with pytest.raises(ConfigError, match="names no file"):
        model(path=path)


@pytest.mark.parametrize("port", [0, 65536, "http"])
def test_a_port_is_in_range(port: Any) -> None:
    with pytest.raises(ConfigError, match="`port` = "):
        PostgresCatalog(host="h", port=port)


def test_a_port_may_be_a_text() -> None:
    assert CATALOGS.read({"type": "postgres", "port": "5433"}).port == 5433


@pytest.mark.parametrize("model", [PostgresCatalog, MySQLCatalog])
@pytest.mark.parametrize("field", ["host", "port", "database", "user", "password"])
def test_a_secret_name_excludes_credentials(model: Any, field: str) -> None:
    assert model(secret_name="there").secret_name == "there"
    with pytest.raises(ConfigError, match=rf"`secret_name` and `{field}` exclude each other"):
        model(secret_name="there", **{field: 1 if field == "port" else "x"})


def test_an_unknown_libpq_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`sslrootcrt`.*Did you mean `sslrootcert`"):
        PostgresCatalog(parameters={"sslrootcrt": "x"})


def test_libpq_parameters_may_be_numbers() -> None:
    assert CATALOGS.read({"type": "postgres", "parameters": {"connect_timeout": 5, "keepalives": True}}).parameters == {
        "connect_timeout": "5",
        "keepalives": "true",
    }


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="`mode` = 'ours'"):
        CATALOGS.read({"type": "motherduck", "database": "db", "mode": "ours"})
    with pytest.raises(ConfigError, match="sslmode"):
        CATALOGS.read("postgresql://h/db?sslmode=sometimes")


def test_motherduck_needs_a_database() -> None:
    with pytest.raises(ConfigError, match="`database`"):
        CATALOGS.read("md:")
    assert MotherDuckCatalog(database="db").mode == "managed"


def test_a_model_lists_its_secrets_for_the_scrubber() -> None:
    assert PostgresCatalog(host="h", password="canary").secret_values() == ["canary"]
    assert MotherDuckCatalog(database="db", token="canary").secret_values() == ["canary"]
    assert SQLiteCatalog(path=Path("x")).secret_values() == []
