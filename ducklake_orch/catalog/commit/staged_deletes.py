"""Delete files: one for each data file, which says of every row it deletes with which snapshot that went.

The engine keeps no more than one delete file for a data file, and reckons with that: when it deletes on, or flushes,
its new file holds from the first snapshot that any row in it was deleted with, and one that had ended before would then
hold beside it. So a new delete file takes in the one before, and the rows that are deleted in the catalog, and both go;
earlier snapshots read in it what was deleted by then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import DataFile, Metadata, NewDeleteFile, TableDef, deletions_table
from ducklake_orch.catalog.writing import Loss

# Positions that are deleted in the catalog, with the snapshots that did it, by data file.
InlinedDeletes = Mapping[int, Sequence[tuple[int, int]]]


@dataclass
class DeleteFiles:
    """Deletions on their way into a table.

    Their files name the snapshot that is going to delete, which is certain only inside the commit: so they are written
    for the next one, and again there if somebody else has come first.

    Args:
        write: Writes delete files.
        positions: Returns the query for the positions that a data file loses: `pos`.
        files: The data files that lose some of their rows, but not all.
        inlined: What they have lost in the catalog.

    Attributes:
        superseded: Files that were written for a snapshot which they did not get.
    """

    write: Callable[[Sequence[Loss]], Sequence[NewDeleteFile]]
    positions: Callable[[DataFile], str]
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
            self._written, self._snapshot = (), None
            self._written = tuple(self.write([self._loss(file, snapshot) for file in self.files]))
            self._snapshot = snapshot
        return self._written

    def _loss(self, file: DataFile, snapshot: int) -> Loss:
        new = f"SELECT pos, {snapshot}::BIGINT FROM ({self.positions(file)})"
        return Loss(file, self.inlined.get(file.data_file_id, ()), new)


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
