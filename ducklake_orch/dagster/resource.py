"""Dagster resources that open a lake: configured in Dagster, or read from a TOML file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster.components.lib.sql_component.sql_client import SQLClient
from pydantic import BaseModel, Field

from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.tables import Family, UrlModel
from ducklake_orch.dagster.configuration import (
    AnyCatalog,
    AnyStorage,
    DefaultStorage,
    Part,
    PoolPolicy,
    Resource,
    RetryPolicy,
    Strict,
    describe,
    given,
)
from ducklake_orch.dagster.launch_configuration import as_selector, with_union_defaults
from ducklake_orch.dagster.step_run import Step
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import ConfigError
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo, ExecuteResult, WriteResult

if TYPE_CHECKING:
    import duckdb
    from dagster._config.pythonic_config.resource import PartialResource
    from pyspark.sql import SparkSession

    from ducklake_orch.facade.transaction import Transaction


class SparkConfig(Strict, dg.ConfigurableResource):  # type: ignore[type-arg]  # the resource provides itself
    """A Spark session to start if none runs in this process. The session is shared, and Dagster never stops it."""

    master: str | None = Field(default=None, description="Spark master: `local[*]`, or a cluster's address.")
    remote: str | None = Field(default=None, description="Address of a Spark Connect server: `sc://host:port`.")
    conf: dict[str, Any] | None = Field(default=None, description="Spark settings of the session.")

    @property
    def spark_session(self) -> "SparkSession":
        """The session."""
        if self.master is not None and self.remote is not None:
            raise ConfigError("`master` and `remote` are both given.", remedy="Give one of them.")
        from ducklake_orch.spark import local_session

        if self.remote is None:
            return local_session("dagster", master=self.master or "local[*]", conf=self.conf)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(self.remote)
        for name, value in (self.conf or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def _session_of(source: Any) -> "SparkSession":
    """Return the session of the resource that is given as `spark=`; without one, the running or a new local one."""
    if source is None:
        from ducklake_orch.spark import local_session

        return local_session("dagster")
    session = getattr(source, "spark_session", None)
    if session is None:
        raise ConfigError(
            f"`spark` = {type(source).__name__} has no `spark_session`.",
            remedy="Give a SparkConfig, dagster-pyspark's PySparkResource or LazyPySparkResource.",
        )
    return session  # type: ignore[no-any-return]  # resources of other packages are untyped


class LakeResource(Resource, dg.ConfigurableResource, SQLClient):  # type: ignore[type-arg]  # the resource provides itself
    """The base of lake resources: what a lake can do in Dagster, whatever its configuration comes from."""

    spark: dg.ResourceDependency[Any] = None  # type: ignore[assignment]  # a field's default

    @classmethod
    def configure_at_launch(cls, **data: Any) -> "PartialResource[LakeResource]":
        """Return a resource whose fields run config can set one by one; `data` are the values of the others."""
        refuse_unknown(cls.__name__, data, (field.alias or name for name, field in cls.model_fields.items()))
        return super().configure_at_launch(**data)

    def lake(self) -> DuckLake:
        """Return the lake. Its values are checked here, because the environment is known at run time only."""
        raise NotImplementedError

    def existing_lake(self) -> DuckLake:
        """Return the lake. Create it first if it does not exist and its configuration allows that."""
        lake = self.lake()
        lake.ensure_exists()
        return lake

    @property
    def spark_session(self) -> "SparkSession":
        """The Spark session: the one of `spark`, else the running one, else a new local one."""
        return _session_of(self.spark)

    @contextmanager
    def connect(
        self,
        *,
        read_only: bool = False,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
    ) -> Iterator["duckdb.DuckDBPyConnection"]:
        """Open a DuckDB connection to the lake for a `with` block; see `DuckLake.connect`."""
        with self.lake().connect(read_only=read_only, snapshot=snapshot, as_of=as_of, tag=tag) as connection:
            yield connection

    def write(self, data: Any, table: str, *, mode: str, **more: Any) -> WriteResult:
        """Write data to a table, as `DuckLake.write` does. All attempts at a step share an idempotency key.

        Args:
            data: A Spark DataFrame, a pyarrow.Table, a pandas or Polars frame, and so on.
            table: `table` or `schema.table`.
            mode: What happens to the existing rows.
            **more: Further arguments of `DuckLake.write`.
        """
        if (step := Step.running()) is not None:
            if more.get("idempotency_key") is None:
                more["idempotency_key"] = step.idempotency_key(str(table_name(table)))
            more.setdefault("commit", step.commit_info(f"{mode} to {table}"))
        return self.lake().write(data, table, mode=mode, **more)

    def transaction(self, **options: Any) -> "Transaction":
        """Change several tables in one snapshot, as `DuckLake.transaction` does. All attempts at a step commit once.

        Args:
            **options: Arguments of `DuckLake.transaction`.
        """
        if (step := Step.running()) is not None:
            options.setdefault("idempotency_key", step.idempotency_key("a transaction"))
            options.setdefault("commit", step.commit_info("transaction"))
        return self.lake().transaction(**options)

    def execute(
        self, commands: str | Sequence[str], *, atomic: bool = False, commit: CommitInfo | None = None
    ) -> ExecuteResult:
        """Run SQL commands, retry each after transient failures, and raise the first error.

        Args:
            commands: A statement, a script, or a list of either.
            atomic: Run all of them in one transaction.
            commit: Author, message and extra of the snapshots; by default they name the running step.
        """
        if commit is None and (step := Step.running()) is not None:
            commit = step.commit_info("execute")
        return self.lake().execute(commands, atomic=atomic, commit=commit).raise_for_error()

    def connect_and_execute(self, sql: str) -> None:
        """Run SQL, for Dagster's SQL components."""
        self.execute(sql)


class DuckLakeResource(LakeResource):
    """A lake that is configured in Dagster. Every value can be an `EnvVar`, and secrets should be one.

    `catalog` and `storage` take a model of `ducklake_orch.dagster`, a model of `ducklake_orch` (whose values are
    already known), a URL, or a mapping as in run config: `{"sqlite": {"path": "lake.sqlite"}}`.
    """

    name: str
    catalog: AnyCatalog = Field(discriminator="type", description="Catalog database.")
    storage: AnyStorage = Field(discriminator="type", description="Data files.")
    alias: str | None = None
    create_if_missing: bool | None = None
    metadata_schema: str | None = None
    read_only: bool | None = None
    snapshot: int | None = None
    as_of: str | None = None
    encrypted: bool | None = None
    data_inlining_row_limit: int | None = None
    override_data_path: bool | None = None
    automatic_migration: bool | None = None
    attach_options: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    extensions: list[str] | None = None
    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | None = None
    max_temp_directory_size: str | None = None
    task_memory_limit: str | None = None
    lock_timeout: str | None = None
    keep_keys: str | None = None
    workload: bool | None = None
    retry: RetryPolicy | None = None
    pool: PoolPolicy | None = None
    maintenance: dict[str, Any] | None = None

    def __init__(self, **data: Any) -> None:
        data = dict(data)
        for name, family in (("catalog", CATALOGS), ("storage", STORAGES)):
            if name in data:
                data[name] = _selector(data[name], family)
        if isinstance(policy := data.get("maintenance"), MaintenancePolicy):
            data["maintenance"] = policy.model_dump(mode="json", exclude_unset=True)
        super().__init__(**data)

    @classmethod
    def configure_at_launch(cls, **data: Any) -> "PartialResource[LakeResource]":  # type: ignore[override]  # it is invariant
        """Return a resource whose fields run config can set one by one; `data` are the values of the others.

        The IO manager that holds it follows run config, too. Dagster itself would ignore `catalog` and `storage` here.

        Examples:
            >>> lake = DuckLakeResource.configure_at_launch(
            ...     name="shop", catalog="sqlite:///shop.sqlite", storage="./shop.files"
            ... )
            >>> run_config = {"resources": {"lake": {"config": {"as_of": "2026-11-01T00:00:00+00:00"}}}}
        """
        families = {"catalog": CATALOGS, "storage": STORAGES}
        for name in families.keys() & data.keys():
            data[name] = as_selector(_selector(data[name], families[name]))
        return with_union_defaults(super().configure_at_launch(**data), [name for name in families if name in data])

    def lake(self) -> DuckLake:
        """Return the lake. Its values are checked here, because the environment is known at run time only."""
        fields = given(self, "spark", "catalog", "storage")
        fields["catalog"] = _table(self.catalog)
        if not isinstance(self.storage, DefaultStorage):
            fields["storage"] = _table(self.storage)
        return DuckLake(LakeConfig(**fields))


describe(DuckLakeResource, LakeConfig)


class DuckLakeFileResource(LakeResource):
    """A lake that is configured in a TOML file. The file, its `${…}` and `DUCKLAKE_…` are read at run time."""

    path: str = Field(default="ducklake.toml", description="Path of the TOML file.")
    profile: str | None = Field(default=None, description="Profile in the file.")
    lake_name: str | None = Field(default=None, alias="lake", description="Name of the lake, if the file has several.")

    def lake(self) -> DuckLake:
        """Return the lake."""
        return DuckLake.from_toml(self.path, profile=self.profile, lake=self.lake_name)


def _table(part: Part) -> dict[str, Any]:
    fields = part.fields()
    return {"url": fields["url"]} if fields["type"] == "url" else fields


def _selector(value: Any, family: Family) -> Any:
    """Return a catalog or storage in the form that Dagster's unions take."""
    if isinstance(value, str | os.PathLike):
        # An EnvVar is a str subclass and must stay an EnvVar.
        return {"url": {"url": str(value) if isinstance(value, Path) else value}}
    if isinstance(value, UrlModel):
        return {value.type: _plain(value)}  # type: ignore[attr-defined]  # every subclass has one
    if isinstance(value, Mapping) and isinstance(value.get("type"), str):
        return {value["type"]: {key: item for key, item in value.items() if key != "type"}}
    if isinstance(value, Mapping) and not (len(value) == 1 and set(value) <= {*family.types, "url", "default"}):
        raise ConfigError(
            f"A {family.what} is given as {{{', '.join(map(repr, value))}}}.",
            remedy=f"Name its kind first: {{{next(iter(family.types))!r}: {{…}}}}, or give a URL.",
        )
    return value


def _plain(model: BaseModel) -> dict[str, Any]:
    """Return the given fields of a `ducklake_orch` model, with secrets in plain text."""
    fields = {name: getattr(model, name) for name in model.model_fields_set if name != "type"}
    return {name: _open(value) for name, value in fields.items() if value is not None}


def _open(value: Any) -> Any:
    if hasattr(value, "get_secret_value"):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _open(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value
