"""Plan a scan: the files, deletions and inlined rows of a table at a snapshot, without files that cannot match.

A row is part of the state at a snapshot if it began at that snapshot or before and had not ended by then. A data file
with rows of several snapshots (`partial_max`) has the begin of each row in its column `_ducklake_internal_snapshot_id`.
That column must be read only if the requested snapshot is earlier than the newest of the file's snapshots. A delete
file may have the same column for its deletions; it must be read only if the delete file was written after the requested
snapshot (`later`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    DataFile,
    InlinedRows,
    MappedName,
    Metadata,
    TableDef,
    TableHistory,
    count_inlined,
    deletions_sql,
    deletions_table,
    inlined_rows,
    text,
    truth,
)
from ducklake_orch.catalog.parquet import FileColumn, StoredColumn, count_rows, read_vectors, stored_columns
from ducklake_orch.catalog.scan.live_files import LiveFiles
from ducklake_orch.catalog.scan.predicate import OrderKey, Predicate, parse_order, parse_predicate
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ObjectNotFoundError


@dataclass(frozen=True)
class ScanPlan:
    """The complete input of a reader that supports only Parquet and SQL.

    Attributes:
        table: The table as it is at the snapshot.
        snapshot: The snapshot.
        columns: The requested columns, in the requested order.
        needed: The columns to read: the requested ones, and those that `where` and `order_by` use.
        where: The condition. It has pruned the files, but the reader must still filter the rows.
        files: The data files that may hold rows to return.
        inlined: The queries for the inlined rows.
        certain: Ids of the data files all of whose rows meet the condition, as far as the catalog tells.
        inlined_deletes: The positions of the inlined deletions, by data file id.
        mappings: The name mappings of files, by `mapping_id`.
        layouts: The columns that the table has had, by the first snapshot that has them, if the files are encrypted.
    """

    table: TableDef
    snapshot: int
    columns: tuple[ColumnDef, ...]
    needed: tuple[ColumnDef, ...]
    where: Predicate | None
    files: tuple[DataFile, ...]
    inlined: tuple[InlinedRows, ...]
    certain: frozenset[int] = frozenset()
    inlined_deletes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    mappings: Mapping[int, tuple[MappedName, ...]] = field(default_factory=dict)
    layouts: Mapping[int, tuple[ColumnDef, ...]] = field(default_factory=dict)

    def stored(self, file: DataFile, footer: tuple[FileColumn, ...]) -> tuple[StoredColumn, ...]:
        """Return how a file with these columns stores the needed ones."""
        names = None if file.mapping_id is None else self.mappings[file.mapping_id]
        return stored_columns(self.needed, footer, names, file.path)


def plan_scan(
    metadata: Metadata,
    table: TableDef,
    at: int,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    order_by: Sequence[str] | None = None,
    limit: int | None = None,
) -> ScanPlan:
    """Plan a scan of a table.

    Args:
        metadata: The metadata tables.
        table: The table, as it is at the snapshot.
        at: The snapshot.
        columns: Names of the columns to return; by default all.
        where: A condition in DuckDB SQL; files without a row that can meet it are left out.
        order_by: Keys such as `ts DESC NULLS LAST`.
        limit: The number of rows that will be read. With `order_by`, files without any of the first rows are left out.
    """
    history = TableHistory(metadata, table)
    predicate = parse_predicate(metadata.con, where, table.columns) if where is not None else None
    keys = [parse_order(metadata.con, key, table.columns) for key in order_by or ()]
    wanted = choose(table, columns)
    live_files = LiveFiles(history, at, deletions_table(metadata, table), predicate)
    if keys and limit is not None:
        live_files.keep_first(keys[0], limit)
    judged = list(live_files.fetch())
    files = read_vectors(metadata.con, [file for file, _ in judged])
    needed = _needed(table, wanted, predicate, keys)
    inlined = inlined_rows(history, at, needed)
    return ScanPlan(
        table=table,
        snapshot=at,
        columns=wanted,
        needed=needed,
        where=predicate,
        files=files,
        inlined=inlined,
        certain=frozenset(file.data_file_id for file, all_match in judged if all_match),
        inlined_deletes=inlined_positions(live_files, files),
        mappings=name_mappings(metadata, {file.mapping_id for file in files if file.mapping_id is not None}),
        layouts=history.layouts,
    )


def classify(metadata: Metadata, table: TableDef, at: int, where: str) -> list[tuple[DataFile, bool]]:
    """Return the files that may hold a row that meets a condition, and for each whether all its rows certainly do."""
    predicate = parse_predicate(metadata.con, where, table.columns)
    live_files = LiveFiles(TableHistory(metadata, table), at, deletions_table(metadata, table), predicate)
    judged = list(live_files.fetch())
    files = read_vectors(metadata.con, [file for file, _ in judged])
    return [(file, all_match) for file, (_, all_match) in zip(files, judged, strict=True)]


def count(metadata: Metadata, table: TableDef, at: int) -> int:
    """Return the number of rows of a table at a snapshot.

    The catalog has the counts, except for files that were merged from commits before and after the snapshot. Only the
    files themselves tell which of their rows existed at the snapshot, so one column of each is read.
    """
    files = LiveFiles(TableHistory(metadata, table), at, deletions_table(metadata, table))
    total = files.count()
    unclear = read_vectors(metadata.con, [file for file, _ in files.fetch(unclear=True)])
    positions = inlined_positions(files, unclear)
    total += sum(count_rows(metadata.con, file, at, positions.get(file.data_file_id, ())) for file in unclear)
    return total + count_inlined(metadata, table, at)


def choose(table: TableDef, names: Sequence[str] | None) -> tuple[ColumnDef, ...]:
    """Return the columns with the given names; all columns if `names` is None.

    Raises:
        ObjectNotFoundError: When no column has one of the names; the error suggests similar names.
    """
    if names is None:
        return table.columns
    by_name = {folded(column.name): column for column in table.columns}
    for name in names:
        if folded(name) not in by_name:
            raise ObjectNotFoundError(
                f"Table `{table}` has no column `{name}`.",
                remedy=nearest(name, [column.name for column in table.columns]),
            )
    return tuple(by_name[folded(name)] for name in names)


def _needed(
    table: TableDef, wanted: Sequence[ColumnDef], predicate: Predicate | None, keys: Sequence[OrderKey]
) -> tuple[ColumnDef, ...]:
    used = [*(predicate.columns if predicate else ()), *(column for key in keys for column in key.columns)]
    ids = {column.column_id for column in [*wanted, *used]}
    return tuple(column for column in table.columns if column.column_id in ids)


def inlined_positions(live_files: LiveFiles, files: Sequence[DataFile]) -> dict[int, tuple[int, ...]]:
    """Return the positions of the files' inlined deletions, by data file id."""
    wanted = {file.data_file_id for file in files if file.inlined_deletes}
    if not wanted or live_files.deletions is None:
        return {}
    positions = defaultdict(list)
    metadata = live_files.history.metadata
    for file_id, position in metadata.rows(deletions_sql(metadata, live_files.deletions, live_files.at)):
        if file_id in wanted:
            positions[int(file_id)].append(int(position))
    return {file_id: tuple(sorted(values)) for file_id, values in positions.items()}


def name_mappings(metadata: Metadata, ids: set[int]) -> dict[int, tuple[MappedName, ...]]:
    """Return name mappings by id; within a mapping, columns have their own numbers and refer to their parent by it."""
    if not ids:
        return {}
    id_list = ", ".join(map(str, sorted(ids)))
    rows = metadata.rows(
        f"SELECT mapping_id, column_id, source_name, target_field_id, parent_column, is_partition"
        f" FROM {metadata.table_sql('ducklake_name_mapping')} WHERE mapping_id IN ({id_list}) ORDER BY column_id"
    )
    inside = defaultdict(list)
    for row in rows:
        inside[row[0], row[4]].append(row)

    def build(mapping: int, parent: int | None) -> tuple[MappedName, ...]:
        return tuple(
            MappedName(text(row[2]) or "", int(row[3]), bool(truth(row[5])), build(mapping, row[1]))
            for row in inside[mapping, parent]
        )

    return {mapping: build(mapping, None) for mapping in sorted(ids)}
