"""Refuse files that the lake already has.

If such a file were added again, its rows would be in the lake twice, or would be deleted with the file's older entry.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ducklake_orch.catalog.metadata import Metadata, TableDef, join_path, text, truth
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.errors import DuplicateFileError

_PATHS_IN_ONE_QUERY = 2000
_FILES_NAMED = 20


def refuse_known(metadata: Metadata, paths: Sequence[str], *, copied_to: TableDef | None = None) -> None:
    """Refuse files that the lake already has.

    Args:
        metadata: The metadata tables.
        paths: The files' paths, in the lake's spelling.
        copied_to: The table to which copies of the files are added: only files that are live in it are refused.

    Raises:
        DuplicateFileError: When the lake already has some of the files; names them and the tables that have them.
    """
    reasons = _reasons(metadata, paths, copied_to)
    if not reasons:
        return
    lines = [f"  {path}: {why}" for path, why in list(reasons.items())[:_FILES_NAMED]]
    if len(reasons) > _FILES_NAMED:
        lines.append(f"  and {len(reasons) - _FILES_NAMED} more")
    count = "One file is" if len(reasons) == 1 else f"{len(reasons)} files are"
    raise DuplicateFileError(
        f"{count} already in the lake:\n" + "\n".join(lines),
        remedy="Nothing was added. Leave them out, or pass `copy=True` to add copies of files of other tables.",
    )


def _reasons(metadata: Metadata, paths: Sequence[str], copied_to: TableDef | None) -> dict[str, str]:
    wanted, folders = set(paths), _table_folders(metadata)
    root = metadata.data_path()
    by_id = defaultdict(list)
    for folder, tables in folders.items():
        for table_id, name in tables:
            by_id[table_id].append((folder, name))
    reasons: dict[str, str] = {}
    spellings = {spelling for path in paths for spelling in _spellings(path, {*folders, root})}
    columns = "table_id, path, path_is_relative, end_snapshot"
    for row in _look_up(metadata, "ducklake_data_file", columns, spellings):
        table_id, path, end = int(row[0]), text(row[1]) or "", row[3]
        for folder, name in by_id[table_id]:
            whole = f"{folder}{path}" if truth(row[2]) else path
            if whole not in wanted or (copied_to and (table_id != copied_to.table_id or end is not None)):
                continue
            reasons[whole] = f"table `{name}` has it" + (
                f" up to snapshot {end}, and deletes it when that snapshot expires" if end is not None else ""
            )
    if copied_to is None:
        for row in _look_up(metadata, "ducklake_files_scheduled_for_deletion", "path, path_is_relative", spellings):
            whole = f"{root if truth(row[1]) else ''}{text(row[0])}"
            if whole in wanted:
                reasons[whole] = "it is scheduled for deletion"
    return reasons


def _table_folders(metadata: Metadata) -> Mapping[str, list[tuple[int, str]]]:
    """Return the tables, dropped ones included, by the folder of their files."""
    columns = "t.table_id, t.table_name, t.path, t.path_is_relative, s.schema_name, s.path, s.path_is_relative"
    tables, schemas = metadata.table_sql("ducklake_table"), metadata.table_sql("ducklake_schema")
    rows = metadata.rows(f"SELECT DISTINCT {columns} FROM {tables} t JOIN {schemas} s USING (schema_id)")
    root, folders = metadata.data_path(), defaultdict(list)
    for row in rows:
        schema_folder = join_path(root, row[5], truth(row[6]))
        folder = join_path(schema_folder, row[2], truth(row[3]))
        folders[folder].append((int(row[0]), f"{text(row[4])}.{text(row[1])}"))
    return folders


def _spellings(path: str, folders: set[str]) -> Iterator[str]:
    """Return the forms in which the catalog may store a path: absolute, or relative to a folder above it."""
    yield path
    position = path.rfind("/")
    while position > 0:
        if path[: position + 1] in folders:
            yield path[position + 1 :]
        position = path.rfind("/", 0, position)


def _look_up(metadata: Metadata, name: str, columns: str, paths: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Select rows by path, in the catalog server's own SQL, because DuckDB would fetch the whole table."""
    config, ordered = metadata.config, sorted(paths)
    for start in range(0, len(ordered), _PATHS_IN_ONE_QUERY):
        batch = ordered[start : start + _PATHS_IN_ONE_QUERY]
        texts = ", ".join(dialect_of(config).text_literal(path) for path in batch)
        sql = f"SELECT {columns} FROM {dialect_of(config).table(name)} WHERE path IN ({texts})"
        yield from metadata.con.execute(dialect_of(config).query(sql)).fetchall()
