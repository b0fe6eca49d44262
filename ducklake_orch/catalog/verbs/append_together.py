"""Appends of few rows by several threads: those that wait for each other are committed together.

A commit takes milliseconds, however few rows it has. While one thread of this process commits, the appends of other
threads to the same table wait. The next thread commits all that wait in one transaction, each as a snapshot of its own,
with its own idempotency key. Appends that do not fit together, or that fail together, are written one by one.
"""

import copy
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from ducklake_orch.catalog.commit import (
    Append,
    Committed,
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
from ducklake_orch.catalog.verbs.table_writer import TableWriter, WritePlan, turn_key
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

_ROWS = "__ducklake_orch_source"
# The row limits of tables, as of the last append; appends of more rows do not wait for each other.
_limits: dict[Hashable, int] = {}


@dataclass(eq=False)
class _Append:
    """An append that waits.

    Attributes:
        table: The rows, as a pyarrow.Table.
        write: Identity of the write, if it is committed together with others.
    """

    config: LakeConfig
    rows: Rows
    request: WriteRequest
    table: Any
    write: Write

    @property
    def writer(self) -> TableWriter:
        """The writer of an append that is planned without its key, which only its commit looks for."""
        return TableWriter(self.config, self.rows, replace(self.request, idempotency_key=None), self.write)


def append_rows(config: LakeConfig, rows: Rows, request: WriteRequest) -> WriteResult:
    """Write rows; few rows in memory that are appended can be committed together with those of other threads."""
    if (table := _in_memory(config, rows, request)) is None:
        return TableWriter(config, rows, request).run()
    mine = _Append(config, rows, request, table, Write(f"writing `{request.table}`", request.commit))
    key = turn_key(config, request.table)
    if not 0 < len(table) <= _limits.get(key, len(table)):
        return _append_alone(key, mine)
    outcome: WriteResult | DuckLakeOrchError | None = in_turn(
        key, mine, lambda appends: _append_all(key, appends), fits=_fits
    )
    if isinstance(outcome, DuckLakeOrchError):
        raise outcome
    if outcome is None and mine.write.in_doubt and request.idempotency_key is None:
        raise unknown_outcome(mine.write, DuckLakeOrchError("the thread that committed it was interrupted"))
    return outcome or _append_alone(key, mine)


def _append_alone(key: Hashable, append: _Append) -> WriteResult:
    writer = TableWriter(append.config, append.rows, append.request)
    try:
        return writer.run()
    finally:
        if writer.row_limit is not None:
            _limits[key] = writer.row_limit


def _in_memory(config: LakeConfig, rows: Rows, request: WriteRequest) -> Any:
    """Return the rows as a pyarrow.Table if their append may be committed together with others, else None."""
    is_small = TableWriter(config, rows, request).shape is not None
    return rows.in_memory if is_small and request.inline == "auto" and recording_of(config) is None else None


def _fits(chosen: Sequence[_Append], other: _Append) -> bool:
    keys = {append.request.idempotency_key for append in chosen} - {None}
    return chosen[0].writer.shape == other.writer.shape and other.request.idempotency_key not in keys


def _append_all(key: Hashable, appends: Sequence[_Append]) -> Sequence[WriteResult | DuckLakeOrchError | None]:
    """Commit appends; None stands for one that has to be written alone."""
    if len(appends) == 1:
        return [_append_alone(key, appends[0])]
    results: dict[_Append, WriteResult | DuckLakeOrchError] = {}
    pending = list(appends)
    while len(pending) > 1:
        try:
            results |= _commit_together(key, pending)
        except KeysCommittedError as error:
            pending = [append for append in pending if append.request.idempotency_key not in error.keys]
            continue
        except UnknownOutcomeError as error:
            results |= {append: unknown_outcome(append.write, error) for append in pending}
        except DuckLakeOrchError as error:
            forget_plan(key)
            if error.retryable and not isinstance(error, StalePlanError):  # the catalog's, whatever is appended
                results |= {append: copy.copy(error) for append in pending}
        break
    return [results.get(append) for append in appends]


def _commit_together(key: Hashable, appends: Sequence[_Append]) -> Mapping[_Append, WriteResult]:
    first = appends[0]
    writer = first.writer
    with writer.in_one_session():
        if (plan := known_plan(key, writer.shape)) is None:
            plan = writer.plan()
        limit = _limits[key] = row_limit(first.config, plan.target)
        few = [append for append in appends if len(append.table) <= limit]
        if plan.known is None or plan.target != plan.known or len(few) < 2:
            return {}
        if not plan.kept:
            keep_plan(key, writer.shape, plan)
        with leased(first.config, first.write, plan.latest.snapshot_id):
            with phase("files"):
                rows, partitions = _inlinable(writer, plan.target, few)
            fault_point("files.written")
            done = _commit(writer, plan, rows, few)
    return {
        append: _result(append, plan.target, committed, partitions[number])
        for number, (append, committed) in enumerate(zip(few, done, strict=True))
    }


def _inlinable(
    writer: TableWriter, table: TableDef, appends: Sequence[_Append]
) -> tuple[InlinableRows, Mapping[int, list[PartitionWritten]]]:
    """Prepare the rows of all appends, and count those of each partition by the position of their append."""
    import pyarrow as pa

    part = free_column_name("part", table.columns)
    numbers = [number for number, append in enumerate(appends) for _ in range(len(append.table))]
    rows = pa.concat_tables([append.table for append in appends]).append_column(part, pa.array(numbers, pa.int64()))
    source, config = Source(rows.combine_chunks()), writer.config
    with writer.working() as con:
        try:
            con.register(_ROWS, source.reader())
            few = inlinable_rows(con, dialect_of(config), table, source.relation(_ROWS, table), None, part)
            if not partition_keys(table):
                return few, defaultdict(list)
            con.register(_ROWS, source.reader())
            return few, _partitions(con, table, source.relation(_ROWS, table), part)
        except duckdb.Error as error:
            failure = classify(error, config, f"Preparing rows for `{table}` failed")
    raise failure


def _partitions(
    con: duckdb.DuckDBPyConnection, table: TableDef, source: str, part: str
) -> Mapping[int, list[PartitionWritten]]:
    keys = partition_keys(table)
    counted: dict[int, list[PartitionWritten]] = defaultdict(list)
    names = [key_name(key.field.transform, key.column.name) for key in keys]
    values = ", ".join(f"CAST({key.sql} AS VARCHAR)" for key in keys)
    rows = con.execute(
        f"SELECT {part}, count(*), {values} FROM ({fitted(con, table, source, None, beside=part)}) GROUP BY ALL"
    ).fetchall()
    for number, count, *texts in rows:
        counted[number].append(PartitionWritten(dict(zip(names, texts, strict=True)), count, 0, 0))
    return counted


def _commit(writer: TableWriter, plan: WritePlan, rows: InlinableRows, appends: Sequence[_Append]) -> list[Committed]:
    change = TableChange(
        appends[0].request.table,
        plan.known,
        plan.target,
        few=rows,
        planned_version=plan.latest.schema_version,
        settings=plan.settings if plan.kept else None,
    )
    parts = [Append(append.write, append.request.idempotency_key, len(append.table)) for append in appends]
    with writer.opened() as session:
        return commit_appends(session, change, parts)


def _result(append: _Append, table: TableDef, done: Committed, partitions: Sequence[PartitionWritten]) -> WriteResult:
    result = write_result(append.write, table, "append", [], done)
    return replace(result, rows_written=done.rows_added, partitions=list(partitions))
