"""Delete files: one for each data file, which says of every row it deletes with which snapshot that went.

The engine keeps no more than one delete file for a data file, and reckons with that: when it deletes on, or flushes,
its new file holds from the first snapshot that any row in it was deleted with, and one that had ended before would then
hold beside it. So a new delete file takes in the one before, and the rows that are deleted in the catalog, and both go;
earlier snapshots read in it what was deleted by then.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.change import NewDeleteFile
from ducklake_orch.catalog.file_sql import parquet_sql
from ducklake_orch.catalog.inlined import deletions_table
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.model import (
    DELETED_PATH_FIELD,
    DELETED_POS_FIELD,
    SNAPSHOT_ID,
    SNAPSHOT_ID_FIELD,
    DataFile,
    TableDef,
)
from ducklake_orch.engine.quoting import literal

# Positions that are deleted in the catalog, with the snapshots that did it, by data file.
InlinedDeletes = Mapping[int, Sequence[tuple[int, int]]]
_DELETED = "__ducklake_orch_deleted"
_FIELDS = f"{{file_path: {DELETED_PATH_FIELD}, pos: {DELETED_POS_FIELD}, {SNAPSHOT_ID}: {SNAPSHOT_ID_FIELD}}}"


@dataclass
class DeleteFiles:
    """Deletions on their way into a table.

    Their files name the snapshot that is going to delete, which is certain only inside the commit: so they are written
    for the next one, and again there if somebody else has come first.

    Args:
        con: A connection that reaches the storage; nobody else uses it meanwhile.
        table: The table.
        write_id: Part of the files' names.
        positions: The query for what is to be deleted: `file`, the id of a data file, and `pos`.
        files: The data files that lose some of their rows, but not all.
        inlined: What they have lost in the catalog.

    Attributes:
        superseded: Files that were written for a snapshot which they did not get.
    """

    con: duckdb.DuckDBPyConnection
    table: TableDef
    write_id: str
    positions: str
    files: Sequence[DataFile]
    inlined: InlinedDeletes
    superseded: list[str] = field(default_factory=list)
    _snapshot: int | None = None
    _written: tuple[NewDeleteFile, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    @property
    def paths(self) -> list[str]:
        """All files that were written."""
        return [*self.superseded, *(one.path for one in self._written)]

    def numbered(self, snapshot: int) -> tuple[NewDeleteFile, ...]:
        """Return the delete files as the snapshot needs them."""
        if snapshot != self._snapshot:
            self.superseded += [one.path for one in self._written]
            self._written = tuple(self._write(file, snapshot) for file in self.files)
            self._snapshot = snapshot
        return self._written

    def _write(self, file: DataFile, snapshot: int) -> NewDeleteFile:
        of_file = f"SELECT pos, {snapshot}::BIGINT FROM ({self.positions}) WHERE file = {file.data_file_id}"
        inlined = self.inlined.get(file.data_file_id, ())
        return write_delete_file(self.con, self.table, self.write_id, file, inlined, new=of_file)


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
    """Write all that a data file has lost into one delete file.

    Args:
        con: A connection that reaches the storage.
        table: The table.
        write_id: Part of the file's name.
        file: The data file, with its delete files.
        inlined: What it has lost in the catalog, as positions with snapshots.
        new: The query for what it loses now.
        end: The snapshot that ends the data file, if one does.
    """
    parts = [new] if new else []
    for one in file.deletes:
        known = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME"
        source = f"({known} FROM {parquet_sql(one.path, one.encryption_key)})"
        parts.append(f"SELECT pos, coalesce({SNAPSHOT_ID}, {one.begin_snapshot})::BIGINT FROM {source}")
    if inlined:
        values = ", ".join(f"({position}::BIGINT, {snapshot}::BIGINT)" for position, snapshot in inlined)
        parts.append(f"SELECT * FROM (VALUES {values})")
    # What was deleted twice was gone with the first of them.
    rows = f"SELECT pos, min(since) AS since FROM ({' UNION ALL '.join(parts)}) q(pos, since) GROUP BY pos"
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_DELETED} AS {rows}")
    found = con.execute(f"SELECT count(*), min(since), max(since) FROM {_DELETED}").fetchall()
    count, first, last = found[0]
    if "://" not in table.folder:
        os.makedirs(table.folder, exist_ok=True)
    path = f"{table.folder}{table.file_prefix(write_id)}-{uuid4()}-delete.parquet"
    content = f"SELECT {literal(file.path)} AS file_path, pos, since AS {SNAPSHOT_ID} FROM {_DELETED} ORDER BY pos"
    options = f"FORMAT parquet, FIELD_IDS {_FIELDS}, RETURN_STATS true"
    written = con.execute(f"COPY ({content}) TO {literal(path)} ({options})").fetchall()
    _, _, size, footer, *_ = written[0]
    con.execute(f"DROP TABLE {_DELETED}")
    return NewDeleteFile(file, path, count, size, footer, first, end, last if last > first else None)


def inlined_deletes(metadata: Metadata, table: TableDef, ids: Sequence[int] | None = None) -> InlinedDeletes:
    """Return what data files have lost in the catalog.

    Args:
        metadata: The metadata tables.
        table: The table.
        ids: The data files; by default all that are live.
    """
    if (name := deletions_table(metadata, table)) is None:
        return {}
    live = f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')} WHERE end_snapshot IS NULL"
    some = live if ids is None else ", ".join(map(str, ids)) or "NULL"
    rows = metadata.rows(
        f"SELECT file_id, row_id, min(begin_snapshot) FROM {metadata.table_sql(name)}"
        f" WHERE file_id IN ({some}) GROUP BY file_id, row_id"
    )
    found: dict[int, list[tuple[int, int]]] = {}
    for file_id, position, snapshot in rows:
        found.setdefault(int(file_id), []).append((int(position), int(snapshot)))
    return found
