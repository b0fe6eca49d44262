"""Read the footers of Parquet files: what columns they have, and statistics in the catalog's own text form.

They are read in parallel, some hundred at a time into a temporary table of the engine's, which sums their row groups up
there: values are compared as what they are, never as text. Nothing is read of the lake.
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
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import AuthenticationError, DuckLakeOrchError, FileNotUsableError, TransientError

# Footers in one lot; some have thousands of row groups, and several lots are in memory at once.
_FILES_AT_ONCE = 250
# Lots of that size that are read while another one is looked at.
_LOTS_AHEAD = 4
# An error names no more files than a person reads.
_FILES_NAMED = 20
# The bytes of a longer bound that go into the catalog, as the engine cuts it; those of a blob are two digits each.
_CUT_TO = {"varchar": 256, "json": 256, "blob": 512}
# Without a word about it in the footer, a bound that is shorter was not cut: nobody cuts shorter.
_SURELY_WHOLE = 64
# The old pair of bounds is good for what is compared as a signed number; the rest was compared in the wrong order.
_SIGNED = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP")
# Types whose bounds the engine does not keep.
_UNBOUND = ("HUGEINT", "UHUGEINT", "TIME WITH TIME ZONE", "INTERVAL", "GEOMETRY", "VARIANT")


@dataclass(frozen=True, slots=True)
class LeafStats:
    """Statistics of a column in a file.

    Attributes:
        stats: As the catalog holds them.
        exact: Whether the bounds are values of the file, and not somewhere beyond them.
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
    """Files whose columns are the same, and a way to ask for their statistics while they are at hand."""

    columns: tuple[FileColumn, ...]
    files: tuple[Footer, ...]
    _con: duckdb.DuckDBPyConnection
    _shape_id: int

    def statistics(self, leaves: Mapping[int, tuple[FileColumn, ColumnDef]]) -> dict[str, dict[int, LeafStats]]:
        """Return the statistics of each file by the ids of the table's columns.

        Args:
            leaves: What the columns that hold values are to the table, by their number in the file.
        """
        pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for leaf, (column, target) in leaves.items():
            kind = "INT96" if column.physical == "INT96" else column.type
            pairs[kind, duckdb_type(target)].append(leaf)
        found: dict[str, dict[int, LeafStats]] = {footer.path: {} for footer in self.files}
        for (source, target_type), numbers in pairs.items():
            for path, leaf, *values in self._con.execute(self._sum_sql(source, target_type, numbers)).fetchall():
                found[path][leaves[leaf][1].column_id] = _leaf_stats(leaves[leaf][1], values)
        return found

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
        con: A connection that is not in the lake, and knows the storage's secrets.
        config: The lake, for messages.
        paths: The files; each of them once.

    Yields:
        Files with the same columns; ask for their statistics before you ask for the next.

    Raises:
        FileNotUsableError: When some are no Parquet files; names them.
    """
    bad: dict[str, str] = {}
    for own, found in _loaded(con, config, paths):
        bad |= found
        if not bad:
            yield from _shapes(own)
        elif len(bad) >= _FILES_NAMED:
            break
    if bad:
        raise _not_usable(bad)


def _loaded(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, dict[str, str]]]:
    """Load footers, some lots ahead of what is looked at; each has a connection, and what it holds ends with that."""
    lots = iter([paths[start : start + _FILES_AT_ONCE] for start in range(0, len(paths), _FILES_AT_ONCE)])
    with ExitStack() as opened, ThreadPoolExecutor(_LOTS_AHEAD) as pool:
        loading: deque[tuple[duckdb.DuckDBPyConnection, Future[dict[str, str]]]] = deque()

        def begin(count: int) -> None:
            for lot in islice(lots, count):
                own = con.cursor()
                opened.callback(own.close)
                loading.append((own, pool.submit(_load, own, config, lot)))

        begin(_LOTS_AHEAD)
        while loading:
            own, load = loading.popleft()
            found = load.result()
            begin(1)
            yield own, found
            own.close()


def _load(con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]) -> dict[str, str]:
    """Read footers into the temporary table; return what is wrong with those that cannot be read."""
    try:
        con.execute(_LOAD.format(paths=", ".join(literal(exactly(path)) for path in paths)))
        return {}
    except duckdb.Error as error:
        failure = classify(error, config, "Reading Parquet footers failed")
    if isinstance(failure, TransientError | AuthenticationError):
        raise failure
    if len(paths) == 1:
        return {paths[0]: _reason(failure)}
    middle = len(paths) // 2
    bad: dict[str, str] = {}
    for half in (paths[:middle], paths[middle:]):
        if len(bad) < _FILES_NAMED:
            bad |= _load(con, config, half)
    return bad


def _reason(failure: DuckLakeOrchError) -> str:
    text = failure.message
    for words, reason in _REASONS.items():
        if words in text:
            return reason
    return text.removeprefix("Reading Parquet footers failed: ").splitlines()[0]


def _not_usable(bad: Mapping[str, str]) -> FileNotUsableError:
    named = list(bad.items())[:_FILES_NAMED]
    lines = [f"  {path}: {reason}" for path, reason in named]
    more = "\n  and perhaps more" if len(bad) >= _FILES_NAMED else ""
    count = "One file" if len(bad) == 1 else f"{len(named)} files"
    text = f"{count} cannot be read as Parquet:\n" + "\n".join(lines) + more
    return FileNotUsableError(text, remedy="Nothing was added. Write them again, or leave them out.")


def _shapes(con: duckdb.DuckDBPyConnection) -> Iterator[Shape]:
    rows = con.execute(
        "SELECT shape_id, any_value(columns), list(path ORDER BY n), list(record_count ORDER BY n),"
        " list(file_size ORDER BY n), list(footer_size ORDER BY n) FROM footers GROUP BY shape_id ORDER BY min(n)"
    ).fetchall()
    for shape_id, schema, *lists in rows:
        files = tuple(Footer(*values) for values in zip(*lists, strict=True))
        yield Shape(file_columns(schema), files, con, shape_id)


def _merge_sql(side: str, pick: str, source: str, target: str) -> str:
    """Return a bound of a file, as text: known when every row group that has values has it."""
    value = _bound_sql(side, source, target)
    known = f"bool_and({value} IS NOT NULL OR coalesce(c.nulls = c.vals, false))"
    return f"CASE WHEN {known} THEN {_text_sql(f'{pick}({value})', target)} END"


def _bound_sql(side: str, source: str, target: str) -> str:
    """Return one of the bounds of a row group as a value of the table's type."""
    if target in _UNBOUND or source == "INT96":
        return f"NULL::{'BLOB' if target == 'BLOB' else 'VARCHAR'}"
    text = f"c.{side}"
    if source.startswith(_SIGNED):
        text = f"coalesce({text}, c.old_{side})"
    if source in ("VARCHAR", "JSON"):
        # Where a bound was cut inside a character, the engine shows bytes instead, which sort somewhere else.
        return rf"CASE WHEN NOT regexp_matches({text}, '\\x[0-9A-F]{{2}}') THEN {text} END"
    value = f"TRY_CAST({text} AS {source})"
    return value if source == target else f"TRY_CAST({value} AS {target})"


def constant_stats(column: ColumnDef, rows: int, text: str | None) -> ColumnStats:
    """Return the statistics of a column that has the same value in all rows and no place in the file.

    Args:
        column: The column.
        rows: Of the file.
        text: The value, as the catalog writes that of a partition.
    """
    if text is None:
        return ColumnStats(0, 0, rows)
    nan = text.lower() == "nan" if column.type in ("float32", "float64") else None
    bound = {"true": "1", "false": "0"}.get(text, text) if column.type == "boolean" else text
    if nan or column.type == "blob" or duckdb_type(column) in _UNBOUND or _is_long(bound, _CUT_TO["varchar"]):
        return ColumnStats(0, rows, 0, contains_nan=nan)
    return ColumnStats(0, rows, 0, bound, bound, nan)


def _text_sql(value: str, target: str) -> str:
    """Return a bound as the engine writes it."""
    if target == "BLOB":
        return f"hex({value})"
    return f"CAST({f'CAST({value} AS INTEGER)' if target == 'BOOLEAN' else value} AS VARCHAR)"


def _leaf_stats(column: ColumnDef, values: Sequence[Any]) -> LeafStats:
    size, count, nulls, low, high, exact, boxes, kinds = values
    limit = _CUT_TO.get(column.type)
    cut = limit is not None and any(one is not None and _is_long(one, limit) for one in (low, high))
    if limit is not None and cut:
        low, high = _floor(low, limit), _ceiling(high, limit)
    extra = geometry_stats(boxes, kinds) if column.type == "geometry" else None
    stats = ColumnStats(size, count, nulls, low, high, None, extra)
    return LeafStats(stats, exact and not cut and low is not None and high is not None)


def _is_long(text: str, limit: int) -> bool:
    return len(text) > limit // 4 and len(text.encode()) > limit


def _floor(text: str | None, limit: int) -> str | None:
    """Return a text that is no longer than a bound may be, and not above."""
    return None if text is None else text.encode()[:limit].decode(errors="ignore")


def _ceiling(text: str | None, limit: int) -> str | None:
    """Return a text that is no longer than a bound may be, and not below, where that is simple."""
    if text is None or not _is_long(text, limit):
        return text
    cut = text.encode()[:limit].decode(errors="ignore")
    return cut[:-1] + chr(ord(cut[-1]) + 1) if cut[-1] < "\x7f" else None


# Engine's words for files that are not Parquet, in ours.
_REASONS = {
    "No files found that match": "there is no such file",
    "HTTP 404": "there is no such file",
    "too small to be a Parquet file": "too small to be a Parquet file",
    "No magic bytes found": "no Parquet file, or cut off",
    "is encrypted": "encrypted",
    "TProtocolException": "its footer is damaged",
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
