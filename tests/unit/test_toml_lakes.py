"""The meaning of names, profiles, variables and paths in a TOML file of lakes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.loading import load
from ducklake_orch.config.storages import S3Storage
from ducklake_orch.errors import ConfigFileError, IncompatibleConfigError

WriteToml = Callable[[str], Path]


def config(path: Path, lake: str | None = None, profile: str | None = None, **environ: str) -> LakeConfig:
    return load(path=path, lake=lake, profile=profile, environ=environ).config


class TestNames:
    def test_a_catalog_is_a_name_a_url_or_a_table(self, toml: WriteToml) -> None:
        path = toml("""
            [catalogs.pg]
            url = "postgresql://u@h/db"
            [lakes.by_name]
            catalog = "pg"
            storage = "s3://b/1"
            [lakes.by_url]
            catalog = "postgresql://u@h/db"
            storage = { url = "s3://b/2" }
            [lakes.by_table]
            catalog = { type = "postgres", host = "h", user = "u", database = "db" }
            storage = { type = "s3", bucket = "b", prefix = "3" }
        """)
        catalogs = [config(path, lake).catalog for lake in ("by_name", "by_url", "by_table")]
        assert catalogs[0] == catalogs[1] == catalogs[2]
        assert config(path, "by_url").data_path == "s3://b/2/"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('catalog = "pgg"', r"lakes\.a\.catalog: `pgg` is neither a name in \[catalogs\].*Did you mean `pg`"),
            ('storage = "bukket"', r"lakes\.a\.storage: `bukket` .*Did you mean `bucket`.*`\./bukket`"),
            ('storage = "${NAME}"', r"lakes\.a\.storage: `bucket` .*chosen by a variable.*profile"),
        ],
    )
    def test_a_value_that_is_neither_name_nor_url_is_refused(self, toml: WriteToml, line: str, message: str) -> None:
        path = toml(f'[catalogs.pg]\nurl = "postgresql://h"\n[storages.bucket]\nurl = "s3://b"\n[lakes.a]\n{line}')
        with pytest.raises(ConfigFileError, match=message):
            config(path, NAME="bucket")

    def test_without_named_storages_the_remedy_suggests_a_folder(self, toml: WriteToml) -> None:
        with pytest.raises(ConfigFileError, match=r"Write a folder as `\./files`"):
            config(toml('[lakes.a]\nstorage = "files"'))

    def test_keys_next_to_a_name_override_its_values(self, toml: WriteToml) -> None:
        path = toml("""
            [storages.bucket]
            url = "s3://b/p"
            [lakes.a]
            storage = "bucket"
            [profiles.dev.lakes.a.storage]
            region = "eu"
        """)
        assert config(path, profile="dev").storage == S3Storage(bucket="b", prefix="p", region="eu")


class TestSharedStorages:
    SHARED = """
        [storages.bucket]
        url = "s3://b/p"
        [lakes.one]
        storage = "bucket"
        [lakes.two]
        storage = "bucket"
        [lakes.three]
    """

    def test_each_lake_gets_its_own_folder(self, toml: WriteToml) -> None:
        path = toml(self.SHARED)
        assert [config(path, lake).data_path for lake in ("one", "two")] == ["s3://b/p/one/", "s3://b/p/two/"]

    def test_a_single_lake_uses_the_storage_unchanged(self, toml: WriteToml) -> None:
        assert config(toml('[storages.b]\nurl = "s3://b/p"\n[lakes.one]\nstorage = "b"')).data_path == "s3://b/p/"

    def test_a_shared_local_folder_is_split_by_lake(self, toml: WriteToml, tmp_path: Path) -> None:
        path = toml(self.SHARED.replace("s3://b/p", "./files"))
        assert config(path, "two").data_path == f"{tmp_path}/files/two/"

    def test_a_shared_bucket_without_prefix_is_split_by_lake(self, toml: WriteToml) -> None:
        assert config(toml(self.SHARED.replace("s3://b/p", "s3://b")), "two").data_path == "s3://b/two/"

    def test_a_slash_in_a_lake_name_nests_no_folders(self, toml: WriteToml) -> None:
        path = toml(self.SHARED.replace("lakes.two", 'lakes."one/two"'))
        assert config(path, "one/two").data_path == "s3://b/p/one_two/"

    def test_environment_variables_override_the_storage_of_their_lake(self, toml: WriteToml) -> None:
        loaded = load(path=toml(self.SHARED), lake="one", environ={"DUCKLAKE_STORAGE__PREFIX": "mine"})
        assert loaded.config.data_path == "s3://b/mine/"

    @pytest.mark.parametrize("other", ["s3://b/p", "s3a://b/p/", "s3://b/p/inside", "s3://b"])
    def test_lakes_with_shared_or_nested_data_paths_are_refused(self, toml: WriteToml, other: str) -> None:
        path = toml(f'[lakes.one]\nstorage = "s3://b/p"\n[lakes.two]\nstorage = "{other}"')
        with pytest.raises(IncompatibleConfigError, match=r"ducklake\.toml: The lakes .*folder of its own"):
            config(path, "one")

    @pytest.mark.parametrize(
        ("one", "two"),
        [
            ('{ url = "s3://b", endpoint = "a:9000" }', '{ url = "s3://b", endpoint = "b:9000" }'),
            ('{ url = "az://c", account_name = "a" }', '{ url = "az://c", account_name = "b" }'),
        ],
    )
    def test_equal_paths_on_different_servers_are_different_places(self, toml: WriteToml, one: str, two: str) -> None:
        assert config(toml(f"[lakes.one]\nstorage = {one}\n[lakes.two]\nstorage = {two}"), "one").storage

    def test_lakes_with_missing_variables_are_not_compared(self, toml: WriteToml) -> None:
        path = toml('[lakes.one]\nstorage = "s3://b"\n[lakes.two]\nstorage = "${TWO}"')
        assert config(path, "one").data_path == "s3://b/"
        with pytest.raises(IncompatibleConfigError):
            config(path, "one", TWO="s3://b/two")

    def test_default_folders_and_managed_lakes_do_not_collide(self, toml: WriteToml) -> None:
        path = toml('[lakes.one]\n[lakes.two]\n[lakes.three]\ncatalog = "md:db"')
        assert config(path, "one").storage


class TestPaths:
    def test_relative_paths_in_a_file_start_at_its_folder(
        self, toml: WriteToml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = toml('[lakes.a]\ncatalog = "sqlite:///lake.sqlite"\nstorage = "./files"')
        monkeypatch.chdir("/")
        assert config(path).catalog.to_url() == f"sqlite:///{tmp_path}/lake.sqlite"
        assert config(path).data_path == f"{tmp_path}/files/"
        monkeypatch.chdir(tmp_path)
        assert config(Path("ducklake.toml")) == config(path)

    def test_default_paths_start_at_the_folder_of_the_file(
        self, toml: WriteToml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = toml("[lakes.a]")
        monkeypatch.chdir("/")
        assert config(path).catalog.to_url() == f"sqlite:///{tmp_path}/a.sqlite"
        assert config(path).data_path == f"{tmp_path}/a.files/"

    def test_paths_in_arguments_and_variables_start_at_the_working_directory(
        self, toml: WriteToml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        path = toml("[lakes.a]")
        assert config(path, DUCKLAKE_STORAGE="files").data_path == f"{tmp_path}/here/files/"
        assert load(path=path, environ={}, storage="./files").config.data_path == f"{tmp_path}/here/files/"


class TestVariables:
    def test_variables_are_replaced_in_every_text(self, toml: WriteToml) -> None:
        path = toml("""
            [lakes.a]
            catalog = "pg"
            extensions = ["${EXT}"]
            read_only = "${RO:-true}"
            [lakes.a.settings]
            TimeZone = "${TZ:-UTC}"
            [catalogs.pg]
            type = "postgres"
            host = "${HOST}.${DOMAIN:-local}"
            port = "${PGPORT}"
            password = "$${not} ${PASSWORD}"
        """)
        loaded = config(path, EXT="spatial", HOST="db", PGPORT="5433", PASSWORD="p@ss ${x}")
        assert loaded.catalog.to_url(reveal=True) == "postgresql://:%24%7Bnot%7D%20p%40ss%20%24%7Bx%7D@db.local:5433"
        assert (loaded.extensions, loaded.read_only, loaded.settings) == (["spatial"], True, {"TimeZone": "UTC"})

    def test_an_empty_variable_takes_the_default_and_counts_as_set(self, toml: WriteToml) -> None:
        assert config(toml('[lakes.a]\nalias = "${A:-b}"'), A="").alias == "b"
        assert config(toml('[lakes.a]\nalias = "x${A}"'), A="").alias == "x"

    def test_the_error_for_a_missing_variable_names_its_place(self, toml: WriteToml) -> None:
        path = toml('[lakes.a]\ncatalog = "pg"\n[catalogs.pg]\nurl = "postgresql://h"\npassword = "${PGPASSWORD}"')
        with pytest.raises(ConfigFileError) as caught:
            config(path)
        assert (
            caught.value.message == f"{path}: catalogs.pg.password: the environment variable `PGPASSWORD` is not set."
        )
        assert "${PGPASSWORD:-default}" in str(caught.value.remedy)

    def test_missing_variables_of_other_lakes_are_ignored(self, toml: WriteToml) -> None:
        path = toml('[lakes.a]\n[lakes.b]\ncatalog = "pg"\n[catalogs.pg]\nurl = "${MISSING}"')
        assert config(path, "a").name == "a"
        with pytest.raises(ConfigFileError, match="MISSING"):
            config(path, "b")

    @pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A-b}", "${A:-${B}}", "${A"])
    def test_a_malformed_variable_is_refused(self, toml: WriteToml, text: str) -> None:
        with pytest.raises(ConfigFileError, match=r"lakes\.a\.alias: .*Write `\$\{VAR\}`"):
            config(toml(f'[lakes.a]\nalias = "{text}"'), A="a", B="b")


class TestProfiles:
    FILE = """
        [lakes.a]
        catalog = "pg"
        storage = "bucket"
        settings = { threads = 2, TimeZone = "UTC" }
        [catalogs.pg]
        type = "postgres"
        host = "prod"
        password = "prod"
        [storages.bucket]
        url = "s3://prod"
        region = "eu"
        [profiles.host.catalogs.pg]
        host = "dev"
        [profiles.type.catalogs.pg]
        type = "sqlite"
        path = "/dev.sqlite"
        [profiles.url.storages.bucket]
        url = "s3://dev"
        [profiles.text.storages]
        bucket = "s3://dev"
        [profiles.lake.lakes.a]
        catalog = "mysql://dev"
        settings = { threads = 4 }
        [profiles.new.catalogs.local]
        url = "sqlite:////dev.sqlite"
        [profiles.new.lakes.a]
        catalog = "local"
    """

    @pytest.mark.parametrize(
        ("profile", "catalog", "storage"),
        [
            (None, "postgresql://:prod@prod", "s3://prod?region=eu"),
            ("host", "postgresql://:prod@dev", "s3://prod?region=eu"),
            ("type", "sqlite:////dev.sqlite", "s3://prod?region=eu"),
            ("url", "postgresql://:prod@prod", "s3://dev"),
            ("text", "postgresql://:prod@prod", "s3://dev"),
            ("lake", "mysql://dev", "s3://prod?region=eu"),
            ("new", "sqlite:////dev.sqlite", "s3://prod?region=eu"),
        ],
    )
    def test_a_profile_overrides_the_file(
        self, toml: WriteToml, profile: str | None, catalog: str, storage: str
    ) -> None:
        loaded = config(toml(self.FILE), profile=profile)
        assert loaded.storage is not None
        assert loaded.catalog.to_url(reveal=True) == catalog
        assert loaded.storage.to_url().replace("/?", "?") == storage
        assert loaded.settings["TimeZone"] == "UTC"

    def test_the_error_for_an_unknown_profile_suggests_the_nearest(self, toml: WriteToml) -> None:
        with pytest.raises(ConfigFileError, match=r"no profile `hosts`.*Did you mean `host`"):
            config(toml(self.FILE), profile="hosts")
        with pytest.raises(ConfigFileError, match=r"no profile `dev`.*\[profiles\.dev\.lakes"):
            config(toml("[lakes.a]"), profile="dev")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[profiles.dev.lakes.b]\nread_only = true", r"`profiles\.dev\.lakes\.b` .*not in \[lakes\].*`a`"),
            ("[profiles.dev.catalogs.pgg]\nhost = 'x'", r"`profiles\.dev\.catalogs\.pgg` .*not in \[catalogs\].*`pg`"),
        ],
    )
    def test_a_profile_cannot_change_missing_lakes_or_fields(self, toml: WriteToml, text: str, message: str) -> None:
        with pytest.raises(ConfigFileError, match=message):
            config(toml(f'[lakes.a]\n[catalogs.pg]\nurl = "postgresql://h"\n{text}'))


def test_values_keep_their_types(toml: WriteToml) -> None:
    text = "[lakes.a]\nas_of = 2026-01-01T00:00:00Z\nlock_timeout = 5\n[lakes.a.options]\nauto_compact = false"
    loaded = config(toml(text))
    assert str(loaded.as_of) == "2026-01-01 00:00:00+00:00"
    assert loaded.options == {"auto_compact": False}
