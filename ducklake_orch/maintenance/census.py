"""Read the state of every table, on which plans and health are based, with a constant number of queries: `census`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from ducklake_orch.catalog.metadata import (
    INEXACT_IN_PARQUET,
    Clock,
    ColumnDef,
    Metadata,
    SnapshotRow,
    duckdb_type,
    join_path,
    live,
    maybe_int,
    read_clock,
    text,
    truth,
)
from ducklake_orch.catalog.parquet import key_name
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.maintenance.selection import Selection

# SQLite combines at most 500 SELECTs.
_SELECTS_IN_ONE_QUERY = 400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A group of files that can be compacted together: schema version, partition spec and partition values.
Group = tuple[int, int | None, tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class FileState:
    """A live data file, with the facts that maintenance needs.

    Attributes:
        path: The path in the catalog, relative to the table's folder unless it is absolute.
        deleted: The number of its rows that are deleted.
        tombstones: The number of these deletions that only the catalog has; a flush writes them to a file.
    """

    file_id: int
    path: str
    relative: bool
    bytes: int
    rows: int
    deleted: int
    tombstones: int
    begin: int
    row_id_start: int | None
    group: Group


@dataclass(frozen=True)
class InlinedState:
    """The inlined rows of one schema version of a table, including rows that are no longer live.

    Attributes:
        oldest: The snapshot that inserted the oldest of them.
        inexact: A column, with its type, whose values a file would not hold exactly, if there is one.
    """

    rows: int
    live_rows: int
    oldest: int
    inexact: str | None = None


@dataclass(frozen=True)
class TableState:
    """A table of the lake.

    Attributes:
        options: The persisted options in force for the table.
        keys: The names of its partition keys, by spec.
        files: Its live files, in the order of their rows.
        inlined: The inlined rows, by schema version; versions without rows are left out.
        inlined_since: When the oldest of them was inserted.
    """

    table_id: int
    name: TableName
    folder: str
    options: Mapping[str, str]
    keys: Mapping[int, Sequence[str]]
    files: Sequence[FileState]
    inlined: Sequence[InlinedState]
    inlined_since: datetime | None

    @property
    def staying(self) -> str | None:
        """Why some rows stay in the catalog even after a flush, if any do."""
        rows = sum(state.rows for state in self.inlined if state.inexact)
        column = next((state.inexact for state in self.inlined if state.inexact), None)
        return f"{rows} inlined rows stay in the catalog: Parquet cannot hold `{column}` exactly" if rows else None

    @property
    def partitioned(self) -> bool:
        """Whether some of its files are partitioned."""
        return bool(self.keys)

    def path(self, file: FileState) -> str:
        """Return the absolute path of a file."""
        return f"{self.folder if file.relative else ''}{file.path}"

    def values(self, group: Group) -> dict[str, str | None] | None:
        """Return the values of a partition by key; None if the group has no partition."""
        _, spec, values = group
        return None if spec is None else dict(zip(self.keys.get(spec, ()), values, strict=False))

    @cached_property
    def bytes(self) -> int:
        """The size of its live files."""
        return sum(file.bytes for file in self.files)

    @cached_property
    def groups(self) -> dict[Group, list[FileState]]:
        """The files by schema version and partition."""
        found: dict[Group, list[FileState]] = defaultdict(list)
        for file in self.files:
            found[file.group].append(file)
        return dict(found)


def partitions_of(files: Iterable[FileState]) -> list[list[FileState]]:
    """Divide files by their partitions."""
    found: dict[Any, list[FileState]] = defaultdict(list)
    for file in files:
        found[file.group[1:]].append(file)
    return list(found.values())


@dataclass(frozen=True)
class Census:
    """The state of the lake at one moment.

    Attributes:
        metadata: The metadata reader, for further queries in the same transaction.
        clock: The clocks of catalog and host at that moment.
    """

    metadata: Metadata
    latest: SnapshotRow
    clock: Clock
    tables: Sequence[TableState] = field(repr=False)
    _before: dict[timedelta, int] = field(default_factory=dict, repr=False)

    @property
    def at(self) -> datetime:
        """The moment of the census."""
        return self.clock.now

    def age(self, time: datetime) -> timedelta:
        """Return the time that has passed since `time`."""
        return self.at - time

    def snapshot_before(self, age: timedelta) -> int:
        """Return the latest retained snapshot that is at least this old; -1 if all are younger."""
        if age not in self._before:
            latest = "SELECT max(snapshot_id) FROM " + self.metadata.table_sql("ducklake_snapshot")
            limit = f"make_timestamptz({round((self.at - age).timestamp() * 1e6)})"
            rows = self.metadata.rows(f"{latest} WHERE snapshot_time::TIMESTAMPTZ <= {limit}")
            self._before[age] = -1 if rows[0][0] is None else int(rows[0][0])
        return self._before[age]


@contextmanager
def census(config: LakeConfig, doing: str, selection: Selection | None = None) -> Iterator[Census]:
    """Read the state of the tables for a block, which can query more of the same state.

    Args:
        config: The lake.
        doing: The purpose, for error messages.
        selection: Which tables to read; by default all.

    Raises:
        ObjectNotFoundError: When a name or pattern of the selection matches no table.
    """
    with planning(config, doing, reads=True) as metadata:
        latest = metadata.latest()
        deletions = "ducklake_inlined_delete_"
        existing = set(dialect_of(config).names(metadata.con, "ducklake_inlined_"))
        tombstones = [name for name in sorted(existing) if name.startswith(deletions)]
        named = [*_tables(metadata, latest.snapshot_id)]
        ids = None
        if selection is not None:
            selection.refuse_unknown([name for _, name, _, _ in named], config.name)
            named = [found for found in named if selection.wants_table(found[1])]
            ids = [found[0] for found in named]
        files = _files(metadata, latest.snapshot_id, tombstones, ids)
        inlined = _inlined(metadata, existing, ids)
        times = _times(metadata, [state.oldest for states in inlined.values() for state in states])
        keys = _keys(metadata)
        tables = [
            TableState(
                table_id,
                name,
                folder,
                metadata.options(schema_id, table_id),
                keys.get(table_id, {}),
                files.get(table_id, ()),
                inlined.get(table_id, ()),
                min((times[state.oldest] for state in inlined.get(table_id, ())), default=None),
            )
            for table_id, name, schema_id, folder in named
        ]
        yield Census(metadata, latest, read_clock(metadata), tables)


def _tables(metadata: Metadata, at: int) -> Iterator[tuple[int, TableName, int, str]]:
    root = metadata.data_path()
    columns = "t.table_id, s.schema_name, t.table_name, s.schema_id, s.path, s.path_is_relative, t.path"
    rows = metadata.rows(
        f"SELECT {columns}, t.path_is_relative FROM {metadata.table_sql('ducklake_table')} t"
        f" JOIN {metadata.table_sql('ducklake_schema')} s USING (schema_id) WHERE {live(at, 't')} AND {live(at, 's')}"
    )
    named = [(int(row[0]), TableName(text(row[1]) or "", text(row[2]) or ""), row) for row in rows]
    for table_id, name, row in sorted(named, key=lambda entry: entry[1]):
        schema = join_path(root, row[4], truth(row[5]))
        yield table_id, name, int(row[3]), join_path(schema if truth(row[7]) else root, row[6], truth(row[7]))


def _files(
    metadata: Metadata, at: int, tombstones: Sequence[str], ids: Sequence[int] | None
) -> dict[int, list[FileState]]:
    name = metadata.table_sql
    chosen = "" if ids is None else f" AND table_id IN ({', '.join(map(str, ids))})"
    inlined = (f"SELECT DISTINCT file_id, row_id FROM {name(tombstone)}" for tombstone in tombstones)
    deleted = " UNION ALL ".join(
        [
            f"SELECT data_file_id, delete_count AS n, 0 AS t FROM {name('ducklake_delete_file')}"
            f" WHERE {live(at)}{chosen}",
            *(f"SELECT file_id, 1, 1 FROM ({sql})" for sql in inlined),
        ]
    )
    rows = metadata.rows(f"""
        SELECT f.table_id, f.data_file_id, f.path, f.path_is_relative, f.file_size_bytes, f.record_count,
               coalesce(d.n, 0), coalesce(d.t, 0), f.begin_snapshot, f.row_id_start, coalesce(v.schema_version, 0),
               f.partition_id, p.vals
        FROM (FROM {name("ducklake_data_file")} WHERE {live(at)}{chosen}) f
        ASOF LEFT JOIN {name("ducklake_schema_versions")} v
             ON v.table_id = f.table_id AND f.begin_snapshot >= v.begin_snapshot
        LEFT JOIN (SELECT data_file_id, sum(n) AS n, sum(t) AS t FROM ({deleted}) GROUP BY 1) d USING (data_file_id)
        LEFT JOIN (SELECT data_file_id, list(partition_value ORDER BY partition_key_index) AS vals
                   FROM {name("ducklake_file_partition_value")} GROUP BY 1) p USING (data_file_id)
        ORDER BY f.table_id, f.begin_snapshot, f.row_id_start, f.data_file_id""")
    found: dict[int, list[FileState]] = defaultdict(list)
    for row in rows:
        values = tuple(text(value) for value in row[12] or ())
        found[int(row[0])].append(
            FileState(
                file_id=int(row[1]),
                path=text(row[2]) or "",
                relative=bool(truth(row[3])),
                bytes=int(row[4]),
                rows=int(row[5]),
                deleted=int(row[6]),
                tombstones=int(row[7]),
                begin=int(row[8]),
                row_id_start=maybe_int(row[9]),
                group=(int(row[10]), maybe_int(row[11]), values),
            )
        )
    return found


def _inlined(metadata: Metadata, existing: set[str], ids: Sequence[int] | None) -> dict[int, list[InlinedState]]:
    """Count the rows of all tables of inlined rows, with as few queries as possible."""
    config = metadata.config
    registry = metadata.table_sql("ducklake_inlined_data_tables")
    registered = metadata.rows(f"SELECT table_id, table_name, schema_version FROM {registry}")
    known = [(int(row[0]), text(row[1]) or "", int(row[2])) for row in registered]
    begin, end = metadata.of_inlined("begin_snapshot"), metadata.of_inlined("end_snapshot")
    selects = [
        f"select {table_id} as t, {version} as v, count(*) as n, count(case when {end} is null then 1 end) as m,"
        f" min({begin}) as b from {dialect_of(config).table(name)}"
        for table_id, name, version in known
        if name in existing and (ids is None or table_id in ids)
    ]
    inexact = _inexact(metadata) if selects else {}
    found: dict[int, list[InlinedState]] = defaultdict(list)
    for start in range(0, len(selects), _SELECTS_IN_ONE_QUERY):
        union = " union all ".join(selects[start : start + _SELECTS_IN_ONE_QUERY])
        for table_id, version, rows, live_rows, oldest in metadata.rows(dialect_of(config).query(union)):
            if int(rows):
                key = int(table_id), int(version)
                found[key[0]].append(InlinedState(int(rows), int(live_rows), int(oldest), inexact.get(key)))
    return found


def _inexact(metadata: Metadata) -> dict[tuple[int, int], str]:
    """Return a column of inlined rows that Parquet files do not hold exactly, by table and schema version."""
    name = metadata.table_sql
    types = ", ".join(map(literal, INEXACT_IN_PARQUET))
    rows = metadata.rows(f"""
        SELECT i.table_id, i.schema_version, min_by(c.column_name, c.column_id), min_by(c.column_type, c.column_id)
        FROM (SELECT i.table_id, i.schema_version, max(v.begin_snapshot) AS begin
              FROM {name("ducklake_inlined_data_tables")} i JOIN {name("ducklake_schema_versions")} v
                   ON v.table_id = i.table_id AND v.schema_version <= i.schema_version
              GROUP BY ALL) i
        JOIN {name("ducklake_column")} c ON c.table_id = i.table_id AND c.begin_snapshot <= i.begin
             AND (c.end_snapshot IS NULL OR c.end_snapshot > i.begin)
        WHERE lower(c.column_type) IN ({types})
        GROUP BY ALL""")
    columns = (ColumnDef(0, text(row[2]) or "", (text(row[3]) or "").lower(), nullable=True) for row in rows)
    words = (f"{column.name} {duckdb_type(column)}" for column in columns)
    return {(int(row[0]), int(row[1])): word for row, word in zip(rows, words, strict=True)}


def _times(metadata: Metadata, snapshots: Sequence[int]) -> dict[int, datetime]:
    """Return the times of snapshots; for an expired snapshot, the time of the first later one that remains."""
    if not snapshots:
        return {}
    wanted = ", ".join(f"({snapshot})" for snapshot in sorted(set(snapshots)))
    rows = metadata.rows(
        f"SELECT w.id, epoch_us(min_by(s.snapshot_time::TIMESTAMPTZ, s.snapshot_id)) FROM (VALUES {wanted}) w(id)"
        f" LEFT JOIN {metadata.table_sql('ducklake_snapshot')} s ON s.snapshot_id >= w.id GROUP BY w.id"
    )
    return {int(number): moment(time) for number, time in rows}


def _keys(metadata: Metadata) -> dict[int, dict[int, list[str]]]:
    """Return the names of partition keys, by table and spec."""
    name = metadata.table_sql
    rows = metadata.rows(f"""
        SELECT p.table_id, p.partition_id, k.transform, c.column_name
        FROM {name("ducklake_partition_info")} p JOIN {name("ducklake_partition_column")} k USING (partition_id)
        LEFT JOIN (SELECT table_id, column_id, max_by(column_name, begin_snapshot) AS column_name
                   FROM {name("ducklake_column")} GROUP BY ALL) c
             ON c.table_id = p.table_id AND c.column_id = k.column_id
        ORDER BY p.partition_id, k.partition_key_index""")
    found: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table_id, spec, transform, column in rows:
        found[int(table_id)][int(spec)].append(key_name(text(transform) or "", text(column) or "?"))
    return found


def moment(microseconds: Any) -> datetime:
    """Return a time from the catalog's microseconds."""
    return _EPOCH + timedelta(microseconds=int(microseconds or 0))
