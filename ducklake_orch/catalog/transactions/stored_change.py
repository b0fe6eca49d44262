"""What a stage did to one table, in a form that the catalog can store, and back again."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from ducklake_orch.catalog.commit import Everything, ExactRows, Matching, Partitions, Removal, TableChange
from ducklake_orch.catalog.metadata import NewFile, TableDef, origin
from ducklake_orch.catalog.search import RowPlan
from ducklake_orch.catalog.transactions.net_change import delete_files_of
from ducklake_orch.engine.quoting import TableName

if TYPE_CHECKING:
    from ducklake_orch.catalog.transactions.draft import Draft


@dataclass(frozen=True)
class StoredRemoval:
    """The rows of the lake that a stage retires.

    Attributes:
        kind: All rows, whole partitions, rows that meet a condition, or rows that were found in the lake.
        keys: The keys of the partitions.
        where: The condition, or that for all rows that were looked at.
        whole: Ids of the data files that lose all rows.
        deletes: Paths of the delete files with the positions of the rows to retire, by the data file's id.
        inlined: Ids of the inlined rows to retire, by inlined-data table.
        rows: The number of rows that were found.
    """

    kind: Literal["everything", "partitions", "matching", "rows"]
    keys: tuple[tuple[str | None, ...], ...] = ()
    where: str | None = None
    whole: tuple[int, ...] = ()
    deletes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    inlined: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
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
                files = change.deletes.files if change.deletes else ()
                paths = change.deletes.paths if change.deletes else ()
                marked = {file.data_file_id: (path,) for file, path in zip(files, paths, strict=True)}
                whole = tuple(file.data_file_id for file in found.whole)
                return cls("rows", (), found.where, whole, marked, found.inlined, found.rows)
        raise AssertionError(change.remove)  # no verb of a draft retires anything else

    def of(self, base: RowPlan) -> Removal:
        """Return the removal for a table at the same base snapshot."""
        match self.kind:
            case "everything":
                return Everything()
            case "partitions":
                return Partitions(frozenset(self.keys))
            case "matching":
                return Matching(self.where or "true")
            case "rows":
                at, files, seen = base.latest.snapshot_id, base.scan.files, base.inlined_versions()
                whole = tuple(file for file in files if file.data_file_id in self.whole)
                return ExactRows(at, self.where, files, whole, seen, self.inlined, self.rows)


@dataclass(frozen=True)
class StoredChange:
    """The net change of a table since the base snapshot of a stage.

    Attributes:
        name: The table's name.
        target: The table as the stage leaves it.
        creates: Whether the stage creates the table.
        drops: Whether it drops the table.
        write_ids: The ids of the writes that wrote its files.
        keys: The idempotency keys of the work that made it.
        superseded: Paths of files that earlier changes of the stage needed; readers of the stage may still read them.
        rows_added: The number of rows that would come.
        rows_removed: The number of rows that would go.
    """

    name: TableName
    target: TableDef
    creates: bool
    drops: bool
    files: tuple[NewFile, ...]
    removal: StoredRemoval | None
    adopted: tuple[str, ...]
    copied: tuple[str, ...]
    write_ids: tuple[str, ...]
    keys: tuple[str, ...]
    superseded: tuple[str, ...]
    rows_added: int
    rows_removed: int

    @classmethod
    def of(
        cls,
        change: TableChange,
        earlier: "StoredChange | None",
        *,
        write_ids: Sequence[str],
        key: str | None,
        rows_removed: int,
    ) -> "StoredChange":
        """Return the form of a net change that can be stored.

        Args:
            change: The net change.
            earlier: The net change that it takes the place of.
            write_ids: The ids of the writes since then.
            key: The idempotency key of the work since then.
            rows_removed: The number of rows that would go.
        """
        new = cls(
            name=change.table,
            target=change.target,
            creates=change.known is None,
            drops=change.drops,
            files=change.files,
            removal=StoredRemoval.stored(change),
            adopted=change.adopted,
            copied=change.copied,
            write_ids=tuple(write_ids),
            keys=(key,) if key is not None else (),
            superseded=(),
            rows_added=sum(file.record_count for file in change.files),
            rows_removed=rows_removed,
        )
        if earlier is None:
            return new
        return replace(
            new,
            write_ids=tuple(dict.fromkeys([*earlier.write_ids, *new.write_ids])),
            keys=earlier.keys + new.keys,
            superseded=(*earlier.superseded, *(path for path in earlier.paths if path not in new.paths)),
        )

    def change(self, draft: "Draft", write_id: str) -> TableChange:
        """Return the change for a draft with the same base, with delete files of its own.

        Args:
            draft: The draft.
            write_id: Part of the names of the delete files.
        """
        adopted = draft.adopt(self.name)
        known = adopted.table if adopted else None
        if self.drops and known is not None:
            return TableChange(self.name, known, known, drops=True)
        change = TableChange(
            self.name, known, self.target, self.files, only_new=known is None, adopted=self.adopted, copied=self.copied
        )
        if adopted is None:
            return change
        if self.removal is None:
            return change
        deletes = self.removal.deletes
        marked = delete_files_of(draft, adopted.plan, deletes, write_id) if deletes else None
        return replace(change, remove=self.removal.of(adopted.plan), deletes=marked)

    @property
    def paths(self) -> list[str]:
        """The paths of its files."""
        deletes = self.removal.deletes.values() if self.removal else ()
        return [*(file.path for file in self.files), *(path for paths in deletes for path in paths)]

    @property
    def own_files(self) -> list[str]:
        """The paths of all files that were written for it, without those of other programs."""
        ids = set(self.write_ids)
        return [path for path in (*self.paths, *self.superseded) if origin(path)[0] in ids]

    def to_text(self) -> str:
        """Return the change as a text in ASCII."""
        return base64.b64encode(zlib.compress(_ADAPTER.dump_json(self))).decode()

    @staticmethod
    def from_text(text: str) -> "StoredChange":
        """Return the change of a text."""
        return _ADAPTER.validate_json(zlib.decompress(base64.b64decode(text)))


_ADAPTER = TypeAdapter(StoredChange)
