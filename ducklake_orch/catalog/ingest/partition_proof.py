"""Prove which partition an existing Parquet file belongs to: by its statistics, else by reading the key columns.

A partition value in the path is compared with the proof, never trusted. Only for a column that the file does not have
is the path the source of the value.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import duckdb

from ducklake_orch.catalog.ingest.column_matching import Match
from ducklake_orch.catalog.metadata import (
    ColumnDef,
    TableDef,
    duckdb_type,
    meant,
    path_folders,
    path_value,
    stored_name,
)
from ducklake_orch.catalog.parquet import FileColumn, Footer, LeafStats, PartitionKey, key_sql, partition_keys, renamed
from ducklake_orch.engine.quoting import file_literals, folded, identifier, literal

# Statistics do not reveal NaN, and the bounds of blobs are hexadecimal digits.
_UNPROVED = ("float32", "float64", "blob")


@dataclass
class Candidate:
    """A file to add to the table.

    Attributes:
        match: How its columns fit those of the table.
        stats: Statistics by column id.
        constants: Values of columns that the file does not have, by column id: from its path, or the default.
        values: The values of its partition.
        misplaced: Why it belongs to no partition.
        misfits: What in its rows the table does not accept.
    """

    footer: Footer
    match: Match
    stats: Mapping[int, LeafStats]
    constants: dict[int, str | None] = field(default_factory=dict)
    values: tuple[str | None, ...] = ()
    misplaced: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Span:
    """The values of a partition key in a file, as text: the least, the greatest, and whether NULLs occur as well."""

    low: str | None
    high: str | None
    nulls: bool = False

    @property
    def single(self) -> bool:
        """Whether all rows are in one partition."""
        return self.low == self.high and not self.nulls

    def __str__(self) -> str:
        values = [self.low, *([self.high] if self.high != self.low else []), *([None] if self.nulls else [])]
        return " and ".join(map(_text, values))


def _text(value: str | None) -> str:
    return "NULL" if value is None else f"`{value}`"


def assign_partitions(con: duckdb.DuckDBPyConnection, table: TableDef, files: Sequence[Candidate]) -> None:
    """Find the partition of each file, or record its problems, including NULLs in columns that allow none.

    Args:
        con: A connection outside the lake that has the storage's secrets.
        table: The table.
        files: Files whose columns fit in the same way.
    """
    keys = partition_keys(table)
    spans = [_proved(con, key, files) for key in keys]
    required = [column for column in table.columns if not column.nullable]
    unread = [
        file
        for file in files
        if any(file.footer.path not in known for known in spans)
        or any(_may_be_null(column, file) for column in required)
    ]
    if unread:
        _read(con, keys, required, unread, spans)
    path_values = [_path_values(con, table, key, files) for key in keys]
    for file in files:
        path = file.footer.path
        file_spans = [known[path] for known in spans]
        file.misplaced += [
            problem
            for key, span, texts in zip(keys, file_spans, path_values, strict=True)
            if (problem := _problem(key, span, texts.get(path, span.low)))
        ]
        file.values = tuple(span.low for span in file_spans)


def _problem(key: PartitionKey, span: Span, in_path: str | None) -> str | None:
    if not span.single:
        return f"it has rows of several partitions: {_shown(key)} is {span}"
    if in_path != span.low and not _is_cut(key, span.low, in_path):
        return f"its path says that {_shown(key)} is {_text(in_path)}, its rows have {_text(span.low)}"
    return None


def _is_cut(key: PartitionKey, value: str | None, in_path: str | None) -> bool:
    """Return whether the text in a path is what is left of a value that is too long for a folder's name."""
    if value is None or in_path is None:
        return False
    return key.folder_of(quote(value, safe="")) == key.folder_of(quote(in_path, safe=""))


def _shown(key: PartitionKey) -> str:
    transform, _, count = key.field.transform.partition("(")
    if key.is_identity:
        return f"`{key.column.name}`"
    return f"`{transform}({count.rstrip(')') + ', ' if count else ''}{key.column.name})`"


def _may_be_null(column: ColumnDef, file: Candidate) -> bool:
    known = file.stats.get(column.column_id)
    # Absent columns were checked when the columns were matched.
    return column.column_id in file.match.columns and (known is None or known.stats.null_count != 0)


# --- what statistics prove ---------------------------------------------------------------------------------------


def _proved(con: duckdb.DuckDBPyConnection, key: PartitionKey, files: Iterable[Candidate]) -> dict[str, Span]:
    """Return what is known about a key without reading the files, by path."""
    spans: dict[str, Span] = {}
    bounds: dict[str, tuple[str, str]] = {}
    for file in files:
        path, column_id = file.footer.path, key.column.column_id
        if column_id in file.constants:
            text = file.constants[column_id]
            if text is None:
                spans[path] = Span(None, None)
            else:
                bounds[path] = (text, text)
        elif (known := file.stats.get(column_id)) is not None:
            stats, provable = known.stats, known.exact and key.column.type not in _UNPROVED
            if stats.value_count == 0 and stats.null_count:
                spans[path] = Span(None, None)
            elif provable and stats.null_count == 0 and stats.min_value is not None and stats.max_value is not None:
                bounds[path] = (stats.min_value, stats.max_value)
    answers = _apply(con, key, set(bounds.values()))
    return spans | {path: answers[pair] for path, pair in bounds.items() if pair in answers}


def _apply(
    con: duckdb.DuckDBPyConnection, key: PartitionKey, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str], Span]:
    """Return the keys of rows whose least and greatest values are known, if these prove one key or several."""
    kind, transform = duckdb_type(key.column), key.field.transform
    if not pairs:
        return {}
    ordered = sorted(pairs)
    rows = ", ".join(f"({n}, {literal(low)}, {literal(high)})" for n, (low, high) in enumerate(ordered))
    typed = ", ".join(f"TRY_CAST({side} AS {kind}) AS {side}" for side in ("low", "high"))
    same = "low = high"
    if not (key.is_identity or transform.startswith("bucket(")):
        # `month` is the same for March of two years, with other months in between: both bounds must be in one period.
        same = f"date_trunc({literal(transform)}, low) = date_trunc({literal(transform)}, high)"
    low, high = (f"CAST({key_sql(transform, side, kind)} AS VARCHAR)" for side in ("low", "high"))
    sql = f"SELECT n, {low}, {high}, {same} FROM (SELECT n, {typed} FROM (VALUES {rows}) AS v(n, low, high))"
    return {
        ordered[n]: Span(first, last) for n, first, last, alike in con.execute(sql).fetchall() if alike or first != last
    }


# --- what the rows say -------------------------------------------------------------------------------------------


def _read(
    con: duckdb.DuckDBPyConnection,
    keys: Sequence[PartitionKey],
    required: Sequence[ColumnDef],
    files: Sequence[Candidate],
    spans: Sequence[dict[str, Span]],
) -> None:
    """Read the key columns and the columns that allow no NULL, and record what they hold."""
    columns = files[0].match.columns
    read_keys = [(n, key) for n, key in enumerate(keys) if key.column.column_id in columns]
    read_columns = [column for column in required if column.column_id in columns]
    inner = [
        f"{key_sql(key.field.transform, _cast(key.column, columns), duckdb_type(key.column))} AS k{n}"
        for n, key in read_keys
    ]
    inner += [f"{_column(column, columns)} AS c{n}" for n, column in enumerate(read_columns)]
    outer = [f"CAST(min(k{n}) AS VARCHAR), CAST(max(k{n}) AS VARCHAR), count(k{n})" for n, _ in read_keys]
    outer += [f"count(c{n})" for n in range(len(read_columns))]
    paths = file_literals(file.footer.path for file in files)
    rows = f"read_parquet([{paths}], hive_partitioning = false) AS {renamed(files[0].match.found)}"
    rows = f"SELECT filename, {', '.join(inner)} FROM {rows}"
    sql = f"SELECT filename, count(*), {', '.join(outer)} FROM ({rows}) GROUP BY 1"
    by_path = {file.footer.path: file for file in files}
    for path, count, *values in con.execute(sql).fetchall():
        answers = iter(values)
        for n, _ in read_keys:
            low, high, present = next(answers), next(answers), next(answers)
            spans[n].setdefault(path, Span(low, high, 0 < present < count))
        for column, present in zip(read_columns, answers, strict=True):
            if present < count:
                nulls = f"column `{column.name}`: {count - present} rows are NULL, but the column is NOT NULL"
                by_path[path].misfits.append(nulls)


def _cast(column: ColumnDef, columns: Mapping[int, FileColumn]) -> str:
    return f"CAST({_column(column, columns)} AS {duckdb_type(column)})"


def _column(column: ColumnDef, columns: Mapping[int, FileColumn]) -> str:
    return identifier(stored_name(columns[column.column_id].name))


# --- what the path says ------------------------------------------------------------------------------------------


def _path_values(
    con: duckdb.DuckDBPyConnection, table: TableDef, key: PartitionKey, files: Iterable[Candidate]
) -> dict[str, str | None]:
    """Return the key's values in the folders below the table's own, in the catalog's text form, by path."""
    texts: dict[str, str | None] = {}
    for file in files:
        path = file.footer.path
        folders = {meant(name): text for name, text in path_folders(path.removeprefix(table.folder))}
        if (name := folded(key.folder)) in folders and key.column.column_id in file.match.columns:
            texts[path] = path_value(folders[name], key.column if key.is_identity else None)
    kind = duckdb_type(key.column) if key.is_identity else "BIGINT"
    form = canonical_texts(con, kind, {text for text in texts.values() if text is not None})
    return {path: None if text is None else form[text] or text for path, text in texts.items()}


def canonical_texts(con: duckdb.DuckDBPyConnection, kind: str, texts: Collection[str]) -> dict[str, str | None]:
    """Return each text in the form in which the catalog stores partition values; None if it is no value of the type."""
    if not texts:
        return {}
    rows = ", ".join(f"({literal(text)})" for text in sorted(texts))
    sql = f"SELECT t, CAST(TRY_CAST(t AS {kind}) AS VARCHAR) FROM (VALUES {rows}) AS v(t)"
    return {str(text): form for text, form in con.execute(sql).fetchall()}
