"""Every error of ducklake-orch: one base, two families, one class per kind of error.

Callers decide by family: a `TransientError` is worth another attempt, a `TerminalError` needs a person. Each message
names the value, its origin and the remedy, and never contains a secret.
"""

from typing import Any, ClassVar, Literal


class DuckLakeOrchError(Exception):
    """Base of all errors raised by ducklake-orch.

    Args:
        message: What happened, with the value and its origin.
        remedy: What to do about it.
    """

    family: ClassVar[Literal["transient", "terminal"]] = "terminal"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @property
    def docs(self) -> str:
        """The documentation's section on this error: its meaning, causes and remedies."""
        # A user's own subclass has no section there, so its nearest known base class is used.
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
        # Exceptions cross processes (Dagster steps, Airflow tasks, Spark), which must not lose the remedy.
        return (_rebuild, (type(self), self.message, self.remedy, self.__dict__))


def _rebuild(
    cls: type[DuckLakeOrchError], message: str, remedy: str | None, state: dict[str, Any]
) -> DuckLakeOrchError:
    error = cls.__new__(cls)
    DuckLakeOrchError.__init__(error, message, remedy=remedy)
    error.__dict__.update(state)
    return error


class TerminalError(DuckLakeOrchError):
    """Another attempt fails in the same way until a person changes something."""

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
    """The call needs an optional Python package that is not installed."""


class SettingError(TerminalError):
    """A DuckDB setting was refused or had no effect."""


class DatabaseNotFoundError(TerminalError):
    """The catalog server runs, but the database does not exist."""


class CatalogUnreachableError(TransientError):
    """The catalog server does not answer, or the connection to it broke."""


class AuthenticationError(TerminalError):
    """The catalog server or the storage refused the credentials."""


class DataPathMismatchError(TerminalError):
    """The configured storage is not the one that the lake was created with."""


class CatalogVersionError(TerminalError):
    """The catalog's format is older or newer than this engine's."""


class StorageError(TerminalError):
    """The storage cannot be read or written."""


class FileNotUsableError(StorageError):
    """A file that should be Parquet cannot be read: it is missing, truncated, encrypted, or something else."""


class SnapshotNotFoundError(TerminalError):
    """The snapshot does not exist, or there is none at that time."""


class HistoryExpiredError(SnapshotNotFoundError):
    """Snapshots that record the changes to a table have expired."""


# --- working in a lake -------------------------------------------------------------------------------------------


class ReadOnlyError(TerminalError):
    """A write on a connection that is read-only or opened at a past snapshot."""


class UnsupportedStatementError(TerminalError):
    """DuckLake, or DuckLake on this catalog, does not support a statement."""


class StatementError(TerminalError):
    """The engine refused a statement."""


class ObjectNotFoundError(StatementError):
    """A schema, table or column does not exist."""


class LakeNotFoundError(ObjectNotFoundError):
    """The catalog holds no lake; only a write creates one, if `create_if_missing` is on."""


class ObjectExistsError(StatementError):
    """A schema or table exists already."""


class TableDroppedError(TerminalError):
    """The table was dropped while it was written."""


class SchemaConflictError(TerminalError):
    """Another writer concurrently created or altered the same table in a different way."""


class SnapshotChangedError(TerminalError):
    """The data that a write with `expect_snapshot` replaces have changed since that snapshot."""


class TransactionClosedError(TerminalError):
    """A transaction is used after its end, or in another thread or process than the one that began it."""


class RowsOutsideError(TerminalError):
    """Rows to write do not match the `where` of `replace_where`."""


class DataError(TerminalError):
    """The data do not fit the table: a column, a type or a NULL is wrong."""


class MaintenanceFloorError(TerminalError):
    """A retention below its floor, without `force=True`."""


class ClockError(TerminalError):
    """This host's clock is wrong by more than a day, so ages cannot be trusted."""


class SharedDataPathError(TerminalError):
    """Another lake may use the data path, so unknown files there may be its live files."""


class StatementTimeoutError(TerminalError):
    """A statement ran longer than its time limit and was interrupted."""


class CommitMessageRequiredError(TerminalError):
    """The lake's option `require_commit_message` is on, and a write has no commit message."""


class EncryptionError(TerminalError):
    """Files of an encrypted lake cannot be written, because no loaded cryptography can encrypt."""


class OptionDriftWarning(UserWarning):
    """The lake's persisted options differ from the configured ones."""


class UnmatchedOverrideWarning(UserWarning):
    """An override of a maintenance policy matches no table of the lake."""


class PartitionMismatchError(DataError):
    """A file has rows of several partitions, or its path contradicts its rows."""


class DuplicateFileError(TerminalError):
    """A file is given twice, or the lake already contains it."""


class CommitConflictError(TransientError):
    """A concurrent writer committed first; the same work can be tried again."""


class StalePlanError(CommitConflictError):
    """The state on which a change was planned has changed; the work can succeed with a new plan."""


class ConflictError(CommitConflictError):
    """A concurrent commit changed what a transaction depends on; the transaction can be run again."""


class CatalogBusyError(TransientError):
    """The catalog database is locked by a process that does not use ducklake-orch's locks."""


class StorageBusyError(TransientError):
    """The storage asked for fewer requests, or closed the connection."""


class LakeLockedError(TransientError):
    """The catalog's queue was not free within the time limit."""


class MaintenanceRunningError(LakeLockedError):
    """Another process is maintaining the lake."""


class PoolExhaustedError(TransientError):
    """All pooled connections are in use."""


class UnknownOutcomeError(TerminalError):
    """The connection broke during COMMIT, and whether it succeeded cannot be determined."""


class ForkedConnectionError(TerminalError):
    """A connection opened before a fork is used after it."""
