"""A lake as a Dagster resource: its fields, the sources of their values, and hidden secrets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import ducklake_orch
from ducklake_orch import DuckLake, LakeConfig
from ducklake_orch import dagster as hosted
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import PoolPolicy, RetryPolicy
from ducklake_orch.config.model import Model
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.dagster import DuckLakeFileResource, DuckLakeResource, SparkConfig
from ducklake_orch.errors import ConfigError
from tests.support.refusals import refused

CANARY = "canary-7f3a' \"\\;x"


def resolved(resource: Any, run_config: dict[str, Any] | None = None) -> LakeConfig:
    """Return the lake configuration that an asset receives."""
    seen: list[LakeConfig] = []

    @dg.asset
    def capture(lake: dg.ResourceParam[Any]) -> None:
        seen.append(lake.lake().config)

    config = {"resources": {"lake": {"config": run_config}}} if run_config else None
    assert dg.materialize([capture], resources={"lake": resource}, run_config=config).success
    return seen[0]


MODELS = [*CATALOGS.types.values(), *STORAGES.types.values(), RetryPolicy, PoolPolicy]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_config_class_mirrors_the_fields_of_the_core(model: type[Model]) -> None:
    mirror = getattr(hosted, model.__name__)
    assert set(mirror.model_fields) == set(model.model_fields)
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert {name for name, field in mirror.model_fields.items() if field.is_required()} == required


def test_the_resource_mirrors_the_fields_of_lake_config() -> None:
    hooks = {"on_connect", "on_attach"}  # functions cannot be part of a Dagster configuration
    assert set(DuckLakeResource.model_fields) - {"spark"} == set(LakeConfig.model_fields) - hooks


@pytest.mark.parametrize(
    "given",
    [
        lambda path: f"sqlite:///{path}",
        lambda path: {"sqlite": {"path": str(path)}},
        lambda path: {"type": "sqlite", "path": str(path)},
        lambda path: {"url": {"url": f"sqlite:///{path}"}},
        lambda path: hosted.SQLiteCatalog(path=str(path)),
        lambda path: ducklake_orch.SQLiteCatalog(path=path),
        lambda path: dg.EnvVar("LAKE_URL"),
    ],
    ids=["url", "run config", "typed", "url member", "model", "core model", "variable"],
)
def test_a_catalog_is_a_url_mapping_model_or_variable(
    given: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_URL", f"sqlite:///{tmp_path / 'c.sqlite'}")
    resource = DuckLakeResource(name="lake", catalog=given(tmp_path / "c.sqlite"), storage=str(tmp_path / "files"))
    config = resolved(resource)
    assert isinstance(config.catalog, ducklake_orch.SQLiteCatalog)
    assert config.catalog.path == tmp_path / "c.sqlite"
    assert config.data_path == f"{tmp_path}/files/"


def test_environment_variables_in_any_field_resolve_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = DuckLakeResource(
        name=dg.EnvVar("NAME"),
        catalog=hosted.PostgresCatalog(
            host=dg.EnvVar("HOST"), port=dg.EnvVar.int("PORT"), database="db", user="u", password=dg.EnvVar("PASSWORD")
        ),
        storage=hosted.S3Storage(bucket=dg.EnvVar("BUCKET"), secret_parameters={"kms_key_id": dg.EnvVar("PASSWORD")}),
        options={"parquet_compression": dg.EnvVar("CODEC")},
        retry=hosted.RetryPolicy(max_attempts=dg.EnvVar.int("ATTEMPTS")),
    )
    values = {"NAME": "sales", "HOST": "db.example", "PORT": "6543", "PASSWORD": CANARY, "BUCKET": "bucket"}
    for name, value in (values | {"CODEC": "zstd", "ATTEMPTS": "3"}).items():
        monkeypatch.setenv(name, value)
    config = resolved(resource)
    assert (config.name, config.options, config.retry.max_attempts) == ("sales", {"parquet_compression": "zstd"}, 3)
    catalog, storage = config.catalog, config.storage
    assert isinstance(catalog, ducklake_orch.PostgresCatalog)
    assert isinstance(storage, ducklake_orch.S3Storage)
    assert (catalog.host, catalog.port, storage.bucket) == ("db.example", 6543, "bucket")
    assert catalog.password is not None
    assert catalog.password.get_secret_value() == CANARY
    assert storage.secret_parameters["kms_key_id"].get_secret_value() == CANARY


@pytest.mark.parametrize("as_model", [True, False], ids=["model", "fields"])
def test_a_maintenance_policy_is_part_of_the_lake_config(as_model: bool, tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "expire": {"older_than": "30 days", "keep": ["release *"]},
        "merge": {"tiers": ["1 MiB", "64 MiB"]},
        "overrides": {"sales.*": {"rewrite": {"delete_threshold": 0.5}}},
    }
    policy = ducklake_orch.MaintenancePolicy(**fields)
    given = policy if as_model else fields
    lake = DuckLakeResource(name="lake", catalog=f"sqlite:///{tmp_path}/c.sqlite", storage="f", maintenance=given)
    assert resolved(lake).maintenance == policy


def test_run_config_configures_the_resource_at_launch(tmp_path: Path) -> None:
    resource = DuckLakeResource.configure_at_launch()
    config = resolved(
        resource,
        {
            "name": "lake",
            "catalog": {"duckdb": {"path": str(tmp_path / "c.ducklake")}},
            "storage": {"default": {}},
            "lock_timeout": "5s",
        },
    )
    assert isinstance(config.catalog, ducklake_orch.DuckDBCatalog)
    assert config.lock_timeout.total_seconds() == 5


def test_omitted_fields_have_the_defaults_of_the_core(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    config = DuckLakeResource(name="lake", catalog={"sqlite": {"path": str(path)}}, storage=f"{tmp_path}/files").lake()
    assert config.config == DuckLake.from_url("lake", catalog=f"sqlite:///{path}", storage=f"{tmp_path}/files").config


def test_wrong_values_are_refused_when_the_lake_is_opened(tmp_path: Path) -> None:
    lake = DuckLakeResource(name="lake", catalog="sqlite:///c.sqlite", storage="files", lock_timeout="5 parsecs")
    refused(ConfigError, lake.lake, "lock_timeout")
    refused(ConfigError, lambda: DuckLakeResource(name="x", catalog={"path": "p"}, storage="f"), "Name its kind")


def test_a_masked_password_is_refused() -> None:
    catalog = hosted.PostgresCatalog(host="h", user="u", password="********")
    refused(ConfigError, DuckLakeResource(name="x", catalog=catalog, storage="f").lake, "password", "EnvVar")


def test_secrets_appear_in_no_repr_event_or_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PASSWORD", CANARY)
    catalog = hosted.PostgresCatalog(
        host="127.0.0.1",
        port=1,
        database="d",
        user="u",
        password=dg.EnvVar("PASSWORD"),
        parameters={"connect_timeout": "1"},
    )
    literal = hosted.PostgresCatalog(host="127.0.0.1", user="u", password=CANARY)
    storage = hosted.S3Storage(bucket="b", access_key_id="a", secret_access_key=CANARY, session_token=CANARY)
    url = DuckLakeResource(name="x", catalog="postgresql://u:canary-7f3a@h/d", storage=storage)
    resource = DuckLakeResource(name="x", catalog=catalog, storage=storage, retry={"max_attempts": 1})

    @dg.asset
    def fails(lake: DuckLakeResource) -> None:
        assert "canary" not in repr(lake) + str(lake) + repr(lake.lake()) + lake.lake().preview_sql()
        lake.execute("SELECT 1")

    result = dg.materialize([fails], resources={"lake": resource}, raise_on_error=False)
    assert not result.success
    shown = [
        repr(postgres_catalog) + str(postgres_catalog)
        for postgres_catalog in (catalog, literal, storage, url, resource)
    ]
    shown += [repr(event) for event in result.all_events]
    shown += [*capfd.readouterr()]
    assert not any("canary" in text for text in shown)


def test_the_resource_runs_sql_and_opens_connections(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path / 'c.sqlite'}"
    lake = DuckLakeResource(name="lake", catalog=catalog, storage=f"{tmp_path}/files", create_if_missing=True)
    lake.execute(["CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1), (2)"])
    lake.connect_and_execute("INSERT INTO t VALUES (3)")
    with lake.connect(read_only=True) as con:
        assert con.sql("SELECT sum(n) FROM t").fetchall() == [(6,)]
        assert con.cursor().sql("SELECT current_database()").fetchall() == [("lake",)]
    with pytest.raises(ducklake_orch.errors.StatementError, match="nonsense"):
        lake.execute("SELECT * FROM t WHERE nonsense")


def test_a_config_file_is_read_at_run_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ducklake.toml"
    resource = DuckLakeFileResource(path=str(file), lake="two")
    lakes = "".join(
        f'[lakes.{name}]\ncatalog = "sqlite:///{tmp_path}/${{DIR}}-{name}.sqlite"\nstorage = "{tmp_path}/{name}"\n'
        for name in ("one", "two")
    )
    file.write_text(lakes)
    monkeypatch.setenv("DIR", "d")
    catalog = resolved(resource).catalog
    assert isinstance(catalog, ducklake_orch.SQLiteCatalog)
    assert catalog.path == tmp_path / "d-two.sqlite"


def test_any_resource_with_a_spark_session_supplies_spark(tmp_path: Path) -> None:
    class HasSession(dg.ConfigurableResource):  # type: ignore[type-arg]
        name: str = "mine"

        @property
        def spark_session(self) -> str:
            return "the session"

    seen: list[Any] = []

    @dg.asset
    def capture(lake: DuckLakeResource) -> None:
        seen.append(lake.spark_session)

    lake = DuckLakeResource(name="lake", catalog="sqlite:///c.sqlite", storage="f", spark=HasSession())
    assert dg.materialize([capture], resources={"lake": lake}).success
    assert seen == ["the session"]
    lake = DuckLakeResource(name="lake", catalog="sqlite:///c.sqlite", storage="f", spark="local")
    refused(ConfigError, lambda: lake.spark_session, "spark_session", "SparkConfig")
    refused(ConfigError, lambda: SparkConfig(master="local", remote="sc://h").spark_session, "Give one")
