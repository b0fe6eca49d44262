"""A DuckDB in a Spark task that reaches the lake's storage, and nothing else of the lake.

What it needs is told on the driver and travels inside the task: never through Spark's settings, which its plans, logs
and web pages show.
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
from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import StorageError

if TYPE_CHECKING:
    from ducklake_orch.catalog.metadata import TableDef
    from ducklake_orch.config.lake import LakeConfig, Scalar

# Those that are about this process, and not about a task.
_LIMITS = {"threads", "memory_limit", "max_memory", "temp_directory", "max_temp_directory_size"}


@dataclass(frozen=True)
class EngineSpec:
    """What a task's DuckDB needs to reach the storage.

    Attributes:
        extensions: To be loaded where the task runs.
        statements: What makes the storage's secret.
        memory_limit: As DuckDB writes it.
        data_path: The lake's root; None where MotherDuck keeps the data.
        settings: The lake's settings; those of extensions that tasks do not load are left out there.
        secrets: What no message may show.
    """

    extensions: tuple[str, ...]
    statements: tuple[str, ...] = field(repr=False)
    memory_limit: str
    data_path: str | None
    settings: "tuple[tuple[str, Scalar], ...]" = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def scrubber(self) -> Scrubber:
        """What masks the secrets in a text."""
        return Scrubber(self.secrets)


def engine_spec(config: "LakeConfig") -> EngineSpec:
    """Return what tasks need to reach the storage of a lake; the catalog's secrets stay here."""
    from ducklake_orch.engine.storage_secrets import storage_secret_statements

    settings = {name: value for name, value in config.settings.items() if name.lower() not in _LIMITS}
    return EngineSpec(
        extensions=tuple(config.storage_extensions),
        statements=tuple(storage_secret_statements(config, reveal=True)),
        memory_limit=str(config.task_memory_limit),
        data_path=config.data_path,
        settings=tuple(settings.items()),
        secrets=tuple(config.storage.secret_values()) if config.storage else (),
    )


def writing_spec(config: "LakeConfig", table: "TableDef") -> EngineSpec:
    """Return what tasks need to write files of a table."""
    from ducklake_orch.catalog.parquet import partition_keys

    spec = engine_spec(config)
    if not any(key.field.transform.startswith("bucket(") for key in partition_keys(table)):
        return spec
    return replace(spec, extensions=("ducklake", *spec.extensions))  # which has the hash function


@contextmanager
def open_engine(spec: EngineSpec) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a DuckDB for a block in a task: one thread, little memory, and a place to spill to that goes with it.

    Raises:
        ExtensionMissingError: When the machine that the task runs on lacks an extension.
        StorageError: When the storage's secret cannot be made there.
    """
    # Where Spark itself spills to; else wherever temporary files go.
    folder = tempfile.mkdtemp(dir=(os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0] or None)
    limits: dict[str, str | int | float | list[str]] = {
        "threads": "1",
        "memory_limit": spec.memory_limit,
        "temp_directory": folder,
    }
    limits["custom_user_agent"] = "ducklake-orch"
    try:
        con = duckdb.connect(":memory:", config=limits)
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
    for name in spec.extensions:
        load_extension(con, name)
    known = {row[0].lower() for row in con.execute("SELECT name FROM duckdb_settings()").fetchall()}
    for name, value in spec.settings:
        if name.lower() in known:
            con.execute(f"SET {identifier(name)} = {literal(value)}")
    # Partition values and casts of timestamps depend on it.
    con.execute("SET GLOBAL TimeZone = 'UTC'")
    try:
        for statement in spec.statements:
            con.execute(statement)
        return
    except duckdb.Error as error:
        failure = StorageError(
            f"The secret of the storage {spec.data_path} cannot be made in a Spark task: {spec.scrubber(str(error))}",
            remedy="Credentials that are looked up by the machine must be there on every machine that runs tasks.",
        )
    raise failure
