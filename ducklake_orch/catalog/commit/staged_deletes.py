"""Stage delete files for a commit: one per data file, with the deleting snapshot of every row that it deletes.

The engine keeps at most one delete file per data file and relies on that. When it deletes more rows or flushes, its new
delete file is valid from the first snapshot that deleted any of its rows; an older delete file that ended earlier would
then be valid at the same snapshots. So a new delete file absorbs the previous delete file and the inlined deletions,
and the commit removes both. Earlier snapshots read their deletions from the new file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import DataFile, Metadata, NewDeleteFile, TableDef, deletions_table
from ducklake_orch.catalog.writing import Loss

# Inlined deletions by data file id: the position of each deleted row, and the snapshot that deleted it.
InlinedDeletes = Mapping[int, Sequence[tuple[int, int]]]


@dataclass
class DeleteFiles:
    """Staged deletions of a table.

    A delete file contains the id of the deleting snapshot, which is certain only inside the commit. So the delete files
    are first written for the next snapshot id, and written again inside the commit if a concurrent commit took that id.

    Args:
        write: Writes delete files.
        positions: Returns the query for the positions of the rows to delete from a data file, as a column `pos`.
        files: The data files that lose some of their rows, but not all.
        inlined: The inlined deletions that these data files already have.

    Attributes:
        superseded: Paths of delete files that were written for a snapshot id that another commit took.
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
        """Paths of all delete files that were written."""
        return [*self.superseded, *(file.path for file in self._written)]

    def numbered(self, snapshot: int) -> tuple[NewDeleteFile, ...]:
        """Return the delete files for a snapshot id; write them if those already written are for another id."""
        if snapshot != self._snapshot:
            self.superseded += [file.path for file in self._written]
            self._written, self._snapshot = (), None
            self._written = tuple(self.write([self._loss(file, snapshot) for file in self.files]))
            self._snapshot = snapshot
        return self._written

    def _loss(self, file: DataFile, snapshot: int) -> Loss:
        new = f"SELECT pos, {snapshot}::BIGINT FROM ({self.positions(file)})"
        return Loss(file, self.inlined.get(file.data_file_id, ()), new)


def inlined_deletes(metadata: Metadata, table: TableDef, ids: Sequence[int] | None = None) -> InlinedDeletes:
    """Return the inlined deletions of data files.

    Args:
        metadata: The metadata tables.
        table: The table.
        ids: The data files' ids; by default all live data files.
    """
    if (name := deletions_table(metadata, table)) is None:
        return {}
    live = f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')} WHERE end_snapshot IS NULL"
    id_list = live if ids is None else ", ".join(map(str, ids)) or "NULL"
    rows = metadata.rows(
        f"SELECT file_id, row_id, min(begin_snapshot) FROM {metadata.table_sql(name)}"
        f" WHERE file_id IN ({id_list}) GROUP BY file_id, row_id"
    )
    deletions: dict[int, list[tuple[int, int]]] = {}
    for file_id, position, snapshot in rows:
        deletions.setdefault(int(file_id), []).append((int(position), int(snapshot)))
    return deletions
