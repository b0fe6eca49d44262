"""Commit compacted files: each replaces its input files, unless a concurrent commit has changed them.

A merged file replaces its inputs in history too: they are removed from the catalog, and every snapshot reads their rows
from the merged file. A rewritten file begins with the new snapshot, and its inputs end there. Data files are read and
written before this step, so that other writers wait for milliseconds only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ducklake_orch.catalog.commit import FileState, Retired, delete_files_of_retired, file_states, insert_delete_files
from ducklake_orch.catalog.lifecycle.expiry import schedule
from ducklake_orch.catalog.lifecycle.partial_files import FileEntry, add_placed_files, recount
from ducklake_orch.catalog.metadata import (
    NOW,
    DataFile,
    MetadataTransaction,
    NewDeleteFile,
    NewFile,
    TableDef,
    Token,
    commit_metadata,
    deletions_table,
    format_tokens,
)
from ducklake_orch.catalog.parquet import FileLife
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session

Way = Literal["merge", "rewrite"]


@dataclass(frozen=True)
class Compacted:
    """New files, and the files that they are to replace.

    Attributes:
        inputs: The files that were compacted, in the state in which they were read.
        files: The new files; at most one for a merge.
        first: The first snapshot in which a row of the merged file began.
        last: The last snapshot in which a row of the merged file began.
        partition_id: The partition spec of the new files.
        deletes: The delete file of a merged file; the id of its data file is not known yet.
        again: Whether failed attempts may have left files.
    """

    inputs: tuple[FileLife, ...]
    files: tuple[NewFile, ...]
    first: int = 0
    last: int = 0
    partition_id: int | None = None
    deletes: NewDeleteFile | None = None
    again: bool = False

    @property
    def paths(self) -> list[str]:
        """The files that were written."""
        return [*(file.path for file in self.files), *([self.deletes.path] if self.deletes else [])]

    def is_unchanged(self, now: dict[int, FileState]) -> bool:
        """Return whether the inputs have the same deletions as when they were read."""
        return all(now.get(life.file.data_file_id) == state_of(life) for life in self.inputs)


def state_of(life: FileLife) -> FileState:
    """Return the deletions of a live file."""
    live = tuple(delete.delete_file_id for delete in life.file.deletes if delete.end_snapshot is None)
    return live, len({position for position, _ in life.deleted})


@dataclass(frozen=True)
class CommittedCompaction:
    """The outcome of committing compacted files.

    Attributes:
        snapshot_id: The snapshot that committed them; None if none was committed.
        done: Those that replaced their inputs. A concurrent commit has changed the inputs of the others.
        delete_files: The delete files that were committed with them.
    """

    snapshot_id: int | None = None
    done: tuple[Compacted, ...] = ()
    delete_files: tuple[str, ...] = ()


def commit_compacted(
    session: Session, write: Write, way: Way, table: TableDef, compacted: Sequence[Compacted]
) -> CommittedCompaction:
    """Commit compacted files of one table, as one snapshot."""
    placed = commit_metadata(
        session, write, lambda transaction: _Commit(transaction, write, way, table, compacted).run()
    )
    write.kept = frozenset([*(path for replacement in placed.done for path in replacement.paths), *placed.delete_files])
    return placed


@dataclass
class _Commit:
    """One attempt at the commit."""

    transaction: MetadataTransaction
    write: Write
    way: Way
    table: TableDef
    compacted: Sequence[Compacted]
    done: list[Compacted] = field(default_factory=list)

    def run(self) -> CommittedCompaction:
        transaction, table = self.transaction, self.table
        now = file_states(transaction, table, [life.file for compacted in self.compacted for life in compacted.inputs])
        self.done = [compacted for compacted in self.compacted if compacted.is_unchanged(now)]
        if not self.done or (self.way == "rewrite" and self._has_other_layout()):
            return CommittedCompaction()
        snapshot = transaction.latest.snapshot_id + 1
        files = [file for compacted in self.done for file in compacted.files]
        first = transaction.latest.next_file_id
        deletes = self._deletes(snapshot, first)
        self._add_snapshot(snapshot, len(files) + len(deletes))
        self._recount(files)
        if self.way == "merge":
            self._forget_inputs()
        else:
            self._end_inputs(snapshot)
        add_placed_files(transaction, table, self._placed(snapshot), first)
        insert_delete_files(transaction, table, deletes, first + len(files))
        return CommittedCompaction(snapshot, tuple(self.done), tuple(delete.path for delete in deletes))

    def _has_other_layout(self) -> bool:
        """Return whether the table no longer has the columns and the layout that rewritten files have."""
        now = table_now(self.transaction, self.table)
        return now is None or is_laid_out_differently(now, self.table)

    @property
    def _inputs(self) -> list[DataFile]:
        return [life.file for compacted in self.done for life in compacted.inputs]

    def _deletes(self, snapshot: int, first: int) -> list[NewDeleteFile]:
        """Return the delete files: of merged files, or of retired files whose deletions were inlined."""
        if self.way == "rewrite":
            ids = [file.data_file_id for file in self._inputs]
            retired = Retired(file_ids=ids, file_count=len(ids))
            return delete_files_of_retired(self.transaction, self.table, retired, snapshot, self.write.write_id)
        deletes = []
        for compacted in self.done:
            if compacted.deletes is not None:
                deletes.append(
                    replace(compacted.deletes, data_file=replace(compacted.deletes.data_file, data_file_id=first))
                )
            first += len(compacted.files)
        return deletes

    def _add_snapshot(self, snapshot: int, numbered: int) -> None:
        transaction, latest, info = self.transaction, self.transaction.latest, self.write.info
        row = {"snapshot_id": snapshot, "snapshot_time": NOW, "schema_version": latest.schema_version}
        row |= {"next_catalog_id": latest.next_catalog_id, "next_file_id": latest.next_file_id + max(numbered, 1)}
        transaction.insert_row("ducklake_snapshot", row)
        kind = "merge_adjacent" if self.way == "merge" else "rewrite_delete"
        # `inline_flush` makes concurrent commits conflict that add inlined deletions for the compacted files.
        tokens = [Token(change, self.table.table_id) for change in (kind, "inline_flush")]
        row = {"snapshot_id": snapshot, "changes_made": format_tokens(tokens), "author": info.author}
        row |= {"commit_message": info.message, "commit_extra_info": self.write.extra}
        transaction.insert_row("ducklake_snapshot_changes", row)

    def _forget_inputs(self) -> None:
        transaction, inputs = self.transaction, self._inputs
        ids = [file.data_file_id for file in inputs]
        for name in (
            *("ducklake_data_file", "ducklake_delete_file", "ducklake_file_column_stats"),
            *("ducklake_file_variant_stats", "ducklake_file_partition_value"),
        ):
            transaction.change_each(name, "DELETE FROM {} WHERE", "data_file_id", ids)
        if (deletions := deletions_table(transaction.metadata, self.table)) is not None:
            transaction.change_each(deletions, "DELETE FROM {} WHERE", "file_id", ids)
        scheduled = [(file.data_file_id, file.path) for file in inputs]
        schedule(
            transaction,
            scheduled + [(delete.delete_file_id, delete.path) for file in inputs for delete in file.deletes],
        )

    def _end_inputs(self, snapshot: int) -> None:
        statement = f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE end_snapshot IS NULL AND"
        ids = [file.data_file_id for file in self._inputs]
        for name in ("ducklake_data_file", "ducklake_delete_file"):
            self.transaction.change_each(name, statement, "data_file_id", ids)

    def _recount(self, files: Sequence[NewFile]) -> None:
        inputs = self._inputs
        # Deletes do not lower the table's row count. A rewrite drops the deleted rows, so it does.
        lost = sum(file.record_count for file in inputs) - sum(file.record_count for file in files)
        recount(
            self.transaction,
            self.table.table_id,
            files,
            removed_bytes=sum(file.file_size for file in inputs),
            rows_lost=lost if self.way == "rewrite" else 0,
        )

    def _placed(self, snapshot: int) -> list[FileEntry]:
        """Return where the new files begin: merged ones with their oldest row, rewritten ones with the new snapshot."""
        merge = self.way == "merge"
        return [
            FileEntry(
                file,
                compacted.first if merge else snapshot,
                compacted.last if merge else None,
                compacted.partition_id,
            )
            for compacted in self.done
            for file in compacted.files
        ]


def table_now(transaction: MetadataTransaction, planned: TableDef) -> TableDef | None:
    """Return a table as it is now; None if no table of its name is that table any more."""
    name = TableName(planned.schema, planned.name)
    current = transaction.metadata.find_table(name, transaction.latest.snapshot_id)
    return current if current is not None and current.table_id == planned.table_id else None


def is_laid_out_differently(current: TableDef, planned: TableDef) -> bool:
    """Return whether the columns or the partition keys of a table have changed since it was planned."""
    return current.columns != planned.columns or current.partition != planned.partition
