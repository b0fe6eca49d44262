"""Write the rows of a Spark DataFrame into files with Spark's executors; the caller commits them. See `SparkRows`."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from ducklake_orch.catalog.metadata import NewFile
from ducklake_orch.catalog.search import Finder
from ducklake_orch.catalog.verbs import ArrowRows, Job, Written
from ducklake_orch.catalog.writing import SourceColumn, Workers, projection, rows_outside
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.layout import column_comments
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.spark.arrow_batches import has_long_batches, in_batches
from ducklake_orch.spark.distribute import distributed
from ducklake_orch.spark.native_writer import expects_few_bytes, proves_few_rows, reason_against, write_natively
from ducklake_orch.spark.row_finder import SparkFinder
from ducklake_orch.spark.row_workers import SparkWorkers
from ducklake_orch.spark.session import is_local
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_errors import translated_errors
from ducklake_orch.spark.storage_access import check_reachable
from ducklake_orch.spark.task_cleanup import cleaned_up_on_failure, remove_other_attempts, was_repeated
from ducklake_orch.spark.task_engine import writing_spec
from ducklake_orch.spark.task_values import RESULT_SCHEMA, unpacked
from ducklake_orch.spark.types import duckdb_columns, imported, variant_names
from ducklake_orch.spark.write_task import TaskResult, WriteTask

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")


class SparkRows:
    """Rows of a Spark DataFrame, which each attempt at a write evaluates once; usually there is one attempt.

    Args:
        frame: The DataFrame, classic or Connect.
        engine: The writer of the files: `duckdb`, `native` or `auto`.
        distribution: How the rows are shuffled first: `none`, `hash`, `range` or `auto`.
    """

    repeatable = True
    is_small = False
    in_memory = None

    def __init__(self, frame: Any, *, engine: str = "auto", distribution: str = "auto") -> None:
        self.engine = "duckdb" if engine == "auto" else engine
        self._frame = frame
        self._wanted = engine
        self._distribution = distribution
        self._few_bytes: bool | None = None
        self._schema = frame.schema
        self._columns = duckdb_columns(self._schema)
        self._variants = variant_names(self._schema)
        self.comments: Mapping[str, str] = column_comments(self._schema)

    def searching(self, config: LakeConfig) -> tuple[Finder, Workers | None]:
        """Return what finds the rows that these replace: Spark's tasks if there is much to read."""
        spark = self._frame.sparkSession
        return SparkFinder(config, spark, "auto"), SparkWorkers(config, spark, forced=False)

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""
        return column_types(self._columns)

    def write(self, job: Job) -> Written:
        """Write the rows in Spark's tasks."""
        check_writable(job, self._columns)
        if self._wanted == self._distribution == "auto" and not self._variants and self._is_few(job):
            # No Python worker has to start.
            return ArrowRows(self._run_job(job, self._frame.toArrow), values_of(self._schema)).write(job)
        reason = self._reason_against_native(job)
        self.engine = "duckdb" if reason else "native"
        if reason is None:
            return Written(self._write_natively(job))
        if self._wanted == "native":
            log.warning("DuckDB, not Spark's own writer, writes `%s` in tasks: %s", job.table, reason)
        return self._write_with_duckdb(job)

    def _reason_against_native(self, job: Job) -> str | None:
        if self._wanted == "duckdb":
            return '`engine="duckdb"` is set'
        if self._distribution == "range" and job.table.sort:
            return "its rows are sorted"
        reason = reason_against(self._frame, self._columns, job)
        if reason is None and self._wanted == "auto":
            if self._expects_few_bytes(job):
                return "DuckDB writes a small amount of data faster"
            if has_long_batches(self._frame):
                return "DuckDB writes numbers faster"
        return reason

    def _expects_few_bytes(self, job: Job) -> bool:
        if self._few_bytes is None:
            with _writing(job):
                self._few_bytes = hasattr(self._frame, "_jdf") and expects_few_bytes(self._frame)
        return self._few_bytes

    def _is_few(self, job: Job) -> bool:
        """Whether the rows may pass through the driver."""
        return self._expects_few_bytes(job) and proves_few_rows(self._frame)

    def _write_natively(self, job: Job) -> list[NewFile]:
        return self._run_job(job, lambda: write_natively(self._frame, job))

    def _write_with_duckdb(self, job: Job) -> Written:
        with _marker(job, self._frame.sparkSession) as marker:
            task = WriteTask(
                engine=writing_spec(job.config, job.table),
                table=job.table,
                write_id=job.write_id,
                names=tuple(self._schema.names),
                values=values_of(self._schema),
                variants=self._variants,
                where=job.where,
                outside=job.outside,
                few=job.few,
                marker=marker,
            )
            frame = distributed(self._frame, job.table, self._distribution)
            work = ship_function("ducklake_orch.spark.write_task:write", task)
            # Spark resolves the columns by name here and takes a dot in a name for a struct field, so plain names are
            # used.
            frame = frame.toDF(*(f"c{n}" for n in range(len(task.names))))

            def run(rows: Any) -> list[TaskResult]:
                return self._collect(rows.mapInArrow(work, RESULT_SCHEMA), job)

            results = run(frame) if self._expects_few_bytes(job) else in_batches(frame, run)
        failed = next((result.error for result in results if result.error), None)
        if failed is not None:
            raise failed
        if outside := sum(result.outside for result in results):
            example = next(result.example for result in results if result.outside)
            raise rows_outside(job.table, job.where or "", outside, example)
        written = self._with_few(results, job)
        spark = self._frame.sparkSession
        if _may_have_left_files(spark, job, results):
            retried = any(result.attempt for result in results)
            remove_other_attempts(spark, job.write_id, lambda: _remove_files(job, written.files), retried=retried)
        return written

    def _with_few(self, results: Sequence[TaskResult], job: Job) -> Written:
        """Return the files that tasks wrote, and the rows that they returned, for the catalog if there are no files."""
        import pyarrow as pa

        files = [file for result in results for file in result.files]
        tables = [pa.ipc.open_stream(result.few).read_all() for result in results if result.few is not None]
        if not tables:
            return Written(files)
        rows = ArrowRows(pa.concat_tables(tables), values_of(self._schema))
        from_rows = rows.write(replace(job, few=0) if files else job)
        return Written([*files, *from_rows.files], from_rows.few)

    def _collect(self, frame: Any, job: Job) -> list[TaskResult]:
        return [unpacked(bytes(row[0])) for row in self._run_job(job, frame.collect)]

    def _run_job(self, job: Job, work: Callable[[], T]) -> T:
        with (
            _writing(job),
            cleaned_up_on_failure(self._frame.sparkSession, job.write_id, lambda: _remove_files(job)),
        ):
            return work()


def _writing(job: Job) -> AbstractContextManager[None]:
    return translated_errors(job.config, f"Writing files of `{job.table}` in Spark")


def _remove_files(job: Job, keep: Sequence[NewFile] = ()) -> int:
    return remove_written(job.config, job.table.folder, job.write_id, keep={file.path for file in keep})


def column_types(columns: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    """Return the names of columns with their types in DuckDB."""
    return [(name, duckdb.sqltype('"NULL"' if kind == "NULL" else kind)) for name, kind in columns]


def check_writable(job: Job, columns: Sequence[tuple[str, str]]) -> None:
    """Refuse a write that cannot succeed, before Spark does any work.

    Args:
        job: The write.
        columns: The columns of the data, with their types in DuckDB.
    """
    check_reachable(job.config)
    # A column that holds only NULLs fits every type.
    given = [SourceColumn(name, kind) for name, kind in columns if kind != "NULL"]
    with job.working() as con:
        projection(con, job.table, given)


def values_of(schema: Any) -> dict[str, str]:
    """Return the SQL that converts columns whose Arrow form differs from DuckDB's type, by name."""
    return {
        field.name: sql
        for field in schema.fields
        if (sql := imported(field.dataType, identifier(field.name))) != identifier(field.name)
    }


@contextmanager
def _marker(job: Job, spark: Any) -> Iterator[str | None]:
    """Create a marker file that executors on other machines must be able to see, for a block."""
    folder = job.table.data_path
    if "://" in folder or is_local(spark):
        yield None
        return
    path = create_marker(job)
    try:
        yield path
    finally:
        remove_marker(path)


def create_marker(job: Job) -> str:
    """Create a marker file in the lake's folder and return its path."""
    path = Path(job.table.data_path) / f"{job.table.file_prefix(job.write_id)}.driver"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def remove_marker(path: str) -> None:
    """Delete the marker file."""
    with suppress(OSError):
        Path(path).unlink(missing_ok=True)


def _may_have_left_files(spark: Any, job: Job, results: Sequence[TaskResult]) -> bool:
    """Whether unsuccessful attempts may have left files behind."""
    if any(result.attempt or result.wrote_empty for result in results) or was_repeated(spark, job.write_id):
        return True
    return str(spark.conf.get("spark.speculation", "false")).lower() == "true"
