"""`lake.write`: plan a write, write its data files and commit them; a failed write removes its files.

`write_table` does all steps in this process. `PlannedWrite` lets executors in other processes write the files.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import duckdb

from ducklake_orch.catalog.commit import (
    Committed,
    Everything,
    Matching,
    NotAlignedError,
    Partitions,
    Removal,
    TableChange,
    commit_change,
    find_replay,
    leased,
    partitions_written,
    record_lease,
    remove_lease,
    write_result,
)
from ducklake_orch.catalog.metadata import Metadata, NewFile, SnapshotRow, TableDef, reading, reading_shared
from ducklake_orch.catalog.scan import parse_predicate, refuse_changing
from ducklake_orch.catalog.verbs.replace_rows import commit_replacement
from ducklake_orch.catalog.verbs.row_source import Job, Rows, Written
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.catalog.writing import check_layout, columns_of, commented, evolved, new_table, row_limit
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.phases import phase, timed_attempts
from ducklake_orch.engine.retry import by_plan, retrying
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import (
    ConfigError,
    DuckLakeOrchError,
    ObjectExistsError,
    UnsupportedStatementError,
)
from ducklake_orch.results import WriteResult

log = logging.getLogger("ducklake_orch")


@dataclass(frozen=True)
class _Plan:
    """The plan of a write.

    Attributes:
        latest: The snapshot that the write is planned on.
        known: The table at that snapshot; None if it does not exist.
        target: The table as the write will leave it.
        done: The commit of an earlier attempt, or of nothing, if there is nothing left to do.
    """

    latest: SnapshotRow
    known: TableDef | None
    target: TableDef
    done: Committed | None = None


def write_table(config: LakeConfig, rows: Rows, request: WriteRequest) -> WriteResult:
    """Write rows to a table.

    Args:
        config: The lake.
        rows: The rows to write.
        request: Target table and write options.
    """
    _refuse(config, request)

    def attempts_for(error: DuckLakeOrchError) -> int:
        return by_plan(error) if rows.repeatable else 1

    result = timed_attempts(
        config.retry,
        f"writing `{request.table}`",
        lambda _: _Writer(config, rows, request).run(),
        attempts_for=attempts_for,
    )
    return replace(result, engine=rows.engine)


@dataclass(frozen=True)
class PlannedWrite:
    """A planned write that has yet to be committed. It can be pickled, so that another process can commit it.

    Attributes:
        config: The lake.
        request: Target table and write options.
        write: Identity of the write.
        plan: The plan of the write.
    """

    config: LakeConfig
    request: WriteRequest
    write: Write
    plan: _Plan

    @classmethod
    def of(cls, config: LakeConfig, rows: Rows, request: WriteRequest) -> "PlannedWrite":
        """Plan a write and record its lease. Only the types of the rows are read."""
        _refuse(config, request)
        write = Write(f"writing `{request.table}`", request.commit)
        plan = _Writer(config, rows, request, write).plan()
        if plan.done is None:
            record_lease(config, write, plan.latest.snapshot_id)
        return cls(config, request, write, plan)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to write."""
        return self.plan.done is not None

    def job(self) -> Job:
        """Return the job for the process that writes the files."""
        request = self.request
        working = partial(working_connection, self.config)
        return Job(self.config, self.plan.target, self.write.write_id, request.where, request.outside, 0, working)

    def finish(self, rows: Rows) -> WriteResult:
        """Commit the files that were written for the rows."""
        try:
            return _Writer(self.config, rows, self.request, self.write).finish(self.plan)
        finally:
            self._unpin()

    def remove_leftovers(self) -> None:
        """Delete files of the write that no snapshot refers to."""
        remove_leftovers(self.config, self.write, self.plan.target.folder)

    def abandon(self) -> None:
        """Delete the files of a write that will not be committed."""
        self.remove_leftovers()
        self._unpin()

    def _unpin(self) -> None:
        if not self.is_done:
            remove_lease(self.config, self.write)


def _refuse(config: LakeConfig, request: WriteRequest) -> None:
    refuse_read_only(config, f"writing `{request.table}`")
    refuse_managed(config, f"writing `{request.table}`")


class _Writer:
    """One attempt at a write, planned on the latest snapshot."""

    def __init__(self, config: LakeConfig, rows: Rows, request: WriteRequest, write: Write | None = None) -> None:
        self._config = config
        self._rows = rows
        self._request = request
        self._write = write or Write(f"writing `{request.table}`", request.commit)
        self._session: Session | None = None
        self._open: Metadata | None = None

    def run(self) -> WriteResult:
        with self._kept_open():
            return self.finish(self.plan())

    @contextmanager
    def _kept_open(self) -> Iterator[None]:
        """Keep the catalog open throughout a small write if the dialect says that this is faster."""
        if not (self._rows.is_small and dialect_of(self._config).stays_open_for_small_writes()):
            yield
            return
        with open_session(self._config, entering=False) as self._session:
            doing = f"Opening the catalog to write `{self._request.table}`"
            try:
                with reading(self._session, doing) as self._open:
                    self._open.latest()
                    yield
            finally:
                self._session = self._open = None

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        if self._session is None:
            with open_session(self._config, entering=False) as session:
                yield session
            return
        if self._session.broken:
            if self._open:
                self._open.con.close()
            self._session.reopen()
        yield self._session

    def _working(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return (
            working_connection(self._config) if self._session is None else closing(self._session.instance.root.cursor())
        )

    def plan(self) -> _Plan:
        """Plan the write."""
        doing = f"planning to write `{self._request.table}`"
        with phase("plan"):
            return retrying(self._config.retry, doing, lambda _: self._plan())

    def finish(self, plan: _Plan) -> WriteResult:
        """Write the files of a plan and commit them."""
        if plan.done is not None:
            return self._result(plan.target, Written([]), plan.done)
        with leased(self._config, self._write, plan.latest.snapshot_id):
            return self._written(plan)

    def _written(self, plan: _Plan) -> WriteResult:
        with removing_failed(self._config, self._write, plan.target.folder):
            with phase("files"):
                written = self._rows.write(self._job(plan.target))
            fault_point("files.written")
            done = self._commit(plan, written)
        if not (done.files_added or written.few):  # a replay, or no rows: COPY writes an empty file
            remove_leftovers(self._config, self._write, plan.target.folder)
        return self._result(plan.target, written, done)

    # --- planning ------------------------------------------------------------------------------------------------

    def _plan(self) -> _Plan:
        """Plan on the latest snapshot; on return no lock is held."""
        doing = f"Planning to write `{self._request.table}`"
        with reading_shared(self._config, doing) as shared:
            if shared is not None:
                return self._plan_on(shared)
        with self._opened() as session, session.instance.one_thread(), reading(session, doing) as metadata:
            return self._plan_on(metadata)

    def _plan_on(self, metadata: Metadata) -> _Plan:
        request, newest = self._request, metadata.latest()
        latest = newest.snapshot_id
        refuse_without_message(f"writing `{request.table}`", request.commit, required=metadata.requires_message())
        if metadata.encrypted():
            raise UnsupportedStatementError(
                f"Lake `{self._config.name}` is encrypted.", remedy="Write to it with INSERT in `lake.execute`."
            )
        given = self._rows.types(metadata.con)
        known = metadata.find_table(request.table, latest)
        if known is None:
            columns = columns_of(given, iter(range(1, 1_000_000)), request.required)
            layout = {"partition_by": request.partition_by, "sort_by": request.sort_by}
            if metadata.has_view(request.table.schema, request.table.table, latest):
                raise ObjectExistsError(f"`{request.table}` is a view.", remedy="Choose another name for the table.")
            target = new_table(metadata, request.table, columns, latest, **layout)
            target = commented(target, None, self._rows.comments)
            return self._checked(_Plan(newest, None, target), metadata.con)
        if request.mode == "error":
            # The first attempt of this write may have created the table.
            if done := find_replay(metadata, known, request.idempotency_key, latest):
                return _Plan(newest, known, known, done)
            raise ObjectExistsError(
                f"The table `{known}` exists.", remedy="Mode `append` adds rows to it, `ignore` leaves it unchanged."
            )
        if request.mode == "ignore":
            return _Plan(newest, known, known, Committed(latest, latest, known.table_id))
        check_layout(metadata.con, known, request.partition_by, request.sort_by)
        target = known
        if request.schema_evolution != "error":
            promote = request.schema_evolution == "promote"
            target = evolved(metadata, known, given, promote=promote)
            target = commented(target, known, self._rows.comments)
        key = request.idempotency_key if request.mode == "append" else None
        return self._checked(_Plan(newest, known, target, find_replay(metadata, known, key, latest)), metadata.con)

    def _checked(self, plan: _Plan, con: duckdb.DuckDBPyConnection) -> _Plan:
        if self._request.where is not None:
            # A column that the write adds does not exist in the rows that it replaces: check against the known columns.
            refuse_changing(con, parse_predicate(con, self._request.where, (plan.known or plan.target).columns))
        if self._request.mode == "overwrite_partitions":
            _check_partitioned(plan.target)
        return plan

    # --- writing -------------------------------------------------------------------------------------------------

    def _job(self, table: TableDef) -> Job:
        request = self._request
        limit = row_limit(self._config, table) if request.inline == "auto" else 0
        return Job(self._config, table, self._write.write_id, request.where, request.outside, limit, self._working)

    def _commit(self, plan: _Plan, written: Written) -> Committed:
        change = self._change(plan, written)
        with self._opened() as session:
            try:
                return commit_change(session, self._write, change)
            except ObjectExistsError:
                if self._request.mode != "ignore":
                    raise
                # A concurrent writer created the table first: mode `ignore` keeps it.
                latest = self._write.before or plan.latest.snapshot_id
                return Committed(latest, latest)
            except NotAlignedError as error:
                log.info("%s: %s", self._write.purpose, error)
        return commit_replacement(self._config, self._write, change, *self._rows.searching(self._config))

    def _change(self, plan: _Plan, written: Written) -> TableChange:
        request = self._request
        return TableChange(
            request.table,
            plan.known,
            plan.target,
            tuple(written.files),
            _removal(request, written.as_files),
            few=written.few,
            expect_snapshot=request.expect_snapshot,
            key=request.idempotency_key,
            replays=request.mode == "append",
            only_new=request.mode in ("error", "ignore"),
            planned_version=plan.latest.schema_version,
        )

    def _result(self, table: TableDef, written: Written, done: Committed) -> WriteResult:
        result = write_result(self._write, table, self._request.mode, written.files, done)
        if written.few is None or not done.rows_added:
            return result
        rows = sum(file.record_count for file in written.as_files)
        kept = [replace(partition, files=0, bytes=0) for partition in partitions_written(table, written.as_files)]
        return replace(result, rows_written=rows, partitions=kept)


def _check_partitioned(table: TableDef) -> None:
    """Refuse `overwrite_partitions` on a table without partitions, or partitioned by buckets only.

    A bucket is a hash of its rows' keys, so replacing all rows of a bucket is never what a caller means.
    """
    fields = table.key_fields
    if all(field.transform.startswith("bucket(") for field in fields):
        how = "partitioned by buckets only" if fields else "not partitioned"
        raise ConfigError(
            f"Mode `overwrite_partitions`: table `{table}` is {how}.",
            remedy="Use mode `overwrite` to replace all rows, or `replace_where` to replace selected rows.",
        )


def _removal(request: WriteRequest, files: Sequence[NewFile]) -> Removal | None:
    match request.mode:
        case "overwrite":
            return Everything()
        case "overwrite_partitions":
            return Partitions(frozenset(file.partition_values for file in files)) if files else None
        case "replace_where":
            return Matching(request.where or "")
    return None
