"""Open a DuckDB in a Spark task that reaches the lake's storage but not its catalog: `open_engine`.

The driver puts everything that it needs into the task itself, never into Spark's settings, which plans, logs and web
pages show.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.engine.extensions import open_database
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import StorageError

if TYPE_CHECKING:
    from ducklake_orch.catalog.metadata import TableDef
    from ducklake_orch.config.lake import LakeConfig, Scalar

# Settings that concern this process, not a task.
_LIMITS = {"threads", "memory_limit", "max_memory", "temp_directory", "max_temp_directory_size"}


@dataclass(frozen=True)
class EngineSpec:
    """What a task's DuckDB needs to reach the storage.

    Attributes:
        extensions: The extensions to load in the task.
        statements: The statements that create the storage's secret.
        memory_limit: The limit, in DuckDB's notation.
        data_path: The lake's root folder; None if MotherDuck keeps the data.
        settings: The lake's settings; a task skips those of extensions that it does not load.
        secrets: The values that no message may show.
    """

    extensions: tuple[str, ...]
    statements: tuple[str, ...] = field(repr=False)
    memory_limit: str
    data_path: str | None
    settings: "tuple[tuple[str, Scalar], ...]" = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def scrubber(self) -> Scrubber:
        """The scrubber that masks the secrets in a text."""
        return Scrubber(self.secrets)


def engine_spec(config: "LakeConfig") -> EngineSpec:
    """Return the spec for tasks that read a lake's storage; the catalog's secrets are not part of it."""
    from ducklake_orch.engine.storage_secrets import storage_secret_statements

    settings = {name: value for name, value in config.engine_settings.items() if name.lower() not in _LIMITS}
    return EngineSpec(
        extensions=tuple(config.storage_extensions),
        statements=tuple(storage_secret_statements(config, reveal=True)),
        memory_limit=str(config.task_memory_limit),
        data_path=config.data_path,
        settings=tuple(settings.items()),
        secrets=tuple(config.storage.secret_values()) if config.storage else (),
    )


def writing_spec(config: "LakeConfig", table: "TableDef") -> EngineSpec:
    """Return the spec for tasks that write files of a table."""
    from ducklake_orch.catalog.parquet import partition_keys

    spec = engine_spec(config)
    if not any(key.field.transform.startswith("bucket(") for key in partition_keys(table)):
        return spec
    return replace(spec, extensions=("ducklake", *spec.extensions))  # the extension has the hash function of buckets


@contextmanager
def open_engine(spec: EngineSpec) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a DuckDB for a block in a task: one thread, little memory, and a spill folder that is deleted at the end.

    Raises:
        ExtensionMissingError: When the task's machine lacks an extension.
        StorageError: When the storage's secret cannot be created there.
    """
    # Spark's own spill folder, else the default folder for temporary files.
    folder = tempfile.mkdtemp(dir=(os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0] or None)
    limits: dict[str, str | int | float | list[str]] = {
        "threads": "1",
        "memory_limit": spec.memory_limit,
        "temp_directory": folder,
    }
    try:
        con = open_database(spec.extensions, limits)
        try:
            _set_up(con, spec)
            yield con
        except duckdb.Error as error:
            spec.scrubber.clean(error)
            raise
        finally:
            con.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _set_up(con: duckdb.DuckDBPyConnection, spec: EngineSpec) -> None:
    known = {row[0].lower() for row in con.execute("SELECT name FROM duckdb_settings()").fetchall()}
    for name, value in spec.settings:
        if name.lower() in known:
            con.execute(f"SET GLOBAL {identifier(name)} = {literal(value)}")
    # Partition values and casts of timestamps depend on the time zone.
    con.execute("SET GLOBAL TimeZone = 'UTC'")
    try:
        for statement in spec.statements:
            con.execute(statement)
        return
    except duckdb.Error as error:
        failure = StorageError(
            f"A Spark task cannot create the secret of storage {spec.data_path}: {spec.scrubber(str(error))}",
            remedy="Provide the credentials of `credential_chain` on every machine that runs tasks.",
        )
    raise failure
