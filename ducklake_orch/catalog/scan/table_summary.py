"""Summarize a table from its metadata: its columns, files, partitions, and the totals of its files' statistics."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    DataFile,
    Metadata,
    PartitionField,
    TableDef,
    TableHistory,
    count_inlined,
    deletions_table,
    duckdb_type,
    live,
    reading,
    text,
    truth,
)
from ducklake_orch.catalog.parquet import key_name
from ducklake_orch.catalog.scan.column_bounds import family
from ducklake_orch.catalog.scan.live_files import LiveFiles
from ducklake_orch.catalog.scan.predicate import parse_predicate
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.snapshots import current_snapshot
from ducklake_orch.results import Column, ColumnSummary, Partition, TableFile, TableStats


@contextmanager
def reading_table(session: Session, name: TableName) -> Iterator[tuple[Metadata, TableDef, int]]:
    """Read a table's metadata at the session's snapshot, in one transaction, unaffected by concurrent compactions."""
    with reading(session, f"Reading the metadata of `{name}`") as metadata:
        at = snapshot_of(session, metadata)
        yield metadata, metadata.table(name, at), at


def snapshot_of(session: Session, metadata: Metadata) -> int:
    """Return the snapshot that a session sees."""
    if session.access.snapshot is None and session.access.as_of is None:
        return metadata.latest().snapshot_id
    if session.instance.without_extension:
        return current_snapshot(session)
    return int(metadata.rows(f"SELECT id FROM ducklake_current_snapshot({literal(metadata.config.alias)})")[0][0])


def table_columns(metadata: Metadata, table: TableDef) -> list[Column]:
    """Return the columns of a table, in order, with their types as DuckDB prints them."""
    keys = table.key_fields
    return column_results(table.columns, keys, printed_types(metadata, table.columns))


def printed_types(metadata: Metadata, columns: Iterable[ColumnDef]) -> dict[str, str]:
    """Return the types of columns as DuckDB prints them, by their names in SQL."""
    kinds = sorted({duckdb_type(column) for column in columns})
    if not kinds:
        return {}
    printed = metadata.rows(f"SELECT {', '.join(f'typeof(NULL::{kind})' for kind in kinds)}")[0]
    return dict(zip(kinds, map(str, printed), strict=True))


def column_results(
    columns: Sequence[ColumnDef], keys: Sequence[PartitionField], types: Mapping[str, str]
) -> list[Column]:
    """Return the columns of a table as users see them.

    Args:
        columns: The columns, in order.
        keys: The partition keys of the table.
        types: The types as DuckDB prints them; see `printed_types`.
    """
    transforms = {key.column_id: key.transform for key in keys}
    return [
        Column(
            name=column.name,
            type=types[duckdb_type(column)],
            nullable=column.nullable,
            # The engine stores "no default" as the text NULL.
            default=column.default,
            comment=column.comment,
            partition=transforms.get(column.column_id),
        )
        for column in columns
    ]


def table_files(metadata: Metadata, table: TableDef, at: int, where: str | None = None) -> list[TableFile]:
    """List the data files, without those that cannot hold a row that meets the condition."""
    names = _Keys(TableHistory(metadata, table))
    return [
        TableFile(
            path=file.path,
            rows=file.record_count,
            bytes=file.file_size,
            partition=names.values(file.partition_id, file.partition_values),
            deletes=_deleted(file),
            snapshot=file.begin_snapshot,
        )
        for file in _live(names.history, at, where)
    ]


def table_partitions(metadata: Metadata, table: TableDef, at: int) -> list[Partition]:
    """List the partitions that have files, by the partition keys that the files were written with."""
    names = _Keys(TableHistory(metadata, table))
    files = LiveFiles(names.history, at, deletions_table(metadata, table))
    return [Partition(names.values(spec, values), *totals) for spec, values, *totals in files.partitions()]


def table_stats(metadata: Metadata, table: TableDef, at: int) -> TableStats:
    """Return the totals of the catalog's statistics of a table's files and columns."""
    totals = {"rows": 0, "files": 0, "bytes": 0, "deletes": 0, "delete_files": 0}
    for file in _live(TableHistory(metadata, table), at):
        totals["rows"] += file.record_count
        totals["files"] += 1
        totals["bytes"] += file.file_size
        totals["deletes"] += _deleted(file)
        totals["delete_files"] += len(file.deletes)
    inlined = count_inlined(metadata, table, at)
    return TableStats(
        str(table), at, **totals, inlined_rows=inlined, columns=_columns(metadata, table, at, totals["files"])
    )


def _columns(metadata: Metadata, table: TableDef, at: int, files: int) -> list[ColumnSummary]:
    """Sum up the statistics by column; a value that is unknown for one file is unknown for the column."""
    paths = {leaf.column_id: (path, leaf) for path, leaf in _leaves(table.columns)}
    by_type: dict[str, list[int]] = defaultdict(list)
    for column_id, (_, leaf) in paths.items():
        by_type[duckdb_type(leaf)].append(column_id)
    live_ids = (
        f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')}"
        f" WHERE table_id = {table.table_id} AND {live(at)}"
    )
    parts = [_sums_sql(metadata, table, kind, ids, live_ids, files) for kind, ids in by_type.items()]
    sums = {int(row[0]): row[1:] for row in metadata.rows(" UNION ALL ".join(parts))}
    summaries = []
    for column_id, (path, leaf) in paths.items():
        size, values, nulls, nan, low, high = sums.get(column_id, (None,) * 6)
        counts = [None if number is None else int(number) for number in (size, values, nulls)]
        summaries.append(
            ColumnSummary(path, duckdb_type(leaf), text(low), text(high), counts[2], counts[1], truth(nan), counts[0])
        )
    return summaries


def _sums_sql(metadata: Metadata, table: TableDef, kind: str, ids: Sequence[int], live_ids: str, files: int) -> str:
    def complete(sql: str, condition: str) -> str:
        return f"CASE WHEN count(*) = {files} AND bool_and({condition}) THEN {sql} END"

    measured = "coalesce(null_count, 0) + coalesce(value_count, 0) > 0"
    counted = {
        name: complete(f"sum({name})", f"{name} IS NOT NULL AND {measured}") for name in ("value_count", "null_count")
    }
    ends = {"min": "NULL::VARCHAR", "max": "NULL::VARCHAR"}
    if family(kind):
        empty = "(value_count = 0 AND null_count > 0)"
        ends = {
            end: complete(
                f"arg_{end}({end}_value, TRY_CAST({end}_value AS {kind}))",
                f"coalesce({empty} OR TRY_CAST({end}_value AS {kind}) IS NOT NULL, false)",
            )
            for end in ends
        }
    nan = complete("bool_or(CAST(contains_nan AS BOOLEAN))", "contains_nan IS NOT NULL")
    return (
        f"SELECT column_id, {complete('sum(column_size_bytes)', 'column_size_bytes IS NOT NULL')},"
        f" {counted['value_count']}, {counted['null_count']}, {nan}, {ends['min']}, {ends['max']}"
        f" FROM {metadata.table_sql('ducklake_file_column_stats')}"
        f" WHERE table_id = {table.table_id} AND column_id IN ({', '.join(map(str, ids))})"
        f" AND data_file_id IN ({live_ids}) GROUP BY column_id"
    )


def _leaves(columns: Sequence[ColumnDef], inside: str = "") -> Iterator[tuple[str, ColumnDef]]:
    for column in columns:
        path = f"{inside}{column.name}"
        if column.children:
            yield from _leaves(column.children, f"{path}.")
        else:
            yield path, column


def _live(history: TableHistory, at: int, where: str | None = None) -> Iterator[DataFile]:
    metadata, table = history.metadata, history.table
    predicate = parse_predicate(metadata.con, where, table.columns) if where is not None else None
    return (file for file, _ in LiveFiles(history, at, deletions_table(metadata, table), predicate).fetch())


def _deleted(file: DataFile) -> int:
    return sum(delete.delete_count for delete in file.deletes) + file.inlined_deletes


class _Keys:
    """The names of partition keys in the form that users write: `region`, `year(ts)`."""

    def __init__(self, history: TableHistory) -> None:
        self.history = history
        self._names = {
            spec.partition_id: [key_name(field.transform, history.names[field.column_id]) for field in spec.fields]
            for spec in history.specs
        }

    def values(self, partition_id: int | None, values: Sequence[str | None]) -> dict[str, str | None]:
        """Return the partition values of a file, by the name of the key."""
        names = self._names.get(partition_id, []) if partition_id is not None else []
        return dict(zip(names, values, strict=True))
