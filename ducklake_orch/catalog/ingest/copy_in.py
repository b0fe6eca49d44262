"""Copy existing Parquet files into the table's folder, byte for byte, under names that contain the write id."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef, path_text
from ducklake_orch.catalog.parquet import partition_keys
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import file_literal, literal
from ducklake_orch.errors import DataError, StorageError


def copy_into(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, table: TableDef, files: Sequence[NewFile], write_id: str
) -> list[NewFile]:
    """Copy files into a table's folder, to the paths where the engine would have written them.

    Files are copied one at a time. A file whose source or target is not local is held in memory during its copy.

    Args:
        con: A connection outside the lake that has the storage's secrets.
        config: The lake.
        table: The table.
        files: The inspected files.
        write_id: Becomes part of the names of the copies, so that copies of a killed write can be found.

    Returns:
        The copies, in the same order.

    Raises:
        DataError: When readers would take a value that is only in the path from another folder of the new path.
    """
    copies = plan_copies(table, files, write_id)
    for file, copy in zip(files, copies, strict=True):
        _copy(con, config, file.path, copy.path)
    return copies


def plan_copies(table: TableDef, files: Sequence[NewFile], write_id: str) -> list[NewFile]:
    """Return the copies to make of files.

    Raises:
        DataError: When readers would take a value that is only in the path from another folder of the new path.
    """
    return [_planned(table, file, f"{table.file_prefix(write_id)}-{uuid4()}.parquet") for file in files]


def _planned(table: TableDef, file: NewFile, name: str) -> NewFile:
    folders = list(_folders(table, file))
    path = f"{table.folder}{''.join(f'{key}={text}/' for _, key, text in folders)}{name}"
    keys = {column_id: (key, text) for column_id, key, text in folders if column_id is not None}
    names = []
    for mapped in file.mapping or ():
        if mapped.is_partition:
            key, text = keys[mapped.column_id]
            if (read := path_text(path, key)) != text:
                raise DataError(
                    f"{file.path} cannot be copied to {path}: readers would take `{key}={read}` for `{key}={text}`.",
                    remedy=f"Readers use the first folder that names `{key}`. Write the rows with `lake.write`.",
                )
            mapped = replace(mapped, source=key)
        names.append(mapped)
    return replace(file, path=path, outside=False, mapping=None if file.mapping is None else tuple(names))


def _folders(table: TableDef, file: NewFile) -> Iterator[tuple[int | None, str, str]]:
    """Return the folders of a copy: those of its partition, and those with values that are not in the file.

    Returns:
        For each folder the id of the column whose value it holds, if any, its key and its text.
    """
    taken = set()
    if table.options.get("hive_file_pattern") != "false":
        for key, value in zip(partition_keys(table), file.partition_values, strict=True):
            column = key.column.column_id if key.is_identity else None
            taken.add(column)
            folder = key.folder_of(None if value is None else quote(value, safe=""))
            name, _, text = folder.rstrip("/").partition("=")
            yield column, name, text
    for mapped in file.mapping or ():
        if mapped.is_partition and mapped.column_id not in taken:
            yield mapped.column_id, mapped.source, path_text(file.path, mapped.source) or ""


def _copy(con: duckdb.DuckDBPyConnection, config: LakeConfig, source: str, target: str) -> None:
    doing = f"Copying {source} to {target} failed"
    if "://" not in target:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    if "://" not in source and "://" not in target:
        try:
            shutil.copyfile(source, target)
            return
        except OSError as error:
            reason = error.strerror or str(error)
        raise StorageError(f"{doing}: {reason}.", remedy="Check permissions and free disk space.")
    try:
        con.execute(f"COPY (SELECT content FROM read_blob({file_literal(source)})) TO {literal(target)} (FORMAT blob)")
        return
    except duckdb.Error as error:
        failure = classify(error, config, doing)
    raise failure
