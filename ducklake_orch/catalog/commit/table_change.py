"""What a commit is asked to do: files to add, rows to retire, a table to make first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, NewFile, TableDef
from ducklake_orch.catalog.writing import FewRows
from ducklake_orch.engine.quoting import TableName


@dataclass(frozen=True, slots=True)
class Everything:
    """Retire all rows of the table."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Retire the partitions of these keys, in the table's current spec; NULL is None."""

    keys: frozenset[tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class Matching:
    """Retire the rows that match a predicate in DuckDB's SQL."""

    where: str


@dataclass(frozen=True, slots=True)
class ExactFiles:
    """Retire these files, as they were when they were read: with the same delete files and inlined deletes."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class ExactRows:
    """Retire these rows, as they were found at a snapshot.

    Attributes:
        snapshot: The snapshot that they were found at.
        where: The condition for all rows that the change depends on; None where it depends on every row.
        seen: The files that may have held such rows, as they were.
        whole: Those that go, because they lose all their rows or are written anew.
        inlined_seen: The inlined rows that the change depends on, by their table: ids, and the snapshots that they came
            with, for the engine updates a row in its place.
        inlined: Ids of those that go.
        rows: How many rows go, wherever they are.
    """

    snapshot: int
    where: str | None
    seen: tuple[DataFile, ...]
    whole: tuple[DataFile, ...] = ()
    inlined_seen: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    inlined: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Rollback:
    """Retire what is not of an earlier state; nothing of the table may have changed since this was planned.

    Attributes:
        snapshot: The snapshot that it was planned on.
        kept: The files that stay.
        files: Those that go.
        inlined: Ids of the inlined rows that go, by their table.
        rows: How many rows go, wherever they are.
    """

    snapshot: int
    kept: tuple[DataFile, ...]
    files: tuple[DataFile, ...]
    inlined: Mapping[str, tuple[int, ...]]
    rows: int


Removal = Everything | Partitions | Matching | ExactFiles | ExactRows | Rollback


class Deletions(Protocol):
    """Delete files that depend on the snapshot they come with."""

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files that lose rows, as they were when their deletions were worked out."""

    @property
    def paths(self) -> Sequence[str]:
        """All delete files that were written, those for other snapshots included."""

    def __len__(self) -> int: ...

    def numbered(self, snapshot: int) -> Sequence[NewDeleteFile]:
        """Return them as a snapshot needs them."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of one table, planned and written, and now to be committed.

    Attributes:
        table: Its name.
        known: The table as it was when this was planned; None when there was none.
        target: The table that the files were written for; differs from `known` where columns are added or promoted.
        files: What to add.
        remove: What to retire; worked out inside the commit.
        few: Rows for the catalog itself, when there are no files.
        deletes: Delete files to add.
        expect_snapshot: Refuse when what is to be retired has changed since this snapshot.
        key: The caller's idempotency key.
        replays: Whether a key that is committed already makes this a replay; else it is recorded anew.
        only_new: Whether the table must not be there yet.
        planned_version: Of the lake's schema, when this was planned: while it is the same, so is the table.
        adopted: Files that others wrote: the lake must not have them already. They are added, or `files` are copies.
    """

    table: TableName
    known: TableDef | None
    target: TableDef
    files: tuple[NewFile, ...] = ()
    remove: Removal | None = None
    deletes: Deletions | None = None
    expect_snapshot: int | None = None
    key: str | None = None
    replays: bool = False
    only_new: bool = False
    planned_version: int | None = None
    adopted: tuple[str, ...] = ()
    few: FewRows | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a change.

    Attributes:
        snapshot_id: The snapshot it made, or the latest one when there was nothing to do.
        replayed: Whether an earlier attempt had done it already; then nothing was done now.
        undone_by: For a replay, the first later snapshot that removed rows of the table.
        delete_files: The delete files that came with it.
    """

    snapshot_id: int
    previous_snapshot_id: int
    table_id: int | None = None
    rows_removed: int = 0
    rows_added: int = 0
    files_added: int = 0
    files_removed: int = 0
    replayed: bool = False
    undone_by: int | None = None
    delete_files: tuple[str, ...] = ()
