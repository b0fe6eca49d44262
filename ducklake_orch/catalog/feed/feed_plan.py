"""Plan a change feed: find the files and inlined rows that hold the changes of a table in a range of snapshots.

A feed is the difference between consecutive snapshots. It is computed from the snapshots in which row versions began
and ended, not from which files were added or removed: compactions, flushes and rewrites move rows but change none.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.feed.snapshot_range import FeedRange, FeedRequest, find_range
from ducklake_orch.catalog.metadata import (
    ColumnDef,
    DeleteFile,
    InlinedRows,
    MappedName,
    Metadata,
    TableDef,
    TableHistory,
    deletions_table,
    inlined_versions,
)
from ducklake_orch.catalog.parquet import FileLife, Span, with_vectors
from ducklake_orch.catalog.scan import DELETE_FILE, FILE, choose, data_file, delete_file, name_mappings, next_file_id
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ConfigError

OWN_COLUMNS = ("snapshot_id", "snapshot_time", "rowid", "change_type", "author", "idempotency_key")


@dataclass(frozen=True)
class FeedPlan:
    """Everything that a reader of the change feed needs.

    Attributes:
        range: The snapshots.
        span: Which snapshots and columns to read.
        files: The files that may hold rows which began or ended in these snapshots.
        inlined: How to read the inlined rows which began or ended in these snapshots.
        mappings: Column names of files that have a `mapping_id`, by that id.
        layouts: The columns that the table has had, by the first snapshot that has them, if the files are encrypted.
    """

    range: FeedRange
    span: Span
    files: tuple[FileLife, ...]
    inlined: tuple[InlinedRows, ...]
    mappings: Mapping[int, tuple[MappedName, ...]]
    layouts: Mapping[int, tuple[ColumnDef, ...]]


def plan_feed(metadata: Metadata, request: FeedRequest, newest: int) -> FeedPlan:
    """Plan a change feed.

    Args:
        metadata: The metadata tables.
        request: The arguments of the feed.
        newest: The latest snapshot to consider.
    """
    return plan_range(metadata, find_range(metadata, request, newest), request.columns)


def plan_range(metadata: Metadata, feed_range: FeedRange, names: Sequence[str] | None = None) -> FeedPlan:
    """Plan the change feed of a range that is known; `names` are the columns to return, by default all."""
    history = TableHistory(metadata, feed_range.table)
    columns = choose(feed_range.table, names)
    compared = () if feed_range.only_inserts else feed_range.table.columns
    span = Span(feed_range.first, feed_range.last, columns, compared)
    if not feed_range.commits:
        return FeedPlan(feed_range, span, (), (), {}, {})
    files = _files(history, feed_range)
    within = f"BETWEEN {span.first} AND {span.last}"
    return FeedPlan(
        feed_range,
        span,
        files,
        inlined_versions(history, span.needed, f"(begin_snapshot {within} OR end_snapshot {within})"),
        name_mappings(metadata, {file.file.mapping_id for file in files if file.file.mapping_id is not None}),
        history.layouts,
    )


def refuse_own_names(table: TableDef, columns: Sequence[ColumnDef]) -> None:
    """Refuse columns whose names those of the feed itself have.

    Raises:
        ConfigError: When there are such columns.
    """
    taken = [column.name for column in columns if folded(column.name) in OWN_COLUMNS]
    if taken:
        raise ConfigError(
            f"`{table}` has a column `{taken[0]}`, and so has every change feed.",
            remedy="List the columns to return in `columns=`, without this one.",
        )


def _files(history: TableHistory, feed_range: FeedRange) -> tuple[FileLife, ...]:
    """Return the files with rows that began or ended in these snapshots."""
    metadata, table_id = history.metadata, history.table.table_id
    first, last = feed_range.first, feed_range.last
    # A delete file written before the first snapshot lists no row that was deleted since.
    written_since = next_file_id(metadata, first - 1)
    delete_table = metadata.table_sql("ducklake_delete_file")
    of_deletes = f"FROM {delete_table} WHERE table_id = {table_id} AND begin_snapshot <= {last}"
    touched = [f"SELECT data_file_id {of_deletes} AND delete_file_id >= {written_since}"]
    deletions = deletions_table(metadata, history.table)
    if deletions is not None:
        between = f"begin_snapshot BETWEEN {first} AND {last}"
        touched.append(f"SELECT file_id FROM {metadata.table_sql(deletions)} WHERE {between}")
    files = f"""
        SELECT * FROM {metadata.table_sql("ducklake_data_file")} WHERE table_id = {table_id}
        AND begin_snapshot <= {last} AND (
            coalesce(partial_max, begin_snapshot) >= {first} OR end_snapshot BETWEEN {first} AND {last}
            OR data_file_id IN ({" UNION ".join(touched)}))"""
    columns = [*FILE, "end_snapshot"]
    rows = metadata.rows(f"SELECT {', '.join(columns)} FROM ({files}) ORDER BY data_file_id")
    in_files = f"data_file_id IN (SELECT data_file_id FROM ({files}))"
    deletes: dict[int, list[DeleteFile]] = defaultdict(list)
    names = ["data_file_id", *DELETE_FILE]
    for row in metadata.rows(f"SELECT {', '.join(names)} {of_deletes} AND {in_files} ORDER BY delete_file_id"):
        delete = delete_file(history.table.folder, dict(zip(names, row, strict=True)), written_since)
        deletes[int(row[0])].append(delete)
    deleted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if deletions is not None:
        source = f"SELECT file_id AS data_file_id, row_id, begin_snapshot FROM {metadata.table_sql(deletions)}"
        for row in metadata.rows(f"SELECT * FROM ({source}) WHERE begin_snapshot <= {last} AND {in_files}"):
            deleted[int(row[0])].append((int(row[1]), int(row[2])))
    lives = []
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        number = int(values["data_file_id"])
        file = data_file(history, values, deletes=tuple(deletes[number]))
        end = None if values["end_snapshot"] is None else int(values["end_snapshot"])
        lives.append(FileLife(file, end, tuple(deleted[number])))
    return with_vectors(metadata.con, [life for life in lives if _matters(life, feed_range)])


def _matters(life: FileLife, feed_range: FeedRange) -> bool:
    """Return whether rows of a file were changed, not only moved."""
    file = life.file
    return (
        feed_range.meets(file.begin_snapshot, file.partial_max or file.begin_snapshot)
        or (life.end_snapshot is not None and feed_range.meets(life.end_snapshot, life.end_snapshot))
        or any(delete.later for delete in file.deletes)
        or any(feed_range.meets(snapshot, snapshot) for _, snapshot in life.deleted)
    )
