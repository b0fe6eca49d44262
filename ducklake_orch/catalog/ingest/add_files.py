"""`lake.add_files`: inspect existing Parquet files, copy them into the lake if requested, and commit them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.commit import (
    Committed,
    TableChange,
    check_key,
    commit_change,
    find_replay,
    leased,
    refuse_known,
    write_result,
)
from ducklake_orch.catalog.ingest.copy_in import copy_into, plan_copies
from ducklake_orch.catalog.ingest.file_inspection import inspect_files
from ducklake_orch.catalog.metadata import NewFile, Paths, TableDef, reading
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.phases import phase, timed_attempts
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.retry import retrying
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, WriteResult

# What to read of each file before adding it.
VERIFIED = ("pages", "footer")
log = logging.getLogger("ducklake_orch")


@dataclass(frozen=True)
class AddRequest:
    """The arguments of `lake.add_files`."""

    table: TableName
    paths: Paths
    allow_missing: bool = False
    ignore_extra: bool = False
    copy: bool = False
    dry_run: bool = False
    verify: str = "pages"
    idempotency_key: str | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)

    def __post_init__(self) -> None:
        if self.verify not in VERIFIED:
            raise ConfigError(f"`verify` = {self.verify!r} is unknown.", remedy=nearest(str(self.verify), VERIFIED))


def add_data_files(config: LakeConfig, request: AddRequest) -> WriteResult:
    """Add existing Parquet files to a table.

    Args:
        config: The lake.
        request: Target table, files and options.
    """
    refuse_read_only(config, f"adding files to `{request.table}`")
    refuse_managed(config, f"adding files to `{request.table}`")
    if request.idempotency_key is not None:
        check_key(request.idempotency_key)
    doing = f"adding files to `{request.table}`"
    return timed_attempts(config.retry, doing, lambda _: _Registration(config, request).run())


class _Registration:
    """One attempt to add the files, planned on the latest snapshot."""

    def __init__(self, config: LakeConfig, request: AddRequest) -> None:
        self._config = config
        self._request = request
        self._write = Write(f"adding files to `{request.table}`", request.commit)

    def run(self) -> WriteResult:
        doing = f"planning to add files to `{self._request.table}`"
        with phase("plan"):
            table, latest, done = retrying(self._config.retry, doing, lambda _: self._plan())
        if done is not None:
            return self._result(table, [], done)
        if self._request.dry_run:
            return self._dry_run(table)
        with leased(self._config, self._write, latest), phase("files"):
            return self._add(table)

    def _dry_run(self, table: TableDef) -> WriteResult:
        """Return what would be added, after the checks that precede a commit and those inside it."""
        files = self._inspect(table)
        if self._request.copy:
            plan_copies(table, files, self._write.write_id)
        paths = [file.path for file in files]
        doing = f"checking which files `{table}` already has"

        def check(_: int) -> int:
            with open_session(self._config, entering=False) as session, reading(session, doing) as metadata:
                refuse_known(metadata, paths, copied_to=table if self._request.copy else None)
                return metadata.latest().snapshot_id

        latest = retrying(self._config.retry, doing, check)
        outcome = Committed(latest, latest, files_added=len(files))
        return write_result(self._write, table, "add_files", files, outcome)

    def _add(self, table: TableDef) -> WriteResult:
        inspected = self._inspect(table)
        # On failure this deletes files whose names contain this write's id. Files added in place have none: they stay.
        with removing_failed(self._config, self._write, table.folder):
            files = self._copy(table, inspected) if self._request.copy else inspected
            fault_point("files.added")
            done = self._commit(table, files, [file.path for file in inspected])
        if done.files_added < len(files):
            remove_leftovers(self._config, self._write, table.folder)
        return self._result(table, files, done)

    def _plan(self) -> tuple[TableDef, int, Committed | None]:
        doing = f"Planning to add files to `{self._request.table}`"
        with open_session(self._config, entering=False) as session, reading(session, doing) as metadata:
            latest = metadata.latest().snapshot_id
            required = metadata.requires_message() and not self._request.dry_run
            refuse_without_message(self._write.purpose, self._write.info, required=required)
            table = metadata.table(self._request.table, latest)
            return table, latest, find_replay(metadata, table, self._request.idempotency_key, latest)

    def _inspect(self, table: TableDef) -> list[NewFile]:
        """Inspect the files without holding a lock or transaction in the catalog."""
        request = self._request
        with working_connection(self._config) as con:
            return inspect_files(
                con,
                self._config,
                table,
                request.paths,
                allow_missing=request.allow_missing,
                ignore_extra=request.ignore_extra,
                copied=request.copy,
                verify=request.verify,
            )

    def _copy(self, table: TableDef, files: Sequence[NewFile]) -> list[NewFile]:
        with working_connection(self._config) as con:
            return copy_into(con, self._config, table, files, self._write.write_id)

    def _commit(self, table: TableDef, files: Sequence[NewFile], sources: Sequence[str]) -> Committed:
        request = self._request
        change = TableChange(
            request.table,
            table,
            table,
            tuple(files),
            key=request.idempotency_key,
            replays=True,
            adopted=() if request.copy else tuple(sources),
            copied=tuple(sources) if request.copy else (),
        )
        with open_session(self._config, entering=False) as session:
            return commit_change(session, self._write, change)

    def _result(self, table: TableDef, files: Sequence[NewFile], done: Committed) -> WriteResult:
        outside = [file.path for file in files if file.outside]
        if outside and done.files_added:
            log.warning(
                "%d files outside the folder of table `%s` now belong to the lake, which deletes them once no snapshot"
                " needs them: %s%s",
                len(outside),
                table,
                outside[0],
                ", …" if len(outside) > 1 else "",
            )
        return write_result(self._write, table, "add_files", files, done)
