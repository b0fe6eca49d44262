"""Determine the column names in each file, and which files Spark's own Parquet reader reads correctly: `layouts`.

Spark finds columns by name. (It could use field ids, but only if a session setting allows that when a query runs.) A
file's schema version does not determine its column names: rewritten files keep their old names, and one transaction may
fill a table and then alter it. If a column has had only one name, that name is used; otherwise the footers are read.
"""

import os.path
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ducklake_orch.catalog.metadata import NESTED, ColumnDef, DataFile, Metadata, duckdb_type
from ducklake_orch.catalog.parquet import FileColumn, StoredColumn, known_columns, read_columns, stored_columns
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.engine.quoting import file_literal
from ducklake_orch.spark.deletion_bits import has_deletions
from ducklake_orch.spark.native_reader import OWN_NAMES, reading_files

# Narrower types that Spark reads as the type that a column was promoted to.
_SIGNED, _UNSIGNED = ["TINYINT", "SMALLINT", "INTEGER"], ["UTINYINT", "USMALLINT", "UINTEGER"]
_NARROWER = {
    "SMALLINT": {*_SIGNED[:1], *_UNSIGNED[:1]},
    "INTEGER": {*_SIGNED[:2], *_UNSIGNED[:2]},
    "BIGINT": {*_SIGNED, *_UNSIGNED},
    "USMALLINT": {*_UNSIGNED[:1]},
    "UINTEGER": {*_UNSIGNED[:2]},
    "DOUBLE": {"FLOAT"},
}
_CALENDAR_TYPES = {"date", "timestamp", "timestamp_us", "timestamp_ms", "timestamp_s", "timestamptz"}
# Spark's marks in files that it wrote in the calendar of before 1582; Spark, too, compares its versions as texts.
_OLD_CALENDAR = """
    decode(key) IN ('org.apache.spark.legacyDateTime', 'org.apache.spark.legacyINT96')
    OR (decode(key) = 'org.apache.spark.version' AND decode(value) < '3.1.0')"""


@dataclass(frozen=True)
class Layouts:
    """How each file stores the columns to read.

    Attributes:
        readable: Files that Spark reads correctly, grouped by how they store the columns.
        others: Files that DuckDB has to read, each with the reason.
    """

    readable: dict[tuple[StoredColumn, ...], list[DataFile]]
    others: list[tuple[DataFile, str]]


def layouts(metadata: Metadata, plan: ScanPlan) -> Layouts:
    """Group the files of a plan by how they store its columns; read footers only where the history leaves doubt."""
    history = _ColumnHistory(metadata, plan)
    readable: dict[tuple[StoredColumn, ...], list[DataFile]] = defaultdict(list)
    times = Counter(file.path for file in plan.files)
    others = [(file, reason) for file in plan.files if (reason := _hidden(file, times[file.path]))]
    hidden = {file.data_file_id for file, _ in others}
    seen = [file for file in plan.files if file.data_file_id not in hidden]
    with reading_files(metadata.config, plan):
        footers = read_columns(metadata.con, [file.path for file in seen if history.is_doubtful(file)])
    old = _in_old_calendar(metadata, plan, seen)
    for file in seen:
        names = None if file.mapping_id is None else plan.mappings[file.mapping_id]
        found = footers.get(file.path)
        stored = stored_columns(plan.needed, history.columns(file) if found is None else found, names, file.path)
        reason = next((why for column in stored if (why := _reason_against(column, mapped=names is not None))), None)
        if file.path in old:
            reason = "Spark wrote it in the calendar used before 1582, and would read different dates"
        if has_deletions(file) or file.partial_max is not None:
            reason = reason or _reserved_name(stored)
        if reason is None:
            readable[stored].append(file)
        else:
            others.append((file, reason))
    return Layouts(dict(readable), others)


def _in_old_calendar(metadata: Metadata, plan: ScanPlan, files: Sequence[DataFile]) -> set[str]:
    """Return the added files that Spark, whatever its settings, would read in another calendar than DuckDB."""
    mapped = [file_literal(file.path) for file in files if file.mapping_id is not None]
    kinds = {leaf.type for column in plan.needed for leaf in column.leaves()}
    if not mapped or kinds.isdisjoint(_CALENDAR_TYPES):
        return set()
    found = f"SELECT file_name FROM parquet_kv_metadata([{', '.join(mapped)}]) WHERE {_OLD_CALENDAR}"
    return {str(row[0]) for row in metadata.con.execute(found).fetchall()}


def _hidden(file: DataFile, times: int) -> str | None:
    """Return why Spark would not open a file, or not as often as the table lists it."""
    if file.encryption_key:
        return "it is encrypted"
    if times > 1:
        return "it is in the table more than once"
    if "://" not in file.path and (os.path.normpath(file.path) != file.path or not file.path.startswith("/")):
        return "Spark normalizes its path"
    name = file.path.rpartition("/")[2]
    if name.startswith(("_", ".")) or name.endswith("._COPYING_"):
        return "Spark ignores files with such names as hidden"
    return None


def _reserved_name(stored: Sequence[StoredColumn]) -> str | None:
    """Return why Spark cannot tell the position of a file's rows."""
    names = (name for column in stored for name in (column.name, column.column.name))
    taken = next((name for name in names if name is not None and name.lower() in OWN_NAMES), None)
    return f"it has a column `{taken}`, the name of a column that Spark needs to identify its rows" if taken else None


def _reason_against(stored: StoredColumn, *, mapped: bool) -> str | None:
    """Return why Spark would not read a column correctly."""
    column, name = stored.column, f"`{stored.column.name}`"
    if stored.in_path:
        return f"the values of {name} are in its path"
    if stored.name is None:
        return None
    if column.type == "struct" and all(child.name is None for child in stored.children):
        return f"it has no field of the struct {name}, so it is unknown which values are NULL"
    if mapped and column.type in ("list", "map"):
        return f"files of other writers may store lists and maps such as {name} in an older layout"
    if column.children:
        return next((why for child in stored.children if (why := _reason_against(child, mapped=mapped))), None)
    current = duckdb_type(column)
    if stored.type == current or stored.type in _NARROWER.get(current, ()):
        return None
    return f"{name} is {stored.type} in the file and {current} in the table"


class _ColumnHistory:
    """What a table's column history tells about its files.

    Args:
        metadata: The metadata tables.
        plan: The scan.
    """

    def __init__(self, metadata: Metadata, plan: ScanPlan) -> None:
        self._metadata = metadata
        self._plan = plan
        self._names: dict[int, set[str]] = defaultdict(set)
        self._ids: dict[tuple[int | None, str], set[int]] = defaultdict(set)
        self._types: dict[int, set[str]] = defaultdict(set)
        self._began: dict[int, int] = {}
        self._parents: dict[int, int | None] = {}
        for past_column in plan.table.past_columns:
            column = past_column.column
            self._names[column.column_id].add(column.name)
            self._ids[past_column.parent, column.name.lower()].add(column.column_id)
            if column.type not in NESTED:
                self._types[column.column_id].add(duckdb_type(column))
            began = self._began.get(column.column_id, past_column.begin_snapshot)
            self._began[column.column_id] = min(began, past_column.begin_snapshot)
            self._parents[column.column_id] = past_column.parent
        self._known: dict[frozenset[int], tuple[FileColumn, ...]] = {}

    def is_doubtful(self, file: DataFile) -> bool:
        """Whether only a file's footer can tell how it stores the columns."""
        if file.mapping_id is not None or self._ambiguous:
            return True
        later = [column for column in self._with_default if file.begin_snapshot >= self._began[column.column_id]]
        return any(
            (file.data_file_id, leaf.column_id) not in self._proven
            for column in later
            for leaf in [*column.leaves()][:1]
        )

    def columns(self, file: DataFile) -> tuple[FileColumn, ...]:
        """Return the columns of a file that is not doubtful; columns without a default may be missing in it."""
        absent = frozenset(
            column.column_id for column in self._with_default if file.begin_snapshot < self._began[column.column_id]
        )
        if absent not in self._known:
            self._known[absent] = known_columns(_without(self._plan.needed, absent))
        return self._known[absent]

    @cached_property
    def _ambiguous(self) -> bool:
        """Whether some file stores, or may store, a column under another name or type than today's."""
        return any(self._changed(column_def) for column in self._plan.needed for column_def in _with_children(column))

    def _changed(self, column: ColumnDef) -> bool:
        own, parent = column.column_id, self._parents[column.column_id]
        if len(self._names[own]) > 1 or len(self._ids[parent, column.name.lower()]) > 1:
            return True
        if column.type == "struct":
            # If no field is as old as the struct, a file may lack all its fields.
            return all(self._began[child.column_id] > self._began[own] for child in column.children)
        current = duckdb_type(column)
        return any(kind != current and kind not in _NARROWER.get(current, ()) for kind in self._types[own])

    @cached_property
    def _with_default(self) -> list[ColumnDef]:
        """The columns whose value in older files is a default other than NULL."""
        inside = [column_def for column in self._plan.needed for column_def in _with_children(column)]
        return [column for column in inside if column.initial_default is not None]

    @cached_property
    def _proven(self) -> set[tuple[int, int]]:
        """Pairs of file and column for which statistics prove that the file has the column."""
        ids = {leaf.column_id for column_def in self._with_default for leaf in column_def.leaves()}
        table = self._metadata.table_sql("ducklake_file_column_stats")
        rows = self._metadata.rows(
            f"SELECT data_file_id, column_id FROM {table} WHERE table_id = {self._plan.table.table_id}"
            f" AND column_id IN ({', '.join(map(str, sorted(ids)))})"
        )
        return {(int(file), int(column)) for file, column in rows}


def _with_children(column: ColumnDef) -> Iterator[ColumnDef]:
    yield column
    for child in column.children:
        yield from _with_children(child)


def _without(columns: Sequence[ColumnDef], absent: frozenset[int]) -> tuple[ColumnDef, ...]:
    left = [column for column in columns if column.column_id not in absent]
    return tuple(replace(column, children=_without(column.children, absent)) for column in left)
