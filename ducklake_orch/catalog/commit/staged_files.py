"""Files on their way into the catalog: everything about them that does not depend on when their turn comes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import duckdb

from ducklake_orch.catalog.metadata import MappedName, NewFile, Relation, TableDef
from ducklake_orch.catalog.parquet import TableColumnStats, file_stats, summarize
from ducklake_orch.catalog.writing import FewRows

_FILES = {
    "ordinal": "BIGINT",
    "path": "VARCHAR",
    "path_is_relative": "BOOLEAN",
    "record_count": "BIGINT",
    "file_size_bytes": "BIGINT",
    "footer_size": "BIGINT",
    "first_row": "BIGINT",
    "mapping": "BIGINT",
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
    """New files as rows for the metadata tables, numbered from 0, and what they add up to.

    Attributes:
        rows: How many they have.
        new_rows: How many of these get a row id with the commit.
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
    """Make files ready for the commit.

    Args:
        con: Any connection; it compares bounds.
        table: What they were written for.
        files: The files.
    """
    # Files that are read alike share a mapping.
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
                    one.column_id,
                    one.path,
                    one.shredded_type,
                    one.stats.size_bytes,
                    one.stats.value_count,
                    one.stats.null_count,
                    one.stats.min_value,
                    one.stats.max_value,
                    one.stats.contains_nan,
                    one.stats.extra,
                )
                for n, file in enumerate(files)
                for one in file.variants
            ],
        ),
        mappings=len(mappings),
        names=Relation.of(_NAMES, [row for names, n in mappings.items() for row in _name_rows(names, n)]),
        summary=summarize(con, table.leaves(), files, stats) if files else {},
    )


def prepare_few(con: duckdb.DuckDBPyConnection, table: TableDef, few: FewRows) -> PreparedFiles:
    """Make rows for the catalog ready: there is no file, but there are rows, and what they add up to."""
    nothing = prepare(con, table, ())
    rows = sum(file.record_count for file in few.as_files)
    summary = summarize(con, table.leaves(), few.as_files, file_stats(few.as_files)) if few.as_files else {}
    return replace(nothing, rows=rows, new_rows=rows, summary=summary)


def stored_path(path: str, folder: str) -> tuple[str, bool]:
    """Return a path as the catalog holds it, and whether that is relative to the folder."""
    return (path.removeprefix(folder), True) if path.startswith(folder) else (path, False)


def _name_rows(names: Sequence[MappedName], mapping: int) -> list[tuple[object, ...]]:
    """Return a mapping's rows; its columns are numbered for themselves, parents before what is in them."""
    rows: list[tuple[object, ...]] = []

    def add(name: MappedName, parent: int | None) -> None:
        number = len(rows)
        rows.append((mapping, number, name.source, name.column_id, parent, name.is_partition))
        for child in name.children:
            add(child, number)

    for name in names:
        add(name, None)
    return rows
