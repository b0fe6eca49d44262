"""`lake.rollback`: commit a new snapshot in which a table has the rows of an earlier one."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import duckdb

from ducklake_orch.catalog.commit import Rollback, TableChange, commit_change, leased
from ducklake_orch.catalog.metadata import ColumnDef, NewFile, duckdb_type, reading, row_id_name
from ducklake_orch.catalog.parquet import footers_of, same_sql, short, state_sql, stored_columns
from ducklake_orch.catalog.verbs.rollback_plan import FilesAt, RollbackPlan, plan_rollback
from ducklake_orch.catalog.writing import explain, write_known_rows
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, refuse_read_only, refuse_without_message
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.retry import by_plan, retrying
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_leftovers, removing_failed
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, RollbackResult

_RESTORED, _CURRENT, _ROWS = "__ducklake_orch_restored", "__ducklake_orch_current", "__ducklake_orch_inlined"


@dataclass(frozen=True)
class RollbackRequest:
    """The arguments of `lake.rollback`."""

    table: TableName
    to_snapshot: int
    dry_run: bool = False
    commit: CommitInfo = field(default_factory=CommitInfo)

    def __post_init__(self) -> None:
        if not isinstance(self.to_snapshot, int) or isinstance(self.to_snapshot, bool) or self.to_snapshot < 0:
            raise ConfigError(f"`to_snapshot` = {self.to_snapshot!r} is not a snapshot id.")


def roll_back(config: LakeConfig, request: RollbackRequest) -> RollbackResult:
    """Restore the rows that a table had at an earlier snapshot."""
    started, attempts = time.monotonic(), 0
    purpose = f"rolling back `{request.table}`"
    if not request.dry_run:
        refuse_read_only(config, purpose)

    def attempt(number: int) -> RollbackResult:
        nonlocal attempts
        attempts = number
        return _Attempt(config, request, purpose).run()

    result = retrying(config.retry, purpose, attempt, attempts_for=by_plan)
    return replace(result, attempts=attempts, duration_s=time.monotonic() - started)


class _Attempt:
    """One attempt at a rollback, planned on the latest snapshot."""

    def __init__(self, config: LakeConfig, request: RollbackRequest, purpose: str) -> None:
        self._config = config
        self._request = request
        self._write = Write(purpose, request.commit)

    def run(self) -> RollbackResult:
        plan = retrying(self._config.retry, f"planning {self._write.purpose}", lambda _: self._plan())
        # The lease also has to protect the files of the target snapshot, not only those of the latest one.
        keeping = leased(self._config, self._write, self._request.to_snapshot)
        with keeping, working_connection(self._config) as con, self._explained(plan):
            try:
                return self._restore(plan, con)
            finally:
                for name in (_RESTORED, _CURRENT):
                    con.execute(f"DROP TABLE IF EXISTS {name}")

    def _plan(self) -> RollbackPlan:
        doing = f"Planning to roll back `{self._request.table}`"
        with (
            open_session(self._config, entering=False) as session,
            session.instance.one_thread(),
            reading(session, doing) as metadata,
        ):
            purpose, dry_run = self._write.purpose, self._request.dry_run
            required = metadata.requires_message() and not dry_run
            refuse_without_message(purpose, self._request.commit, required=required)
            return plan_rollback(metadata, self._request.table, self._request.to_snapshot)

    def _restore(self, plan: RollbackPlan, con: duckdb.DuckDBPyConnection) -> RollbackResult:
        result = self._compared(plan, con)
        if self._request.dry_run or not (result.rows_back or result.rows_gone):
            return result
        with removing_failed(self._config, self._write, plan.table.folder):
            files = write_known_rows(con, plan.table, _named(plan.table.columns), self._write.write_id)
            fault_point("files.written")
            with open_session(self._config, entering=False) as session:
                done = commit_change(session, self._write, self._change(plan, files, con))
        if not files:  # for no rows, COPY writes an empty file
            remove_leftovers(self._config, self._write, plan.table.folder)
        return replace(
            result,
            snapshot_id=done.snapshot_id,
            previous_snapshot_id=done.previous_snapshot_id,
            files_added=len(files),
            bytes_written=sum(file.file_size for file in files),
        )

    def _compared(self, plan: RollbackPlan, con: duckdb.DuckDBPyConnection) -> RollbackResult:
        """Load the changed rows of both snapshots and count differences; equal rows are only copied."""
        columns, same, row_id = plan.table.columns, same_sql(plan.table.columns), row_id_name(plan.table.columns)
        types = "".join(f", {short(column)} {duckdb_type(column)}" for column in columns)
        values = "".join(f", {short(column)}" for column in columns)
        con.execute(f"CREATE TEMP TABLE {_RESTORED} (row_id BIGINT{types})")
        for query in _rows(con, plan, plan.restored):
            con.execute(f"INSERT INTO {_RESTORED} SELECT row_id{values} FROM ({query})")
        for table in plan.inlined_restored:
            _insert(con, _RESTORED, table, f"SELECT {row_id} AS row_id{_arrived(columns)} FROM {_ROWS}")
        con.execute(f"CREATE TEMP TABLE {_CURRENT} (row_id BIGINT, same VARCHAR)")
        for query in _rows(con, plan, plan.retired):
            con.execute(f"INSERT INTO {_CURRENT} SELECT row_id, {same} FROM ({query})")
        for table in plan.inlined_retired.values():
            rows = f"SELECT {row_id} AS row_id{_arrived(columns)} FROM {_ROWS}"
            _insert(con, _CURRENT, table, f"SELECT row_id, {same} FROM ({rows})")
        restored, current = f"SELECT row_id, {same} AS same FROM {_RESTORED}", f"SELECT row_id, same FROM {_CURRENT}"
        latest = plan.latest.snapshot_id
        return RollbackResult(
            table=str(plan.table),
            to_snapshot=self._request.to_snapshot,
            snapshot_id=latest,
            previous_snapshot_id=latest,
            rows_back=_count(con, f"{restored} EXCEPT ALL {current}"),
            rows_gone=_count(con, f"{current} EXCEPT ALL {restored}"),
            rows_copied=_count(con, restored),
            files_kept=len(plan.kept),
            files_removed=len(plan.retired.files),
            dry_run=self._request.dry_run,
        )

    def _change(self, plan: RollbackPlan, files: Sequence[NewFile], con: duckdb.DuckDBPyConnection) -> TableChange:
        return TableChange(
            self._request.table,
            plan.table,
            plan.table,
            tuple(files),
            Rollback(
                snapshot=plan.latest.snapshot_id,
                files=plan.retired.files,
                inlined={
                    name: tuple(rows.column(row_id_name(plan.table.columns)).to_pylist())
                    for name, rows in plan.inlined_retired.items()
                },
                rows=_count(con, f"SELECT * FROM {_CURRENT}"),
            ),
            planned_version=plan.latest.schema_version,
        )

    @contextmanager
    def _explained(self, plan: RollbackPlan) -> Iterator[None]:
        try:
            yield
            return
        except duckdb.Error as error:
            fault = explain(error, plan.table)
            failure = fault or classify(error, self._config, f"Rolling back `{plan.table}` failed")
        raise failure


def _rows(con: duckdb.DuckDBPyConnection, plan: RollbackPlan, state: FilesAt) -> Iterator[str]:
    """Return queries for the rows of files at a snapshot."""
    footers = footers_of(con, state.files, plan.layouts)
    for file in state.files:
        names = None if file.mapping_id is None else plan.mappings[file.mapping_id]
        stored = stored_columns(plan.table.columns, footers[file.path], names, file.path)
        deleted = state.deleted.get(file.data_file_id, ())
        yield state_sql(file, deleted, footers[file.path], stored, state.snapshot)


def _insert(con: duckdb.DuckDBPyConnection, into: str, rows: object, query: str) -> None:
    con.register(_ROWS, rows)
    try:
        con.execute(f"INSERT INTO {into} {query}")
    finally:
        con.unregister(_ROWS)


def _arrived(columns: Sequence[ColumnDef]) -> str:
    """Return the SQL that casts inlined rows, which arrive through Arrow, to the table's types."""
    return "".join(
        f", CAST({identifier(column.name)} AS {duckdb_type(column)}) AS {short(column)}" for column in columns
    )


def _named(columns: Sequence[ColumnDef]) -> str:
    values = ", ".join(f"{short(column)} AS {identifier(column.name)}" for column in columns)
    return f"(SELECT {values}, row_id AS {row_id_name(columns)} FROM {_RESTORED})"


def _count(con: duckdb.DuckDBPyConnection, query: str) -> int:
    row = con.execute(f"SELECT count(*) FROM ({query})").fetchone()
    return int(row[0]) if row else 0
