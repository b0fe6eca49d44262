"""Every error of this package: one base, two families, one class per thing that can go wrong.

Callers decide by family: a `TransientError` is worth another attempt, a `TerminalError` needs a person. Each message
names the value, the place and the remedy, and never holds a secret.
"""

from typing import Any, ClassVar, Literal


class DuckLakeOrchError(Exception):
    """Base of all errors raised by this package.

    Args:
        message: What happened, with the value and the place.
        remedy: What to do about it.
    """

    family: ClassVar[Literal["transient", "terminal"]] = "terminal"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @property
    def docs(self) -> str:
        """Where the documentation has what this error means, how it comes about and what to do."""
        # A subclass that somebody else makes has no place of its own there.
        known = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return f"docs/errors.md#{known.__name__.lower()}"

    @property
    def retryable(self) -> bool:
        """Whether another attempt at the same work can succeed."""
        return self.family == "transient"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form used in results."""
        return {
            "type": type(self).__name__,
            "family": self.family,
            "message": self.message,
            "remedy": self.remedy,
            "retryable": self.retryable,
            "docs": self.docs,
        }

    def __str__(self) -> str:
        if not self.remedy:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?", "`")) else "."
        return f"{self.message}{stop}{chr(10) if chr(10) in self.message else ' '}{self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross processes (Dagster steps, Airflow tasks, Spark): keep the remedy on the way.
        return (_rebuild, (type(self), self.message, self.remedy, self.__dict__))


def _rebuild(
    cls: type[DuckLakeOrchError], message: str, remedy: str | None, state: dict[str, Any]
) -> DuckLakeOrchError:
    error = cls.__new__(cls)
    DuckLakeOrchError.__init__(error, message, remedy=remedy)
    error.__dict__.update(state)
    return error


class TerminalError(DuckLakeOrchError):
    """Another attempt ends the same way: somebody has to change something."""

    family: ClassVar[Literal["transient", "terminal"]] = "terminal"


class TransientError(DuckLakeOrchError):
    """Another attempt at the same work may succeed."""

    family: ClassVar[Literal["transient", "terminal"]] = "transient"


# --- configuration -----------------------------------------------------------------------------------------------


class ConfigError(TerminalError):
    """A value of the configuration is wrong, missing or unknown."""


class ConfigFileError(ConfigError):
    """A TOML configuration file is missing, unreadable or inconsistent."""


class IncompatibleConfigError(ConfigError):
    """Two values that cannot work together, refused before connecting."""


# --- opening a lake ----------------------------------------------------------------------------------------------


class ExtensionMissingError(TerminalError):
    """A DuckDB extension is neither installed as a wheel nor obtainable."""


class MissingExtraError(TerminalError, ImportError):
    """An optional Python package is needed for what was asked."""


class SettingError(TerminalError):
    """A DuckDB setting was refused or did not take."""


class DatabaseNotFoundError(TerminalError):
    """The catalog server is there, the database is not."""


class CatalogUnreachableError(TransientError):
    """The catalog server does not answer, or the connection to it broke."""


class AuthenticationError(TerminalError):
    """The catalog server or the storage refused the credentials."""


class DataPathMismatchError(TerminalError):
    """The configured storage is not the one the lake was created with."""


class CatalogVersionError(TerminalError):
    """The catalog's format is older or newer than this engine's."""


class StorageError(TerminalError):
    """The storage cannot be read or written."""


class FileNotUsableError(StorageError):
    """A file that should be Parquet cannot be read: it is gone, cut off, encrypted, or something else."""


class SnapshotNotFoundError(TerminalError):
    """No such snapshot, or none at that time."""


class HistoryExpiredError(SnapshotNotFoundError):
    """Snapshots that tell what became of a table have expired."""


# --- working in a lake -------------------------------------------------------------------------------------------


class ReadOnlyError(TerminalError):
    """A write through a read-only or pinned connection."""


class UnsupportedStatementError(TerminalError):
    """A statement that DuckLake, or DuckLake on this catalog, cannot do."""


class StatementError(TerminalError):
    """The engine refused a statement."""


class ObjectNotFoundError(StatementError):
    """A schema, table or column that is not there."""


class LakeNotFoundError(ObjectNotFoundError):
    """The catalog holds no lake: only a write creates one, where `create_if_missing` is on."""


class ObjectExistsError(StatementError):
    """A schema or table that is there already."""


class TableDroppedError(TerminalError):
    """The table was dropped while it was being written."""


class SchemaConflictError(TerminalError):
    """Somebody else made or altered the same table differently."""


class SnapshotChangedError(TerminalError):
    """What a write with `expect_snapshot` replaces has changed since that snapshot."""


class RowsOutsideError(TerminalError):
    """Rows to be written do not match the `where` of `replace_where`."""


class DataError(TerminalError):
    """The data do not fit the table: a column, a type, a NULL."""


class MaintenanceFloorError(TerminalError):
    """A retention below its floor, without `force=True`."""


class ClockError(TerminalError):
    """The clock of this host is off by more than a day, so that ages cannot be trusted."""


class SharedDataPathError(TerminalError):
    """Another lake may use the data path: unknown files there may be its live files."""


class StatementTimeoutError(TerminalError):
    """A statement ran longer than its time limit and was interrupted."""


class CommitMessageRequiredError(TerminalError):
    """The lake's option `require_commit_message` is on, and a write has no commit message."""


class EncryptionError(TerminalError):
    """Files of an encrypted lake cannot be written, because no cryptography is loaded that can."""


class OptionDriftWarning(UserWarning):
    """The lake's persisted options are not the configured ones."""


class UnmatchedOverrideWarning(UserWarning):
    """An override of a maintenance policy names no table of the lake."""


class PartitionMismatchError(DataError):
    """A file has rows of several partitions, or its path says something else than its rows."""


class DuplicateFileError(TerminalError):
    """A file is given twice, or the lake has it already."""


class CommitConflictError(TransientError):
    """Somebody else committed first; the same work can be tried again."""


class StalePlanError(CommitConflictError):
    """What a change was planned on has changed: planned anew, the same work can pass."""


class CatalogBusyError(TransientError):
    """The catalog database is locked by somebody outside this package."""


class StorageBusyError(TransientError):
    """The storage asked to slow down or dropped the connection."""


class LakeLockedError(TransientError):
    """The catalog's queue was not free within the time limit."""


class MaintenanceRunningError(LakeLockedError):
    """Somebody else maintains the lake right now."""


class PoolExhaustedError(TransientError):
    """All pooled connections are in use."""


class UnknownOutcomeError(TerminalError):
    """The connection broke during COMMIT and the lake cannot be asked whether it took."""


class ForkedConnectionError(TerminalError):
    """A connection that was opened before a fork is used after it."""
