"""Attach a lake to an instance, create it if requested, and enter it; a failure leaves nothing behind."""

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import LocalStorage
from ducklake_orch.engine.attach import Access, attach_statements
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import HALF_MADE, MISSING_LAKE_REMEDY, classify, run
from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.formats import NEWER_FORMAT
from ducklake_orch.engine.instances import Instance
from ducklake_orch.engine.locks import LOCK_ALIAS, Queue
from ducklake_orch.engine.missing_snapshots import with_retained
from ducklake_orch.engine.options import drift
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.engine.retry import by_family, retrying
from ducklake_orch.errors import (
    AuthenticationError,
    CatalogBusyError,
    CatalogUnreachableError,
    CatalogVersionError,
    DataPathMismatchError,
    DuckLakeOrchError,
    ExtensionMissingError,
    LakeNotFoundError,
    OptionDriftWarning,
    SnapshotNotFoundError,
    StorageError,
    TransientError,
)

log = logging.getLogger("ducklake_orch")
# A server connection that was idle for longer is tested before use.
_TRUSTED_IDLE_S = 1.0


def catalog_queue(config: LakeConfig, instance: Instance) -> Queue:
    """Return the queue of a lake's catalog; a server's queue has its own connection, attached on first use."""
    dialect = dialect_of(config)

    def connect() -> duckdb.DuckDBPyConnection:
        if not instance.queue_attached:
            doing = f"Opening the queue of lake `{config.name}` failed"
            run(instance.root, dialect.metadata_attach(LOCK_ALIAS, read_only=False), config, doing)
            instance.queue_attached = True
        return instance.root

    return dialect.writer_queue(connect)


def enter(config: LakeConfig, instance: Instance) -> LakeConnection:
    """Return a connection in the lake: the previous session's, if it was left unchanged, or a new one."""
    entered, instance.entered = instance.entered, None
    if entered is not None:
        return entered
    use, cursor = f"USE {identifier(config.alias)}", instance.root.cursor()
    con = LakeConnection(cursor, use, config.alias)
    try:
        if _use(cursor, use, config) and instance.state is not None:
            instance.state = instance.clean_state()
        if config.on_attach:
            config.on_attach(con)
    except BaseException:
        con.close()
        raise
    return con


def _use(cursor: duckdb.DuckDBPyConnection, use: str, config: LakeConfig) -> bool:
    """Enter an attached lake; return whether that loaded an extension.

    A lake without a schema is still being created, which MySQL shows to every connection.
    """
    try:
        cursor.execute(use)
        return _loads_cryptography(config, cursor)
    except (duckdb.Error, UnicodeDecodeError) as error:  # the client decodes an error that quotes a damaged value
        failure = classify(error, config, f"Opening lake `{config.name}` failed")
        if isinstance(error, duckdb.CatalogException):
            failure = CatalogBusyError(failure.message, remedy=HALF_MADE)
    raise failure


def _loads_cryptography(config: LakeConfig, con: duckdb.DuckDBPyConnection) -> bool:
    """Load the extension that encrypts files if the lake is encrypted; return whether it was loaded.

    DuckDB itself can only decrypt.
    """
    dialect = dialect_of(config)
    if config.encrypted or not dialect.attaches_lake:
        return False
    # By the catalog's own SQL: DuckDB's would first list the tables of the catalog.
    if con.execute(dialect.lake_option("encrypted")).fetchall() != [("true",)]:
        return False
    try:
        load_extension(con, "httpfs")
    except ExtensionMissingError:
        return False  # the files can still be read
    return True


def attach(config: LakeConfig, access: Access, instance: Instance, *, entering: bool = True) -> None:
    """Attach the lake to an instance and retry transient failures; create the lake if the configuration asks for it.

    A file catalog is entered only on request: entering takes far longer than attaching. A server's connection is kept,
    so it is always entered.
    """
    if instance.attached:
        if (access.only_reads or not instance.without_extension) and _is_usable(config, instance, entering):
            return
        instance.detach(config)
    entering = entering or not config.catalog.is_file
    if instance.state is None and config.catalog.is_file:
        instance.state = instance.clean_state()
    retrying(
        config.retry,
        f"attaching lake `{config.name}`",
        lambda _: _attach_or_create(config, access, instance, entering),
        attempts_for=_attach_attempts,
    )
    if not config.catalog.is_file:
        instance.state = instance.clean_state()
    try:
        _warn_of_drift(config, instance)
    except BaseException:  # the warning filters can turn a warning into an error
        instance.detach(config)
        raise


def attach_in_place(config: LakeConfig, access: Access, instance: Instance) -> None:
    """Attach an existing lake to an instance whose connections are in a lake of that name; retry as `attach` does."""
    for name in config.required_extensions:
        load_extension(instance.root, name)

    def attempt(_: int) -> None:
        instance.forget(config.alias)  # after a lost answer, the engine may keep a lake that it failed to attach
        _run_attach(config, access, instance, create=False, entering=False)

    retrying(config.retry, f"attaching lake `{config.name}`", attempt, attempts_for=_attach_attempts)


def _attach_attempts(error: DuckLakeOrchError) -> int:
    # An unreachable server or a wrong password is worth one retry, not two minutes of them.
    return 2 if isinstance(error, CatalogUnreachableError | AuthenticationError) else by_family(error)


def _warn_of_drift(config: LakeConfig, instance: Instance) -> None:
    if config.options and not instance.without_extension and (changes := drift(config, instance.root)):
        differences = ", ".join(f"{name} is {actual!r} instead of {wanted!r}" for name, wanted, actual in changes)
        message = f"Lake `{config.name}` does not have its configured options: {differences}."
        warnings.warn(f"{message} Run `lake.apply_options()` to write them.", OptionDriftWarning, stacklevel=2)


def _attach_or_create(config: LakeConfig, access: Access, instance: Instance, entering: bool) -> None:
    refuse_missing(config, access)
    file = config.catalog_file
    # Attaching a missing file would create an empty one, whatever the options say.
    if file is None or file.exists():
        try:
            _run_attach(config, access, instance, create=False, entering=entering)
            return
        except LakeNotFoundError:
            if not access.creates(config):
                raise
    _create(config, access, instance)
    if not access.is_draft:
        log.info("created lake `%s` in %s", config.name, config.catalog.to_url())


def refuse_missing(config: LakeConfig, access: Access) -> None:
    """Refuse a catalog file that does not exist; the engine would leave an empty one behind."""
    file = config.catalog_file
    if file is not None and not file.exists() and not access.creates(config):
        raise LakeNotFoundError(
            f"There is no lake `{config.name}`: {file} does not exist.",
            remedy=MISSING_LAKE_REMEDY,
        )


def _create(config: LakeConfig, access: Access, instance: Instance) -> None:
    file = config.catalog_file
    new = [] if file is None else [file.parent]
    new += [Path(config.storage.data_path)] if isinstance(config.storage, LocalStorage) else []
    timeout = config.lock_timeout.total_seconds()
    # Two concurrent first writers must not both create the lake.
    with folders(*new), catalog_queue(config, instance).hold(f"creating lake `{config.name}`", timeout):
        made_here = file is not None and not file.exists()
        try:
            _run_attach(config, access, instance, create=True, entering=True)
            fault_point("lake.created")
        except BaseException:
            instance.detach(config)
            if file is not None and made_here:
                _remove_half_made(file)
            raise


def _remove_half_made(path: Path) -> None:
    for file in (path, *(path.with_name(path.name + tail) for tail in ("-wal", "-shm", "-journal", ".wal"))):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def folders(*paths: Path) -> Iterator[None]:
    """Create the folders of a new lake; delete them again if the lake is not created."""
    missing = [folder for path in paths for folder in (path, *path.parents) if not folder.exists()]
    try:
        for path in paths:
            _make_folder(path)
        yield
    except BaseException:
        for folder in sorted(missing, reverse=True):
            with contextlib.suppress(OSError):  # not empty: the lake exists, or another program uses the folder
                folder.rmdir()
        raise


def _make_folder(path: Path) -> None:
    failure = None
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            failure = "it is not writable"
    except OSError as error:
        failure = error.strerror or str(error)
    if failure:
        raise StorageError(
            f"The folder {path} cannot be used: {failure}.", remedy="Choose another folder, or change its permissions."
        )


def _run_attach(config: LakeConfig, access: Access, instance: Instance, *, create: bool, entering: bool) -> None:
    """Attach and enter the lake once; diagnose engine errors with the server's help and raise ducklake-orch errors."""
    try:
        try:
            _attach(config, access, instance, create)
        except DataPathMismatchError as error:
            if not any(f'"file://{host}{config.data_path}"' in error.message for host in ("", "localhost")):
                raise
            # It is the same folder: another program stored it as a URL, and the engine compares texts.
            _attach(config.model_copy(update={"override_data_path": True}), access, instance, create)
        except CatalogVersionError:
            if not (access.only_reads and _attach_metadata(config, access, instance)):
                raise
            instance.without_extension = True
        instance.attached = True
        if entering and not instance.without_extension:
            instance.entered = enter(config, instance)
        return
    except DuckLakeOrchError as error:
        failure = error
    except BaseException:  # raised by a user's hook
        instance.detach(config)
        raise
    with contextlib.suppress(duckdb.FatalException):  # the engine's bug that `failure` reports has ended the instance
        instance.detach(config)
    if isinstance(failure, SnapshotNotFoundError):
        raise _with_retained(config, instance, failure)
    raise diagnose(config, instance.root, failure)


def _with_retained(config: LakeConfig, instance: Instance, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Return the error for a missing snapshot with the existing ones, which the lake at its latest snapshot tells."""
    try:
        _attach(config, Access(read_only=True), instance, create=False)
        instance.attached = True
        return with_retained(failure, instance.root, config)
    except DuckLakeOrchError:
        return failure
    finally:
        instance.detach(config)


def _attach(config: LakeConfig, access: Access, instance: Instance, create: bool) -> None:
    for statement in attach_statements(config, access, create=create, reveal=True):
        run(instance.root, statement, config, f"Opening lake `{config.name}` failed")


def _attach_metadata(config: LakeConfig, access: Access, instance: Instance) -> bool:
    """Attach the metadata database alone if ducklake-orch reads the lake's format; return whether it does.

    What reads metadata and files itself then works; the lake itself is not attached, so no SQL can name it.
    """
    dialect, doing = dialect_of(config), f"Opening the metadata of lake `{config.name}` failed"
    run(instance.root, dialect.metadata_attach(config.metadata_alias, read_only=access.read_only), config, doing)
    version = f"SELECT value FROM {dialect.attached('ducklake_metadata')} WHERE key = 'version'"
    if run(instance.root, version, config, doing).fetchone() == (NEWER_FORMAT,):
        return True
    instance.root.execute(f"DETACH DATABASE {identifier(config.metadata_alias)}")
    return False


def _is_usable(config: LakeConfig, instance: Instance, entering: bool) -> bool:
    """Whether an attached instance still has a working connection to its server."""
    dialect = dialect_of(config)
    try:
        if time.monotonic() - instance.idle_since > _TRUSTED_IDLE_S:
            for alias in [config.metadata_alias] + [LOCK_ALIAS] * instance.queue_attached:
                instance.root.execute(dialect.query("select 1", alias=alias)).fetchall()
        if entering:
            # Without a refresh DuckDB does not see the first rows that others delete in a new table. Listing the tables
            # again takes 15 ms, so sessions that only need the metadata search for such tables themselves.
            dialect.refresh_tables(instance.root)
        if not instance.without_extension:
            instance.entered = enter(config, instance)
    except (duckdb.Error, TransientError) as error:
        log.info("the idle connection to lake `%s` has ended: %s", config.name, config.scrubber(str(error)))
        return False
    return True
