"""One attempt at a write: plan it on the latest snapshot, write its files, commit them."""

import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from ducklake_orch.catalog.commit import (
    Committed,
    Everything,
    Matching,
    NotAlignedError,
    Partitions,
    Removal,
    TableChange,
    find_replay,
    leased,
    partitions_written,
    write_result,
)
from ducklake_orch.catalog.metadata import (
    Metadata,
    NewFile,
    Settings,
    SnapshotRow,
    TableDef,
    reading,
    reading_shared,
)
from ducklake_orch.catalog.scan import parse_predicate, refuse_changing
from ducklake_orch.catalog.verbs.commit_together import commit_in_turn
from ducklake_orch.catalog.verbs.known_plans import forget_plan, keep_plan, known_plan
from ducklake_orch.catalog.verbs.replace_rows import commit_replacement
from ducklake_orch.catalog.verbs.row_source import Job, Rows, Written
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.catalog.writing import check_layout, columns_of, commented, evolved, new_table, row_limit
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.phases import phase
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.retry import retrying
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import (
    ConfigError,
    DuckLakeOrchError,
    LakeLockedError,
    ObjectExistsError,
    UnknownOutcomeError,
)
from ducklake_orch.results import CommitInfo, WriteResult

log = logging.getLogger("ducklake_orch")


@dataclass(frozen=True)
class WritePlan:
    """The plan of a write.

    Attributes:
        latest: The snapshot that the write is planned on.
        known: The table at that snapshot; None if it does not exist.
        target: The table as the write will leave it.
        done: The commit of an earlier attempt, or of nothing, if there is nothing left to do.
        settings: The options that the catalog stored at that snapshot.
        kept: Whether an earlier write made the plan.
    """

    latest: SnapshotRow
    known: TableDef | None
    target: TableDef
    done: Committed | None = None
    settings: Settings = field(default_factory=dict)
    kept: bool = False


def turn_key(config: LakeConfig, table: TableName) -> Hashable:
    """Return what threads that append to a table take turns at."""
    return repr(config.catalog), table


class TableWriter:
    """One attempt at a write, planned on the latest snapshot.

    Attributes:
        row_limit: The maximum number of rows that it inlines; None until its files are written.
    """

    def __init__(self, config: LakeConfig, rows: Rows, request: WriteRequest, write: Write | None = None) -> None:
        self.config = config
        self._rows = rows
        self._request = request
        self._write = write or Write(f"writing `{request.table}`", request.commit)
        self.row_limit: int | None = None
        self._session: Session | None = None
        self._open: Metadata | None = None

    def run(self) -> WriteResult:
        """Plan the write, write its files and commit them."""
        key, shape = turn_key(self.config, self._request.table), self.shape
        if (known := known_plan(key, shape)) is not None:
            try:
                with self.kept_open():
                    return self.finish(known)
            except (UnknownOutcomeError, LakeLockedError):
                raise
            except DuckLakeOrchError as error:
                log.info("%s is planned again: %s", self._write.purpose, error)
            forget_plan(key)
            self._write = Write(self._write.purpose, self._write.info)
        with self.kept_open():
            plan = self.plan()
            result = self.finish(plan)
        if plan.known == plan.target and plan.done is None:
            keep_plan(key, shape, plan)
        return result

    @property
    def shape(self) -> Any:
        """What the plan of a small append depends on besides the state of the lake; None if no plan is kept."""
        rows, request = self._rows, self._request
        if rows.in_memory is None or rows.comments or request.mode != "append" or request.expect_snapshot is not None:
            return None
        same = replace(request, idempotency_key=None, commit=CommitInfo())
        return self.config, same, bool(request.commit.message), rows.in_memory.schema

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the catalog open throughout a small write if the dialect says that this is faster."""
        if not (self._rows.is_small and dialect_of(self.config).stays_open_for_small_writes()):
            yield
            return
        with self._one_session() as session:
            with reading(session, f"Opening the catalog to write `{self._request.table}`") as self._open:
                self._open.latest()
                yield

    @contextmanager
    def in_one_session(self) -> Iterator[None]:
        """Use one connection, and one thread of it, for a write of a few rows if the catalog allows it."""
        if not dialect_of(self.config).is_server:
            with self.kept_open():
                yield
            return
        with self._one_session() as session, session.instance.one_thread():
            yield

    @contextmanager
    def _one_session(self) -> Iterator[Session]:
        with open_session(self.config, entering=False) as self._session:
            try:
                yield self._session
            finally:
                self._session = self._open = None

    @contextmanager
    def opened(self) -> Iterator[Session]:
        """Open the lake for a block, or use the session that is kept open."""
        if self._session is None:
            with open_session(self.config, entering=False) as session:
                yield session
            return
        if self._session.broken:
            if self._open:
                self._open.con.close()
            self._session.reopen()
        yield self._session

    def working(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Open an engine that reaches the storage for a block."""
        return (
            working_connection(self.config) if self._session is None else closing(self._session.instance.root.cursor())
        )

    def plan(self) -> WritePlan:
        """Plan the write."""
        doing = f"planning to write `{self._request.table}`"
        with phase("plan"):
            return retrying(self.config.retry, doing, lambda _: self._plan())

    def finish(self, plan: WritePlan) -> WriteResult:
        """Write the files of a plan and commit them."""
        if plan.done is not None:
            return self._result(plan.target, Written([]), plan.done)
        with leased(self.config, self._write, plan.latest.snapshot_id):
            return self._written(plan)

    def _written(self, plan: WritePlan) -> WriteResult:
        with removing_failed(self.config, self._write, plan.target.folder):
            with phase("files"):
                written = self._rows.write(self._job(plan.target))
            fault_point("files.written")
            done = self._commit(plan, written)
        if not (done.files_added or written.few):  # a replay, or no rows: COPY writes an empty file
            remove_leftovers(self.config, self._write, plan.target.folder)
        return self._result(plan.target, written, done)

    # --- planning ------------------------------------------------------------------------------------------------

    def _plan(self) -> WritePlan:
        """Plan on the latest snapshot; on return no lock is held."""
        doing = f"Planning to write `{self._request.table}`"
        with reading_shared(self.config, doing) as shared:
            if shared is not None:
                return replace(self._plan_on(shared), settings=shared.settings())
        with self.opened() as session, session.instance.one_thread(), reading(session, doing) as metadata:
            return replace(self._plan_on(metadata), settings=metadata.settings())

    def _plan_on(self, metadata: Metadata) -> WritePlan:
        request, newest = self._request, metadata.latest()
        latest = newest.snapshot_id
        refuse_without_message(f"writing `{request.table}`", request.commit, required=metadata.requires_message())
        given = self._rows.types(metadata.con)
        known = metadata.find_table(request.table, latest)
        if known is None:
            columns = columns_of(given, iter(range(1, 1_000_000)), request.required)
            layout = {"partition_by": request.partition_by, "sort_by": request.sort_by}
            if metadata.has_view(request.table.schema, request.table.table, latest):
                raise ObjectExistsError(f"`{request.table}` is a view.", remedy="Choose another name for the table.")
            target = new_table(metadata, request.table, columns, latest, **layout)
            target = commented(target, None, self._rows.comments)
            return self._checked(WritePlan(newest, None, target), metadata.con)
        if request.mode == "error":
            # The first attempt of this write may have created the table.
            if done := find_replay(metadata, known, request.idempotency_key, latest):
                return WritePlan(newest, known, known, done)
            raise ObjectExistsError(
                f"The table `{known}` exists.", remedy="Mode `append` adds rows to it, `ignore` leaves it unchanged."
            )
        if request.mode == "ignore":
            return WritePlan(newest, known, known, Committed(latest, latest))
        check_layout(metadata.con, known, request.partition_by, request.sort_by)
        target = known
        if request.schema_evolution != "error":
            promote = request.schema_evolution == "promote"
            target = evolved(metadata, known, given, promote=promote)
            target = commented(target, known, self._rows.comments)
        key = request.idempotency_key if request.mode == "append" or request.once else None
        return self._checked(WritePlan(newest, known, target, find_replay(metadata, known, key, latest)), metadata.con)

    def _checked(self, plan: WritePlan, con: duckdb.DuckDBPyConnection) -> WritePlan:
        if self._request.where is not None:
            # A column that the write adds does not exist in the rows that it replaces: check against the known columns.
            refuse_changing(con, parse_predicate(con, self._request.where, (plan.known or plan.target).columns))
        if self._request.mode == "overwrite_partitions":
            _check_partitioned(plan.target)
        return plan

    # --- writing -------------------------------------------------------------------------------------------------

    def _job(self, table: TableDef) -> Job:
        request = self._request
        limit = self.row_limit = row_limit(self.config, table) if request.inline == "auto" else 0
        return Job(self.config, table, self._write.write_id, request.where, request.outside, limit, self.working)

    def _commit(self, plan: WritePlan, written: Written) -> Committed:
        change = self._change(plan, written)
        try:
            return commit_in_turn(self.config, self.opened, self._write, change)
        except ObjectExistsError:
            if self._request.mode != "ignore":
                raise
            # A concurrent writer created the table first: mode `ignore` keeps it.
            latest = self._write.before or plan.latest.snapshot_id
            return Committed(latest, latest)
        except NotAlignedError as error:
            log.info("%s: %s", self._write.purpose, error)
        return commit_replacement(self.config, self._write, change, *self._rows.searching(self.config))

    def _change(self, plan: WritePlan, written: Written) -> TableChange:
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
            replays=request.mode == "append" or request.once,
            only_new=request.mode in ("error", "ignore"),
            planned_version=plan.latest.schema_version,
            settings=plan.settings if plan.kept else None,
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
