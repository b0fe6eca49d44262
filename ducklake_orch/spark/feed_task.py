"""Executor side of a change feed: reads which row versions some files insert and delete."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_orch.catalog.metadata import ColumnDef, MappedName
from ducklake_orch.catalog.parquet import (
    FileColumn,
    FileLife,
    Span,
    events_sql,
    file_versions,
    short,
    stored_columns,
)
from ducklake_orch.spark.read_task import ROWS_AT_ONCE, stored_in, translated_missing_file
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import task_numbers, unpacked
from ducklake_orch.spark.types import exported
from ducklake_orch.spark.variants import arrow_batch


@dataclass(frozen=True)
class FeedJob:
    """The facts that all tasks of a feed need.

    Attributes:
        table: The table's name.
        span: The columns and snapshots to read.
        mappings: Column names in files, by mapping id.
        layouts: The columns that the table has had, by the first snapshot that has them, if the files are encrypted.
        remedy: What to do when a file does not exist any more.
    """

    table: str
    span: Span
    mappings: Mapping[int, tuple[MappedName, ...]]
    layouts: Mapping[int, tuple[ColumnDef, ...]]
    remedy: str


def read_events(spec: EngineSpec, job: FeedJob, pieces: Sequence[bytes], numbers: Iterator[Any]) -> Iterator[Any]:
    """Return the row versions that the files of this task's pieces insert and delete.

    Args:
        spec: How to reach the storage.
        job: The feed.
        pieces: All pieces.
        numbers: Batches with the numbers of this task's pieces.
    """
    for number in task_numbers(numbers):
        files: list[FileLife] = unpacked(pieces[number])
        with open_engine(spec) as con:
            for life in files:
                with translated_missing_file(spec, f"table `{job.table}`", life.file.path, job.remedy):
                    events = events_sql(
                        versions_in(job, life, stored_in(con, job.layouts, life.file)), job.span, exported
                    )
                    for batch in con.execute(events).to_arrow_reader(ROWS_AT_ONCE):
                        yield arrow_batch(batch, variants_in(job.span))


def variants_in(span: Span) -> list[str]:
    """Return the columns of `events_sql` that are variants."""
    return [short(column) for column in span.columns if column.type == "variant"]


def versions_in(job: FeedJob, life: FileLife, found: tuple[FileColumn, ...]) -> str:
    """Return the query for the row versions of a file that has these columns."""
    file = life.file
    names = None if file.mapping_id is None else job.mappings[file.mapping_id]
    return file_versions(life, found, stored_columns(job.span.needed, found, names, file.path))
