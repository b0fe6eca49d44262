"""List the paths of all files in the catalog: those of its tables, and those scheduled for deletion."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ducklake_orch.catalog.metadata.cell_values import text, truth
from ducklake_orch.catalog.metadata.file_paths import as_listed
from ducklake_orch.catalog.metadata.snapshot_reader import Metadata, join_path
from ducklake_orch.engine.quoting import literal


def table_folders(metadata: Metadata) -> dict[int, str]:
    """Return the folder of every table, dropped ones included, by table id; a renamed table keeps its folder."""
    name, root = metadata.table_sql, metadata.data_path()
    rows = metadata.rows(
        f"SELECT DISTINCT t.table_id, t.path, t.path_is_relative, s.path, s.path_is_relative"
        f" FROM {name('ducklake_table')} t JOIN {name('ducklake_schema')} s USING (schema_id)"
    )
    folders = {}
    for table_id, path, relative, schema_path, schema_relative in rows:
        schema = join_path(root, schema_path, truth(schema_relative))
        folders[int(table_id)] = join_path(schema if truth(relative) else root, path, truth(relative))
    return folders


def absolute_paths(rows: Sequence[tuple[Any, ...]], folders: Mapping[int, str]) -> dict[int, str]:
    """Return the absolute paths of files, by file id.

    Args:
        rows: Rows that begin with file id, table id, path, and whether the path is relative.
        folders: The tables' folders, by table id.
    """
    return {
        int(number): _absolute(folders[int(table_id)] if truth(relative) else None, path)
        for number, table_id, path, relative, *_ in rows
    }


def paths_of_tables(metadata: Metadata, names: Collection[str] | None = None, *, first: int = 0) -> list[str]:
    """Return the paths of all data files and delete files, live or ended.

    Args:
        metadata: The metadata tables.
        names: If given, return only paths whose last part is one of these names.
        first: The smallest id of a file to return.
    """
    condition = "true"
    if names is not None:
        # `parse_filename` would also split at backslashes, which are ordinary characters in object keys and file names.
        condition = f"split_part(path, '/', -1) IN ({', '.join(map(literal, sorted(names))) or 'NULL'})"
    parts = [
        f"SELECT {kind}_file_id, table_id, path, path_is_relative"
        f" FROM {metadata.table_sql(f'ducklake_{kind}_file')} WHERE {kind}_file_id >= {first} AND {condition}"
        for kind in ("data", "delete")
    ]
    return list(absolute_paths(metadata.rows(" UNION ALL ".join(parts)), table_folders(metadata)).values())


def scheduled_paths(metadata: Metadata, before: datetime | None = None) -> dict[int, str]:
    """Return the paths of files that are scheduled for deletion, by file id.

    Args:
        metadata: The metadata tables.
        before: If given, return only files that were scheduled before this time.
    """
    limit = "" if before is None else f" WHERE schedule_start::TIMESTAMPTZ < {literal(before)}::TIMESTAMPTZ"
    rows = metadata.rows(
        "SELECT data_file_id, path, path_is_relative"
        f" FROM {metadata.table_sql('ducklake_files_scheduled_for_deletion')}{limit} ORDER BY schedule_start, 1"
    )
    root = metadata.data_path()
    return {int(number): _absolute(root if truth(relative) else None, path) for number, path, relative in rows}


def _absolute(folder: str | None, path: Any) -> str:
    return as_listed(text(path) or "") if folder is None else f"{folder}{text(path)}"
