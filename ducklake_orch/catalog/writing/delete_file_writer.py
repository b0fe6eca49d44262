"""Write a delete file: all deleted positions of a data file, each with the snapshot that deleted it.

The writer needs no catalog, so it runs in this process or in the tasks of a Spark job.
"""

import os
from collections.abc import Sequence
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
from ducklake_orch.catalog.parquet import parquet_sql
from ducklake_orch.engine.quoting import literal

_DELETED = "__ducklake_orch_deleted"
_FIELDS = f"{{file_path: {DELETED_PATH_FIELD}, pos: {DELETED_POS_FIELD}, {SNAPSHOT_ID}: {SNAPSHOT_ID_FIELD}}}"


@dataclass(frozen=True)
class Loss:
    """The deletions of a data file.

    Attributes:
        file: The data file, with its delete files.
        inlined: Its inlined deletions, as positions with snapshots.
        new: The query for the new deletions, as positions with the snapshot.
    """

    file: DataFile
    inlined: Sequence[tuple[int, int]]
    new: str


def write_delete_files(
    con: duckdb.DuckDBPyConnection, table: TableDef, write_id: str, losses: Sequence[Loss]
) -> list[NewDeleteFile]:
    """Write a delete file for each data file, in the same order."""
    return [write_delete_file(con, table, write_id, loss.file, loss.inlined, new=loss.new) for loss in losses]


def write_delete_file(
    con: duckdb.DuckDBPyConnection,
    table: TableDef,
    write_id: str,
    file: DataFile,
    inlined: Sequence[tuple[int, int]],
    *,
    new: str | None = None,
    end: int | None = None,
) -> NewDeleteFile:
    """Write all deletions of a data file, old and new, into one delete file.

    Args:
        con: A DuckDB connection that can reach the storage.
        table: The table.
        write_id: The write's id, which becomes part of the file's name.
        file: The data file, with its delete files.
        inlined: Its inlined deletions, as positions with snapshots.
        new: The query for the new deletions, if any.
        end: The snapshot that retires the data file, if any.
    """
    parts = [new] if new else []
    for delete in file.deletes:
        typed = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME"
        source = f"({typed} FROM {parquet_sql(delete.path, delete.encryption_key)})"
        parts.append(f"SELECT pos, coalesce({SNAPSHOT_ID}, {delete.begin_snapshot})::BIGINT FROM {source}")
    if inlined:
        values = ", ".join(f"({position}::BIGINT, {snapshot}::BIGINT)" for position, snapshot in inlined)
        parts.append(f"SELECT * FROM (VALUES {values})")
    # A position that was deleted more than once counts from its first deletion.
    rows = f"SELECT pos, min(since) AS since FROM ({' UNION ALL '.join(parts)}) q(pos, since) GROUP BY pos"
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_DELETED} AS {rows}")
    summary = con.execute(f"SELECT count(*), min(since), max(since) FROM {_DELETED}").fetchall()
    count, first, last = summary[0]
    if "://" not in table.folder:
        os.makedirs(table.folder, exist_ok=True)
    path = f"{table.folder}{table.file_prefix(write_id)}-{uuid4()}-delete.parquet"
    content = f"SELECT {literal(file.path)} AS file_path, pos, since AS {SNAPSHOT_ID} FROM {_DELETED} ORDER BY pos"
    options = f"FORMAT parquet, FIELD_IDS {_FIELDS}, RETURN_STATS true"
    written = con.execute(f"COPY ({content}) TO {literal(path)} ({options})").fetchall()
    _, _, size, footer, *_ = written[0]
    con.execute(f"DROP TABLE {_DELETED}")
    return NewDeleteFile(file, path, count, size, footer, first, end, last if last > first else None)
