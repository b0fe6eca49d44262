"""Classify engine errors as ducklake-orch errors, by their text: `classify` and `run`.

The patterns match identifiers and messages of the engine's client side, which no server translates. A Postgres server's
own messages depend on its language; `diagnosis.diagnose` tells them apart by asking the server.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.formats import NEWER_REMEDY
from ducklake_orch.errors import (
    AuthenticationError,
    CatalogBusyError,
    CatalogDamagedError,
    CatalogUnreachableError,
    CatalogVersionError,
    CommitConflictError,
    CommitMessageRequiredError,
    ConfigError,
    DatabaseNotFoundError,
    DataPathMismatchError,
    DuckLakeOrchError,
    EncryptionError,
    ExtensionMissingError,
    LakeNotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReadOnlyError,
    SettingError,
    SnapshotNotFoundError,
    StatementError,
    StatementTimeoutError,
    StorageBusyError,
    StorageError,
    UnsupportedStatementError,
)


class Rule(NamedTuple):
    """A pattern of the engine's messages, the error it means, and a remedy, whose `{…}` are filled from the lake."""

    pattern: str
    error: type[DuckLakeOrchError]
    remedy: str | None = None


HALF_MADE = (
    "Another process is creating the lake, or died while it did (MySQL cannot undo CREATE TABLE): wait, or drop the"
    " lake's tables."
)
KEYS_REMEDY = "DuckLake has no keys. To keep rows unique, use write mode `merge` with `keys=…`, or MERGE INTO in SQL."


def _http(*codes: int) -> str:
    """Return the pattern of an HTTP answer with one of these codes, as whole words since file names hold digits."""
    return rf"HTTP[^\n]*(?<![\w./=-])(?:{'|'.join(map(str, codes))})(?![\w./=-])"


MESSAGE_REMEDY = (
    "Give one: `commit=CommitInfo(author=…, message=…)`. The lake's option `require_commit_message` requires it."
)
MISSING_LAKE_REMEDY = (
    "To create it, run `ducklake-orch init --create`, or set `create_if_missing=True` and write to it: reading creates"
    " no lake."
)
# The first rule that matches decides, so the more specific rules stand first.
RULES = [
    # The engine downloads an extension that a statement needs and that is not loaded
    Rule(
        r"Failed to download extension|automatically install the required extension",
        ExtensionMissingError,
        "Name the extension in `extensions` of the lake: it is then loaded from its wheel.",
    ),
    Rule(
        r"read-only crypto module",
        EncryptionError,
        "Install the wheel of `httpfs`, whose cryptography can write.",
    ),
    Rule(
        r"ROW_GROUP_SIZE_BYTES does not work while preserving insertion order",
        ConfigError,
        "The lake's option `parquet_row_group_size_bytes` needs `preserve_insertion_order = false` in `settings`.",
    ),
    Rule(
        r"Commit Information for the snapshot is required",
        CommitMessageRequiredError,
        MESSAGE_REMEDY,
    ),
    # MySQL: another connection created a table of the catalog after this transaction had begun
    Rule(r"Table definition has changed, please retry transaction", CatalogBusyError, "Try again."),
    # Opening a lake
    Rule(
        r"creating a new DuckLake is explicitly disabled|no database/share named",
        LakeNotFoundError,
        MISSING_LAKE_REMEDY,
    ),
    Rule(
        r"DATA_PATH parameter .* does not match existing data path",
        DataPathMismatchError,
        "Configure the storage the lake was created with, or set `override_data_path=True` if its files have moved.",
    ),
    Rule(
        r"catalog version mismatch: catalog version is (0\.\d+)",
        CatalogVersionError,
        "Back up the catalog, then set `automatic_migration=True` once to bring it up to date.",
    ),
    Rule(r"catalog version mismatch: catalog version is 1\.1\b", CatalogVersionError, NEWER_REMEDY),
    Rule(
        r"catalog version mismatch",
        CatalogVersionError,
        "Another program wrote this catalog: use a newer ducklake-orch.",
    ),
    Rule(
        r"No snapshot found in DuckLake|(?:from|for) DuckLake: Table with name ducklake_\w+ does not exist",
        CatalogBusyError,
        HALF_MADE,
    ),
    Rule(r"No snapshot found at", SnapshotNotFoundError, "Run `ducklake-orch snapshots` to list the existing ones."),
    Rule(
        r"not a valid DuckDB database file",
        ConfigError,
        "Check the path; if it is a SQLite file, its URL is `sqlite:///…`.",
    ),
    Rule(
        r"file is not a database",
        ConfigError,
        "{catalog} is not a SQLite file. Check the path; if it is a DuckDB file, its URL is `duckdb:///…`.",
    ),
    Rule(
        r"Unsupported parameter for \w+ Attach|Unrecognized option for attach|unrecognized connection option",
        ConfigError,
        "Check the names in `attach_options`.",
    ),
    Rule(r"unrecognized configuration parameter", SettingError, "Check the name in `settings`."),
    # Server and credentials
    Rule(
        r"database \"[^\"]*\" does not exist|Unknown database",
        DatabaseNotFoundError,
        "{create}",
    ),
    Rule(
        r"password authentication failed|no password supplied|Access denied for user|role \"[^\"]*\" does not exist"
        r"|no pg_hba\.conf entry|authentication method",
        AuthenticationError,
        "Check user and password of the catalog {catalog}.",
    ),
    Rule(
        r"TLS/SSL error: (?:.*certificate|.*unknown ca|.*no such file|.*permission denied|.*key values mismatch|.*PEM)",
        AuthenticationError,
        "Check `ssl_ca` (whom to trust), `ssl_cert` and `ssl_key` (the client's own) of the catalog {catalog}.",
    ),
    Rule(
        r"too many (?:clients|connections)|remaining connection slots are reserved",
        CatalogBusyError,
        "The catalog server has no free connection: lower `pool.size`, or allow it more connections.",
    ),
    Rule(
        r"Connection refused|could not translate host name|Name or service not known|No such file or directory\s+Is the"
        r" server running|Unknown (?:MySQL )?server host|Can't connect to (?:local )?(?:MySQL|server)|timeout expired"
        r"|server closed the connection|terminating connection|Lost connection to|server has gone away|Broken pipe"
        r"|SSL SYSCALL|SSL error|could not (?:send|receive) data|No route to host|server conn crashed"
        r"|Commands out of sync|Failed to execute query \"ROLLBACK\"|connection to server .* failed"
        r"|no connection to the server|Connection reset by peer"
        r"|the database system is (?:starting|shutting)",
        CatalogUnreachableError,
        "Check that the catalog server runs and can be reached at {catalog}.",
    ),
    # Another writer committed first, or holds the lock
    Rule(
        r"ducklake_snapshot_pkey|ducklake_data_file_pkey|ducklake_delete_file_pkey|Conflict on (?:update|delete|tuple)"
        r"|Duplicate key \"(?:snapshot_id|data_file_id|delete_file_id)|Duplicate entry .* for key"
        r"|UNIQUE constraint failed: ducklake_|Transaction conflict|could not serialize"
        # PostgreSQL: two transactions created the same table of the catalog.
        r"|pg_(?:class_relname|type_typname)_nsp_index"
        r"|Exceeded the maximum retry count|deadlock|PRIMARY KEY or UNIQUE constraint violat",
        CommitConflictError,
    ),
    Rule(
        r"database (?:table )?is locked|Could not set lock on file|Unique file handle conflict|Lock wait timeout"
        r"|lock timeout|cannot start a transaction within a transaction.*sqlite",
        CatalogBusyError,
    ),
    # One thread of a query met an error, and another, which it stopped, was the first to report: another try tells
    Rule(r"DuckLake: Current transaction is aborted", CatalogBusyError),
    # Storage
    Rule(rf"{_http(503, 429, 500, 502, 504)}|SlowDown", StorageBusyError),
    Rule(r"AuthorizationHeaderMalformed", ConfigError, "Give the storage the `region` of its bucket."),
    Rule(
        rf"{_http(403, 401)}|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|AuthorizationFailure"
        r"|AuthenticationFailed|Secret Validation Failure|Base64 encoded string"
        r"|No user exists with the provided access key|bad/illegal format or missing URL",
        AuthenticationError,
        "Check the credentials of the storage.",
    ),
    Rule(
        r"Could not connect to server|Couldn't resolve host|Connection (?:timed out|error)"
        r"|Could not establish connection|Failed to (?:send|read) (?:request|response)",
        StorageBusyError,
        "Check that the storage can be reached.",
    ),
    Rule(
        r"Failed to create directory|Cannot open file|No space left|Permission denied|unable to open database file"
        r"|disk is full|disk I/O error|NoSuchBucket|The specified (?:bucket|container) does not exist"
        rf"|{_http(404)}|File too large|Is a directory|attempt to write a readonly database|Could not write",
        StorageError,
        "Check that the folder or bucket exists, has free space, and can be written.",
    ),
    # SQLite lets a column hold values of any type
    Rule(
        r"Invalid type in column|codec can't decode byte|Invalid unicode .* in value construction",
        CatalogDamagedError,
        "`ducklake-orch fsck` names the damaged rows of the catalog.",
    ),
    # Statements
    Rule(
        r"attached in read-only mode|read-only (?:mode|transaction|database)",
        ReadOnlyError,
        "Connect without `read_only`, `snapshot` and `as_of` to write.",
    ),
    Rule(r"PRIMARY KEY/UNIQUE constraints are not supported", UnsupportedStatementError, KEYS_REMEDY),
    Rule(
        r"FOREIGN KEY constraints are not supported|Failed to create foreign key",
        UnsupportedStatementError,
        KEYS_REMEDY,
    ),
    Rule(
        r"CHECK constraints are not supported",
        UnsupportedStatementError,
        "Check the rows before you write them: DuckLake supports no constraint but NOT NULL.",
    ),
    Rule(
        r"syntax error at or near \"SYSTEM_TIME\"",
        UnsupportedStatementError,
        "Write time travel as `FROM t AT (VERSION => 5)` or `AT (TIMESTAMP => …)`.",
    ),
    Rule(r"Unsupported operator type \w+ in (?:UPDATE|DELETE) statement", UnsupportedStatementError, "{mysql}"),
    Rule(
        r"MySQL does not support \w+ - unsupported type",
        UnsupportedStatementError,
        "Set `data_inlining_row_limit=0` for the lake: MySQL catalogs cannot inline nested columns.",
    ),
    Rule(
        r"Conversion Error.*[\"']CAST\('[^']*' AS ",
        StatementError,
        'Flush the table: `lake.maintain(operations=["flush"])`. On SQLite and PostgreSQL, the engine cannot read every'
        " struct that it inlines.",
    ),
    Rule(
        r"Out of Memory Error",
        StatementError,
        "Raise `memory_limit` (in Spark's tasks: `task_memory_limit`), or write fewer partitions at once.",
    ),
    Rule(
        r"^(?:INTERRUPT Error|Interrupted)",
        StatementTimeoutError,
        "Raise `timeout`, or run fewer commands in one call.",
    ),
    Rule(r"already exists", ObjectExistsError, "Pass `if_not_exists=True` (in SQL: IF NOT EXISTS) to keep it."),
    Rule(
        r"(?:Table|View|Schema|Column|Catalog|Macro|Function) with name .* does not exist|does not exist!"
        r"|Referenced column .* not found",
        ObjectNotFoundError,
    ),
]

_MYSQL = (
    "DuckDB's extension cannot do this on a MySQL catalog. Use `lake.execute`, `lake.write`, `lake.update`,"
    " `lake.delete` or `lake.maintain`, which commit without it."
)
_NO_ADDRESS = re.compile(
    r"(?:Unable to connect to Postgres at|Failed to connect to MySQL database with parameters) \"[^\"]*\": "
)
_NO_LAKE = re.compile(
    r"(?:Invalid Input Error: )?Existing DuckLake at metadata catalog .* does not exist"
    r" - and creating a new DuckLake is explicitly disabled",
    re.DOTALL,
)
_COMPILED = [(re.compile(rule.pattern, re.IGNORECASE | re.DOTALL), rule) for rule in RULES]


@contextmanager
def classified(config: LakeConfig, doing: str) -> Iterator[None]:
    """Let an engine error leave the block as an error of ducklake-orch; no secret stays in what is chained to it."""
    try:
        yield
        return
    except duckdb.Error as error:
        config.scrubber.clean(error)
        failure = classify(error, config, doing)
    raise failure


def run(con: duckdb.DuckDBPyConnection, sql: str, config: LakeConfig, doing: str) -> duckdb.DuckDBPyConnection:
    """Execute a statement whose text or error may hold a secret; classify errors and chain no engine error."""
    try:
        return con.execute(sql)
    except (duckdb.Error, UnicodeDecodeError) as error:  # the client decodes an error that quotes a damaged value
        failure = classify(error, config, doing)
    raise failure


def run_setting(con: duckdb.DuckDBPyConnection, sql: str, config: LakeConfig) -> None:
    """Execute a SET; a value that the engine refuses is an error in the configuration."""
    try:
        run(con, sql, config, f"Lake `{config.name}`: `{sql}` failed")
        return
    except StatementError as error:
        failure = SettingError(error.message, remedy=error.remedy or "Check the value in `settings`.")
    raise failure


def classify(error: BaseException, config: LakeConfig, doing: str) -> DuckLakeOrchError:
    """Return the ducklake-orch error that an engine error means, without secrets.

    Args:
        error: What the engine raised.
        config: The lake, for its secrets and names.
        doing: What failed, for the message.
    """
    if isinstance(error, DuckLakeOrchError):
        return error
    text = config.scrubber(str(error)).strip()
    kind: type[DuckLakeOrchError] = StatementError
    remedy = None
    for pattern, rule in _COMPILED:
        if pattern.search(text):
            kind, remedy = rule.error, rule.remedy
            break
    return kind(f"{doing}: {_readable(text, config)}", remedy=_fill(remedy, config))


def _readable(text: str, config: LakeConfig) -> str:
    """Return the part of an engine's message that a user can act on."""
    path = config.scrubber(dialect_of(config).metadata_path())
    # The engine puts its own prefix before the cause.
    text = text.rpartition(f'at path + "{path}"')[2]
    # The stack trace of an INTERNAL error does not help the user.
    text = text.partition("\n\nStack Trace:")[0]
    # A migration to another format is for its user to choose.
    text = text.partition(" To automatically migrate, set AUTOMATIC_MIGRATION")[0]
    # The setting that it advises would change the types of all columns, and so break every other read.
    text = text.partition("\n* SET sqlite_all_varchar")[0]
    # The connection strings in its messages hold no address: the secret holds it.
    text = _NO_ADDRESS.sub("", text)
    where = f" in schema `{config.metadata_schema}`" if config.metadata_schema else ""
    return _NO_LAKE.sub(lambda _: f"the catalog `{config.catalog.to_url()}` holds no lake{where}", text).strip()


def create_database(config: LakeConfig) -> str:
    """Return the remedy for a missing database, in its server's SQL."""
    database = getattr(config.catalog, "database", None)
    return f"Create it: CREATE DATABASE {dialect_of(config).quoted(database)};" if database else "Create it."


def _fill(remedy: str | None, config: LakeConfig) -> str | None:
    if remedy is None:
        return None
    return (
        remedy.replace("{create}", create_database(config))
        .replace("{catalog}", f"`{config.catalog.to_url()}`")
        .replace("{mysql}", _MYSQL)
    )
