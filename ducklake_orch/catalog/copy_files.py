"""Copy files that others wrote into the table's folder: byte for byte, under names that tell who brought them."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.file_paths import path_folders
from ducklake_orch.catalog.layout import partition_keys
from ducklake_orch.catalog.model import NewFile, TableDef
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import StorageError


def copy_into(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, table: TableDef, files: Sequence[NewFile], write_id: str
) -> list[NewFile]:
    """Copy files into a table's folder, where the engine would have put them.

    One at a time, and a file that is not local on either side is in memory meanwhile.

    Args:
        con: A connection that is not in the lake, and knows the storage's secrets.
        config: The lake.
        table: The table.
        files: As they were inspected.
        write_id: Becomes part of the copies' names, so that those of a dead write can be found.

    Returns:
        The copies, in the same order.
    """
    copies = []
    for file in files:
        folders = list(_folders(table, file))
        copy = f"{table.folder}{''.join(one for _, one in folders)}ducklake-{write_id}-{uuid4()}.parquet"
        _copy(con, config, file.path, copy)
        copies.append(replace(_renamed(file, dict(folders)), path=copy, outside=False))
    return copies


def _folders(table: TableDef, file: NewFile) -> Iterator[tuple[int | None, str]]:
    """Return the `key=value/` folders of a copy: its partition's, and those that hold what is in no file.

    With each comes the column whose value it is.
    """
    taken = set()
    if table.options.get("hive_file_pattern") != "false":
        for key, value in zip(partition_keys(table), file.partition_values, strict=True):
            column = key.column.column_id if key.is_identity else None
            taken.add(column)
            yield column, key.folder_of(None if value is None else quote(value, safe=""))
    texts = dict(reversed(path_folders(file.path)))
    for name in file.mapping or ():
        if name.is_partition and name.column_id not in taken:
            yield name.column_id, f"{name.source}={texts[name.source]}/"


def _renamed(file: NewFile, folders: Mapping[int | None, str]) -> NewFile:
    """Return the file with the keys of its path as they are spelled now."""
    if file.mapping is None:
        return file
    names = tuple(
        replace(name, source=folders[name.column_id].partition("=")[0]) if name.is_partition else name
        for name in file.mapping
    )
    return replace(file, mapping=names)


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
        raise StorageError(f"{doing}: {reason}.", remedy="Check permissions, and room on the disk.")
    try:
        con.execute(
            f"COPY (SELECT content FROM read_blob({literal(exactly(source))})) TO {literal(target)} (FORMAT blob)"
        )
        return
    except duckdb.Error as error:
        failure = classify(error, config, doing)
    raise failure
