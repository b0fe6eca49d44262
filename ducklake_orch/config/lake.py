"""The configuration of one lake: its catalog, its storage, and the settings of this process for both."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from ducklake_orch.config.catalogs import CATALOGS, Catalog, FileCatalog, MotherDuckCatalog
from ducklake_orch.config.fields import Duration, Memory
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.config.model import Model
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.config.storages import STORAGES, LocalStorage, R2Storage, S3Storage, Storage
from ducklake_orch.errors import IncompatibleConfigError

Scalar = bool | int | float | str
Hook = Callable[[Any], None]

# ATTACH options of the extension without their own field; META_* options are passed to the catalog's own ATTACH.
ATTACH_OPTIONS = frozenset({"metadata_catalog", "metadata_parameters", "write_deletion_vectors"})
_OPTION_FIELDS = {
    "data_path": "storage",
    "metadata_path": "catalog",
    "metadata_schema": "metadata_schema",
    "create_if_not_exists": "create_if_missing",
    "read_only": "read_only",
    "read_write": "read_only",
    "encrypted": "encrypted",
    "data_inlining_row_limit": "data_inlining_row_limit",
    "override_data_path": "override_data_path",
    "automatic_migration": "automatic_migration",
    "snapshot_version": "snapshot",
    "snapshot_time": "as_of",
    "busy_timeout": "catalog.busy_timeout",
    "meta_secret": "catalog.secret_name",
}
# Such keys would appear in previews, dumps and errors: only fields made for secrets are masked there.
_SECRET_NAME = re.compile(r"password|passwd|token|secret_access_key|account_key|connection_string", re.IGNORECASE)
# Options that `set_option` accepts (`CALL lake.set_option`), so that a typo is detected before connecting.
PERSISTED_OPTIONS = frozenset(
    {
        "auto_compact",
        "data_inlining_row_limit",
        "target_file_size",
        "rewrite_delete_threshold",
        "expire_older_than",
        "delete_older_than",
        "parquet_compression",
        "parquet_compression_level",
        "parquet_version",
        "parquet_row_group_size",
        "parquet_row_group_size_bytes",
        "hive_file_pattern",
        "sort_on_insert",
        "per_thread_output",
        "require_commit_message",
        "write_deletion_vectors",
    }
)
# Options that the engine accepts although they then break writes or reads: the reason, and the remedy.
_BREAKING_OPTIONS = {
    "parquet_row_group_size_bytes": "with it, every INSERT fails in a program that keeps the order of rows, as DuckDB"
    " does by default. Set `parquet_row_group_size`, a number of rows",
    "write_deletion_vectors": "deletion vectors are experimental: they have no snapshot of each deletion, so that time"
    " travel between two of them shows deleted rows. Leave it off: deletes then write Parquet files",
}
_PARTIAL_VIEWS = (
    "a commit is checked against one state of the catalog, so that no row is lost. Leave it out: the level is then"
    " `REPEATABLE READ`"
)
# The endings of the default paths of catalogs in files, by type.
_SUFFIXES = {"sqlite": ".sqlite", "duckdb": ".ducklake"}
RESERVED_ALIASES = {"memory", "system", "temp", "main", "pg_catalog", "information_schema"}


class RetryPolicy(Model):
    """Attempts at a transient failure, and the waits between them."""

    max_attempts: int = Field(default=10, ge=1, description="Most attempts, including the first.")
    max_seconds: float = Field(default=120, ge=0, description="Seconds after which no new attempt starts.")
    base_ms: float = Field(default=50, ge=0, description="Wait before the second attempt, in ms; doubles each time.")
    jitter: bool = Field(default=True, description="Vary the waits, so that writers do not collide again.")


class PoolPolicy(Model):
    """How many connections to a server catalog one process keeps."""

    size: int = Field(default=8, ge=1, description="Connections to one lake that may be open at once.")
    idle: Duration = Field(default=timedelta(seconds=60), description="How long an idle connection is kept.")
    wait: Duration = Field(default=timedelta(seconds=30), description="How long to wait for a free connection.")


class LakeConfig(Model):
    """Everything needed to open one lake, on any host."""

    name: str = Field(min_length=1, description="Name of the lake; the default of `alias` and of file names.")
    catalog: Catalog = Field(
        default_factory=lambda data: read_catalog(None, data.get("name", "")),
        description="Catalog database: a model, a table with `type`, a URL, or a type such as `duckdb`; default is a"
        " SQLite file.",
    )
    storage: Storage | None = Field(
        default=None, description="Data files: a model, a table with `type`, a URL or a path; none when managed."
    )
    alias: str = Field(default="", description="Name of the attached database in SQL: `my-lake` becomes `my_lake`.")
    create_if_missing: bool = Field(
        default=False,
        description="Let the first write create the lake; true in `DuckLake.local`, for `init --create` and `demo`.",
    )
    metadata_schema: str | None = Field(
        default=None,
        description="Schema that holds the metadata, for several lakes in one Postgres database.",
    )
    read_only: bool = Field(default=False, description="Refuse every write.")
    snapshot: int | None = Field(default=None, ge=0, description="Read the lake as of this snapshot.")
    as_of: datetime | None = Field(default=None, description="Read the lake as of this time, given with its zone.")
    encrypted: bool | None = Field(default=None, description="Encrypt data files; set when the lake is created.")
    data_inlining_row_limit: int | None = Field(
        default=None,
        ge=0,
        description="Inserts of up to this many rows stay in the catalog; the engine's default is 10.",
    )
    override_data_path: bool | None = Field(
        default=None,
        description="Use this storage even if the catalog names another, for a lake whose files have moved.",
    )
    automatic_migration: bool | None = Field(
        default=None, description="Migrate a catalog of an older format; back it up first."
    )
    attach_options: dict[str, Scalar | dict[str, Scalar]] = Field(
        default_factory=dict, description="Further options of DuckLake's ATTACH; `META_…` ones go to the catalog's own."
    )
    options: dict[str, Scalar] = Field(
        default_factory=dict,
        description="Persisted options the lake should have: compared on connect, written only by `apply_options()`.",
    )
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="DuckDB settings of every connection; a value that DuckDB does not apply is an error.",
    )
    extensions: list[str] = Field(default_factory=list, description="Further DuckDB extensions to load.")
    memory_limit: Memory = Field(default=None, description="Memory limit of the engine in this process, such as `2GB`.")
    threads: int | None = Field(default=None, ge=1, description="Threads of the engine in this process.")
    temp_directory: str | None = Field(default=None, description="Folder for the engine's spill files.")
    max_temp_directory_size: Memory = Field(default=None, description="Maximum size of the engine's spill files.")
    task_memory_limit: Memory = Field(default="512 MiB", description="Memory limit of the engine in one Spark task.")
    lock_timeout: Duration = Field(default=timedelta(seconds=60), description="How long a write waits for the lock.")
    keep_keys: Duration = Field(default=timedelta(days=30), description="How long idempotency keys are kept.")
    retry: RetryPolicy = Field(default_factory=RetryPolicy, description="How transient failures are retried.")
    pool: PoolPolicy = Field(default_factory=PoolPolicy, description="Connections kept to a server catalog.")
    workload: bool = Field(
        default=False, description="Count which columns reads have conditions on, for `workload` and maintenance."
    )
    maintenance: MaintenancePolicy = Field(
        default_factory=MaintenancePolicy, description="How the lake is maintained, and when it is healthy."
    )
    on_connect: SkipJsonSchema[Hook | None] = Field(
        default=None,
        exclude=True,
        description="Called with each new DuckDB instance before ATTACH, to create secrets for example.",
    )
    on_attach: SkipJsonSchema[Hook | None] = Field(
        default=None, exclude=True, description="Called with each connection to the lake before the caller gets it."
    )

    @property
    def data_path(self) -> str | None:
        """The canonical DATA_PATH, or None if MotherDuck manages the data."""
        return self.storage.data_path if self.storage else None

    @property
    def catalog_file(self) -> Path | None:
        """The path of the catalog, or None if it is on a server."""
        return self.catalog.path if isinstance(self.catalog, FileCatalog) else None

    @property
    def metadata_alias(self) -> str:
        """The name under which the extension attaches the metadata database."""
        return str(self.attach_options.get("metadata_catalog", f"__ducklake_metadata_{self.alias}"))

    @property
    def required_extensions(self) -> list[str]:
        """The DuckDB extensions that connecting loads, in order."""
        # DuckDB's built-in cryptography can only decrypt; encryption needs that of `httpfs`.
        encrypting = ["httpfs"] if self.encrypted else []
        names = ["ducklake", *self.catalog.extensions, *self.storage_extensions, *encrypting, *self.extensions]
        return list(dict.fromkeys(names))

    @property
    def storage_extensions(self) -> list[str]:
        """The required extensions that access to the storage needs."""
        if not self.storage:
            return []
        chain = getattr(self.storage, "uses_credential_chain", False)
        return [*self.storage.extensions, *(["aws"] if chain and "azure" not in self.storage.extensions else [])]

    @property
    def engine_settings(self) -> dict[str, Scalar]:
        """All DuckDB settings of this lake: those of its storage, the limits and `settings`."""
        limits = ("memory_limit", "threads", "temp_directory", "max_temp_directory_size")
        given: dict[str, Scalar] = {name: value for name in limits if (value := getattr(self, name)) is not None}
        own = {name.lower() for name in self.settings}
        needed = getattr(self.storage, "engine_settings", {}).items()
        return {name: value for name, value in needed if name not in own} | given | self.settings

    @property
    def scrubber(self) -> Scrubber:
        """The scrubber that masks this lake's secrets in a text."""
        return Scrubber(self.secret_values())

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
            return data  # the field itself raises the error
        catalog = read_catalog(data.get("catalog"), data["name"])
        storage = STORAGES.read(data.get("storage"))
        if storage is None and catalog.needs_storage:
            storage = default_storage(data["name"])
        # Absolute paths, so that a later chdir or another process opens the same lake.
        if isinstance(catalog, FileCatalog):
            catalog = catalog.model_copy(update={"path": Path(os.path.abspath(catalog.path))})
        if isinstance(storage, LocalStorage):
            storage = storage.model_copy(update={"path": Path(os.path.abspath(storage.path))})
        # MotherDuck attaches a database under the name that it has there.
        alias = data.get("alias") or default_alias(data["name"])
        if isinstance(catalog, MotherDuckCatalog) and catalog.mode != "own_compute":
            alias = data.get("alias") or catalog.database
        return data | {"catalog": catalog, "storage": storage, "alias": alias}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_options()
        if self.alias.lower() in RESERVED_ALIASES or not self.alias.strip() or "\x00" in self.alias:
            raise ValueError(f"`alias` = {self.alias!r} is a name that DuckDB reserves")
        if self.snapshot is not None and self.as_of is not None:
            raise ValueError("`snapshot` and `as_of` cannot be combined: give one of them")
        if self.as_of is not None and self.as_of.tzinfo is None:
            raise ValueError(f"`as_of` = {self.as_of.isoformat()} has no time zone: add one, such as `+00:00`")
        if any(key.lower() == "timezone" and value != "UTC" for key, value in self.settings.items()):
            raise ValueError(
                "`TimeZone` in `settings`: every connection must run in UTC, because partition values depend on it"
            )
        for field in ("settings", "attach_options"):
            for key, _ in _items(getattr(self, field)):
                if _SECRET_NAME.search(key):
                    raise ValueError(
                        f"`{key}` in `{field}` is a secret and would be shown. Use a field of the catalog or storage, a"
                        " DuckDB secret, or an `on_connect` hook"
                    )
        _refuse_pairs_that_cannot_work(self)
        return self

    def _check_options(self) -> None:
        for key in self.options:
            if key not in PERSISTED_OPTIONS:
                raise ValueError(f"unknown option `{key}` in `options`. {nearest(key, PERSISTED_OPTIONS)}")
        for key in self.attach_options:
            check_attach_option(key)
        for field in ("options", "attach_options"):
            for key, value in _items(getattr(self, field)):
                if reason := breaking_option(key, value):
                    raise ValueError(f"`{key}` in `{field}`: {reason}")


def _items(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        yield key, value
        if isinstance(value, Mapping):
            yield from value.items()


def read_catalog(value: Any, name: str, folder: Path = Path()) -> Any:
    """Build the catalog of a lake. A file for which no path is given is next to the lake's data; default is SQLite.

    Args:
        value: A model, a URL, the name of a type, or a table of fields; None if nothing is given.
        name: The name of the lake.
        folder: The folder of default paths.
    """
    table = {"type": "sqlite"} if value is None else {"url": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        return CATALOGS.read(table)
    kind = table.get("type", table.get("url"))
    if kind in _SUFFIXES and "path" not in table and table.get("url", kind) == kind:
        table = {**table, "url": kind, "path": folder / f"{name.replace('/', '_')}{_SUFFIXES[kind]}"}
    return CATALOGS.read(table)


def default_storage(name: str, folder: Path = Path()) -> LocalStorage:
    """Return the default storage of a lake: a folder next to its catalog."""
    return LocalStorage(path=folder / f"{name.replace('/', '_')}.files")


def default_alias(name: str) -> str:
    """Return an alias that needs no quotes, as far as the name allows."""
    alias = re.sub(r"\W", "_", name)
    alias = f"_{alias}" if alias[0].isdigit() else alias
    return f"{alias}_lake" if alias.lower() in RESERVED_ALIASES else alias


def breaking_option(name: str, value: Any) -> str | None:
    """Return why an option that the engine accepts breaks later work, with the remedy; None for other options."""
    if name.lower().removeprefix("meta_") == "isolation_level":
        whole = str(value).upper() in ("REPEATABLE READ", "SERIALIZABLE")
        return None if whole else _PARTIAL_VIEWS
    off = str(value).lower() in ("false", "0", "")
    return None if off else _BREAKING_OPTIONS.get(name.lower())


def check_attach_option(key: str) -> None:
    """Refuse an unknown ATTACH option, and one that has its own field."""
    name = key.lower()
    if field := _OPTION_FIELDS.get(name):
        raise ValueError(f"`{key}` in `attach_options` has a field of its own: `{field}`")
    if name not in ATTACH_OPTIONS and not re.fullmatch(r"meta_\w+", name):
        known = {*ATTACH_OPTIONS, *_OPTION_FIELDS, "meta_…"}
        raise ValueError(f"unknown option `{key}` in `attach_options`. {nearest(name, known)}")


def _refuse_what_motherduck_ignores(config: LakeConfig) -> None:
    ignored = ("read_only", "snapshot", "as_of", "encrypted", "override_data_path", "automatic_migration")
    for field in (*ignored, "attach_options"):
        if getattr(config, field):
            raise IncompatibleConfigError(
                f"lake `{config.name}`: MotherDuck attaches its own databases and takes no `{field}`.",
                remedy="Leave it out, or set the catalog's `mode` to `own_compute`.",
            )


def _refuse_pairs_that_cannot_work(config: LakeConfig) -> None:
    catalog, storage = config.catalog, config.storage
    lake = f"lake `{config.name}`"
    if config.metadata_schema and catalog.type not in ("postgres", "duckdb"):
        raise IncompatibleConfigError(
            f"{lake}: a {catalog.type} catalog has no schemas, yet `metadata_schema` is `{config.metadata_schema}`.",
            remedy="Leave it out: such a database holds one lake.",
        )
    if not isinstance(catalog, MotherDuckCatalog):
        return
    if catalog.mode != "own_compute":
        _refuse_what_motherduck_ignores(config)
    if catalog.mode != "own_compute" and config.alias != catalog.database:
        raise IncompatibleConfigError(
            f"{lake}: the alias is `{config.alias}`, yet MotherDuck attaches `{catalog.database}` under its own name.",
            remedy="Leave `alias` out.",
        )
    if catalog.mode == "managed":
        if storage is not None:
            raise IncompatibleConfigError(
                f"{lake}: a managed MotherDuck lake keeps its data itself, yet a storage is given.",
                remedy="Leave the storage out, or set the catalog's `mode` to `own_bucket` or `own_compute`.",
            )
        return
    if not isinstance(storage, S3Storage | R2Storage):
        given = f"a {storage.type} storage" if storage else "no storage"
        raise IncompatibleConfigError(
            f"{lake}: MotherDuck with `mode = {catalog.mode}` has {given}.",
            remedy="Use a bucket at S3 or R2.",
        )
    if isinstance(storage, S3Storage) and catalog.region and storage.region and catalog.region != storage.region:
        raise IncompatibleConfigError(
            f"{lake}: MotherDuck is in `{catalog.region}`, the bucket `{storage.bucket}` in `{storage.region}`.",
            remedy="The bucket must be in MotherDuck's region; a bucket at R2 may be anywhere.",
        )


def refuse_shared_data_paths(paths: dict[str, str]) -> None:
    """Refuse lakes with the same or nested data paths, because each would delete the other's files as orphans.

    Args:
        paths: Data path by lake name.
    """
    lakes = sorted(paths.items(), key=lambda item: item[1])
    for position, (outer, path) in enumerate(lakes):
        for inner, other in lakes[position + 1 :]:
            if other.startswith(path):
                relation = "share the data path" if other == path else f"nest: `{inner}` is at `{other}`, inside"
                raise IncompatibleConfigError(
                    f"The lakes `{outer}` and `{inner}` {relation} `{path}`.",
                    remedy="Give each lake a folder of its own: orphan clean-up of one deletes files of the other.",
                )
