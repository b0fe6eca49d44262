"""Measure how well sorted tables are laid out: how many files hold a value of the first sort key."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ducklake_orch.catalog.metadata import live, text
from ducklake_orch.maintenance.census import Census

_NUMBERS = "^(u?int(8|16|32|64|128)|float(32|64)|decimal.*)$"
Bounds = tuple[Any, Any]


def overlaps(state: Census) -> dict[str, tuple[str, float]]:
    """Return, by table, the first sort key and the average number of files of a partition that share a value of it.

    1 is the best: no two files of a partition overlap. The bounds come from the catalog's statistics, in one query.
    Tables that are not sorted by a column are left out.
    """
    names = {table.table_id: str(table.name) for table in state.tables}
    partitions = {(table.table_id, file.file_id): file.group[1:] for table in state.tables for file in table.files}
    groups: dict[tuple[int, str], dict[Any, list[Bounds]]] = defaultdict(lambda: defaultdict(list))
    for table_id, file_id, key, is_number, *bounds in state.metadata.rows(_bounds_sql(state)):
        if (partition := partitions.get((int(table_id), int(file_id)))) is not None:
            low, high = map(float, bounds) if is_number else map(text, bounds)
            groups[int(table_id), text(key) or ""][partition].append((low, high))
    return {names[table_id]: (key, _depth([*found.values()])) for (table_id, key), found in groups.items()}


def _bounds_sql(state: Census) -> str:
    name, at = state.metadata.table_sql, state.latest.snapshot_id
    return f"""
        SELECT b.table_id, b.data_file_id, k.column_name, k.is_number, b.min_value, b.max_value
        FROM {name("ducklake_file_column_stats")} b JOIN (
            SELECT c.table_id, c.column_id, c.column_name,
                   regexp_matches(lower(c.column_type), '{_NUMBERS}') AS is_number
            FROM {name("ducklake_sort_info")} s JOIN {name("ducklake_sort_expression")} e USING (sort_id)
            JOIN {name("ducklake_column")} c
                 ON c.table_id = s.table_id AND lower(c.column_name) = lower(trim(e.expression::VARCHAR, '"'))
            WHERE e.sort_key_index = 0 AND c.parent_column IS NULL AND {live(at, "s")} AND {live(at, "c")}) k
        ON k.table_id = b.table_id AND k.column_id = b.column_id
        WHERE b.min_value IS NOT NULL AND b.max_value IS NOT NULL"""


def _depth(partitions: Sequence[Sequence[Bounds]]) -> float:
    """Return the average, over all files, of the number of files that overlap a file, itself included."""
    total = 0
    for files in partitions:
        lows, highs = sorted(low for low, _ in files), sorted(high for _, high in files)
        total += sum(bisect_right(lows, high) - bisect_left(highs, low) for low, high in files)
    return total / sum(map(len, partitions))
