"""The SQL that opens a lake, as text: what connecting runs, and its preview with masked secrets. Needs no engine."""

from datetime import datetime
from typing import Any, NamedTuple

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import CATALOG_SECRET, dialect_of
from ducklake_orch.engine.quoting import identifier, literal, options
from ducklake_orch.engine.storage_secrets import create_secret, storage_secret_statements


class Access(NamedTuple):
    """Whether a connection can write, and which snapshot it sees: the latest, or one in the past (which is read-only).

    Attributes:
        read_only: Whether the engine refuses writes.
        snapshot: The snapshot that the connection sees; None for the latest.
        as_of: The time at which the connection sees the lake; None for now.
        reads: Whether the caller only reads, even on a writable connection; a reader creates no lake.
        is_draft: Whether the lake is the private draft of a transaction, whose creation is not logged.
    """

    read_only: bool = False
    snapshot: int | None = None
    as_of: datetime | None = None
    reads: bool = False
    is_draft: bool = False

    @property
    def writable(self) -> bool:
        """Whether the connection can write."""
        return not self.read_only and self.snapshot is None and self.as_of is None

    @property
    def only_reads(self) -> bool:
        """Whether the connection is only used to read."""
        return self.reads or not self.writable

    def creates(self, config: LakeConfig) -> bool:
        """Whether connecting creates a lake that does not exist."""
        return config.create_if_missing and self.writable and not self.reads


def preview(config: LakeConfig, access: Access, *, reveal: bool = False) -> str:
    """Return every statement that connecting runs, one per line."""
    statements = [f"LOAD {identifier(name)}" for name in config.required_extensions]
    statements += setting_statements(config)
    statements += secret_statements(config, reveal=reveal)
    statements += attach_statements(config, access, create=config.create_if_missing, reveal=reveal)
    statements.append(f"USE {identifier(config.alias)}")
    return "\n".join(f"{statement};" for statement in statements)


def setting_statements(config: LakeConfig) -> list[str]:
    """Return the SET statements of the configured settings, of those that the catalog needs, and of UTC.

    Each is GLOBAL: many settings would else stay with the connection that sets them, while a lake is used through
    others, some of them the engine's own. UTC cannot be configured: partition values of timestamps depend on it.
    """
    settings = {**dialect_of(config).settings, **config.engine_settings}
    statements = [f"SET GLOBAL {identifier(name)} = {literal(value)}" for name, value in settings.items()]
    return [*statements, "SET GLOBAL TimeZone = 'UTC'"]


def secret_statements(config: LakeConfig, *, reveal: bool) -> list[str]:
    """Return the CREATE SECRET statements for catalog and storage; secrets given by name exist already."""
    dialect = dialect_of(config)
    secret = dialect.secret()
    statements = [] if secret is None else [create_secret(CATALOG_SECRET, secret, reveal=reveal)]
    statements += dialect.login_statements(reveal=reveal)
    return statements + (storage_secret_statements(config, reveal=reveal) if dialect.uses_storage_secret else [])


def attach_statements(config: LakeConfig, access: Access, *, create: bool, reveal: bool) -> list[str]:
    """Return the statements that attach the lake under its alias."""
    dialect = dialect_of(config)
    statements = dialect.database_statements(create=create, reveal=reveal)
    if not dialect.attaches_lake:
        return statements
    values = _attach_options(config, access, create)
    path = literal(f"ducklake:{dialect.metadata_path()}")
    return [*statements, f"ATTACH {path} AS {identifier(config.alias)} {options(values)}".rstrip()]


def _attach_options(config: LakeConfig, access: Access, create: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"data_path": config.data_path, "metadata_schema": config.metadata_schema}
    values |= dialect_of(config).attach_options(writable=access.writable)
    values["encrypted"] = config.encrypted or None
    values["data_inlining_row_limit"] = config.data_inlining_row_limit
    values["override_data_path"] = config.override_data_path
    values["automatic_migration"] = config.automatic_migration
    values["snapshot_version"] = access.snapshot
    values["snapshot_time"] = access.as_of
    values["read_only"] = True if access.read_only else None
    values["create_if_not_exists"] = None if create and access.writable else False
    return values | {key.lower(): value for key, value in config.attach_options.items()}
