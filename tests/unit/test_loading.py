"""Loading a lake: precedence of sources, selection of the lake, and the origin of each value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch.config.catalogs import DuckDBCatalog, MotherDuckCatalog, PostgresCatalog, SQLiteCatalog
from ducklake_orch.config.lake import LakeConfig, RetryPolicy
from ducklake_orch.config.loading import Loaded, load
from ducklake_orch.config.storages import LocalStorage, S3Storage
from ducklake_orch.errors import ConfigError, ConfigFileError, IncompatibleConfigError

WriteToml = Callable[[str], Path]

ONE = """
[lakes.analytics]
catalog = "pg"
storage = "bucket"
read_only = true

[catalogs.pg]
type = "postgres"
host = "db"
user = "loader"
password = "file"

[storages.bucket]
type = "s3"
bucket = "b"

[profiles.dev.lakes.analytics]
read_only = false

[profiles.dev.catalogs.pg]
host = "dev-db"
"""

TWO = """
[lakes.analytics]
catalog = "postgresql://h/db"
[lakes.sales]
catalog = "mysql://h/db"
"""


def load_with(path: Path | None = None, environ: dict[str, str] | None = None, **arguments: Any) -> Loaded:
    return load(path=path, environ=environ or {}, **arguments)


class TestPrecedence:
    @pytest.mark.parametrize(
        ("environ", "arguments", "host", "origin"),
        [
            ({}, {}, "db", "ducklake.toml [catalogs.pg]"),
            ({}, {"profile": "dev"}, "dev-db", "ducklake.toml [profiles.dev.catalogs.pg]"),
            ({"DUCKLAKE_PROFILE": "dev"}, {}, "dev-db", "ducklake.toml [profiles.dev.catalogs.pg]"),
            ({"DUCKLAKE_CATALOG__HOST": "e"}, {"profile": "dev"}, "e", "environment DUCKLAKE_CATALOG__HOST"),
            ({"DUCKLAKE_CATALOG__HOST": "e"}, {"catalog": {"host": "a"}}, "a", "argument"),
        ],
    )
    def test_arguments_override_environment_profile_and_file(
        self, toml: WriteToml, environ: dict[str, str], arguments: dict[str, Any], host: str, origin: str
    ) -> None:
        loaded = load_with(toml(ONE), environ, **arguments)
        assert isinstance(loaded.config.catalog, PostgresCatalog)
        assert (loaded.config.catalog.host, loaded.origins["catalog.host"]) == (host, origin)
        assert loaded.config.catalog.user == "loader"

    def test_defaults_come_last(self) -> None:
        loaded = load_with(name="n")
        assert loaded.config == LakeConfig(name="n")
        assert loaded.origins["catalog"] == loaded.origins["catalog.path"] == "default"

    def test_a_variable_for_one_key_keeps_the_other_keys_of_the_file(self, toml: WriteToml) -> None:
        loaded = load_with(toml(ONE), {"DUCKLAKE_CATALOG__PASSWORD": "env", "DUCKLAKE_STORAGE__REGION": "eu"})
        assert loaded.config.catalog == PostgresCatalog(host="db", user="loader", password="env")
        assert loaded.config.storage == S3Storage(bucket="b", region="eu")

    def test_a_variable_for_one_key_changes_only_that_part_of_a_url(self, toml: WriteToml) -> None:
        path = toml('[lakes.a]\ncatalog = "postgresql://u:file@h:5433/db"')
        loaded = load_with(path, {"DUCKLAKE_CATALOG__PASSWORD": "env"})
        expected = PostgresCatalog(host="h", port=5433, user="u", password="env", database="db")
        assert loaded.config.catalog == expected
        assert loaded.origins["catalog.password"] == "environment DUCKLAKE_CATALOG__PASSWORD"
        assert loaded.origins["catalog.host"] == "ducklake.toml [lakes.a]"

    @pytest.mark.parametrize("url", ["postgresql://other/db", "sqlite:////x.sqlite"])
    def test_an_overriding_url_drops_the_password_of_the_first(self, toml: WriteToml, url: str) -> None:
        assert load_with(toml(ONE), {"DUCKLAKE_CATALOG": url}).config.catalog.secret_values() == []
        assert load_with(toml(ONE), catalog=url).config.catalog.secret_values() == []

    def test_an_overriding_type_drops_the_keys_of_the_first(self, toml: WriteToml) -> None:
        environ = {"DUCKLAKE_CATALOG__TYPE": "sqlite", "DUCKLAKE_CATALOG__PATH": "/x.sqlite"}
        assert load_with(toml(ONE), environ).config.catalog == SQLiteCatalog(path=Path("/x.sqlite"))

    def test_an_argument_is_completed_by_the_environment_but_not_changed(self) -> None:
        environ = {"DUCKLAKE_CATALOG__PASSWORD": "env", "DUCKLAKE_CATALOG__USER": "env"}
        catalog = load_with(environ=environ, name="n", catalog="postgresql://u@h").config.catalog
        assert catalog == PostgresCatalog(host="h", user="u", password="env")

    def test_a_model_argument_replaces_all_keys(self, toml: WriteToml) -> None:
        model = PostgresCatalog(host="mine")
        loaded = load_with(
            toml(ONE), {"DUCKLAKE_CATALOG__PASSWORD": "env"}, catalog=model, retry=RetryPolicy(base_ms=1)
        )
        assert loaded.config.catalog == model
        assert loaded.origins["catalog"] == loaded.origins["catalog.host"] == "argument"
        assert loaded.config.retry == RetryPolicy(base_ms=1)

    def test_a_storage_argument_may_be_a_path(self, tmp_path: Path) -> None:
        assert load_with(name="n", storage=tmp_path / "files").config.data_path == f"{tmp_path}/files/"

    def test_an_argument_of_none_counts_as_left_out(self, toml: WriteToml) -> None:
        assert load_with(toml(ONE), catalog=None, read_only=None).config.read_only is True

    def test_settings_are_merged_by_key_ignoring_case(self, toml: WriteToml) -> None:
        path = toml('[lakes.a.settings]\nHome_Directory = "/a"\nthreads = 2')
        loaded = load_with(path, {"DUCKLAKE_SETTINGS__THREADS": "4"}, settings={"home_directory": "/b"})
        assert loaded.config.settings == {"Home_Directory": "/b", "threads": 4}
        assert loaded.origins["settings"] == "argument"
        assert loaded.origins["settings.threads"] == "environment DUCKLAKE_SETTINGS__THREADS"


class TestWhichLake:
    def test_the_only_lake_of_a_file_needs_no_name(self, toml: WriteToml) -> None:
        loaded = load_with(toml(ONE))
        assert (loaded.config.name, loaded.origins["name"]) == ("analytics", "ducklake.toml [lakes.analytics]")

    def test_a_file_with_several_lakes_needs_a_name(self, toml: WriteToml) -> None:
        with pytest.raises(ConfigFileError, match=r"several lakes: `analytics`, `sales`.*DUCKLAKE_NAME"):
            load_with(toml(TWO))

    def test_a_lake_is_named_by_argument_or_environment(self, toml: WriteToml) -> None:
        assert load_with(toml(TWO), lake="sales").config.catalog.type == "mysql"
        assert load_with(toml(TWO), name="sales").config.catalog.type == "mysql"
        loaded = load_with(toml(TWO), {"DUCKLAKE_NAME": "sales"})
        assert (loaded.config.catalog.type, loaded.origins["name"]) == ("mysql", "environment DUCKLAKE_NAME")

    def test_the_error_for_an_unknown_lake_suggests_the_nearest(self, toml: WriteToml) -> None:
        with pytest.raises(ConfigFileError, match=r"no lake `analytcs`.*Did you mean `analytics`"):
            load_with(toml(TWO), lake="analytcs")

    def test_two_different_names_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="two names"):
            load_with(lake="a", name="b")

    def test_a_lake_that_only_variables_or_arguments_describe_needs_no_name(self) -> None:
        by_variables = load_with(environ={"DUCKLAKE_CATALOG": "sqlite:///x.sqlite"})
        by_arguments = load_with(catalog="sqlite:///x.sqlite")
        assert by_variables.config.name == by_arguments.config.name == "lake"
        assert by_variables.origins["name"] == "default"
        with pytest.raises(ConfigError, match=r"No lake is given.*DUCKLAKE_CATALOG"):
            load_with()

    def test_a_file_without_lakes_is_refused(self, toml: WriteToml) -> None:
        with pytest.raises(ConfigFileError, match=r"no lake.*\[lakes.<name>\]"):
            load_with(toml(""))

    def test_the_variables_of_a_named_lake_do_not_redirect_another(self, toml: WriteToml) -> None:
        environ = {"DUCKLAKE_NAME": "analytics", "DUCKLAKE_CATALOG": "duckdb:////other.ducklake"}
        assert load_with(toml(TWO), environ).config.catalog == DuckDBCatalog(path=Path("/other.ducklake"))
        assert load_with(toml(TWO), environ, lake="analytics").config.catalog.type == "duckdb"
        assert load_with(toml(TWO), environ, lake="sales").config.catalog.type == "mysql"

    def test_variables_without_a_lake_name_apply_to_any_lake(self, toml: WriteToml) -> None:
        environ = {"DUCKLAKE_CATALOG": "duckdb:////other.ducklake"}
        for name in ("analytics", "sales"):
            assert load_with(toml(TWO), environ, lake=name).config.catalog.type == "duckdb"


class TestOrigins:
    def test_every_field_has_an_origin(self, toml: WriteToml) -> None:
        for loaded in (load_with(toml(ONE)), load_with(name="n")):
            assert set(LakeConfig.model_fields) <= set(loaded.origins)
            assert {"retry.max_attempts", "pool.size", "catalog.type"} <= set(loaded.origins)

    def test_origins_are_readable(self, toml: WriteToml) -> None:
        environ = {"DUCKLAKE_STORAGE__PREFIX": "p", "DUCKLAKE_RETRY__MAX_ATTEMPTS": "3"}
        origins = load_with(toml(ONE), environ, profile="dev", threads=2).origins
        expected = {
            "name": "ducklake.toml [lakes.analytics]",
            "catalog": "ducklake.toml [catalogs.pg]",
            "catalog.host": "ducklake.toml [profiles.dev.catalogs.pg]",
            "catalog.port": "default",
            "storage.bucket": "ducklake.toml [storages.bucket]",
            "storage.prefix": "environment DUCKLAKE_STORAGE__PREFIX",
            "read_only": "ducklake.toml [profiles.dev.lakes.analytics]",
            "retry.max_attempts": "environment DUCKLAKE_RETRY__MAX_ATTEMPTS",
            "retry.jitter": "default",
            "threads": "argument",
            "snapshot": "default",
        }
        assert {key: origins[key] for key in expected} == expected

    def test_a_url_is_the_origin_of_its_parts(self) -> None:
        origins = load_with(environ={"DUCKLAKE_NAME": "n", "DUCKLAKE_CATALOG": "postgresql://u@h/db"}).origins
        assert origins["catalog"] == origins["catalog.user"] == "environment DUCKLAKE_CATALOG"


class TestErrorOrigins:
    @pytest.mark.parametrize(
        ("text", "environ", "arguments", "place"),
        [
            (
                '[lakes.a.catalog]\ntype = "postgres"\nport = 0',
                {},
                {},
                "ducklake.toml: lakes.a.catalog.port: postgres:",
            ),
            ("[lakes.a]\nthreads = 0", {}, {}, r"ducklake.toml: lakes.a.threads: LakeConfig"),
            ("[lakes.a]", {"DUCKLAKE_THREADS": "0"}, {}, "environment DUCKLAKE_THREADS: "),
            ("[lakes.a]", {"DUCKLAKE_RETRY__MAX_ATTEMPTS": "0"}, {}, "environment DUCKLAKE_RETRY__MAX_ATTEMPTS: "),
            ("[lakes.a]", {"DUCKLAKE_CATALOG": "postgre://h"}, {}, "environment DUCKLAKE_CATALOG: "),
            ("[lakes.a]", {"DUCKLAKE_CATALOG__PASSWORD": "x"}, {}, "environment DUCKLAKE_CATALOG__PASSWORD: .*`type`"),
            ("[lakes.a]", {}, {"threads": 0}, "argument threads: "),
            ("[lakes.a]", {}, {"treads": 1}, "argument treads: .*Did you mean `threads`"),
            ('[lakes.a.storage]\ntype = "s3"', {}, {}, r"ducklake.toml: lakes.a.storage.type: s3: `bucket` is missing"),
            ('[lakes.a]\ncatalog = "md:db"\nstorage = "s3://b"', {}, {}, r"ducklake.toml.*lakes.a.*Leave the storage"),
        ],
    )
    def test_an_error_names_the_origin_of_the_value(
        self, toml: WriteToml, text: str, environ: dict[str, str], arguments: dict[str, Any], place: str
    ) -> None:
        with pytest.raises(ConfigError, match=place):
            load_with(toml(text), environ, **arguments)

    def test_an_incompatible_pair_keeps_its_own_error(self, toml: WriteToml) -> None:
        with pytest.raises(IncompatibleConfigError):
            load_with(toml('[lakes.a]\ncatalog = "md:db"\nstorage = "s3://b"'))


class TestWithoutAFile:
    def test_a_lake_can_be_defined_by_the_environment_alone(self) -> None:
        environ = {
            "DUCKLAKE_NAME": "analytics",
            "DUCKLAKE_CATALOG": "postgresql://u@h/db",
            "DUCKLAKE_CATALOG__PASSWORD": "canary",
            "DUCKLAKE_STORAGE": "s3://b/p",
            "DUCKLAKE_STORAGE__ACCESS_KEY_ID": "k",
            "DUCKLAKE_STORAGE__SECRET_ACCESS_KEY": "s",
        }
        assert load_with(environ=environ).config == LakeConfig(
            name="analytics",
            catalog=PostgresCatalog(host="h", user="u", password="canary", database="db"),
            storage=S3Storage(bucket="b", prefix="p", access_key_id="k", secret_access_key="s"),
        )

    def test_the_file_can_be_named_by_the_environment(self, toml: WriteToml) -> None:
        assert load_with(environ={"DUCKLAKE_CONFIG": str(toml(ONE))}).config.name == "analytics"

    def test_a_profile_needs_a_file(self) -> None:
        with pytest.raises(ConfigError, match=r"`dev`.*DUCKLAKE_CONFIG"):
            load_with(name="n", profile="dev")

    def test_the_environment_of_the_process_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DUCKLAKE_NAME", "from-process")
        assert load().config.name == "from-process"

    def test_motherduck_has_no_default_storage(self) -> None:
        config = load_with(name="n", catalog="md:db").config
        assert (config.catalog, config.storage) == (MotherDuckCatalog(database="db"), None)

    def test_other_catalogs_have_a_default_storage(self) -> None:
        assert isinstance(load_with(name="n", catalog="postgresql://h").config.storage, LocalStorage)
