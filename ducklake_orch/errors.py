"""Every error of ducklake-orch: one base, two families, one class per kind of error.

Callers decide by family: a `TransientError` is worth another attempt, a `TerminalError` needs a person. Each message
names the value, its origin and the remedy, and never contains a secret. Each class has a stable `code`, which
`ducklake-orch explain` takes.
"""

from typing import Any, ClassVar, Literal, Self


class DuckLakeOrchError(Exception):
    """Base of all errors raised by ducklake-orch.

    Args:
        message: What happened, with the value and its origin.
        remedy: What to do about it.
    """

    code: ClassVar[str] = "unexpected"
    family: ClassVar[Literal["transient", "terminal"]] = "terminal"
    # Whether the text ends with the command that explains it: only for the error that a host prints, not its causes.
    _ends_with_explain = False

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @property
    def explain(self) -> str:
        """The command that prints the documentation's section on this error."""
        return f"ducklake-orch explain {self.code}"

    def with_explain(self) -> Self:
        """End the text of this error with the command that explains it, and return the error.

        Hosts call it for the error that leaves a task, so that the line comes once, and not for each of its causes.
        """
        self._ends_with_explain = True
        return self

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
            "code": self.code,
            "family": self.family,
            "message": self.message,
            "remedy": self.remedy,
            "retryable": self.retryable,
            "docs": self.docs,
        }

    def __str__(self) -> str:
        text = self.message
        if self.remedy:
            stop = "" if self.message.endswith((".", "!", "?", "`")) else "."
            text += f"{stop}{chr(10) if chr(10) in self.message else ' '}{self.remedy}"
        return f"{text}\n{self.explain}" if self._ends_with_explain else text

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

    code: ClassVar[str] = "terminal"
    family: ClassVar[Literal["transient", "terminal"]] = "terminal"


class TransientError(DuckLakeOrchError):
    """Another attempt at the same work may succeed."""

    code: ClassVar[str] = "transient"
    family: ClassVar[Literal["transient", "terminal"]] = "transient"


# --- configuration -----------------------------------------------------------------------------------------------


class ConfigError(TerminalError):
    """A value of the configuration is wrong, missing or unknown."""

    code: ClassVar[str] = "config"


class ConfigFileError(ConfigError):
    """A TOML configuration file is missing, unreadable or inconsistent."""

    code: ClassVar[str] = "config-file"


class IncompatibleConfigError(ConfigError):
    """Two values that cannot work together, refused before connecting."""

    code: ClassVar[str] = "config-incompatible"


# --- opening a lake ----------------------------------------------------------------------------------------------


class ExtensionMissingError(TerminalError):
    """A DuckDB extension is neither installed as a wheel nor obtainable."""

    code: ClassVar[str] = "extension-missing"


class MissingExtraError(TerminalError, ImportError):
    """The call needs an optional Python package that is not installed."""

    code: ClassVar[str] = "extra-missing"


class SettingError(TerminalError):
    """A DuckDB setting was refused or had no effect."""

    code: ClassVar[str] = "setting"


class DatabaseNotFoundError(TerminalError):
    """The catalog server runs, but the database does not exist."""

    code: ClassVar[str] = "database-not-found"


class CatalogUnreachableError(TransientError):
    """The catalog server does not answer, or the connection to it broke."""

    code: ClassVar[str] = "catalog-unreachable"


class AuthenticationError(TerminalError):
    """The catalog server or the storage refused the credentials."""

    code: ClassVar[str] = "authentication"


class DataPathMismatchError(TerminalError):
    """The configured storage is not the one that the lake was created with."""

    code: ClassVar[str] = "data-path-mismatch"


class CatalogVersionError(TerminalError):
    """The catalog's format is older or newer than this engine's."""

    code: ClassVar[str] = "catalog-version"


class CatalogDamagedError(TerminalError):
    """A value in the metadata tables cannot be right: it is missing, or has another type than its column."""

    code: ClassVar[str] = "catalog-damaged"


class StorageError(TerminalError):
    """The storage cannot be read or written."""

    code: ClassVar[str] = "storage"


class FileNotUsableError(StorageError):
    """A file that should be Parquet cannot be read: it is missing, truncated, encrypted, or something else."""

    code: ClassVar[str] = "file-not-usable"


class SnapshotNotFoundError(TerminalError):
    """The snapshot does not exist, or there is none at that time."""

    code: ClassVar[str] = "snapshot-not-found"


class HistoryExpiredError(SnapshotNotFoundError):
    """Snapshots that record the changes to a table have expired."""

    code: ClassVar[str] = "history-expired"


# --- working in a lake -------------------------------------------------------------------------------------------


class ReadOnlyError(TerminalError):
    """A write on a connection that is read-only or opened at a past snapshot."""

    code: ClassVar[str] = "read-only"


class UnsupportedStatementError(TerminalError):
    """DuckLake, or DuckLake on this catalog, does not support a statement."""

    code: ClassVar[str] = "unsupported-statement"


class StatementError(TerminalError):
    """The engine refused a statement."""

    code: ClassVar[str] = "statement"


class ObjectNotFoundError(StatementError):
    """A schema, table or column does not exist."""

    code: ClassVar[str] = "object-not-found"


class LakeNotFoundError(ObjectNotFoundError):
    """The catalog holds no lake; only a write creates one, if `create_if_missing` is on."""

    code: ClassVar[str] = "lake-not-found"


class ObjectExistsError(StatementError):
    """A schema or table exists already."""

    code: ClassVar[str] = "object-exists"


class TableDroppedError(TerminalError):
    """The table was dropped while it was written."""

    code: ClassVar[str] = "table-dropped"


class SchemaConflictError(TerminalError):
    """Another writer concurrently created or altered the same table in a different way."""

    code: ClassVar[str] = "schema-conflict"


class StreamStoppedError(TerminalError):
    """Rows or columns of a table have changed in a way that a stream does not deliver."""

    code: ClassVar[str] = "stream-stopped"


class SnapshotChangedError(TerminalError):
    """The data that a write with `expect_snapshot` replaces have changed since that snapshot."""

    code: ClassVar[str] = "snapshot-changed"


class TransactionClosedError(TerminalError):
    """A transaction is used after its end, or in another thread or process than the one that began it."""

    code: ClassVar[str] = "transaction-closed"


class RowsOutsideError(TerminalError):
    """Rows to write do not match the `where` of `replace_where`."""

    code: ClassVar[str] = "rows-outside"


class DataError(TerminalError):
    """The data do not fit the table: a column, a type or a NULL is wrong."""

    code: ClassVar[str] = "data"


class MaintenanceFloorError(TerminalError):
    """A retention below its floor, without `force=True`."""

    code: ClassVar[str] = "maintenance-floor"


class ClockError(TerminalError):
    """This host's clock is wrong by more than a day, so ages cannot be trusted."""

    code: ClassVar[str] = "clock"


class SharedDataPathError(TerminalError):
    """Another lake may use the data path, so unknown files there may be its live files."""

    code: ClassVar[str] = "shared-data-path"


class StatementTimeoutError(TerminalError):
    """A statement ran longer than its time limit and was interrupted."""

    code: ClassVar[str] = "statement-timeout"


class CommitMessageRequiredError(TerminalError):
    """The lake's option `require_commit_message` is on, and a write has no commit message."""

    code: ClassVar[str] = "commit-message-required"


class EncryptionError(TerminalError):
    """Files of an encrypted lake cannot be written, because no loaded cryptography can encrypt."""

    code: ClassVar[str] = "encryption"


class OptionDriftWarning(UserWarning):
    """The lake's persisted options differ from the configured ones."""

    code: ClassVar[str] = "option-drift"


class UnmatchedOverrideWarning(UserWarning):
    """An override of a maintenance policy matches no table of the lake."""

    code: ClassVar[str] = "unmatched-override"


class PartitionMismatchError(DataError):
    """A file has rows of several partitions, or its path contradicts its rows."""

    code: ClassVar[str] = "partition-mismatch"


class DuplicateFileError(TerminalError):
    """A file is given twice, or the lake already contains it."""

    code: ClassVar[str] = "duplicate-file"


class CommitConflictError(TransientError):
    """A concurrent writer committed first; the same work can be tried again."""

    code: ClassVar[str] = "commit-conflict"


class StalePlanError(CommitConflictError):
    """The state on which a change was planned has changed; the work can succeed with a new plan."""

    code: ClassVar[str] = "stale-plan"


class ConflictError(CommitConflictError):
    """A concurrent commit changed what a transaction depends on; the transaction can be run again."""

    code: ClassVar[str] = "conflict"


class StageConflictError(ConflictError):
    """A commit since a stage was created changed what was staged; discard the stage, and stage its work again."""

    code: ClassVar[str] = "stage-conflict"
    family: ClassVar[Literal["transient", "terminal"]] = "terminal"


class CatalogBusyError(TransientError):
    """The catalog has no free connection, or is locked by a process that does not use ducklake-orch's locks."""

    code: ClassVar[str] = "catalog-busy"


class StorageBusyError(TransientError):
    """The storage asked for fewer requests, or closed the connection."""

    code: ClassVar[str] = "storage-busy"


class LakeLockedError(TransientError):
    """The catalog's queue was not free within the time limit."""

    code: ClassVar[str] = "lake-locked"


class MaintenanceRunningError(LakeLockedError):
    """Another process is maintaining the lake."""

    code: ClassVar[str] = "maintenance-running"


class PoolExhaustedError(TransientError):
    """All pooled connections are in use."""

    code: ClassVar[str] = "pool-exhausted"


class UnknownOutcomeError(TerminalError):
    """The connection broke during COMMIT, and whether it succeeded cannot be determined."""

    code: ClassVar[str] = "unknown-outcome"


class ForkedConnectionError(TerminalError):
    """A connection opened before a fork is used after it."""

    code: ClassVar[str] = "forked-connection"
