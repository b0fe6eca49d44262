"""`DUCKLAKE_…` variables set every field, and the error for an invalid variable names it."""

from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.environment import read_environment
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.loading import load
from ducklake_orch.config.origins import plain
from ducklake_orch.errors import ConfigError


def read(**environ: str) -> dict[str, Any]:
    return plain(read_environment(environ))


def config(**environ: str) -> LakeConfig:
    return load(environ={"DUCKLAKE_NAME": "n", **environ}).config


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("DUCKLAKE_READ_ONLY", "true", "read_only", True),
        ("DUCKLAKE_READ_ONLY", "0", "read_only", False),
        ("DUCKLAKE_SNAPSHOT", "5", "snapshot", 5),
        ("DUCKLAKE_TEMP_DIRECTORY", "/spill", "temp_directory", "/spill"),
        ("DUCKLAKE_MEMORY_LIMIT", "2GB", "memory_limit", "2000000000B"),
        ("DUCKLAKE_EXTENSIONS", '["spatial", "icu"]', "extensions", ["spatial", "icu"]),
        ("DUCKLAKE_EXTENSIONS", "spatial, icu", "extensions", ["spatial", "icu"]),
        ("DUCKLAKE_SETTINGS", '{"TimeZone": "UTC", "threads": 2}', "settings", {"TimeZone": "UTC", "threads": 2}),
        ("DUCKLAKE_SETTINGS__TimeZone", "UTC", "settings", {"TimeZone": "UTC"}),
        ("DUCKLAKE_SETTINGS__TIMEZONE", "UTC", "settings", {"timezone": "UTC"}),
        ("DUCKLAKE_SETTINGS__threads", "4", "settings", {"threads": 4}),
        ("DUCKLAKE_OPTIONS__AUTO_COMPACT", "false", "options", {"auto_compact": False}),
        ("DUCKLAKE_OPTIONS__TARGET_FILE_SIZE", "512MB", "options", {"target_file_size": "512MB"}),
        ("DUCKLAKE_OPTIONS__HIVE_FILE_PATTERN", "NaN", "options", {"hive_file_pattern": "NaN"}),
        ("DUCKLAKE_ATTACH_OPTIONS__META_SCHEMA", "x", "attach_options", {"meta_schema": "x"}),
    ],
)
def test_a_field_is_read(variable: str, text: str, field: str, value: Any) -> None:
    assert getattr(config(**{variable: text}), field) == value


def test_keys_of_catalog_storage_and_policies() -> None:
    assert read(
        DUCKLAKE_CATALOG__TYPE="postgres",
        DUCKLAKE_CATALOG__PARAMETERS__SSLROOTCERT="x",
        DUCKLAKE_STORAGE__ACCESS_KEY_ID="k",
        DUCKLAKE_STORAGE__SECRET_PARAMETERS__KMS_KEY_ID="5",
        DUCKLAKE_RETRY__MAX_ATTEMPTS="3",
        DUCKLAKE_POOL='{"size": 2}',
        DUCKLAKE_POOL__IDLE="1h",
    ) == {
        "catalog": {"type": "postgres", "parameters": {"sslrootcert": "x"}},
        "storage": {"access_key_id": "k", "secret_parameters": {"kms_key_id": "5"}},
        "retry": {"max_attempts": "3"},
        "pool": {"size": 2, "idle": "1h"},
    }


def test_catalog_and_storage_may_be_json() -> None:
    read_config = config(DUCKLAKE_CATALOG='{"type": "postgres", "host": "h"}', DUCKLAKE_STORAGE='{"url": "s3://b"}')
    assert read_config.catalog.to_url() == "postgresql://h"
    assert read_config.data_path == "s3://b/"


def test_a_variable_for_a_key_overrides_the_url() -> None:
    catalog = config(DUCKLAKE_CATALOG="postgresql://u:url@h/db", DUCKLAKE_CATALOG__PASSWORD="key").catalog
    assert catalog.secret_values() == ["key"]


def test_a_variable_for_the_account_completes_the_url() -> None:
    assert config(DUCKLAKE_STORAGE="az://c/p", DUCKLAKE_STORAGE__ACCOUNT_NAME="a").data_path == "az://c/p/"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read(DUCKLAKE_CATALOG="", DUCKLAKE_CATALOG__PASSWORD="", DUCKLAKE_SETTINGS="") == {}


def test_variables_of_other_programs_are_ignored() -> None:
    assert read(DUCKLAKE_ORCH_ANYTHING="x", DUCK="x", DUCKLAKEX="x", DUCKLAKE_CONFIG="x", DUCKLAKE_PROFILE="x") == {}


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("DUCKLAKE_READONLY", "DUCKLAKE_READ_ONLY"),
        ("DUCKLAKE_CATALOGUE", "DUCKLAKE_CATALOG"),
        ("DUCKLAKE_STORAGE_ACCESS_KEY_ID", "DUCKLAKE_STORAGE__ACCESS_KEY_ID"),
        ("DUCKLAKE_STORAGE__ACESS_KEY_ID", "DUCKLAKE_STORAGE__ACCESS_KEY_ID"),
        ("DUCKLAKE_RETRY__MAX_ATEMPTS", "DUCKLAKE_RETRY__MAX_ATTEMPTS"),
        ("DUCKLAKE_PROFIL", "DUCKLAKE_PROFILE"),
        ("DUCKLAKE_READ_ONLY__X", "DUCKLAKE_READ_ONLY"),
        ("DUCKLAKE_STORAGE__", "DUCKLAKE_STORAGE"),
    ],
)
def test_the_error_for_an_unknown_variable_suggests_the_nearest(variable: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{variable}` is unknown\. Did you mean `{nearest}`"):
        read(**{variable: "x"})


@pytest.mark.parametrize("variable", ["DUCKLAKE_ON_CONNECT", "DUCKLAKE_ON_ATTACH"])
def test_hooks_cannot_be_set_by_variables(variable: str) -> None:
    with pytest.raises(ConfigError, match="Pass it as an argument"):
        read(**{variable: "os.system"})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("DUCKLAKE_SETTINGS", "TimeZone=UTC"),
        ("DUCKLAKE_SETTINGS", '["a"]'),
        ("DUCKLAKE_RETRY", "3"),
        ("DUCKLAKE_CATALOG", '{"password": "canary"'),
        ("DUCKLAKE_EXTENSIONS", '["a"'),
    ],
)
def test_invalid_json_in_a_variable_is_refused(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"environment {variable}: the value is not a JSON") as caught:
        read(**{variable: text})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a", "catalog": "sqlite:///a b.sqlite?busy_timeout=5", "storage": "files", "create_if_missing": True},
        {
            "name": "b",
            "catalog": {
                "type": "postgres",
                "host": "db",
                "password": "p@\"ss'w",
                "parameters": {"sslrootcert": "/ca.pem"},
                "sslmode": "verify-full",
            },
            "storage": {
                "type": "s3",
                "bucket": "b",
                "access_key_id": "k",
                "secret_access_key": "s",
                "secret_parameters": {"kms_key_id": "x"},
            },
            "metadata_schema": "lakes",
            "attach_options": {"META_X": "1"},
            "settings": {"threads": 2, "preserve_insertion_order": False},
            "extensions": ["httpfs"],
            "memory_limit": "2GB",
            "keep_keys": "36h",
            "retry": {"max_attempts": 3},
            "maintenance": {"expire": {"older_than": "14 days", "keep": ["release *"]}},
            "alias": "other",
        },
        {"name": "c", "catalog": "md:db"},
        {"name": "d", "catalog": "sqlite:///d.sqlite", "storage": "d", "as_of": "2024-01-01T00:00:00+00:00"},
    ],
)
def test_a_lake_written_as_variables_is_read_back(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake(LakeConfig(**fields))
    for name, value in lake.environment().items():
        monkeypatch.setenv(name, value)
    assert DuckLake.from_env().config == lake.config


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_json_that_is_too_deep_or_has_too_many_digits_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the value is not a JSON (list|object)"):
        read_environment({"DUCKLAKE_EXTENSIONS" if text.startswith("[") else "DUCKLAKE_SETTINGS": text})
    assert plain(read_environment({"DUCKLAKE_SETTINGS__X": text})) == {"settings": {"x": text}}


@pytest.mark.parametrize("variable", ["DUCKLAKE_CATALOG", "DUCKLAKE_STORAGE", "DUCKLAKE_ALIAS", "DUCKLAKE_SETTINGS__X"])
def test_bytes_that_are_not_utf_8_are_refused(variable: str) -> None:
    environ = {"DUCKLAKE_CATALOG": "sqlite:///x.sqlite"} | {
        variable: "s3://lake\udce9" if "STORAGE" in variable else "sqlite:///lake\udce9"
    }
    with pytest.raises(ConfigError, match=r"(not Unicode|UTF-8)"):
        load(environ=environ)


def test_a_storage_with_an_unknown_scheme_is_no_path() -> None:
    with pytest.raises(ConfigError, match="is not a storage URL"):
        load(environ={"DUCKLAKE_CATALOG": "sqlite:///x.sqlite", "DUCKLAKE_STORAGE": "z://bucket/p?secret=canary"})
