"""What a stage did to one table, in a form that the catalog can store, and back again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ducklake_orch.catalog.commit import Everything, ExactRows, Matching, Partitions, Removal, TableChange
from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, NewFile, TableDef
from ducklake_orch.catalog.search import RowPlan, plan_rows, planning
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import StalePlanError

if TYPE_CHECKING:
    from ducklake_orch.catalog.transactions.draft import Draft


@dataclass(frozen=True)
class StoredDeletes:
    """Delete files of a stage, for a draft that begins from the snapshot that they were written for."""

    deletes: tuple[NewDeleteFile, ...]
    paths: tuple[str, ...] = ()  # a draft does not own them

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files that lose rows."""
        return [delete.data_file for delete in self.deletes]

    def __len__(self) -> int:
        return len(self.deletes)

    def numbered(self, snapshot: int) -> Sequence[NewDeleteFile]:
        """Return the delete files; the first snapshot of a draft is always the one that they were written for."""
        return self.deletes


@dataclass(frozen=True)
class StoredRemoval:
    """The rows of the lake that a stage retires.

    Attributes:
        kind: All rows, whole partitions, rows that meet a condition, or rows that were found in the lake.
        keys: The keys of the partitions.
        where: The condition, or that for all rows that were looked at.
        whole: Ids of the data files that lose all rows.
        deletes: The delete files with the positions of the rows to retire.
        inlined: Ids of the inlined rows to retire.
        rows: The number of rows that were found.
    """

    kind: Literal["everything", "partitions", "matching", "rows"]
    keys: tuple[tuple[str | None, ...], ...] = ()
    where: str | None = None
    whole: tuple[int, ...] = ()
    deletes: tuple[NewDeleteFile, ...] = ()
    inlined: tuple[int, ...] = ()
    rows: int = 0

    @classmethod
    def stored(cls, change: TableChange) -> "StoredRemoval | None":
        """Return what a net change retires."""
        match change.remove:
            case None:
                return None
            case Everything():
                return cls("everything")
            case Partitions(keys):
                return cls("partitions", keys=tuple(keys))
            case Matching(where):
                return cls("matching", where=where)
            case ExactRows() as found:
                deletes = change.deletes.numbered(found.snapshot + 1) if change.deletes else ()
                whole = tuple(file.data_file_id for file in found.whole)
                inlined = tuple(row_id for row_ids in found.inlined.values() for row_id in row_ids)
                return cls("rows", (), found.where, whole, tuple(deletes), inlined, found.rows)
        raise AssertionError(change.remove)  # no verb of a draft retires anything else

    def of(self, plan: RowPlan) -> tuple[Removal, StoredDeletes | None]:
        """Return the removal and the delete files for a table of a draft that begins from the same snapshot.

        Raises:
            StalePlanError: When rows to retire are no longer where they were found.
        """
        match self.kind:
            case "everything":
                return Everything(), None
            case "partitions":
                return Partitions(frozenset(self.keys)), None
            case "matching":
                return Matching(self.where or "true"), None
            case "rows":
                return self._rows(plan)

    def _rows(self, plan: RowPlan) -> tuple[Removal, StoredDeletes | None]:
        files = {file.data_file_id: file for file in plan.scan.files}
        wanted = frozenset(self.inlined)
        inlined = {
            name: tuple(row_id for row_id in row_ids if row_id in wanted)
            for name, row_ids in plan.inlined_ids().items()
        }
        named = {*self.whole, *(delete.data_file.data_file_id for delete in self.deletes)}
        if not named <= files.keys() or sum(map(len, inlined.values())) < len(wanted):
            raise StalePlanError(f"Maintenance has moved rows of `{plan.table}` that were staged to be removed.")
        deletes = [replace(delete, data_file=files[delete.data_file.data_file_id]) for delete in self.deletes]
        whole, seen = tuple(files[number] for number in self.whole), plan.inlined_versions()
        at = plan.latest.snapshot_id
        removal = ExactRows(at, self.where, plan.scan.files, whole, seen, inlined, self.rows)
        return removal, StoredDeletes(tuple(deletes)) if deletes else None


@dataclass(frozen=True)
class StoredChange:
    """The net change of a table since the base snapshot of a stage.

    Attributes:
        name: The table's name.
        target: The table as the stage leaves it.
        drops: Whether the stage drops the table.
        files: The data files to add.
        removal: What it retires.
        adopted: Paths of those files that another program wrote.
        copied: Paths of files that another program wrote and whose rows are added.
        comment: The comment of a table that the stage creates.
        options: The persisted options of a table that it creates.
        rows_removed: The number of rows that are retired.
    """

    name: TableName
    target: TableDef
    drops: bool
    files: tuple[NewFile, ...]
    removal: StoredRemoval | None
    adopted: tuple[str, ...]
    copied: tuple[str, ...]
    comment: str | None
    options: Mapping[str, str] = field(default_factory=dict)
    rows_removed: int = 0

    @classmethod
    def of(cls, change: TableChange, rows_removed: int) -> "StoredChange":
        """Return the form of a net change that can be stored."""
        return cls(
            name=change.table,
            target=change.target,
            drops=change.drops,
            files=change.files,
            removal=StoredRemoval.stored(change),
            adopted=change.adopted,
            copied=change.copied,
            comment=change.comment,
            options=change.options,
            rows_removed=rows_removed,
        )

    def change(self, draft: "Draft") -> TableChange:
        """Return the change for a draft from the same snapshot that has the table as it was then.

        Raises:
            StalePlanError: When rows to retire are no longer where they were found.
        """
        adopted = draft.tables[self.name.key]
        known = adopted.table if adopted else None
        if self.drops:
            return TableChange(self.name, known, self.target, drops=True)
        change = TableChange(
            self.name,
            known,
            self.target,
            self.files,
            only_new=known is None,
            adopted=self.adopted,
            copied=self.copied,
            comment=self.comment,
            options=self.options,
        )
        if self.removal is None:
            return change
        with planning(draft.config, f"Reading `{self.name}`", reads=True) as drafted:
            latest = drafted.latest()
            plan = plan_rows(drafted, drafted.table(self.name, latest.snapshot_id), latest, None, values=False)
        removal, deletes = self.removal.of(plan)
        return replace(change, remove=removal, deletes=deletes)

    @property
    def rows_added(self) -> int:
        """The number of rows of its files."""
        return sum(file.record_count for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of its data files."""
        return sum(file.file_size for file in self.files)

    @property
    def paths(self) -> list[str]:
        """The paths of its files."""
        deletes = self.removal.deletes if self.removal else ()
        return [*(file.path for file in self.files), *(delete.path for delete in deletes)]
