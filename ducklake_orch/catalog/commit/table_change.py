"""Describe what a commit is to do: the files to add, the rows to retire, the table to create first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, NewFile, Settings, TableDef
from ducklake_orch.catalog.writing import InlinableRows
from ducklake_orch.engine.quoting import TableName


@dataclass(frozen=True, slots=True)
class Everything:
    """Retire all rows of the table."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Retire the partitions with these keys of the table's current spec; None stands for NULL."""

    keys: frozenset[tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class Matching:
    """Retire the rows that match a predicate in DuckDB SQL."""

    where: str


@dataclass(frozen=True, slots=True)
class ExactRows:
    """Retire the rows that were found at a snapshot.

    Attributes:
        snapshot: The snapshot that they were found at.
        where: The condition for all rows that the change depends on; None if it depends on every row.
        seen: The data files that may have held such rows, as they were at that snapshot.
        whole: The data files to retire, because they lose all their rows or are rewritten.
        inlined_seen: The inlined rows that the change depends on, by their inlined-data table. Each is its row id and
            the snapshot that added it, because the engine updates an inlined row under the same id.
        inlined: Ids of the inlined rows to retire, by their inlined-data table.
        rows: The number of rows to retire, in data files and inlined.
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
    """Retire what an earlier state did not have; any change of the table since the rollback was planned is a conflict.

    Attributes:
        snapshot: The snapshot that the rollback was planned on.
        files: The data files to retire.
        inlined: Ids of the inlined rows to retire, by their inlined-data table.
        rows: The number of rows to retire, in data files and inlined.
    """

    snapshot: int
    files: tuple[DataFile, ...]
    inlined: Mapping[str, tuple[int, ...]]
    rows: int


Removal = Everything | Partitions | Matching | ExactRows | Rollback


class Deletions(Protocol):
    """Delete files whose contents depend on the snapshot that commits them."""

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files that lose rows, as they were when the deletions were planned."""

    @property
    def paths(self) -> Sequence[str]:
        """Paths of all delete files that were written, including those for other snapshot ids."""

    def __len__(self) -> int: ...

    def numbered(self, snapshot: int) -> Sequence[NewDeleteFile]:
        """Return the delete files for a snapshot id."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of one table that is planned, whose files are written, and that is ready to commit.

    Attributes:
        table: The table's name.
        known: The table as it was when the change was planned; None if it did not exist.
        target: The table that the files were written for; differs from `known` if the change alters the table.
        files: The data files to add.
        remove: What to retire; the commit finds the rows and files.
        deletes: The delete files to add.
        expect_snapshot: Refuse the change if the rows that it retires have changed since this snapshot.
        key: The caller's idempotency key.
        replays: Whether a key that is already committed makes this change a replay; if not, the key is recorded again.
        staged_keys: Further keys to record, of work that is part of the change; each with whether a commit of other
            work with the key is a conflict, because rows would be there twice.
        only_new: Whether the change must create the table.
        planned_version: The lake's schema version when the change was planned; while it is the same, so is the table.
        adopted: Paths of those files that another program wrote; the lake must not have them yet.
        copied: Paths of files that another program wrote and whose rows are added; the table must not have them yet.
        comment: The comment to give the table; an empty one removes it; None leaves it.
        options: The persisted options of a table that it creates.
        few: Rows to store inlined in the catalog, if there are no files.
        parts: For files of several consecutive snapshots: which one adds each file, counted from 0.
        settings: The options of the lake that it was planned with, if they may have changed since.
        drops: Whether the table is dropped; all of the above but `table`, `known` and `target` is then left out.
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
    staged_keys: Mapping[str, bool] = field(default_factory=dict)
    only_new: bool = False
    planned_version: int | None = None
    adopted: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    few: InlinableRows | None = None
    parts: tuple[int, ...] = ()
    settings: Settings | None = None
    drops: bool = False

    @property
    def alters(self) -> bool:
        """Whether it changes the definition of an existing table."""
        known, target = self.known, self.target
        if known is None:
            return False
        definitions = [(table.columns, table.key_fields, table.sort, table.comments) for table in (known, target)]
        return definitions[0] != definitions[1] or self.comment is not None

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that the commit records."""
        return (*([self.key] if self.key is not None else []), *self.staged_keys)


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a change.

    Attributes:
        snapshot_id: The snapshot that it created, or the latest snapshot if there was nothing to do.
        replayed: Whether an earlier write with the same key had already committed; this change then did nothing.
        undone_by: For a replay, the first later snapshot that removed rows of the table.
        delete_files: Paths of the delete files that the change added.
    """

    snapshot_id: int
    previous_snapshot_id: int
    rows_removed: int = 0
    rows_added: int = 0
    files_added: int = 0
    files_removed: int = 0
    replayed: bool = False
    undone_by: int | None = None
    delete_files: tuple[str, ...] = ()
