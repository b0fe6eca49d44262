"""Measure how well the files of tables are clustered, and choose those that are to be clustered.

The measure is *depth*: how many files of a partition hold a value of a key. The bounds of the files come from the
statistics in the catalog.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, geometric_mean
from typing import Any

from ducklake_orch.catalog.lifecycle import cluster_keys
from ducklake_orch.catalog.metadata import SortKey, live, text
from ducklake_orch.catalog.writing import cluster_mark
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.engine.layout import named_column
from ducklake_orch.engine.quoting import folded
from ducklake_orch.maintenance.census import Census, FileState
from ducklake_orch.maintenance.workload import proposed_keys

_NUMBERS = "^(u?int(8|16|32|64|128)|float(32|64)|decimal.*)$"
# Files that were clustered together are clustered again only with others that have this share of their bytes.
_SHARE_OF_OTHERS = 0.5
# Clustering is worth it only if depth falls to this share.
_SHARE_OF_DEPTH = 0.7
_KEYS_IN_ONE_QUERY = 400
_LAST_TEXT = chr(0x10FFFF)
# The lowest and the highest value of a file.
Bounds = tuple[Any, Any]


@dataclass(frozen=True)
class TableClustering:
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
        """The keys whose values are counted, for messages."""
        return ", ".join(self.bounds)

    @property
    def mark(self) -> str:
        """The part of a file's name that says that it was clustered by these keys."""
        return cluster_mark(self.keys, self.sort)

    def depth(self, files: Sequence[FileState]) -> float:
        """Return how many of some files of a partition hold a value, on average, by the key where they are most."""
        return max(self._depths(files), default=0.0)

    def _depths(self, files: Sequence[FileState]) -> list[float]:
        """Return the depth by each key that has values."""
        known = ([bounds[file.file_id] for file in files if file.file_id in bounds] for bounds in self.bounds.values())
        return [_depth(bounds) for bounds in known if bounds]

    def ideal_depth(self, files: int) -> float:
        """Return the depth of some number of files that are clustered as well as possible."""
        keys = sum(bool(bounds) for bounds in self.bounds.values())
        return float(files ** (1 - 1 / max(keys, 1)))

    def files_to_cluster(self, files: Sequence[FileState], target: int, max_bytes: int) -> list[FileState]:
        """Return the files of a partition that are to be clustered together; none if that would hardly help.

        Files that were clustered together are clustered again only with others that have half of their bytes or more.
        So a byte is rewritten a few times only, however many files are added.

        Args:
            files: The files of the partition.
            target: The size that files should have.
            max_bytes: The most bytes to cluster together.
        """
        taken, size, others = list[FileState](), 0, list[FileState]()
        for together in sorted(self._clustered_sets(files), key=_size):
            if others and _SHARE_OF_OTHERS * _size(together) <= size:
                taken = [*others, *together]
            others += together
            size += _size(together)
        if _size(taken) > max_bytes:
            taken = self._around_deepest(taken, max_bytes)
        files_out = round(_size(taken) / target)
        # What one key gains, another may lose: their mean counts.
        mean = geometric_mean([max(depth, 1.0) for depth in self._depths(taken)] or [1.0])
        return taken if files_out > 1 and self.ideal_depth(files_out) <= _SHARE_OF_DEPTH * mean else []

    def _clustered_sets(self, files: Sequence[FileState]) -> Iterator[list[FileState]]:
        """Divide files into those that were clustered together, by their names, and single files."""
        sets: dict[str, list[FileState]] = defaultdict(list)
        for file in files:
            head, found, _ = file.path.rpartition(f"-{self.mark}-")
            sets[head if found else file.path].append(file)
        yield from sets.values()

    def _around_deepest(self, files: Sequence[FileState], max_bytes: int) -> list[FileState]:
        """Return files that hold the value of a key that most of them hold, up to a number of bytes."""
        best = list[FileState]()
        for bounds in self.bounds.values():
            spanning = [file for file in files if _spans(bounds.get(file.file_id))]
            if not spanning:
                continue
            lows, highs = (sorted(bounds[file.file_id][end] for file in spanning) for end in (0, 1))
            _, value = max((bisect_right(lows, low) - bisect_left(highs, low), low) for low in lows)
            taken, size = list[FileState](), 0
            for file in spanning:
                low, high = bounds[file.file_id]
                if low <= value <= high and size + file.bytes <= max_bytes:
                    taken.append(file)
                    size += file.bytes
            best = max(best, taken, key=len)
        return best if len(list(self._clustered_sets(best))) > 1 else []


def _size(files: Sequence[FileState]) -> int:
    return sum(file.bytes for file in files)


def _spans(bounds: Bounds | None) -> bool:
    """Whether a file holds more than one value: no clustering divides a file with a single one."""
    return bounds is not None and bool(bounds[0] != bounds[1])


def _depth(bounds: Sequence[Bounds]) -> float:
    """Return how many files hold a value, on average over the bounds of all; files with only that value count as one.

    Files with a single value cannot be divided any further, however many they are.
    """
    spanning = [file for file in bounds if _spans(file)]
    lows, highs = sorted(low for low, _ in spanning), sorted(high for _, high in spanning)
    single = {low for low, high in bounds if low == high}
    values = [value for file in bounds for value in file]
    # The ranges that hold a value are those that begin at it or before, without those that end before it.
    counts = [bisect_right(lows, value) - bisect_left(highs, value) + (value in single) for value in values]
    return fmean(counts or [0.0])


def clusterings(
    state: Census, policy: MaintenancePolicy, proposed: Mapping[int, Sequence[str]] | None = None
) -> dict[int, TableClustering]:
    """Return how tables are to be clustered, by table id.

    Tables without keys are left out, and so are those that are sorted by an expression first, which has no bounds.

    Args:
        state: The lake.
        policy: The policy, which can set the keys of tables.
        proposed: The `proposed_keys`, if the caller has them.
    """
    sorts, wanted = _sort_keys(state), dict[int, tuple[str, ...]]()
    proposed = proposed_keys(state.metadata) if proposed is None else proposed
    for table in state.tables:
        own = policy.of_table(*table.name).layout
        keys: Sequence[str] = cluster_keys(table.options) if own.cluster_by is None else own.cluster_by
        if not keys and table.table_id not in sorts and own.cluster == "auto":
            keys = proposed.get(table.table_id, ())
        if own.enabled and own.cluster != "off" and (keys or table.table_id in sorts):
            wanted[table.table_id] = tuple(keys)
    columns = _columns(state, list(wanted)) if wanted else {}
    bounded, missing = dict[int, list[str]](), dict[int, str]()
    for number, keys in wanted.items():
        known = columns.get(number, {})
        absent = [name for name in keys if named_column(name, known) is None]
        if absent:
            missing[number] = absent[0]
        elif keys:
            bounded[number] = list(dict.fromkeys(named_column(name, known) or "" for name in keys))
        # Of several sort keys, the first one decides which files a query reads.
        elif (first := named_column(sorts[number][0].expression, known)) is not None:
            bounded[number] = [first]
    bounds = _bounds(state, bounded, columns)
    return {
        number: TableClustering(
            tuple(bounded.get(number, ())) if keys else (),
            () if keys else tuple(key.sql for key in sorts[number]),
            bounds.get(number, {}),
            missing.get(number),
        )
        for number, keys in wanted.items()
        if number in bounded or number in missing
    }


def _sort_keys(state: Census) -> dict[int, list[SortKey]]:
    name, at = state.metadata.table_sql, state.latest.snapshot_id
    rows = state.metadata.rows(
        f"SELECT s.table_id, e.expression, e.sort_direction, e.null_order FROM {name('ducklake_sort_info')} s"
        f" JOIN {name('ducklake_sort_expression')} e USING (sort_id) WHERE {live(at, 's')}"
        " ORDER BY s.table_id, e.sort_key_index"
    )
    found: dict[int, list[SortKey]] = defaultdict(list)
    for table_id, *key in rows:
        found[int(table_id)].append(SortKey(*(text(part) or "" for part in key)))
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
    state: Census, keys: Mapping[int, Sequence[str]], columns: Mapping[int, Mapping[str, tuple[int, bool]]]
) -> dict[int, dict[str, dict[int, Bounds]]]:
    """Return the bounds of live files, by table, key and file id.

    Args:
        state: The lake.
        keys: The columns to read the bounds of, by table.
        columns: The id of each column and whether it is a number, by table and folded name.
    """
    found: dict[int, dict[str, dict[int, Bounds]]] = {number: {name: {} for name in keys[number]} for number in keys}
    of_column = {
        (number, columns[number][folded(name)][0]): (name, columns[number][folded(name)][1])
        for number, names in keys.items()
        for name in names
    }
    dialect, pairs = state.metadata.dialect, list(of_column)
    selected = dialect.texts(("table_id", "column_id", "data_file_id", "min_value", "max_value"))
    files = f"select data_file_id from {dialect.table('ducklake_data_file')} where end_snapshot is null"
    for start in range(0, len(pairs), _KEYS_IN_ONE_QUERY):
        wanted = [
            f"table_id = {table} and column_id = {column}" for table, column in pairs[start:][:_KEYS_IN_ONE_QUERY]
        ]
        sql = (
            f"select {selected} from {dialect.table('ducklake_file_column_stats')} where ({' or '.join(wanted)})"
            f" and (min_value is not null or max_value is not null) and data_file_id in ({files})"
        )
        for row in state.metadata.rows(dialect.query(sql)):
            table_id, column_id, file_id = (int(text(number) or 0) for number in row[:3])
            name, is_number = of_column[table_id, column_id]
            found[table_id][name][file_id] = _range(text(row[3]), text(row[4]), is_number=is_number)
    return found


def _range(low: str | None, high: str | None, *, is_number: bool) -> Bounds:
    """Return the bounds of a file; the catalog has no upper one if there are long texts or NaN."""
    if is_number:
        return -inf if low is None else float(low), inf if high is None else float(high)
    return low or "", _LAST_TEXT if high is None else high
