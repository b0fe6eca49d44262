"""Prepare new files for the commit: all metadata rows and statistics that do not depend on the snapshot.

The entry point is `prepare_change`. It runs before the commit takes the lake's lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import duckdb

from ducklake_orch.catalog.commit.table_change import TableChange
from ducklake_orch.catalog.metadata import MappedName, NewFile, Relation, TableDef
from ducklake_orch.catalog.parquet import TableColumnStats, file_stats, summarize
from ducklake_orch.catalog.writing import InlinableRows

_FILES = {
    "ordinal": "BIGINT",
    "path": "VARCHAR",
    "path_is_relative": "BOOLEAN",
    "record_count": "BIGINT",
    "file_size_bytes": "BIGINT",
    "footer_size": "BIGINT",
    "first_row": "BIGINT",
    "mapping": "BIGINT",
    "encryption_key": "VARCHAR",
}
_VALUES = {"ordinal": "BIGINT", "partition_key_index": "BIGINT", "partition_value": "VARCHAR"}
_NAMES = {
    "mapping": "BIGINT",
    "column_id": "BIGINT",
    "source_name": "VARCHAR",
    "target_field_id": "BIGINT",
    "parent_column": "BIGINT",
    "is_partition": "BOOLEAN",
}
_VARIANTS = {
    "ordinal": "BIGINT",
    "column_id": "BIGINT",
    "variant_path": "VARCHAR",
    "shredded_type": "VARCHAR",
    "column_size_bytes": "BIGINT",
    "value_count": "BIGINT",
    "null_count": "BIGINT",
    "min_value": "VARCHAR",
    "max_value": "VARCHAR",
    "contains_nan": "BOOLEAN",
    "extra_stats": "VARCHAR",
}


@dataclass(frozen=True)
class PreparedFiles:
    """New files as rows for the metadata tables, numbered from 0, with their totals.

    Attributes:
        count: The number of files.
        rows: The number of rows in the files.
        new_rows: The number of these rows that get a row id from the commit.
        size: The size of the files in bytes.
        files: Rows for `ducklake_data_file`.
        values: Rows for `ducklake_file_partition_value`.
        stats: Rows for `ducklake_file_column_stats`.
        variants: Rows for `ducklake_file_variant_stats`.
        mappings: The number of different name mappings.
        names: Rows for `ducklake_name_mapping`.
        summary: The statistics of all files together, by column id.
    """

    count: int
    rows: int
    new_rows: int
    size: int
    files: Relation
    values: Relation
    stats: Relation
    variants: Relation
    mappings: int
    names: Relation
    summary: Mapping[int, TableColumnStats]


def prepare(con: duckdb.DuckDBPyConnection, table: TableDef, files: Sequence[NewFile]) -> PreparedFiles:
    """Prepare files for the commit.

    Args:
        con: Any DuckDB connection, to compare bounds.
        table: The table that the files were written for.
        files: The files.
    """
    # Files with equal name mappings share one mapping in the catalog.
    mappings: dict[tuple[MappedName, ...], int] = {}
    for file in files:
        if file.mapping is not None:
            mappings.setdefault(file.mapping, len(mappings))
    new_rows = [0 if file.has_row_ids else file.record_count for file in files]
    first_rows = accumulate(new_rows, initial=0)
    stats = file_stats(files)
    return PreparedFiles(
        count=len(files),
        rows=sum(file.record_count for file in files),
        new_rows=sum(new_rows),
        size=sum(file.file_size for file in files),
        files=Relation.of(
            _FILES,
            [
                (
                    n,
                    *stored_path(file.path, table.folder),
                    file.record_count,
                    file.file_size,
                    file.footer_size,
                    None if file.has_row_ids else first_row,
                    mappings[file.mapping] if file.mapping is not None else None,
                    file.encryption_key,
                )
                for (n, file), first_row in zip(enumerate(files), first_rows, strict=False)
            ],
        ),
        values=Relation.of(
            _VALUES,
            [(n, index, value) for n, file in enumerate(files) for index, value in enumerate(file.partition_values)],
        ),
        stats=stats,
        variants=Relation.of(
            _VARIANTS,
            [
                (
                    n,
                    variant.column_id,
                    variant.path,
                    variant.shredded_type,
                    variant.stats.size_bytes,
                    variant.stats.value_count,
                    variant.stats.null_count,
                    variant.stats.min_value,
                    variant.stats.max_value,
                    variant.stats.contains_nan,
                    variant.stats.extra,
                )
                for n, file in enumerate(files)
                for variant in file.variants
            ],
        ),
        mappings=len(mappings),
        names=Relation.of(_NAMES, [row for names, n in mappings.items() for row in _name_rows(names, n)]),
        summary=summarize(con, table.leaves(), files, stats) if files else {},
    )


def prepare_change(con: duckdb.DuckDBPyConnection, change: TableChange) -> PreparedFiles:
    """Prepare the files or the inlined rows of a change for the commit."""
    if change.few is None:
        return prepare(con, change.target, change.files)
    return _prepare_inlined(con, change.target, change.few)


def _prepare_inlined(con: duckdb.DuckDBPyConnection, table: TableDef, few: InlinableRows) -> PreparedFiles:
    """Prepare inlined rows for the commit: without files, but with the rows' count and statistics."""
    nothing = prepare(con, table, ())
    rows = sum(file.record_count for file in few.as_files)
    summary = summarize(con, table.leaves(), few.as_files, file_stats(few.as_files)) if few.as_files else {}
    return replace(nothing, rows=rows, new_rows=rows, summary=summary)


def stored_path(path: str, folder: str) -> tuple[str, bool]:
    """Return a path as the catalog stores it, and whether it is relative to the folder."""
    return (path.removeprefix(folder), True) if path.startswith(folder) else (path, False)


def _name_rows(names: Sequence[MappedName], mapping: int) -> list[tuple[object, ...]]:
    """Return the rows of a name mapping; its columns have their own numbers, a parent before its children."""
    rows: list[tuple[object, ...]] = []

    def add(name: MappedName, parent: int | None) -> None:
        number = len(rows)
        rows.append((mapping, number, name.source, name.column_id, parent, name.is_partition))
        for child in name.children:
            add(child, number)

    for name in names:
        add(name, None)
    return rows
