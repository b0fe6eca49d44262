"""Write delete files: all deleted positions of a data file, each with the snapshot that deleted it.

The writer needs no catalog, so it runs in this process or in the tasks of a Spark job.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import (
    DELETED_PATH_FIELD,
    DELETED_POS_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    DataFile,
    NewDeleteFile,
    TableDef,
)
from ducklake_orch.catalog.parquet import ENCRYPTION_CONFIG, deletes_sql, encrypt_next
from ducklake_orch.engine.quoting import literal

# A query that names many files takes long to plan.
_FILES_AT_ONCE = 50
_DELETED = "__ducklake_orch_deleted"
_FIELDS = f"{{file_path: {DELETED_PATH_FIELD}, pos: {DELETED_POS_FIELD}, {SNAPSHOT_ID}: {SNAPSHOT_ID_FIELD}}}"


@dataclass(frozen=True)
class Loss:
    """The deletions of a data file.

    Attributes:
        file: The data file, with its delete files.
        inlined: Its inlined deletions, as positions with snapshots.
        new: The query for the new deletions, as positions with the snapshot, if any.
    """

    file: DataFile
    inlined: Sequence[tuple[int, int]]
    new: str | None


def write_delete_files(
    con: duckdb.DuckDBPyConnection, table: TableDef, write_id: str, losses: Sequence[Loss]
) -> list[NewDeleteFile]:
    """Write all deletions of each data file, old and new, into one delete file each, in the same order.

    Args:
        con: A DuckDB connection that can reach the storage.
        table: The table.
        write_id: The write's id, which becomes part of the files' names.
        losses: The deletions.
    """
    if "://" not in table.folder:
        os.makedirs(table.folder, exist_ok=True)
    groups = (losses[start : start + _FILES_AT_ONCE] for start in range(0, len(losses), _FILES_AT_ONCE))
    return [written for group in groups for written in _write_group(con, table, write_id, group)]


def write_delete_file(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    write_id: str,
    file: DataFile,
    inlined: Sequence[tuple[int, int]],
    *,
    new: str | None = None,
) -> NewDeleteFile:
    """Write all deletions of a data file, as `write_delete_files` does.

    Args:
        con: A DuckDB connection that can reach the storage.
        table: The table.
        write_id: The write's id, which becomes part of the file's name.
        file: The data file, with its delete files.
        inlined: Its inlined deletions, as positions with snapshots.
        new: The query for the new deletions, if any.
    """
    return write_delete_files(con, table, write_id, [Loss(file, inlined, new)])[0]


def _write_group(
    con: duckdb.DuckDBPyConnection, table: TableDef, write_id: str, losses: Sequence[Loss]
) -> Iterator[NewDeleteFile]:
    parts = [
        f"SELECT {number} AS loss, * FROM ({deletions})"
        for number, loss in enumerate(losses)
        for deletions in _deletions(loss)
    ]
    # A position that was deleted more than once counts from its first deletion.
    rows = f"SELECT loss, pos, min(since) AS since FROM ({' UNION ALL '.join(parts)}) q(loss, pos, since) GROUP BY ALL"
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_DELETED} AS {rows}")
    summary = con.execute(f"SELECT loss, count(*), min(since), max(since) FROM {_DELETED} GROUP BY loss").fetchall()
    for number, count, first, last in sorted(summary):
        file = losses[number].file
        path = f"{table.folder}{table.file_prefix(write_id)}-{uuid4()}-delete.parquet"
        columns = f"{literal(file.path)} AS file_path, pos, since AS {SNAPSHOT_ID}"
        content = f"SELECT {columns} FROM {_DELETED} WHERE loss = {number} ORDER BY pos"
        options = f"FORMAT parquet, FIELD_IDS {_FIELDS}, RETURN_STATS true"
        key = encrypt_next(con) if table.encrypted else None
        options += f", ENCRYPTION_CONFIG {ENCRYPTION_CONFIG}" if key else ""
        written = con.execute(f"COPY ({content}) TO {literal(path)} ({options})").fetchall()
        _, _, size, footer, *_ = written[0]
        newest = last if last > first else None
        yield NewDeleteFile(file, path, count, size, footer, first, partial_max=newest, encryption_key=key)
    con.execute(f"DROP TABLE {_DELETED}")


def _deletions(loss: Loss) -> Iterator[str]:
    """Return queries for the deletions of a data file: positions with the deleting snapshots."""
    if loss.new:
        yield loss.new
    for delete in loss.file.deletes:
        yield f"SELECT pos, coalesce({SNAPSHOT_ID}, {delete.begin_snapshot})::BIGINT FROM {deletes_sql(delete)}"
    if loss.inlined:
        values = ", ".join(f"({position}::BIGINT, {snapshot}::BIGINT)" for position, snapshot in loss.inlined)
        yield f"SELECT * FROM (VALUES {values})"
