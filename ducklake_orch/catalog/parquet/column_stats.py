"""Sum up bounds and counts of columns over files, and widen the table's own statistics to cover them.

If the table's statistics exclude a value, the engine answers queries from them alone. So they may be too wide, but
never too narrow. For the engine, a missing bound means that there are no values yet, and its next insert stores its own
bound. So a column with unknown bounds has no statistics in the table at all; the engine then adds none.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, ColumnStats, NewFile, Relation, duckdb_type
from ducklake_orch.catalog.parquet.variant_bounds import sum_variants
from ducklake_orch.engine.quoting import literal


@dataclass(frozen=True, slots=True)
class TableColumnStats:
    """The statistics of a column of a whole table.

    Attributes:
        contains_null: Whether the column has NULLs; None if it is unknown.
        contains_nan: Whether the column has NaNs; None if it is unknown or the type has none.
        min_value: The lower bound, as text.
        max_value: The upper bound, as text.
        extra: Further statistics of a geometry or a variant, as JSON.
        known: Whether the bounds are known; if so, missing bounds mean that there are no values.
    """

    contains_null: bool | None = None
    contains_nan: bool | None = None
    min_value: str | None = None
    max_value: str | None = None
    extra: str | None = None
    known: bool = True


_STATS = "__ducklake_orch_stats"
# Types for which the catalog has no bounds.
_UNBOUNDED = ("INTERVAL", "TIME WITH TIME ZONE", "HUGEINT", "UHUGEINT", "GEOMETRY", "VARIANT")
FILE_STATS = {
    "ordinal": "BIGINT",
    "column_id": "BIGINT",
    "column_size_bytes": "BIGINT",
    "value_count": "BIGINT",
    "null_count": "BIGINT",
    "min_value": "VARCHAR",
    "max_value": "VARCHAR",
    "contains_nan": "BOOLEAN",
    "extra_stats": "VARCHAR",
}


def file_stats(files: Sequence[NewFile]) -> Relation:
    """Return the statistics of new files as rows; `ordinal` numbers the files."""
    return Relation.of(
        FILE_STATS,
        [
            (n, column_id, s.size_bytes, s.value_count, s.null_count, *_bounds(s), s.contains_nan, s.extra)
            for n, file in enumerate(files)
            for column_id, s in file.stats.items()
        ],
    )


def _bounds(stats: ColumnStats) -> tuple[str | None, str | None]:
    # No catalog accepts a NUL character in a text.
    return tuple(None if bound is not None and "\0" in bound else bound for bound in (stats.min_value, stats.max_value))  # type: ignore[return-value]


def summarize(
    con: duckdb.DuckDBPyConnection, leaves: Mapping[int, ColumnDef], files: Sequence[NewFile], stats: Relation
) -> dict[int, TableColumnStats]:
    """Sum up the statistics of new files by column; this runs before the lake's lock is taken."""
    if not stats:
        return {column_id: _unknown(leaf) for column_id, leaf in leaves.items()}
    if len(files) == 1:  # most commits have one file; without bounds to compare, no query is needed
        return {column_id: _of_one(con, leaf, files[0].stats.get(column_id)) for column_id, leaf in leaves.items()}
    by_type: dict[str, list[int]] = defaultdict(list)
    for column_id, leaf in leaves.items():
        by_type[duckdb_type(leaf)].append(column_id)
    with stats.source(con) as source:
        parts = [_sum_sql(kind, ids, len(files)) for kind, ids in by_type.items()]
        sql = f"WITH {_STATS} AS MATERIALIZED (SELECT * FROM {source}) {' UNION ALL '.join(parts)}"
        rows = {int(row[0]): row[1:] for row in con.execute(sql).fetchall()}
    summaries = {}
    for column_id, leaf in leaves.items():
        if column_id not in rows:
            summaries[column_id] = _unknown(leaf)
            continue
        nulls, nan, low, high, complete = rows[column_id]
        summaries[column_id] = TableColumnStats(
            bool(nulls) or not complete,
            # If a file's statistics do not say whether there is a NaN, there may be one.
            (bool(nan) or not complete) if leaf.type in ("float32", "float64") else None,
            low if complete else None,
            high if complete else None,
            _sum_extra(con, leaf, [file.stats[column_id].extra if column_id in file.stats else None for file in files]),
            bool(complete),
        )
    return summaries


def _of_one(con: duckdb.DuckDBPyConnection, leaf: ColumnDef, stats: ColumnStats | None) -> TableColumnStats:
    """Return the summary of a single file; the result is the same as that of `_sum_sql` for one row."""
    if stats is None:
        return _unknown(leaf)
    low, high = _bounds(stats)
    ordered = duckdb_type(leaf) not in _UNBOUNDED
    nothing = (stats.value_count == 0 and (stats.null_count or 0) > 0) or (
        stats.contains_nan is True and low is None and high is None
    )
    complete = not ordered or nothing or (low is not None and high is not None)
    return TableColumnStats(
        stats.null_count is None or stats.null_count > 0 or not complete,
        (stats.contains_nan is not False or not complete) if leaf.type in ("float32", "float64") else None,
        low if ordered and complete else None,
        high if ordered and complete else None,
        _sum_extra(con, leaf, [stats.extra]),
        complete,
    )


def _sum_sql(kind: str, ids: Sequence[int], files: int) -> str:
    ordered = kind not in _UNBOUNDED
    low = f"arg_min(min_value, TRY_CAST(min_value AS {kind}))" if ordered else "NULL"
    high = f"arg_max(max_value, TRY_CAST(max_value AS {kind}))" if ordered else "NULL"
    fits = [f"TRY_CAST({name} AS {kind}) IS NOT NULL" for name in ("min_value", "max_value")] if ordered else []
    # A file's statistics are complete if it has bounds, or nothing to bound: only NULLs (`value_count` is 0) or only
    # NaNs. If both counts are 0, nothing was measured.
    nothing = "(value_count = 0 AND null_count > 0) OR (contains_nan AND min_value IS NULL AND max_value IS NULL)"
    complete = f"{' AND '.join([*fits, 'true'])} OR {nothing}"
    nan = "bool_or(coalesce(contains_nan, true))"
    return (
        f"SELECT column_id, bool_or(coalesce(null_count, 1) > 0), {nan}, {low}, {high},"
        f" bool_and(coalesce({complete}, false)) AND count(*) = {files}"
        f" FROM {_STATS} WHERE column_id IN ({', '.join(map(str, ids))}) GROUP BY column_id"
    )


def _unknown(leaf: ColumnDef) -> TableColumnStats:
    return TableColumnStats(True, True if leaf.type in ("float32", "float64") else None, known=False)


def widen(
    con: duckdb.DuckDBPyConnection,
    leaves: Mapping[int, ColumnDef],
    current: Mapping[int, TableColumnStats],
    added: Mapping[int, TableColumnStats],
) -> dict[int, TableColumnStats]:
    """Return the table's statistics that change when rows are added; a column without statistics gets none."""
    both = [column_id for column_id in current if column_id in added]
    bounds = _outer(con, leaves, [(column_id, current[column_id], added[column_id]) for column_id in both])
    changed = {}
    for column_id in both:
        old, new = current[column_id], added[column_id]
        extra = _sum_extra(con, leaves[column_id], [old.extra, new.extra])
        low, high, known = bounds[column_id]
        wider = TableColumnStats(
            contains_null=True if old.contains_null is None else old.contains_null or bool(new.contains_null),
            # If the old statistics do not say whether there is a NaN, there may be one.
            contains_nan=None if new.contains_nan is None else old.contains_nan is not False or new.contains_nan,
            min_value=low,
            max_value=high,
            extra=extra,
            known=known and (extra is not None or leaves[column_id].type not in ("geometry", "variant")),
        )
        if wider != old:
            changed[column_id] = wider
    return changed


def _outer(
    con: duckdb.DuckDBPyConnection,
    leaves: Mapping[int, ColumnDef],
    pairs: Sequence[tuple[int, TableColumnStats, TableColumnStats]],
) -> dict[int, tuple[str | None, str | None, bool]]:
    """Return the bounds that cover both sides of each pair, and whether they are known."""
    bounds: dict[int, tuple[str | None, str | None, bool]] = {}
    compared: list[tuple[int, TableColumnStats, TableColumnStats]] = []
    for column_id, old, new in pairs:
        ends = (old.min_value, old.max_value, new.min_value, new.max_value)
        if not new.known:
            bounds[column_id] = (None, None, False)
        elif new.min_value is None and new.max_value is None:
            bounds[column_id] = (old.min_value, old.max_value, True)
        elif any(end is None for end in ends):
            # Old statistics without bounds are ambiguous: there were no values, or values with bounds that the engine
            # did not know.
            bounds[column_id] = (None, None, False)
        else:
            compared.append((column_id, old, new))
    questions: list[str] = []
    for column_id, old, new in compared:
        kind = duckdb_type(leaves[column_id])
        questions.append(_is_less(new.min_value, old.min_value, kind))
        questions.append(_is_less(old.max_value, new.max_value, kind))
    answers = iter(con.execute(f"SELECT {', '.join(questions)}").fetchall()[0]) if questions else iter(())
    for column_id, old, new in compared:
        lower, higher = next(answers), next(answers)
        known = lower is not None and higher is not None
        low = new.min_value if lower else old.min_value
        high = new.max_value if higher else old.max_value
        bounds[column_id] = (low, high, True) if known else (None, None, False)
    return bounds


def _is_less(left: str | None, right: str | None, kind: str) -> str:
    return f"TRY_CAST({literal(left)} AS {kind}) < TRY_CAST({literal(right)} AS {kind})"


def _sum_extra(con: duckdb.DuckDBPyConnection, leaf: ColumnDef, texts: Sequence[str | None]) -> str | None:
    """Sum up the extra statistics of geometries or variants; None if those of one file are unknown."""
    if leaf.type not in ("geometry", "variant") or not texts or any(text is None for text in texts):
        return None
    parsed = [json.loads(text) for text in texts if text is not None]
    return json.dumps(_sum_geometries(parsed) if leaf.type == "geometry" else sum_variants(con, parsed))


def _sum_geometries(parsed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    boxes = [stats["bbox"] for stats in parsed]
    # An axis that no point has is null in all boxes.
    box = {
        axis: (min if axis.endswith("min") else max)(values)
        if (values := [other[axis] for other in boxes if other.get(axis) is not None])
        else None
        for axis in boxes[0]
    }
    return {"bbox": box, "types": sorted({kind for stats in parsed for kind in stats["types"]})}
