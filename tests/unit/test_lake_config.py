"""The configuration of one lake: defaults, names, and incompatible combinations."""

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch.config.catalogs import DuckDBCatalog, MotherDuckCatalog, PostgresCatalog, SQLiteCatalog
from ducklake_orch.config.lake import LakeConfig, PoolPolicy, RetryPolicy, refuse_shared_data_paths
from ducklake_orch.config.loading import load
from ducklake_orch.config.storages import LocalStorage, S3Storage
from ducklake_orch.errors import ConfigError, IncompatibleConfigError


def lake(**fields: Any) -> LakeConfig:
    return LakeConfig(**({"name": "analytics", "catalog": "sqlite:///lake.sqlite"} | fields))


class TestDefaults:
    def test_without_catalog_and_storage_files_are_named_after_the_lake(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        config = LakeConfig(name="n")
        assert config.catalog == SQLiteCatalog(path=tmp_path / "n.sqlite")
        assert config.storage == LocalStorage(path=tmp_path / "n.files")

    @pytest.mark.parametrize("given", ["duckdb", {"type": "duckdb"}, {"url": "duckdb"}])
    def test_a_type_alone_means_a_file_named_after_the_lake(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        catalog = DuckDBCatalog(path=tmp_path / "n.ducklake")
        assert LakeConfig(name="n", catalog=given).catalog == catalog
        assert load(name="n", catalog=given, environ={}).config.catalog == catalog
        (tmp_path / "there").mkdir()
        (tmp_path / "there" / "lakes.toml").write_text('[lakes.n]\ncatalog = "duckdb"')
        in_file = load(path="there/lakes.toml", environ={}).config.catalog
        assert in_file == DuckDBCatalog(path=tmp_path / "there" / "n.ducklake")

    def test_a_slash_in_a_name_creates_no_folders(self) -> None:
        config = LakeConfig(name="team/lake")
        assert config.catalog.to_url().endswith("/team_lake.sqlite")
        assert str(config.data_path).endswith("/team_lake.files/")

    def test_paths_are_absolute_and_independent_of_chdir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        config = lake(catalog="duckdb:///a.ducklake", storage="files/../b")
        monkeypatch.chdir("/")
        assert config.catalog == DuckDBCatalog(path=tmp_path / "a.ducklake")
        assert config.data_path == f"{tmp_path}/b/"

    def test_optional_behaviour_is_off_or_left_to_the_engine(self) -> None:
        config = lake()
        assert (config.create_if_missing, config.read_only, config.snapshot, config.as_of) == (False, False, None, None)
        for name in ("metadata_schema", "encrypted", "data_inlining_row_limit", "override_data_path"):
            assert getattr(config, name) is None
        for name in ("automatic_migration", "memory_limit", "threads", "temp_directory", "max_temp_directory_size"):
            assert getattr(config, name) is None
        assert (config.attach_options, config.options, config.settings, config.extensions) == ({}, {}, {}, [])
        assert config.engine_settings == {}
        assert lake(storage="s3://bucket").engine_settings == {"s3_uploader_max_filesize": "50GB"}
        own = {"S3_uploader_max_filesize": "200GB"}
        assert lake(storage="s3://bucket", settings=own).engine_settings == own
        assert (config.on_connect, config.on_attach) == (None, None)

    def test_retry_and_task_defaults(self) -> None:
        config = lake()
        assert config.retry == RetryPolicy(max_attempts=10, max_seconds=120, base_ms=50, jitter=True)
        assert config.task_memory_limit == f"{512 * 1024**2}B"
        assert config.pool == PoolPolicy(size=8)

    def test_every_field_is_described(self) -> None:
        for model in (LakeConfig, RetryPolicy, PoolPolicy):
            assert all(field.description for field in model.model_fields.values())

    def test_catalog_and_storage_may_be_models_urls_or_tables(self) -> None:
        expected = lake(catalog=PostgresCatalog(host="h"), storage=S3Storage(bucket="b"))
        assert lake(catalog="postgresql://h", storage="s3://b") == expected
        assert lake(catalog={"type": "postgres", "host": "h"}, storage={"type": "s3", "bucket": "b"}) == expected


class TestNames:
    @pytest.mark.parametrize(
        ("name", "alias"),
        [
            ("analytics", "analytics"),
            ("my lake", "my_lake"),
            ("2024", "_2024"),
            ("a'b\"c;d", "a_b_c_d"),
            ("main", "main_lake"),
            ("Memory", "Memory_lake"),
            ("größe", "größe"),
            ("日本", "日本"),
            ("..", "__"),
        ],
    )
    def test_the_alias_is_derived_from_the_name(self, name: str, alias: str) -> None:
        config = LakeConfig(name=name)
        assert (config.name, config.alias) == (name, alias)
        assert config.metadata_alias == f"__ducklake_metadata_{alias}"

    def test_an_explicit_alias_is_used(self) -> None:
        assert lake(alias="my lake").alias == "my lake"

    @pytest.mark.parametrize("alias", ["main", "SYSTEM", "temp", " ", "a\x00b"])
    def test_an_alias_that_duckdb_reserves_is_refused(self, alias: str) -> None:
        with pytest.raises(ConfigError, match="`alias`"):
            lake(alias=alias)

    def test_a_lake_needs_a_name(self) -> None:
        with pytest.raises(ConfigError, match=r"^LakeConfig: `name` = '': String should have at least 1 character\.$"):
            LakeConfig(name="")
        with pytest.raises(ConfigError, match="`name` is missing"):
            LakeConfig(catalog="sqlite:///x.sqlite")  # type: ignore[call-arg]


class TestRefusedValues:
    def test_the_error_for_an_unknown_field_suggests_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"`read_onyl`.*Did you mean `read_only`"):
            lake(read_onyl=True)

    def test_as_of_without_a_time_zone_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            lake(as_of=datetime(2026, 1, 1))
        assert lake(as_of=datetime(2026, 1, 1, tzinfo=UTC)).as_of is not None

    def test_snapshot_and_as_of_together_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="cannot be combined"):
            lake(snapshot=5, as_of=datetime(2026, 1, 1, tzinfo=UTC))

    @pytest.mark.parametrize("field", ["settings", "attach_options"])
    def test_secrets_in_visible_fields_are_refused(self, field: str) -> None:
        with pytest.raises(ConfigError, match="is a secret and would be shown") as caught:
            lake(**{field: {"meta_password": "canary"}})
        assert "canary" not in str(caught.value)

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`target_size`.*Did you mean `target_file_size`"):
            lake(options={"target_size": "512MB"})
        assert lake(options={"target_file_size": "512MB"}).options == {"target_file_size": "512MB"}

    @pytest.mark.parametrize(
        "options",
        [{"META_ISOLATION_LEVEL": "read committed"}, {"metadata_parameters": {"isolation_level": "READ COMMITTED"}}],
    )
    def test_an_isolation_level_that_shows_later_commits_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="REPEATABLE READ"):
            lake(attach_options=options)
        assert lake(attach_options={"meta_isolation_level": "serializable"}).attach_options

    def test_unknown_attach_options_are_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`busy_time`.*Did you mean `busy_timeout`"):
            lake(attach_options={"busy_time": 5})

    @pytest.mark.parametrize("key", ["metadata_catalog", "METADATA_PARAMETERS", "meta_type", "META_SCHEMA"])
    def test_known_attach_options_are_accepted(self, key: str) -> None:
        assert key in lake(attach_options={key: "x"}).attach_options

    @pytest.mark.parametrize(
        ("key", "field"), [("DATA_PATH", "storage"), ("read_only", "read_only"), ("snapshot_version", "snapshot")]
    )
    def test_attach_options_with_their_own_field_are_refused(self, key: str, field: str) -> None:
        with pytest.raises(ConfigError, match=rf"`{key}`.*field of its own: `{field}`"):
            lake(attach_options={key: "x"})

    @pytest.mark.parametrize(
        "fields",
        [
            {"threads": 0},
            {"snapshot": -1},
            {"memory_limit": "lots"},
            {"lock_timeout": "-1s"},
            {"retry": {"max_attempts": 0}},
        ],
    )
    def test_values_out_of_range_are_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(fields.get("retry", fields)))):
            lake(**fields)


class TestIncompatiblePairs:
    def test_managed_motherduck_takes_no_storage(self) -> None:
        with pytest.raises(IncompatibleConfigError, match="Leave the storage out"):
            lake(catalog="md:db", storage="s3://b")
        config = lake(catalog="md:db")
        assert (config.storage, config.data_path) == (None, None)

    @pytest.mark.parametrize("mode", ["own_bucket", "own_compute"])
    @pytest.mark.parametrize("storage", [None, "./files", "gs://b", "az://c?account_name=a"])
    def test_an_own_bucket_is_s3_or_r2(self, mode: str, storage: str | None) -> None:
        with pytest.raises(IncompatibleConfigError, match="S3 or R2"):
            lake(catalog=f"md:db?mode={mode}", storage=storage)

    @pytest.mark.parametrize("storage", ["s3://b", "s3://b?region=us-east-1", "r2://b?account_id=a&region=eu"])
    def test_a_bucket_in_motherducks_region_or_at_r2_is_accepted(self, storage: str) -> None:
        assert lake(catalog="md:db?mode=own_bucket&region=us-east-1", storage=storage).storage

    def test_a_bucket_in_another_region_is_refused(self) -> None:
        with pytest.raises(IncompatibleConfigError, match=r"`us-east-1`.*`eu-central-1`"):
            lake(catalog="md:db?mode=own_bucket&region=us-east-1", storage="s3://b?region=eu-central-1")

    @pytest.mark.parametrize(
        ("other", "relation"),
        [("s3://b/a/", "share"), ("s3://b/a/c/", "nest"), ("s3://b/", "nest")],
    )
    def test_lakes_with_shared_or_nested_data_paths_are_refused(self, other: str, relation: str) -> None:
        with pytest.raises(IncompatibleConfigError, match=relation):
            refuse_shared_data_paths({"one": "s3://b/a/", "two": other})

    def test_lakes_in_sibling_folders_are_accepted(self) -> None:
        refuse_shared_data_paths({"one": "s3://b/a/", "two": "s3://b/ab/", "three": "/b/a/"})


class TestRequiredExtensions:
    @pytest.mark.parametrize(
        ("catalog", "storage", "extensions"),
        [
            ("duckdb:///x.ducklake", "./files", ["ducklake"]),
            ("sqlite:///x.sqlite", "./files", ["ducklake", "sqlite_scanner"]),
            ("postgresql://h", "s3://b", ["ducklake", "postgres_scanner", "httpfs"]),
            ("postgresql://h", "s3://b?provider=credential_chain", ["ducklake", "postgres_scanner", "httpfs", "aws"]),
            ("postgresql://h", "s3://b?profile=p", ["ducklake", "postgres_scanner", "httpfs", "aws"]),
            ("mysql://h", "gs://b", ["ducklake", "mysql_scanner", "httpfs"]),
            ("mysql://h", "r2://b?account_id=a", ["ducklake", "mysql_scanner", "httpfs"]),
            ("postgresql://h", "az://c?account_name=a", ["ducklake", "postgres_scanner", "azure"]),
            (
                "postgresql://h",
                "az://c?account_name=a&provider=credential_chain",
                ["ducklake", "postgres_scanner", "azure"],
            ),
            ("md:db", None, ["ducklake", "motherduck"]),
            ("md:db?mode=own_bucket", "s3://b", ["ducklake", "motherduck", "httpfs"]),
        ],
    )
    def test_a_catalog_and_storage_need_these_extensions(
        self, catalog: str, storage: str | None, extensions: list[str]
    ) -> None:
        assert lake(catalog=catalog, storage=storage).required_extensions == extensions

    def test_additional_extensions_come_last_and_once(self) -> None:
        config = lake(storage="./files", extensions=["spatial", "ducklake"])
        assert config.required_extensions == ["ducklake", "sqlite_scanner", "spatial"]


class TestOtherValues:
    def test_settings_override_limits(self) -> None:
        config = lake(memory_limit="2GB", threads=4, settings={"threads": 2, "TimeZone": "UTC"})
        assert config.engine_settings == {"memory_limit": "2000000000B", "threads": 2, "TimeZone": "UTC"}

    def test_durations_are_read_as_written(self) -> None:
        config = lake(lock_timeout="5 min", pool={"idle": "1h"})
        assert (config.lock_timeout, config.pool.idle) == (timedelta(minutes=5), timedelta(hours=1))

    def test_pickling_keeps_secrets(self) -> None:
        config = lake(
            catalog=MotherDuckCatalog(database="db", token="canary", mode="own_bucket"),
            storage=S3Storage(bucket="b", access_key_id="k", secret_access_key="s", secret_parameters={"x": "y"}),
        )
        copy = pickle.loads(pickle.dumps(config))
        assert copy == config
        assert sorted(copy.secret_values()) == ["canary", "s", "y"]
