"""The steps of the data source `ducklake` in Spark's Python workers: plan and commit near the driver, work in tasks.

Each step may run in its own process; the state that one step leaves for the next is pickled.
"""

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.lifecycle import tagged_snapshot
from ducklake_orch.catalog.metadata import NewFile, reading
from ducklake_orch.catalog.scan import choose, plan_scan, snapshot_of
from ducklake_orch.catalog.search import DuckDBFinder, Finder
from ducklake_orch.catalog.verbs import Job, PlannedWrite, WritePlan, WriteRequest, Written
from ducklake_orch.catalog.writing import Workers, rows_outside
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.layout import column_comments
from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, WriteResult
from ducklake_orch.spark.read_frame import inlined_table, read_job
from ducklake_orch.spark.read_task import read_pieces
from ducklake_orch.spark.spark_rows import (
    check_writable,
    column_types,
    create_marker,
    remove_marker,
    values_of,
)
from ducklake_orch.spark.task_cleanup import remove_strays
from ducklake_orch.spark.task_engine import engine_spec, writing_spec
from ducklake_orch.spark.task_values import unpacked
from ducklake_orch.spark.types import duckdb_columns, spark_schema, variant_names
from ducklake_orch.spark.write_task import TaskResult, WriteTask, write

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("ducklake_orch")
READ_OPTIONS = ("table", "columns", "snapshot", "as_of", "tag", "where")
WRITE_OPTIONS = (
    "table",
    "where",
    "outside",
    "schema_evolution",
    "expect_snapshot",
    "idempotency_key",
    "author",
    "message",
)


# --- near the driver: reading ----------------------------------------------------------------------------------------


def schema_of(config: LakeConfig, options: Mapping[str, str]) -> "StructType":
    """Return the columns of the table that options name."""
    table, access, _ = _reading(config, options)
    with open_session(config, access, entering=False) as session, reading(session, f"Reading `{table}`") as metadata:
        found = metadata.table(table, snapshot_of(session, metadata))
        return spark_schema(iter(choose(found, names_in(options.get("columns")))))


def plan_read(config: LakeConfig, given: tuple[Mapping[str, str], Sequence[str]]) -> tuple[int, bytes]:
    """Return the number of tasks that read the table that options name, and the pickled state that all of them need."""
    options, columns = given
    table, access, where = _reading(config, options)
    with open_session(config, access, entering=False) as session, reading(session, f"Reading `{table}`") as metadata:
        at = snapshot_of(session, metadata)
        plan = plan_scan(metadata, metadata.table(table, at), at, columns=columns, where=where)
        inlined = inlined_table(metadata, plan)
    job, pieces = read_job(config, plan, plan.files)
    return len(pieces) + (inlined is not None), pickle.dumps((engine_spec(config), job, pieces, inlined))


def _reading(config: LakeConfig, options: Mapping[str, str]) -> tuple[TableName, Access, str | None]:
    check_options(options, READ_OPTIONS)
    snapshot, as_of, tag = map(options.get, ("snapshot", "as_of", "tag"))
    if sum(option is not None for option in (snapshot, as_of, tag)) > 1:
        raise ConfigError("Only one of the options `snapshot`, `as_of` and `tag` can be set.")
    time = None if as_of is None else datetime.fromisoformat(as_of)
    if time is not None and time.tzinfo is None:
        raise ConfigError(f"The option `as_of` = {as_of} has no time zone.", remedy="Add one, for example `+00:00`.")
    latest = Access(False, config.snapshot, config.as_of, reads=True)
    if tag is not None:
        with open_session(config, latest, entering=False) as session, reading(session, "Reading a tag") as metadata:
            access = Access(False, tagged_snapshot(metadata, tag), None, reads=True)
    elif snapshot is None and time is None:
        access = latest
    else:
        access = Access(False, _number("snapshot", snapshot), time, reads=True)
    return table_name(options["table"]), access, options.get("where")


def names_in(text: str | None) -> list[str] | None:
    """Return the names of an option that lists columns, None if there are none."""
    return [name.strip() for name in (text or "").split(",") if name.strip()] or None


def check_options(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options that are not known, and require `table`."""
    # Spark gives a source in Python the properties of a table of its catalog, such as the owner, but not its options.
    if "table" not in options or "owner" in options:
        raise ConfigError(
            "The data source `ducklake` needs the option `table`, which Spark loses for tables of its own catalog:"
            " `saveAsTable`, `writeTo` and `CREATE TABLE … USING ducklake`.",
            remedy='Add `.option("table", "…")` to `load()` or `save()`. Create tables with `lake.write` or'
            ' `lake.sql(spark, "CREATE TABLE …")`. A name for Spark\'s SQL:'
            " `CREATE TEMPORARY VIEW … USING ducklake OPTIONS (table '…')`.",
        )
    for name in options:
        if name.lower() not in known:
            raise ConfigError(
                f"The data source `ducklake` has no option `{name}` for this operation.", remedy=nearest(name, known)
            )


def _number(name: str, text: str | None) -> int | None:
    if text is not None and not text.isdigit():
        raise ConfigError(f"The option `{name}` = {text!r} is not a snapshot id.")
    return None if text is None else int(text)


# --- in a task: reading ----------------------------------------------------------------------------------------------


def read_partition(given: tuple[int | None, bytes]) -> Iterator[Any]:
    """Yield the rows of a piece as Arrow batches; the last piece is the inlined rows."""
    number, packed = given
    if number is None:  # Spark calls this even if there is nothing to read
        return
    spec, job, pieces, inlined = pickle.loads(packed)  # noqa: S301 - our own, from `plan_read`
    if number == len(pieces):
        yield from inlined.to_batches()
        return
    yield from read_pieces(spec, job, pieces, iter([pa.record_batch([pa.array([number])], ["number"])]))


# --- near the driver: writing ----------------------------------------------------------------------------------------


class _TaskFiles:
    """Rows that tasks have written or will write; before they do, only the types are known."""

    repeatable = False
    is_small = False
    in_memory = None
    engine = "duckdb"

    def __init__(self, schema: "StructType", files: Sequence[NewFile] = ()) -> None:
        self.comments: Mapping[str, str] = column_comments(schema)
        self._columns = duckdb_columns(schema)
        self._files = files

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        return column_types(self._columns)

    def searching(self, config: LakeConfig) -> tuple[Finder, Workers | None]:
        return DuckDBFinder(), None

    def write(self, job: Job) -> Written:
        return Written(list(self._files))


def plan_write(config: LakeConfig, given: "tuple[Mapping[str, str], StructType, bool]") -> tuple[bytes, bytes | None]:
    """Plan a write; return the state for its commit, and that for its tasks (None if the write is already done)."""
    options, schema, overwrite = given
    planned, task = plan_files(config, schema, _request(options, overwrite))
    return pickle.dumps(planned), None if task is None else pickle.dumps(task)


@dataclass(frozen=True)
class PlannedFiles:
    """A write whose files tasks write. It passes through the tasks, and holds no secret.

    Attributes:
        request: Target table and write options.
        write: Identity of the write.
        plan: The plan.
        marker: The driver's marker file, if tasks look for one.
    """

    request: WriteRequest
    write: Write
    plan: WritePlan
    marker: str | None

    def finish(self, config: LakeConfig, schema: "StructType", results: Sequence[bytes]) -> WriteResult:
        """Commit the files that tasks wrote, exactly once."""
        planned = self._planned(config)
        task_results: list[TaskResult] = [unpacked(result) for result in results]
        failed = next((task_result.error for task_result in task_results if task_result.error), None)
        if failed is not None:
            planned.abandon()
            raise failed
        if outside := sum(task_result.outside for task_result in task_results):
            planned.abandon()
            example = next(task_result.example for task_result in task_results if task_result.outside)
            raise rows_outside(planned.plan.target, planned.request.where or "", outside, example)
        files = [file for task_result in task_results for file in task_result.files]
        result = planned.finish(_TaskFiles(schema, files))
        # Unsuccessful or concurrent attempts may have left files behind.
        retried = any(task_result.attempt for task_result in task_results)
        remove_strays(planned.remove_leftovers, may_follow=retried)
        log.info("%s", result)
        return result

    def abandon(self, config: LakeConfig) -> None:
        """Delete the files that tasks wrote."""
        self._planned(config).abandon()

    def _planned(self, config: LakeConfig) -> PlannedWrite:
        """Return the write, and show tasks that still run that it has ended."""
        if self.marker is not None:
            remove_marker(self.marker)
        return PlannedWrite(config, self.request, self.write, self.plan)


def plan_files(
    config: LakeConfig, schema: "StructType", request: WriteRequest
) -> tuple[PlannedFiles, WriteTask | None]:
    """Plan a write; return what its commit needs, and what its tasks need (None if the write is already done)."""
    planned = PlannedWrite.of(config, _TaskFiles(schema), request)
    if planned.is_done:
        return PlannedFiles(request, planned.write, planned.plan, None), None
    try:
        job = planned.job()
        check_writable(job, duckdb_columns(schema))
        task = task_of(job, schema)
    except BaseException:
        planned.abandon()
        raise
    return PlannedFiles(request, planned.write, planned.plan, task.marker), task


def task_of(job: Job, schema: "StructType") -> WriteTask:
    """Return what the tasks of a write need; create the marker file of the driver if they look for one."""
    return WriteTask(
        engine=writing_spec(job.config, job.table),
        table=job.table,
        write_id=job.write_id,
        names=tuple(schema.names),
        values=values_of(schema),
        variants=variant_names(schema),
        where=job.where,
        outside=job.outside,
        marker=None if "://" in job.table.data_path else create_marker(job),
    )


def _request(options: Mapping[str, str], overwrite: bool) -> WriteRequest:
    check_options(options, WRITE_OPTIONS)
    where = options.get("where")
    if where is not None and not overwrite:
        raise ConfigError(
            "The option `where` selects the rows to replace, but Spark's mode is `append`.",
            remedy='Use `.mode("overwrite")`.',
        )
    return WriteRequest(
        table=table_name(options["table"]),
        mode="append" if not overwrite else "overwrite" if where is None else "replace_where",
        where=where,
        outside=options.get("outside", "error"),
        schema_evolution=options.get("schema_evolution", "error"),
        expect_snapshot=_number("expect_snapshot", options.get("expect_snapshot")),
        idempotency_key=options.get("idempotency_key"),
        commit=CommitInfo(author=options.get("author"), message=options.get("message")),
    )


def finish_write(config: LakeConfig, given: "tuple[bytes, StructType, Sequence[bytes]]") -> None:
    """Commit a write."""
    packed, schema, results = given
    planned: PlannedFiles = pickle.loads(packed)  # noqa: S301 - our own, from `plan_write`
    planned.finish(config, schema, results)


def abandon_write(config: LakeConfig, given: tuple[bytes, bool]) -> None:
    """Clean up after a failed job, unless its commit has begun.

    Such a commit removes the files itself, or keeps them because its outcome is unknown.
    """
    packed, all_written = given
    planned: PlannedFiles = pickle.loads(packed)  # noqa: S301 - our own, from `plan_write`
    if not all_written:
        planned.abandon(config)
    elif planned.marker is not None:
        remove_marker(planned.marker)


# --- in a task: writing ----------------------------------------------------------------------------------------------


def write_partition(given: tuple[bytes | None, Iterator[Any]]) -> list[bytes]:
    """Write a partition of the data; return the results, packed."""
    packed, batches = given
    if packed is None:  # an earlier attempt has committed the write
        for _ in batches:
            pass
        return []
    task: WriteTask = pickle.loads(packed)  # noqa: S301 - our own, from `plan_write`
    return [bytes(result) for batch in write(task, batches) for result in batch.column(0).to_pylist()]
