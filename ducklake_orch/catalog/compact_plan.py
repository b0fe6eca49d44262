"""Plan compactions of a whole lake: which files become one, in a constant number of queries."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.cells import maybe_int, text
from ducklake_orch.catalog.layout import file_size
from ducklake_orch.catalog.metadata import Metadata, live
from ducklake_orch.engine.quoting import TableName

# A file that has come so close to the target is not written again and again with each little file that follows it.
_NEARLY_FULL = 0.75


@dataclass(frozen=True)
class MergeRule:
    """Which files are merged.

    Attributes:
        target_file_size: Up to where merged files grow; by default the option of the table.
        min_files: Fewer are not worth it.
        tiers: Sizes that divide files into tiers; only files of one tier are merged with each other.
        max_bin_bytes: So much is read at most for one file, whatever the target is.
    """

    target_file_size: int | None = None
    min_files: int = 5
    tiers: tuple[int, ...] = ()
    max_bin_bytes: int | None = None


@dataclass(frozen=True)
class Bin:
    """Files that become one.

    Attributes:
        schema_version: The version of the table's schema that they were written with.
        partition_id: The partition spec that they were written with.
        values: Their keys in it, None for NULL.
        files: Their ids.
        rows: How many rows they hold, deleted ones included.
        deleted: How many of these their delete files name.
        bytes: Their size.
        delete_files: How many delete files they have.
    """

    table: TableName
    table_id: int
    schema_version: int
    partition_id: int | None
    values: tuple[str | None, ...]
    files: tuple[int, ...]
    rows: int
    deleted: int
    bytes: int
    delete_files: int


@dataclass(frozen=True)
class TableBins:
    """What a compaction would do to a table.

    Attributes:
        files: How many live files it has.
        reason: Why nothing is done to it.
    """

    table: TableName
    table_id: int
    files: int
    bins: tuple[Bin, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _File:
    number: int
    begin: int
    size: int
    rows: int
    deleted: int
    delete_files: int
    partition_id: int | None
    values: tuple[str | None, ...]
    schema_version: int


@dataclass(frozen=True)
class _Table:
    name: TableName
    number: int
    target: int
    files: Sequence[_File]


def plan_merge(metadata: Metadata, rule: MergeRule) -> list[TableBins]:
    """Return which files of which tables would be merged; changes nothing."""
    return [_plan_table(metadata, table, _merge_bins(table, rule), _why_no_merge(rule)) for table in _tables(metadata)]


def plan_rewrite(
    metadata: Metadata, delete_threshold: float, *, inlined_deletes: Mapping[int, int] | None = None
) -> list[TableBins]:
    """Return which files would be written anew because they have lost many rows; changes nothing.

    Args:
        metadata: The metadata tables.
        delete_threshold: Those that have lost this share of their rows, or more.
        inlined_deletes: How many rows files have lost in the catalog, by id; a flush before leaves none.
    """
    lost = inlined_deletes or {}
    why = f"no file has lost {delete_threshold:.0%} of its rows"
    return [
        _plan_table(metadata, table, _rewrite_bins(table, delete_threshold, lost), why) for table in _tables(metadata)
    ]


def _plan_table(metadata: Metadata, table: _Table, bins: Iterator[Bin], why: str) -> TableBins:
    if metadata.encrypted():
        return TableBins(table.name, table.number, len(table.files), reason="the lake is encrypted")
    found = tuple(bins)
    return TableBins(table.name, table.number, len(table.files), found, None if found else why)


def _why_no_merge(rule: MergeRule) -> str:
    return f"there are not {max(rule.min_files, 2)} small files that belong together"


def _merge_bins(table: _Table, rule: MergeRule) -> Iterator[Bin]:
    target = rule.target_file_size or table.target
    limit = min(target, rule.max_bin_bytes or target)
    groups: dict[object, list[_File]] = defaultdict(list)
    for file in table.files:
        if file.size < limit * _NEARLY_FULL:
            tier = bisect_right(rule.tiers, file.size)
            groups[file.schema_version, file.partition_id, file.values, tier].append(file)
    for group in groups.values():
        for files in _packed(group, limit):
            if len(files) >= max(rule.min_files, 2):
                yield _bin(table, files)


def _rewrite_bins(table: _Table, threshold: float, inlined: Mapping[int, int]) -> Iterator[Bin]:
    groups: dict[object, list[_File]] = defaultdict(list)
    for file in table.files:
        lost = file.deleted + inlined.get(file.number, 0)
        if lost and lost >= threshold * file.rows:
            groups[file.partition_id, file.values].append(file)
    for group in groups.values():
        for files in _packed(group, table.target):
            yield _bin(table, files)


def _packed(files: Sequence[_File], limit: int) -> Iterator[list[_File]]:
    """Put files together, in the order in which they came, up to a size."""
    part: list[_File] = []
    size = 0
    for file in sorted(files, key=lambda one: (one.begin, one.number)):
        if part and size + file.size > limit:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.size
    if part:
        yield part


def _bin(table: _Table, files: Sequence[_File]) -> Bin:
    first = files[0]
    return Bin(
        table=table.name,
        table_id=table.number,
        schema_version=first.schema_version,
        partition_id=first.partition_id,
        values=first.values,
        files=tuple(file.number for file in files),
        rows=sum(file.rows for file in files),
        deleted=sum(file.deleted for file in files),
        bytes=sum(file.size for file in files),
        delete_files=sum(file.delete_files for file in files),
    )


def _tables(metadata: Metadata) -> list[_Table]:
    """Return the tables of the lake with their live files."""
    at = metadata.latest().snapshot_id
    name = metadata.table_sql
    tables = metadata.rows(
        "SELECT t.table_id, t.schema_id, s.schema_name, t.table_name"
        f" FROM {name('ducklake_table')} t JOIN {name('ducklake_schema')} s USING (schema_id)"
        f" WHERE {live(at, 't')} AND {live(at, 's')} ORDER BY t.table_id"
    )
    files = _files(metadata)
    return [
        _Table(
            TableName(text(schema) or "", text(table) or ""),
            int(number),
            file_size(metadata.options(int(schema_id), int(number))),
            files.get(int(number), ()),
        )
        for number, schema_id, schema, table in tables
    ]


def _files(metadata: Metadata) -> dict[int, list[_File]]:
    """Return all live files, by table."""
    name = metadata.table_sql
    versions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for table_id, begin, version in metadata.rows(
        f"SELECT table_id, begin_snapshot, schema_version FROM {name('ducklake_schema_versions')}"
        " ORDER BY table_id, begin_snapshot, schema_version"
    ):
        if table_id is not None:
            versions[int(table_id)].append((int(begin), int(version)))
    rows = metadata.rows(f"""
        SELECT f.table_id, f.data_file_id, f.begin_snapshot, f.file_size_bytes, f.record_count, f.partition_id,
               v.texts, coalesce(d.deleted, 0), coalesce(d.files, 0)
        FROM (SELECT table_id, data_file_id, begin_snapshot, file_size_bytes, record_count, partition_id
              FROM {name("ducklake_data_file")} WHERE end_snapshot IS NULL) f
        LEFT JOIN (SELECT data_file_id, list(partition_value ORDER BY partition_key_index) AS texts
                   FROM {name("ducklake_file_partition_value")} GROUP BY data_file_id) v USING (data_file_id)
        LEFT JOIN (SELECT data_file_id, sum(delete_count) AS deleted, count(*) AS files
                   FROM {name("ducklake_delete_file")} WHERE end_snapshot IS NULL GROUP BY data_file_id) d
                  USING (data_file_id)""")
    found: dict[int, list[_File]] = defaultdict(list)
    for table_id, number, begin, size, count, partition_id, texts, deleted, delete_files in rows:
        mine = versions[int(table_id)]
        place = bisect_right(mine, int(begin), key=lambda one: one[0])
        found[int(table_id)].append(
            _File(
                number=int(number),
                begin=int(begin),
                size=int(size),
                rows=int(count),
                deleted=int(deleted),
                delete_files=int(delete_files),
                partition_id=maybe_int(partition_id),
                values=tuple(map(text, texts or ())),
                schema_version=mine[max(place - 1, 0)][1] if mine else 0,
            )
        )
    return found
