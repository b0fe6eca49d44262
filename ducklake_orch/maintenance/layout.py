"""Measure how well the files of tables are clustered: how many of them a query for one value of a key has to read.

The bounds of the files come from the statistics in the catalog.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ducklake_orch.catalog.lifecycle import cluster_keys
from ducklake_orch.catalog.metadata import SortKey, live, text
from ducklake_orch.catalog.writing import cluster_mark
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.engine.quoting import folded
from ducklake_orch.maintenance.census import Census, FileState, TableState

_NUMBERS = "^(u?int(8|16|32|64|128)|float(32|64)|decimal.*)$"
# How many times larger than the files taken so far clustered files may be to be clustered again.
_GROWTH = 4
# The lowest and the highest value of a file.
Bounds = tuple[Any, Any]


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are to be clustered.

    Attributes:
        keys: The cluster keys; none if the table is clustered by its sort keys.
        sort: The sort keys of the table, if there are no cluster keys.
        bounds: For each cluster key, or for the first sort key, the bounds of the files that have values, by file id.
        missing: A key that is not a column of the table, if there is one.
    """

    keys: tuple[str, ...]
    sort: tuple[str, ...]
    bounds: Mapping[str, Mapping[int, Bounds]] = field(repr=False)
    missing: str | None = None

    @property
    def names(self) -> str:
        """The keys that count, for messages."""
        return ", ".join(self.bounds)

    @property
    def mark(self) -> str:
        """The part of a file's name that says that its rows are clustered in this way."""
        return cluster_mark(self.keys, self.sort)

    def files_of_value(self, files: Sequence[FileState]) -> float:
        """Return how many of some files hold a value of a key, on average over the keys and the bounds of files."""
        depths = [_depth([bounds[file.file_id] for file in files if file.file_id in bounds]) for bounds in self._known]
        return fmean(depths) if depths else 0.0

    def best(self, files: int) -> float:
        """Return the `files_of_value` of some number of files that are clustered as well as possible."""
        return float(files ** (1 - 1 / max(len(self._known), 1)))

    def depth(self, files: Sequence[FileState], target: int) -> float:
        """Return how many times as many files as necessary a query for a value of a key reads.

        Args:
            files: The files of a partition.
            target: The size that they should have.
        """
        return self.files_of_value(files) / self.best(max(1, round(sum(file.bytes for file in files) / target)))

    @property
    def _known(self) -> list[Mapping[int, Bounds]]:
        return list(self.bounds.values())


def _depth(bounds: Sequence[Bounds]) -> float:
    lows, highs = sorted(low for low, _ in bounds), sorted(high for _, high in bounds)
    # The ranges that hold a value are those that begin at it or before, without those that end before it.
    return fmean([bisect_right(lows, value) - bisect_left(highs, value) for value in lows + highs] or [0.0])


def layouts(state: Census, policy: MaintenancePolicy) -> dict[int, Layout]:
    """Return how tables are to be clustered, by table id.

    Tables without keys are left out, and so are those that are sorted by an expression first, which has no bounds.

    Args:
        state: The lake.
        policy: The policy, which can set the keys of tables.
    """
    sorts = _sort_keys(state)
    wanted = dict[int, tuple[tuple[str, ...], tuple[str, ...]]]()
    for table in state.tables:
        own = policy.of_table(*table.name).layout
        keys = tuple(cluster_keys(table.options) if own.cluster_by is None else own.cluster_by)
        if own.cluster == "off" or not own.enabled or not (keys or table.table_id in sorts):
            continue
        wanted[table.table_id] = keys, () if keys else sorts[table.table_id]
    columns = _columns(state, list(wanted)) if wanted else {}
    bounds = _bounds(state, wanted, columns) if wanted else {}
    found = dict[int, Layout]()
    for number, (keys, sort) in wanted.items():
        missing = next((key for key in keys if folded(key) not in columns.get(number, {})), None)
        if missing is not None or bounds[number]:
            found[number] = Layout(keys, sort, bounds[number], missing)
    return found


def worst_depth(table: TableState, layout: Layout, target: int) -> float:
    """Return the depth of the partition of a table whose files are clustered worst."""
    partitions = defaultdict(list)
    for file in table.files:
        partitions[file.group[1:]].append(file)
    return max((layout.depth(files, target) for files in partitions.values()), default=0.0)


def _sort_keys(state: Census) -> dict[int, tuple[str, ...]]:
    name, at = state.metadata.table_sql, state.latest.snapshot_id
    rows = state.metadata.rows(
        f"SELECT s.table_id, e.expression, e.sort_direction, e.null_order FROM {name('ducklake_sort_info')} s"
        f" JOIN {name('ducklake_sort_expression')} e USING (sort_id) WHERE {live(at, 's')}"
        " ORDER BY s.table_id, e.sort_key_index"
    )
    found: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for table_id, *key in rows:
        found[int(table_id)] += (SortKey(*(text(part) or "" for part in key)).sql,)
    return dict(found)


def _columns(state: Census, tables: Sequence[int]) -> dict[int, dict[str, tuple[int, bool]]]:
    """Return the id of each column and whether it is a number, by table and folded name."""
    sql = (
        f"SELECT table_id, column_name, column_id, regexp_matches(lower(column_type), '{_NUMBERS}')"
        f" FROM {state.metadata.table_sql('ducklake_column')} WHERE parent_column IS NULL"
        f" AND table_id IN ({', '.join(map(str, tables))}) AND {live(state.latest.snapshot_id)}"
    )
    found: dict[int, dict[str, tuple[int, bool]]] = defaultdict(dict)
    for table_id, name, column_id, is_number in state.metadata.rows(sql):
        found[int(table_id)][folded(text(name) or "")] = int(column_id), bool(is_number)
    return found


def _bounds(
    state: Census,
    wanted: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]],
    columns: Mapping[int, Mapping[str, tuple[int, bool]]],
) -> dict[int, dict[str, dict[int, Bounds]]]:
    """Return the bounds of live files, by table, key and file id."""
    found: dict[int, dict[str, dict[int, Bounds]]] = {number: {} for number in wanted}
    keys = dict[tuple[int, int], tuple[str, bool]]()
    for number, (names, sort) in wanted.items():
        # Of several sort keys, the first one decides which files a query reads.
        for name in names or (sort[0].rsplit(" ", 3)[0].strip('"'),):
            if folded(name) in columns.get(number, {}):
                column_id, is_number = columns[number][folded(name)]
                keys[number, column_id] = name, is_number
                found[number][name] = {}
    if not keys:
        return found
    live_files = {file.file_id for table in state.tables for file in table.files}
    dialect = state.metadata.dialect
    columns_of_keys = " or ".join(f"table_id = {table_id} and column_id = {column}" for table_id, column in keys)
    selected = dialect.texts(("table_id", "column_id", "data_file_id", "min_value", "max_value"))
    sql = (
        f"select {selected} from {dialect.table('ducklake_file_column_stats')}"
        f" where ({columns_of_keys}) and min_value is not null and max_value is not null"
    )
    for row in state.metadata.rows(dialect.query(sql)):
        table_id, column_id, file_id = (int(text(number) or 0) for number in row[:3])
        if file_id in live_files:
            name, is_number = keys[table_id, column_id]
            low, high = (text(bound) or "" for bound in row[3:])
            found[table_id][name][file_id] = (float(low), float(high)) if is_number else (low, high)
    return found


def unclustered_files(files: Sequence[FileState], layout: Layout, most: int) -> list[FileState]:
    """Return the files of a partition that are to be clustered together; none if they already are.

    Files that were clustered together are clustered again only with as many bytes of others as a quarter of theirs, so
    that a byte is rewritten a few times only, however many files are added.

    Args:
        files: The files of the partition.
        layout: How they are to be clustered.
        most: The most bytes to cluster together.
    """
    runs = sorted(_runs(files, layout.mark), key=_size)
    taken = list[FileState]()
    for number, run in enumerate(runs):
        if number > 1 and _size(run) > _GROWTH * _size(taken):
            break
        taken += run
    if len(runs) < 2 or _size(taken) <= most:
        return taken if len(runs) > 1 else []
    return _most_overlapping(taken, layout, most)


def _size(files: Sequence[FileState]) -> int:
    return sum(file.bytes for file in files)


def _most_overlapping(files: Sequence[FileState], layout: Layout, most: int) -> list[FileState]:
    """Return the files around the value of the first key that most files hold, up to a number of bytes."""
    bounds = next(iter(layout.bounds.values()))
    known = [file for file in files if file.file_id in bounds]
    lows, highs = sorted(bounds[file.file_id][0] for file in known), sorted(bounds[file.file_id][1] for file in known)
    value = max(lows, key=lambda low: bisect_right(lows, low) - bisect_left(highs, low))
    taken = list[FileState]()
    for file in known:
        low, high = bounds[file.file_id]
        if low <= value <= high and _size(taken) + file.bytes <= most:
            taken.append(file)
    return taken if len(taken) > 1 else []


def _runs(files: Sequence[FileState], mark: str) -> Iterator[list[FileState]]:
    """Divide the files of a partition into runs: files that were clustered together, or single files.

    The names of clustered files have a mark. What is before it names the write.
    """
    runs: dict[str, list[FileState]] = defaultdict(list)
    for file in files:
        head, found, _ = file.path.rpartition(f"-{mark}-")
        runs[head if found else file.path].append(file)
    yield from runs.values()
