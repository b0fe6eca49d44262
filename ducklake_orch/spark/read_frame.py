"""Read a table as one lazy Spark DataFrame, planned once from the catalog at one snapshot: `read_table`.

Spark's own Parquet reader reads the files that it reads correctly. DuckDB reads the others in Spark's tasks. Inlined
rows are small in number and are read here.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ducklake_orch.catalog.metadata import DataFile, Metadata, reading
from ducklake_orch.catalog.parquet import StoredColumn
from ducklake_orch.catalog.scan import (
    ScanPlan,
    Selection,
    find_view,
    note_read,
    note_read_of,
    plan_scan,
    snapshot_of,
    write_reads,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.column_lineage import marked
from ducklake_orch.spark.condition_translation import translate
from ducklake_orch.spark.deletion_bits import reasons_against
from ducklake_orch.spark.kept_frames import ReadKey, keep_frame, kept_frame
from ducklake_orch.spark.native_reader import RETENTION, NativeScan, missing_in
from ducklake_orch.spark.read_layout import Layouts, layouts
from ducklake_orch.spark.read_task import Piece, ReadJob
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_quoting import initial_sql, name_sql
from ducklake_orch.spark.storage_access import refuse_local_secret, spark_prefixes
from ducklake_orch.spark.task_engine import engine_spec
from ducklake_orch.spark.task_values import packed
from ducklake_orch.spark.types import exported, native, spark_schema
from ducklake_orch.spark.variants import arrow_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ducklake_orch.facade.lake_base import LakeBase

log = logging.getLogger("ducklake_orch")
ENGINES = ("auto", "native", "duckdb")
# The bytes that one task reads with DuckDB; opening a file counts as a minimum size.
_BYTES_TOGETHER = 64 * 2**20
_BYTES_PER_FILE = 2**20
# Spark's estimate starts at 8 bytes per row of numbers. Adding this many empty values multiplies it, because Spark
# assumes 16 bytes for a row with a number and 100 for each empty value.
_WIDE = 10
_BYTES_PER_ROW = 8 * (16 + 100 * _WIDE) // 16
# A file, with any other facts that a task needs about it.
Read = TypeVar("Read")


@dataclass(frozen=True)
class _Planned:
    """Everything a read needs from the catalog, which is not queried again.

    Attributes:
        plan: The scan.
        layouts: How each file stores the columns.
        where: The condition in Spark's SQL, if there is one.
        defaults: The value of a missing column in a file, by column id, in Spark's SQL.
        inlined: The inlined rows that match the condition.
    """

    plan: ScanPlan
    layouts: Layouts
    where: str | None
    defaults: dict[int, str]
    inlined: pa.Table | None


def read_table(lake: "LakeBase", spark: "SparkSession", selection: Selection, engine: str) -> "DataFrame":
    """Return a table as a DataFrame that reads the rows when it runs.

    Args:
        lake: The lake.
        spark: The session, classic or Connect.
        selection: The table, columns, condition and snapshot to read.
        engine: The reader of the files: `auto`, `native` or `duckdb`.
    """
    if engine not in ENGINES:
        raise ConfigError(f"`engine` = {engine!r} is unknown.", remedy=nearest(str(engine), ENGINES))
    name, started = selection.table, time.monotonic()
    with (
        lake.reading(selection.snapshot, selection.as_of, entering=False) as session,
        reading(session, f"Reading `{name}`") as metadata,
    ):
        at = snapshot_of(session, metadata)
        key = ReadKey.of(session, metadata, selection, engine, at)
        if (kept := kept_frame(spark, key)) is not None:
            note_read_of(metadata, name, at, selection.where)
            return kept
        view = find_view(metadata, name, at)
        if view is None:
            planned = _plan(metadata, at, selection, engine)
            note_read(metadata, planned.plan.table, at, planned.plan.where, len(planned.plan.files))
        else:
            columns, where = view.selection(metadata.con, selection.columns, selection.where)
    write_reads(lake.config)
    if view is not None:
        sources = list(dict.fromkeys(columns.values()))
        of_table = replace(selection, table=TableName(view.table.schema, view.table.name), columns=sources, where=where)
        return _renamed(read_table(lake, spark, of_table, engine), columns)
    files = planned.plan.files
    size = sum(file.file_size for file in files)
    took = time.monotonic() - started
    log.info("read of `%s` at snapshot %d: %d files, %d bytes, plan %.3f s", name, at, len(files), size, took)
    schema = spark_schema(iter(planned.plan.columns))
    frames, others = _native(spark, lake.config, planned)
    if others:
        level = logging.WARNING if engine == "native" else logging.DEBUG
        noun = "file" if len(others) == 1 else "files"
        why = others[0][1]
        log.log(level, "DuckDB reads %d %s of `%s` in tasks: %s", len(others), noun, planned.plan.table, why)
        frames.append(read_with_duckdb(spark, lake.config, planned.plan, [file for file, _ in others], schema))
    if planned.inlined is not None or not frames:
        frames.append(spark.createDataFrame([] if planned.inlined is None else planned.inlined, schema))
    frame = with_comments(reduce(lambda left, right: left.unionAll(right), frames), schema)
    frame = marked(frame, planned.plan.table)
    if not others:
        keep_frame(spark, key, frame, planned.plan)
    return frame


def _renamed(frame: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    """Return columns of a DataFrame under other names."""
    from pyspark.sql.functions import col

    return frame.select(*(col(name_sql(source)).alias(name) for name, source in columns.items()))


def with_comments(frame: "DataFrame", schema: "StructType") -> "DataFrame":
    """Return the DataFrame with the table's column comments, which scans and unions drop."""
    from pyspark.sql.functions import col

    if not any(field.metadata for field in schema):
        return frame
    quoted = [(field, col(name_sql(field.name))) for field in schema]
    return frame.select(
        *(value.alias(field.name, metadata=field.metadata) if field.metadata else value for field, value in quoted)
    )


# --- planning from the catalog ---------------------------------------------------------------------------------------


def _plan(metadata: Metadata, at: int, selection: Selection, engine: str) -> _Planned:
    name = selection.table
    plan = plan_scan(metadata, metadata.table(name, at), at, columns=selection.columns, where=selection.where)
    spark_schema(iter(plan.columns))  # raises here if Spark cannot hold a type
    where = translate(plan.where) if plan.where else None
    reason = _reason_against(metadata.config, plan, where, engine)
    found = Layouts({}, [(file, reason) for file in plan.files]) if reason else layouts(metadata, plan)
    found, defaults = _with_defaults(metadata, found)
    return _Planned(plan, found, where, defaults, inlined_table(metadata, plan))


def _reason_against(config: LakeConfig, plan: ScanPlan, where: str | None, engine: str) -> str | None:
    """Return why Spark's own reader cannot read a table; None if it can."""
    if engine == "duckdb":
        return '`engine="duckdb"` is set'
    if unread := [column.name for column in plan.needed if not native(column)]:
        return f"Spark does not read the type of `{unread[0]}` from Parquet"
    collated = any(name.lower() == "default_collation" for name in config.settings)
    if plan.where is not None and (where is None or collated):
        return "the condition may mean something else in Spark"
    return None


def _with_defaults(metadata: Metadata, found: Layouts) -> tuple[Layouts, dict[int, str]]:
    """Return the defaults of missing columns in Spark's SQL; leave files whose defaults have no such form to DuckDB."""
    missing = {
        column.column.column_id: column.column
        for stored in found.readable
        for top in stored
        for column in missing_in(top)
    }
    defaults = {key: sql for key, column in missing.items() if (sql := initial_sql(metadata.con, column)) is not None}
    readable, others = {}, list(found.others)
    for stored, files in found.readable.items():
        unsupported = next(
            (column for top in stored for column in missing_in(top) if column.column.column_id not in defaults), None
        )
        if unsupported is None:
            readable[stored] = files
        else:
            others += [(file, f"the default of `{unsupported.column.name}` has no form in Spark") for file in files]
    return Layouts(readable, others), defaults


def inlined_table(metadata: Metadata, plan: ScanPlan, row_id: str | None = None) -> pa.Table | None:
    """Return the inlined rows of a plan in the form that Spark takes; None if there are none.

    Args:
        metadata: The metadata tables.
        plan: The scan.
        row_id: The name of a first column with the row ids, if one is wanted.
    """
    if not plan.inlined:
        return None
    condition = f" WHERE {plan.where.sql}" if plan.where else ""
    columns = ", ".join(
        f"{exported(column, identifier(column.name))} AS {identifier(column.name)}" for column in plan.columns
    )
    parts = [
        f"(SELECT {f'{rows.row_id} AS {identifier(row_id)}, ' if row_id else ''}{columns} FROM ({rows.sql}){condition})"
        for rows in plan.inlined
    ]
    table = metadata.con.execute(" UNION ALL ".join(parts)).to_arrow_table()
    return arrow_table(table, [column.name for column in plan.columns if column.type == "variant"])


# --- building DataFrames ---------------------------------------------------------------------------------------------


def _native(
    spark: "SparkSession", config: LakeConfig, planned: _Planned
) -> "tuple[list[DataFrame], list[tuple[DataFile, str]]]":
    """Return the DataFrames of Spark's own reader, and the remaining files, each with the reason."""
    readable, others = planned.layouts.readable, list(planned.layouts.others)
    first = next((file for files in readable.values() for file in files), None)
    if first is None:
        return [], others
    prefixes = spark_prefixes(spark, config, first.path)
    if prefixes is None:
        reason = f"this Spark session does not reach {config.data_path}"
        return [], others + [(file, reason) for files in readable.values() for file in files]
    reasons = reasons_against(file for files in readable.values() for file in files)
    kept: dict[tuple[StoredColumn, ...], list[DataFile]] = defaultdict(list)
    for stored, file in ((stored, file) for stored, files in readable.items() for file in files):
        if file.data_file_id in reasons:
            others.append((file, reasons[file.data_file_id]))
        else:
            kept[stored].append(file)
    scan = NativeScan(spark, config, planned.plan, planned.where, planned.defaults, prefixes)
    return scan.frames(kept), others


def read_with_duckdb(
    spark: "SparkSession",
    config: LakeConfig,
    plan: ScanPlan,
    files: Sequence[DataFile],
    schema: "StructType",
    row_id: str | None = None,
) -> "DataFrame":
    """Return the rows of files that DuckDB reads in tasks.

    Args:
        spark: The session, classic or Connect.
        config: The lake.
        plan: The scan.
        files: The files.
        schema: The columns of the DataFrame.
        row_id: The name of a first column with the row ids, if one is wanted.
    """
    job, pieces = read_job(config, plan, files)
    job = replace(job, row_id=row_id)
    read = ship_function("ducklake_orch.spark.read_task:read_pieces", engine_spec(config), job, pieces)
    frame = numbered_pieces(spark, len(pieces), sum(file.file_size for file in files))
    return frame.mapInArrow(read, schema)


def numbered_pieces(spark: "SparkSession", pieces: int, size: int) -> "DataFrame":
    """Return a DataFrame of piece numbers, one per task, whose estimated size is that of the pieces' files.

    Spark estimates the output of `mapInArrow` by its input, and a join broadcasts an input that seems small. A filter
    does not change the estimate, and wide rows make it larger. So each task counts one row for every half kilobyte of
    its files, which takes milliseconds, and the filter leaves one number.

    Args:
        spark: The session, classic or Connect.
        pieces: The number of pieces.
        size: The bytes of their files.
    """
    rows_per_piece = max(size // (pieces * _BYTES_PER_ROW), 1)
    rows = spark.range(0, pieces * rows_per_piece, 1, pieces).where(f"id % {rows_per_piece}L = 0")
    return rows.selectExpr(f"id DIV {rows_per_piece}L AS id", *(f"X'' AS wide{n}" for n in range(_WIDE)))


def read_job(config: LakeConfig, plan: ScanPlan, files: Sequence[DataFile]) -> tuple[ReadJob, list[bytes]]:
    """Return the job for tasks that read files with DuckDB, and the pieces, one per task."""
    refuse_local_secret(config)
    job = ReadJob(
        table=str(plan.table),
        snapshot=plan.snapshot,
        columns=plan.columns,
        needed=plan.needed,
        where=plan.where.text if plan.where else None,
        mappings=plan.mappings,
        layouts=plan.layouts,
        remedy=RETENTION,
    )
    job.select  # noqa: B018 - raises here if DuckDB cannot return a type
    return job, [packed(_piece(plan, group)) for group in grouped_for_tasks(files, lambda file: file)]


def _piece(plan: ScanPlan, files: Sequence[DataFile]) -> Piece:
    wanted = {file.data_file_id for file in files}
    return Piece(tuple(files), {key: positions for key, positions in plan.inlined_deletes.items() if key in wanted})


def grouped_for_tasks(files: Sequence[Read], file_of: Callable[[Read], DataFile]) -> Iterator[list[Read]]:
    """Group files into lists that one task each reads."""
    group: list[Read] = []
    size = 0
    for file in files:
        size += max(file_of(file).file_size, _BYTES_PER_FILE)
        group.append(file)
        if size >= _BYTES_TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group
