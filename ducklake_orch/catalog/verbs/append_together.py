"""Appends of few rows by several threads: those that wait for each other are committed together.

A commit takes milliseconds, however few rows it has. While one thread of this process commits, the appends of other
threads to the same table wait. The next thread commits all that wait in one transaction, each as a snapshot of its own,
with its own idempotency key. Appends that do not fit together, or that fail together, are written one by one.
"""

import copy
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from ducklake_orch.catalog.commit import (
    Append,
    KeysCommittedError,
    TableChange,
    commit_appends,
    leased,
    recording_of,
    write_result,
)
from ducklake_orch.catalog.metadata import TableDef, free_column_name
from ducklake_orch.catalog.parquet import key_name, partition_keys
from ducklake_orch.catalog.verbs.known_plans import forget_plan, keep_plan, known_plan
from ducklake_orch.catalog.verbs.row_source import Rows
from ducklake_orch.catalog.verbs.table_writer import TableWriter, turn_key
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.catalog.writing import InlinableRows, Source, fitted, inlinable_rows, row_limit
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import Write, unknown_outcome
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.phases import phase
from ducklake_orch.engine.turns import in_turn
from ducklake_orch.errors import DuckLakeOrchError, StalePlanError, UnknownOutcomeError
from ducklake_orch.results import PartitionWritten, WriteResult

log = logging.getLogger("ducklake_orch")
_ROWS = "__ducklake_orch_source"
# The row limits of tables, as of the last append; appends of more rows do not wait for each other.
_limits: dict[Hashable, int] = {}


@dataclass(eq=False)
class _Append:
    """An append that waits.

    Attributes:
        data: The rows, as a pyarrow.Table.
        shape: What appends must have in common to be committed together.
        part: The append as part of a commit of several appends.
        target: The table that these rows were prepared for.
        partitions: What the append adds to each partition.
    """

    config: LakeConfig
    rows: Rows
    request: WriteRequest
    data: Any
    shape: Any
    part: Append | None = None
    target: TableDef | None = None
    partitions: list[PartitionWritten] = field(default_factory=list)

    @property
    def writer(self) -> TableWriter:
        """The writer of an append that is planned without its key, which only its commit looks for."""
        return TableWriter(self.config, self.rows, replace(self.request, idempotency_key=None))

    @property
    def result(self) -> WriteResult | None:
        """The result, if the append was committed together with others."""
        if self.part is None or self.target is None or (done := self.part.settled()) is None:
            return None
        result = write_result(self.part.write, self.target, "append", [], done)
        return replace(result, rows_written=done.rows_added, partitions=self.partitions)


def append_rows(config: LakeConfig, rows: Rows, request: WriteRequest) -> WriteResult:
    """Write rows; few rows in memory that are appended can be committed together with those of other threads."""
    writer, key = TableWriter(config, rows, request), turn_key(config, request.table)
    if writer.shape is None or request.inline != "auto" or recording_of(config) is not None:
        return writer.run()
    mine = _Append(config, rows, request, rows.in_memory, writer.shape)
    if not 0 < len(mine.data) <= _limits.get(key, len(mine.data)):
        return _append_alone(key, mine)
    outcome: WriteResult | DuckLakeOrchError | None = in_turn(
        key,
        mine,
        lambda appends: _append_all(key, appends),
        fits=_fits,
        timeout=config.lock_timeout.total_seconds(),
    )
    if isinstance(outcome, DuckLakeOrchError):
        raise outcome
    return outcome or mine.result or _append_alone(key, mine)


def _append_alone(key: Hashable, append: _Append) -> WriteResult:
    writer = TableWriter(append.config, append.rows, append.request)
    try:
        return writer.run()
    finally:
        if writer.row_limit is not None:
            _limits[key] = writer.row_limit


def _fits(chosen: Sequence[_Append], other: _Append) -> bool:
    keys = {append.request.idempotency_key for append in chosen} - {None}
    return chosen[0].shape == other.shape and other.request.idempotency_key not in keys


def _append_all(key: Hashable, appends: Sequence[_Append]) -> Sequence[WriteResult | DuckLakeOrchError | None]:
    """Commit appends; None stands for one that has to be written alone."""
    if len(appends) == 1:
        return [_append_alone(key, appends[0])]
    failures: dict[_Append, DuckLakeOrchError] = {}
    pending = list(appends)
    while len(pending) > 1:
        for append in pending:
            write = Write(f"writing `{append.request.table}`", append.request.commit)
            append.part = Append(write, append.request.idempotency_key, len(append.data))
        try:
            _commit_together(key, pending)
        except KeysCommittedError as error:
            for append in pending:
                append.part = None
            pending = [append for append in pending if append.request.idempotency_key not in error.keys]
            continue
        except UnknownOutcomeError as error:
            failures = {append: unknown_outcome(append.part.write, error) for append in pending if append.part}
        except DuckLakeOrchError as error:
            forget_plan(key)
            if error.retryable and not isinstance(error, StalePlanError):  # the catalog's, whatever is appended
                failures = {append: copy.copy(error) for append in pending}
        break
    return [failures.get(append) or append.result for append in appends]


def _commit_together(key: Hashable, appends: Sequence[_Append]) -> None:
    writer = appends[0].writer
    with writer.in_one_session():
        plan = known_plan(key, appends[0].shape) or writer.plan()
        limit = _limits[key] = row_limit(writer.config, plan.target)
        few = [append for append in appends if len(append.data) <= limit]
        if plan.known is None or plan.target != plan.known or len(few) < 2:
            return
        if not plan.kept:
            keep_plan(key, appends[0].shape, plan)
        parts = [append.part for append in few if append.part]
        with leased(writer.config, parts[0].write, plan.latest.snapshot_id):
            with phase("files"):
                rows = _inlinable(writer, plan.target, few)
            if rows is None:
                return
            fault_point("files.written")
            change = TableChange(
                appends[0].request.table,
                plan.known,
                plan.target,
                few=rows,
                planned_version=plan.latest.schema_version,
                settings=plan.settings if plan.kept else None,
            )
            with writer.opened() as session:
                commit_appends(session, change, parts)


def _inlinable(writer: TableWriter, table: TableDef, appends: Sequence[_Append]) -> InlinableRows | None:
    """Prepare the rows of all appends; None if there are none, or Arrow cannot join their dictionaries."""
    import pyarrow as pa

    config, part = writer.config, free_column_name("part", table.columns)
    numbers = [number for number, append in enumerate(appends) for _ in range(len(append.data))]
    try:
        rows = pa.concat_tables([append.data for append in appends]).combine_chunks()
        source = Source(rows.append_column(part, pa.array(numbers, pa.int64())))
    except pa.ArrowException as error:
        log.info("%d appends to `%s` are written one by one: %s", len(appends), table, error)
        return None
    for append in appends:
        append.target, append.partitions = table, []
    with writer.working() as con:
        try:
            con.register(_ROWS, source.reader())
            few = inlinable_rows(con, dialect_of(config), table, source.relation(_ROWS, table), None, part)
            if keys := partition_keys(table):
                con.register(_ROWS, source.reader())
                fitting = fitted(con, table, source.relation(_ROWS, table), None, beside=part)
                names = [key_name(key.field.transform, key.column.name) for key in keys]
                values = ", ".join(f"CAST({key.sql} AS VARCHAR)" for key in keys)
                counted = con.execute(f"SELECT {part}, count(*), {values} FROM ({fitting}) GROUP BY ALL").fetchall()
                for number, count, *texts in counted:
                    written = PartitionWritten(dict(zip(names, texts, strict=True)), count, 0, 0)
                    appends[number].partitions.append(written)
        except duckdb.Error as error:
            failure = classify(error, config, f"Preparing rows for `{table}` failed")
        else:
            return few
    raise failure
