"""Change rows in place for `lake.delete`, `lake.update` and merges: find them, write their replacements, retire them.

`change_rows` commits all of that as one snapshot. Rows that stay, and rows that change, keep their ids.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import duckdb

from ducklake_orch.catalog.commit import (
    Committed,
    DeleteFiles,
    ExactRows,
    TableChange,
    check_key,
    commit_change,
    find_replay,
    leased,
    record_change,
    write_result,
)
from ducklake_orch.catalog.metadata import Metadata, NewFile, TableDef
from ducklake_orch.catalog.search import (
    Finder,
    Losses,
    MatchedPositions,
    RowChangeAttempts,
    RowPlan,
    RowSearch,
    plan_rows,
    planning,
    session_of,
    union_sql,
)
from ducklake_orch.catalog.writing import FileQuery, Lent, Workers, write_files, write_known_rows
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.exactly_once import Write, refuse_read_only, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.phases import phase, timed_attempts
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.retry import retrying
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, WriteResult

ENGINES = ("auto", "duckdb", "spark")


@dataclass(frozen=True)
class RowRequest:
    """The arguments that all row changes share.

    Attributes:
        dry_run: Only report what would change.
        once: Whether a committed idempotency key ends the change, even if a repetition would change nothing more.
    """

    table: TableName
    engine: str = "auto"
    idempotency_key: str | None = None
    expect_snapshot: int | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)
    dry_run: bool = False
    once: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"`engine` = {self.engine!r} is unknown.", remedy=nearest(str(self.engine), ENGINES))
        for name, value, kind, word in (
            ("expect_snapshot", self.expect_snapshot, int, "snapshot id"),
            ("commit", self.commit, CommitInfo, "CommitInfo"),
        ):
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ConfigError(f"`{name}` = {value!r} is not a {word}.")
        if self.idempotency_key is not None:
            check_key(self.idempotency_key)


class Verb(Protocol):
    """The part of a row change that differs between delete, update and merge.

    Attributes:
        mode: Name of the verb in results.
        needs_values: Whether the verb reads inlined rows; otherwise it only retires them.
        changes_every_match: Whether the verb changes every row that meets the condition. Otherwise the condition only
            limits where such rows can be.
        replays: Whether a change whose idempotency key is already committed is skipped; known after `check`.
        travels: Whether the queries return the same rows wherever they run; known after `check`.
        lent: Temporary tables that the queries read besides data files.
    """

    mode: str
    needs_values: bool
    changes_every_match: bool
    replays: bool
    travels: bool

    @property
    def lent(self) -> Sequence[Lent]:
        """Temporary tables that the queries for changed rows read besides data files."""

    @property
    def where(self) -> str | None:
        """The condition on rows of the table; None for all rows."""

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Refuse a change that the table does not allow; return the table as the change will leave it."""

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        """Return the ids of the inlined rows to retire, by inlined table; the rows in files are found before."""

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        """Return queries for the rows that replace matching rows of data files, with their row ids."""

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for the rows that replace inlined rows, with their row ids."""

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for new rows."""


def change_rows(
    config: LakeConfig,
    con: duckdb.DuckDBPyConnection,
    request: RowRequest,
    verb: Verb,
    finder: Finder,
    workers: Workers | None = None,
) -> WriteResult:
    """Change rows of a table.

    Args:
        config: The lake.
        con: A connection that reaches the storage.
        request: Target table and options.
        verb: What to do to the rows.
        finder: Finds the rows.
        workers: Runs queries on other machines; None to run them all in this process.
    """
    purpose = f"{verb.mode} in `{request.table}`"
    refuse_read_only(config, purpose)
    changer = _Changer(config, request, verb, RowSearch(config, con, finder), workers, purpose)
    turns = RowChangeAttempts(config, purpose)

    def attempt(number: int) -> WriteResult:
        with turns.attempt(number) as session:
            return changer.run(session)

    try:
        result = timed_attempts(config.retry, purpose, attempt)
    finally:
        finder.release()
    return replace(result, engine=changer.engine or finder.engine)


class _Changer:
    """The attempts at a row change.

    Attributes:
        engine: The engine of the workers, if workers wrote rows.
    """

    def __init__(
        self,
        config: LakeConfig,
        request: RowRequest,
        verb: Verb,
        search: RowSearch,
        workers: Workers | None,
        purpose: str,
    ) -> None:
        self.engine: str | None = None
        self._config = config
        self._request = request
        self._verb = verb
        self._search = search
        self._workers = workers
        self._purpose = purpose

    def run(self, held_session: Session | None) -> WriteResult:
        """Plan, find, write and commit.

        Args:
            held_session: The session of an attempt that holds the queue; None for an attempt that does not.
        """
        self._write = Write(self._purpose, self._request.commit)
        with phase("plan"):
            plan, done = retrying(self._config.retry, f"planning {self._purpose}", lambda _: self._plan(held_session))
        if done is not None:
            return self._result(plan, [], done)
        # An attempt that holds the queue needs no lease, because maintenance waits for the queue. It could not record
        # one.
        keeping = nullcontext() if held_session else leased(self._config, self._write, plan.latest.snapshot_id)
        with keeping, phase("files"):
            return self._apply(plan, held_session)

    def _apply(self, plan: RowPlan, held_session: Session | None) -> WriteResult:
        self._search.find(plan)
        with self._search.working("Matching rows"):
            inlined = self._verb.inlined(plan, self._search.hits)
        losses = self._search.losses(plan)
        removal = self._search.removal(plan, self._verb.where, losses, inlined)
        latest = plan.latest.snapshot_id
        nothing = Committed(latest, latest, rows_removed=removal.rows)
        if self._request.dry_run:
            return self._result(plan, [], nothing)
        with removing_failed(self._config, self._write, plan.table.folder):
            files = self._files(plan, losses)
            # With `expect_snapshot`, commit even if no row matches: a concurrent commit may have changed the very
            # rows that would have matched, and only the commit checks for that.
            if not (files or removal.rows or self._request.expect_snapshot is not None):
                # A transaction depends on there being no such rows.
                record_change(self._config, self._change(plan, [], removal, None))
                return self._result(plan, [], nothing)
            deletes = self._search.deletes(plan, losses, self._write.write_id)
            fault_point("files.written")
            with session_of(self._config, held_session) as session:
                done = commit_change(session, self._write, self._change(plan, files, removal, deletes))
        if done.replayed:
            remove_leftovers(self._config, self._write, plan.table.folder)
        result = self._result(plan, files, done)
        return replace(result, rows_written=result.rows_written - losses.kept) if done.files_added else result

    def _plan(self, held_session: Session | None) -> tuple[RowPlan, Committed | None]:
        request, verb = self._request, self._verb
        with planning(self._config, f"Planning {self._purpose}", held_session) as metadata:
            latest = metadata.latest()
            refuse_without_message(self._purpose, request.commit, required=metadata.requires_message())
            table = metadata.table(request.table, latest.snapshot_id)
            target = verb.check(metadata, table)
            plan = plan_rows(metadata, table, latest, verb.where, values=verb.needs_values)
            scan = plan.scan if verb.changes_every_match else replace(plan.scan, certain=frozenset())
            key = request.idempotency_key if verb.replays or request.once else None
            return replace(plan, target=target, scan=scan), find_replay(metadata, table, key, latest.snapshot_id)

    def _files(self, plan: RowPlan, losses: Losses) -> list[NewFile]:
        """Write the remaining rows of rewritten files, the rows that replace matching rows, and new rows."""
        search, verb, write_id = self._search, self._verb, self._write.write_id
        with search.working("Writing changed rows"):
            queries = search.kept(plan, losses) + verb.changed(plan, losses, search.hits)
            known, files = verb.changed_inlined(plan, search.hits), list[NewFile]()
            if self._workers and verb.travels and self._workers.are_worth([query.file for query in queries]):
                self.engine = self._workers.engine
                files = self._workers.write(
                    search.con, plan.target, queries, [MatchedPositions.LENT, *verb.lent], write_id
                )
            else:
                known += [query.sql for query in queries]
            files += write_known_rows(search.con, plan.target, union_sql(known), write_id) if known else []
            added = verb.added(plan, search.hits)
            return files + (write_files(search.con, plan.target, union_sql(added), write_id) if added else [])

    def _change(
        self, plan: RowPlan, files: Sequence[NewFile], removal: ExactRows, deletes: DeleteFiles | None
    ) -> TableChange:
        request = self._request
        return TableChange(
            request.table,
            plan.table,
            plan.target,
            tuple(files),
            removal,
            deletes=deletes,
            expect_snapshot=request.expect_snapshot,
            key=request.idempotency_key,
            replays=self._verb.replays or request.once,
            planned_version=plan.latest.schema_version,
        )

    def _result(self, plan: RowPlan, files: Sequence[NewFile], done: Committed) -> WriteResult:
        return write_result(self._write, plan.table, self._verb.mode, files, done)
