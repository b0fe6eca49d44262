"""Read the footers of Parquet files: their columns, and their statistics in the text form of the catalog.

The entry point is `read_footers`. It reads footers in parallel, a few hundred at a time, into a temporary table. DuckDB
sums up the row groups there and compares bounds as values of their type, not as text. The lake's catalog is not read.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, ColumnStats, duckdb_type
from ducklake_orch.catalog.parquet.file_schema import FileColumn, file_columns
from ducklake_orch.catalog.parquet.geometry_bounds import geometry_stats
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import file_literals
from ducklake_orch.errors import AuthenticationError, DuckLakeOrchError, FileNotUsableError, TransientError

# Footers in one lot. Some footers have thousands of row groups, and several lots are in memory at once.
_FILES_AT_ONCE = 250
# The number of lots to read ahead while another lot is processed.
_LOTS_AHEAD = 4
# The number of files to name in an error; more would not be read.
_FILES_NAMED = 20
# The maximum length of a bound in the catalog; the engine truncates longer ones. A byte of a blob has two digits.
_CUT_TO = {"varchar": 256, "json": 256, "blob": 512}
# If the footer does not say whether a bound is exact, a shorter bound is: no writer truncates to less than this.
_SURELY_WHOLE = 64
# The old pair of bounds (`min`, `max`) is valid only for types that compare as signed numbers. For all other types,
# writers compared in the wrong order.
_SIGNED = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP")
# Types whose bounds the engine does not keep.
_UNBOUND = ("HUGEINT", "UHUGEINT", "TIME WITH TIME ZONE", "INTERVAL", "GEOMETRY", "VARIANT")


@dataclass(frozen=True, slots=True)
class LeafStats:
    """Statistics of a column in a file.

    Attributes:
        stats: The statistics, in the form of the catalog.
        exact: Whether the bounds are values of the file, not values beyond them.
    """

    stats: ColumnStats
    exact: bool


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file, without its columns."""

    path: str
    record_count: int
    file_size: int
    footer_size: int


@dataclass(frozen=True)
class Shape:
    """Files with the same columns; their statistics are available until the next shape is read."""

    columns: tuple[FileColumn, ...]
    files: tuple[Footer, ...]
    _con: duckdb.DuckDBPyConnection
    _shape_id: int

    def statistics(self, leaves: Mapping[int, tuple[FileColumn, ColumnDef]]) -> dict[str, dict[int, LeafStats]]:
        """Return the statistics of each file, by path and then by the id of the table's column.

        Args:
            leaves: The file's columns that hold values with the table's columns that they are read as, by their number
                in the file.
        """
        pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for leaf, (column, target) in leaves.items():
            kind = "INT96" if column.physical == "INT96" else column.type
            pairs[kind, duckdb_type(target)].append(leaf)
        by_path: dict[str, dict[int, LeafStats]] = {footer.path: {} for footer in self.files}
        for (source, target_type), numbers in pairs.items():
            for path, leaf, *values in self._con.execute(self._sum_sql(source, target_type, numbers)).fetchall():
                by_path[path][leaves[leaf][1].column_id] = _leaf_stats(leaves[leaf][1], values)
        return by_path

    def _sum_sql(self, source: str, target: str, leaves: Sequence[int]) -> str:
        low, high = _merge_sql("low", "min", source, target), _merge_sql("high", "max", source, target)
        counted = "bool_and(coalesce(c.nulls BETWEEN 0 AND c.vals, false))"
        return f"""
            SELECT path, c.leaf, sum(c.bytes)::BIGINT,
                   CASE WHEN {counted} THEN (sum(c.vals) - sum(c.nulls))::BIGINT END,
                   CASE WHEN {counted} THEN sum(c.nulls)::BIGINT END,
                   {low}, {high},
                   bool_and(coalesce(c.exact, octet_length(encode(c.high)) < {_SURELY_WHOLE}, true)),
                   list(c.box), list(c.kinds)
            FROM (SELECT path, unnest(chunks) AS c FROM footers WHERE shape_id = {self._shape_id})
            WHERE c.leaf IN ({", ".join(map(str, leaves))}) GROUP BY path, c.leaf"""


def read_footers(con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]) -> Iterator[Shape]:
    """Read the footers of files, a few hundred at a time.

    Args:
        con: A connection that has not entered the lake and has the storage's secrets.
        config: The lake, for messages.
        paths: The paths of the files, each once.

    Yields:
        Files with the same columns. Get their statistics before reading the next item.

    Raises:
        FileNotUsableError: When some files cannot be read as Parquet; names them.
    """
    failed: dict[str, str] = {}
    for lot_con, unreadable in _loaded(con, config, paths):
        failed |= unreadable
        if not failed:
            yield from _shapes(lot_con)
        elif len(failed) >= _FILES_NAMED:
            break
    if failed:
        raise _not_usable(failed)


def _loaded(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, dict[str, str]]]:
    """Load footers in lots, some lots ahead; each lot has a connection, whose temporary table ends with it."""
    lots = iter([paths[start : start + _FILES_AT_ONCE] for start in range(0, len(paths), _FILES_AT_ONCE)])
    with ExitStack() as opened, ThreadPoolExecutor(_LOTS_AHEAD) as pool:
        loading: deque[tuple[duckdb.DuckDBPyConnection, Future[dict[str, str]]]] = deque()

        def begin(count: int) -> None:
            for lot in islice(lots, count):
                lot_con = con.cursor()
                opened.callback(lot_con.close)
                loading.append((lot_con, pool.submit(_load, lot_con, config, lot)))

        begin(_LOTS_AHEAD)
        while loading:
            lot_con, load = loading.popleft()
            unreadable = load.result()
            begin(1)
            yield lot_con, unreadable
            lot_con.close()


def _load(con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]) -> dict[str, str]:
    """Read footers into the temporary table; return, by path, why files cannot be read."""
    try:
        con.execute(_LOAD.format(paths=file_literals(paths)))
        return {}
    except duckdb.Error as error:
        failure = classify(error, config, "Reading Parquet footers failed")
    if isinstance(failure, TransientError | AuthenticationError):
        raise failure
    if len(paths) == 1:
        return {paths[0]: _reason(failure)}
    middle = len(paths) // 2
    failed: dict[str, str] = {}
    for half in (paths[:middle], paths[middle:]):
        if len(failed) < _FILES_NAMED:
            failed |= _load(con, config, half)
    return failed


def _reason(failure: DuckLakeOrchError) -> str:
    text = failure.message
    for pattern, reason in _REASONS.items():
        if pattern in text:
            return reason
    return text.removeprefix("Reading Parquet footers failed: ").splitlines()[0]


def _not_usable(failed: Mapping[str, str]) -> FileNotUsableError:
    named = list(failed.items())[:_FILES_NAMED]
    lines = [f"  {path}: {reason}" for path, reason in named]
    ending = "\n  and possibly more" if len(failed) >= _FILES_NAMED else ""
    count = "One file" if len(failed) == 1 else f"{len(named)} files"
    text = f"{count} cannot be read as Parquet:\n" + "\n".join(lines) + ending
    return FileNotUsableError(text, remedy="Nothing was added. Write the files again, or leave them out.")


def _shapes(con: duckdb.DuckDBPyConnection) -> Iterator[Shape]:
    rows = con.execute(
        "SELECT shape_id, any_value(columns), list(path ORDER BY n), list(record_count ORDER BY n),"
        " list(file_size ORDER BY n), list(footer_size ORDER BY n) FROM footers GROUP BY shape_id ORDER BY min(n)"
    ).fetchall()
    for shape_id, schema, *lists in rows:
        files = tuple(Footer(*values) for values in zip(*lists, strict=True))
        yield Shape(file_columns(schema), files, con, shape_id)


def _merge_sql(side: str, pick: str, source: str, target: str) -> str:
    """Return the SQL of a file's bound as text; it is NULL unless every row group with values has the bound."""
    value = _bound_sql(side, source, target)
    complete = f"bool_and({value} IS NOT NULL OR coalesce(c.nulls = c.vals, false))"
    return f"CASE WHEN {complete} THEN {_text_sql(f'{pick}({value})', target)} END"


def _bound_sql(side: str, source: str, target: str) -> str:
    """Return the SQL of a bound of a row group, as a value of the table's type."""
    if target in _UNBOUND or source == "INT96":
        return f"NULL::{'BLOB' if target == 'BLOB' else 'VARCHAR'}"
    text = f"c.{side}"
    if source.startswith(_SIGNED):
        text = f"coalesce({text}, c.old_{side})"
    if source in ("VARCHAR", "JSON"):
        # If a bound was truncated inside a character, DuckDB shows its bytes as escapes, which sort differently.
        return rf"CASE WHEN NOT regexp_matches({text}, '\\x[0-9A-F]{{2}}') THEN {text} END"
    value = f"TRY_CAST({text} AS {source})"
    return value if source == target else f"TRY_CAST({value} AS {target})"


def constant_stats(column: ColumnDef, rows: int, text: str | None) -> ColumnStats:
    """Return the statistics of a column that the file lacks and that has the same value in all rows.

    Args:
        column: The column.
        rows: The number of rows in the file.
        text: The value, in the text form of partition values in the catalog; None for NULL.
    """
    if text is None:
        return ColumnStats(0, 0, rows)
    nan = text.lower() == "nan" if column.type in ("float32", "float64") else None
    bound = {"true": "1", "false": "0"}.get(text, text) if column.type == "boolean" else text
    if nan or column.type == "blob" or duckdb_type(column) in _UNBOUND or _is_long(bound, _CUT_TO["varchar"]):
        return ColumnStats(0, rows, 0, contains_nan=nan)
    return ColumnStats(0, rows, 0, bound, bound, nan)


def _text_sql(value: str, target: str) -> str:
    """Return the SQL of a bound as text, in the engine's form."""
    if target == "BLOB":
        return f"hex({value})"
    return f"CAST({f'CAST({value} AS INTEGER)' if target == 'BOOLEAN' else value} AS VARCHAR)"


def _leaf_stats(column: ColumnDef, values: Sequence[Any]) -> LeafStats:
    size, count, nulls, low, high, exact, boxes, kinds = values
    limit = _CUT_TO.get(column.type)
    cut = limit is not None and any(bound is not None and _is_long(bound, limit) for bound in (low, high))
    if limit is not None and cut:
        low, high = _floor(low, limit), _ceiling(high, limit)
    extra = geometry_stats(boxes, kinds) if column.type == "geometry" else None
    stats = ColumnStats(size, count, nulls, low, high, None, extra)
    return LeafStats(stats, exact and not cut and low is not None and high is not None)


def _is_long(text: str, limit: int) -> bool:
    return len(text) > limit // 4 and len(text.encode()) > limit


def _floor(text: str | None, limit: int) -> str | None:
    """Return a text that is not longer than `limit` bytes and sorts at or before the given one."""
    return None if text is None else text.encode()[:limit].decode(errors="ignore")


def _ceiling(text: str | None, limit: int) -> str | None:
    """Return a text that is not longer than `limit` bytes and sorts at or after the given one; None if not simple."""
    if text is None or not _is_long(text, limit):
        return text
    cut = text.encode()[:limit].decode(errors="ignore")
    return cut[:-1] + chr(ord(cut[-1]) + 1) if cut[-1] < "\x7f" else None


# The reasons that we report, by words in the engine's errors.
_REASONS = {
    "No files found that match": "the file does not exist",
    "HTTP 404": "the file does not exist",
    "too small to be a Parquet file": "too small to be a Parquet file",
    "No magic bytes found": "not a Parquet file, or truncated",
    "is encrypted": "encrypted",
    "TProtocolException": "its footer is corrupt",
}

_LOAD = """
CREATE OR REPLACE TEMP TABLE footers AS
SELECT row_number() OVER () AS n, dense_rank() OVER (ORDER BY columns) AS shape_id, *
FROM (
    SELECT f.file_name AS path, f.num_rows AS record_count, f.file_size_bytes::BIGINT AS file_size,
           f.footer_size::BIGINT AS footer_size,
           list_transform(parquet_schema, lambda s: {{
               name: s.name, type: s.type, repetition_type: s.repetition_type, num_children: s.num_children,
               converted_type: s.converted_type, logical_type: s.logical_type, field_id: s.field_id,
               duckdb_type: s.duckdb_type}}) AS columns,
           list_transform(parquet_metadata, lambda m: {{
               leaf: m.column_id, bytes: m.total_compressed_size, vals: m.num_values, nulls: m.stats_null_count,
               low: m.stats_min_value, high: m.stats_max_value, old_low: m.stats_min, old_high: m.stats_max,
               exact: m.min_is_exact AND m.max_is_exact, box: m.geo_bbox, kinds: m.geo_types}}) AS chunks
    FROM (SELECT parquet_file_metadata[1] AS f, parquet_schema, parquet_metadata
          FROM parquet_full_metadata([{paths}])))
"""
