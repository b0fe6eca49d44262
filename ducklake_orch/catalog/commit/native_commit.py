"""Commit finished files and retired rows as exactly one snapshot, in plain SQL on the metadata tables.

The entry point is `commit_change`. Data files are written once, before the commit: when a concurrent commit takes the
snapshot id first, the next attempt only assigns new ids.
"""

import logging
from dataclasses import dataclass, field, replace

from ducklake_orch.catalog.commit import conflicts, ddl, idempotency
from ducklake_orch.catalog.commit.delete_file_rows import delete_files_of_retired, insert_delete_files
from ducklake_orch.catalog.commit.duplicate_files import refuse_known
from ducklake_orch.catalog.commit.expect_snapshot import check_expected, judge_rollback
from ducklake_orch.catalog.commit.late_rows import check_late_rows
from ducklake_orch.catalog.commit.retire import Retired, file_states, find_retired
from ducklake_orch.catalog.commit.staged_files import PreparedFiles, prepare, prepare_inlined
from ducklake_orch.catalog.commit.table_change import Committed, ExactRows, Rollback, TableChange
from ducklake_orch.catalog.commit.table_statistics import widen_table_statistics, write_table_statistics
from ducklake_orch.catalog.metadata import (
    NOW,
    MetadataTransaction,
    NewDeleteFile,
    Relation,
    TableDef,
    Token,
    format_tokens,
)
from ducklake_orch.engine.exactly_once import Write, commit_through
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.stored_files import remove_superseded
from ducklake_orch.errors import StalePlanError

log = logging.getLogger("ducklake_orch")


def commit_change(session: Session, write: Write, change: TableChange) -> Committed:
    """Commit a change as one snapshot, exactly once.

    Args:
        session: The lake; it need not be entered.
        write: Identity of the write. Its id is stored in the snapshot, so that a lost answer to COMMIT can be resolved.
        change: The change to commit.

    Raises:
        TransientError: When a conflict stops this attempt, but the same work can succeed once it is planned again.
        UnknownOutcomeError: When the answer to COMMIT was lost and the catalog does not tell whether it committed.
    """
    root, written = session.instance.root, list[str]()
    ready = (
        prepare_inlined(root, change.target, change.few) if change.few else prepare(root, change.target, change.files)
    )
    if change.key is not None:
        idempotency.check_key(change.key)
        idempotency.make_table(session)
    with session.instance.one_thread():
        result = commit_through(
            MetadataTransaction,
            session,
            write,
            lambda transaction: _Commit(transaction, write, change, ready, written).run(),
            settle=False,
        )
    added = [file.path for file in change.files] if result.files_added else []
    write.kept = frozenset([*added, *result.delete_files])
    remove_superseded(session.config, write, [*written, *(change.deletes.paths if change.deletes else ())])
    if write.after is not None:  # the answer to COMMIT was lost, and the write id identified the snapshot
        result = replace(result, snapshot_id=write.after)
    write.after = result.snapshot_id
    return result


@dataclass
class _Commit:
    """One attempt to commit a change.

    Attributes:
        written: Paths of the delete files that the attempts write; all attempts append to the same list.
    """

    transaction: MetadataTransaction
    write: Write
    change: TableChange
    ready: PreparedFiles
    written: list[str]
    tokens: list[Token] = field(default_factory=list)

    def run(self) -> Committed:
        """Check the change for conflicts and write the snapshot, both against the latest state of the catalog."""
        transaction, change, latest = self.transaction, self.change, self.transaction.latest
        current = self._current()
        replayed = self._replayed(current)
        if replayed is not None:
            return replayed
        defines = conflicts.judge_table(change, current)
        if change.adopted and current is not None:
            copied = any(file.path != path for file, path in zip(change.files, change.adopted, strict=True))
            refuse_known(transaction.metadata, current, change.adopted, copied=copied)
        check_expected(transaction, change, current)
        retired = Retired() if current is None else self._retired(current)
        if not (self.ready.rows or change.deletes or retired or defines):
            return Committed(latest.snapshot_id, latest.snapshot_id, current.table_id if current else None)
        inlined_table = None
        if change.few and self.ready.rows and current is not None and not defines:
            inlined_table = ddl.inlined_table(transaction, current)
        # The table that holds inlined rows is part of the schema. An engine that has cached this schema version does
        # not search for a new one, so creating one takes a new version.
        new_version = defines or (change.few is not None and self.ready.rows > 0 and inlined_table is None)
        snapshot = latest.snapshot_id + 1
        new = ddl.number_table(transaction, change.target) if current is None else None
        if new is not None:
            conflicts.judge_new_table(transaction.metadata, new.table, latest.snapshot_id)
        # Retire inlined rows before inserting the snapshot. A writer that does not take the lake's lock first locks
        # such rows and then inserts its snapshot; the opposite order here would end in a deadlock.
        self._retire_inlined(retired, snapshot)
        deletes = self._deletes(current, retired, snapshot)
        # Insert the snapshot before all other rows: its primary key is the last guard against writers that do not take
        # the lake's lock.
        self._add_snapshot(snapshot, new.next_id if new else latest.next_catalog_id, new_version, len(deletes))
        if new is not None:
            self.tokens += ddl.create_table(transaction, new, snapshot)
            table = new.table
        else:
            assert current is not None  # noqa: S101 - else there is a new one
            table = current
            if defines:
                self.tokens.append(ddl.alter_columns(transaction, current, change.target, snapshot))
                table = replace(current, columns=change.target.columns)
        if new_version:
            version = {"begin_snapshot": snapshot, "schema_version": latest.schema_version + 1}
            transaction.insert_row("ducklake_schema_versions", version | {"table_id": table.table_id})
            inlined_table = ddl.add_inlined_table(transaction, table, latest.schema_version + 1)
        self._retire_files(table, retired, snapshot)
        self._add_files(table, snapshot)
        self._add_inlined(table, inlined_table, snapshot)
        first_delete = latest.next_file_id + self.ready.mappings + self.ready.count
        insert_delete_files(transaction, table, deletes, first_delete)
        self._finish(table, snapshot)
        return Committed(
            snapshot,
            latest.snapshot_id,
            table.table_id,
            rows_removed=retired.rows,
            rows_added=self.ready.rows,
            files_added=self.ready.count,
            files_removed=retired.file_count,
            delete_files=tuple(delete.path for delete in deletes),
        )

    def _current(self) -> TableDef | None:
        """Return the current table, or None if it does not exist; reuse the planned one if the schema is the same."""
        latest, change = self.transaction.latest, self.change
        if change.known is not None and latest.schema_version == change.planned_version:
            return change.known
        return self.transaction.metadata.find_table(change.table, latest.snapshot_id)

    def _replayed(self, current: TableDef | None) -> Committed | None:
        change, latest = self.change, self.transaction.latest.snapshot_id
        if change.key is None:
            return None
        idempotency.make_table_in(self.transaction)
        if current is None or not change.replays:
            return None
        if (committed := idempotency.find_in(self.transaction, current.table_id, change.key)) is None:
            return None
        snapshot, write_id = committed
        if write_id == self.write.write_id:  # this write committed in an earlier attempt, whose answer was lost
            return Committed(
                snapshot, latest, current.table_id, rows_added=self.ready.rows, files_added=self.ready.count
            )
        undone = idempotency.undone_by(self.transaction.metadata, current.table_id, snapshot)
        return Committed(snapshot, latest, current.table_id, replayed=True, undone_by=undone)

    def _retired(self, table: TableDef) -> Retired:
        """Check for conflicts with the rows that the change retires, and return those rows."""
        transaction, change = self.transaction, self.change
        if isinstance(change.remove, Rollback):
            judge_rollback(transaction, change.remove, table)
        if conflicts.planned_files(change):
            conflicts.judge_files(change, file_states(transaction, table, conflicts.planned_files(change)))
        if isinstance(change.remove, ExactRows):
            check_late_rows(transaction, change.remove, table)
        return find_retired(transaction, change, table)

    def _deletes(self, table: TableDef | None, retired: Retired, snapshot: int) -> list[NewDeleteFile]:
        """Write and return the delete files of this snapshot.

        They are for data files that lose some rows, and for retired data files with inlined deletions.
        """
        if table is None:
            return []
        deletes = delete_files_of_retired(self.transaction, table, retired, snapshot, self.write.write_id)
        self.written += [file.path for file in deletes]
        return [*deletes, *(self.change.deletes.numbered(snapshot) if self.change.deletes else ())]

    def _add_snapshot(self, snapshot: int, next_catalog_id: int, new_version: bool, deletes: int) -> None:
        latest = self.transaction.latest
        numbered = self.ready.mappings + self.ready.count + deletes
        row = {
            "snapshot_id": snapshot,
            "snapshot_time": NOW,
            "schema_version": latest.schema_version + int(new_version),
        }
        # Readers take their cached statistics for current as long as `next_file_id` is the same, so every commit
        # increases it.
        row |= {"next_catalog_id": next_catalog_id, "next_file_id": latest.next_file_id + max(numbered, 1)}
        self.transaction.insert_row("ducklake_snapshot", row)

    def _retire_inlined(self, retired: Retired, snapshot: int) -> None:
        for inlined, row_ids in retired.inlined.items():
            end = f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE end_snapshot IS NULL"
            if row_ids is None:
                self.transaction.change(inlined, end)
            else:
                self.transaction.change_each(inlined, f"{end} AND", "row_id", row_ids)

    def _retire_files(self, table: TableDef, retired: Retired, snapshot: int) -> None:
        transaction = self.transaction
        statement = (
            f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE table_id = {table.table_id} AND end_snapshot IS NULL"
        )
        for name in ("ducklake_data_file", "ducklake_delete_file"):
            if retired.all_files:
                transaction.change(name, statement)
            else:
                transaction.change_each(name, f"{statement} AND", "data_file_id", retired.file_ids)
        if self.change.remove is not None:
            # Record both tokens even if nothing was retired or added, so that concurrent writers re-check. With
            # `deleted_from_table` alone, a concurrent DELETE by the engine would overlook that a delete file was
            # replaced.
            self.tokens += [Token("inserted_into_table", table.table_id), Token("deleted_from_table", table.table_id)]
        if retired.inlined or self.change.deletes:
            # Without this token, two concurrent changes by the engine would bring the rows back: a flush, and an
            # inlined deletion from a data file that gets a delete file in this commit.
            self.tokens.append(Token("inlined_delete", table.table_id))

    def _add_files(self, table: TableDef, snapshot: int) -> None:
        ready, transaction = self.ready, self.transaction
        if not ready.count:
            return
        first_mapping = transaction.latest.next_file_id
        first_file = first_mapping + ready.mappings
        first_row = self._count_rows(table)
        of_table = {"table_id": table.table_id}
        if ready.mappings:
            columns, rows = {"mapping": "BIGINT"}, [(n,) for n in range(ready.mappings)]
            transaction.insert(
                "ducklake_column_mapping",
                Relation.of(columns, rows),
                constants=of_table | {"type": "map_by_name"},
                shifts={"mapping_id": ("mapping", first_mapping)},
            )
            transaction.insert("ducklake_name_mapping", ready.names, shifts={"mapping_id": ("mapping", first_mapping)})
        number = {"data_file_id": ("ordinal", first_file)}
        transaction.insert(
            "ducklake_data_file",
            ready.files,
            constants=of_table
            | {"begin_snapshot": snapshot, "file_format": "parquet"}
            | {"partition_id": table.partition.partition_id if table.partition and table.partition.fields else None},
            shifts=number | {"row_id_start": ("first_row", first_row), "mapping_id": ("mapping", first_mapping)},
        )
        transaction.insert("ducklake_file_partition_value", ready.values, constants=of_table, shifts=number)
        transaction.insert("ducklake_file_column_stats", ready.stats, constants=of_table, shifts=number)
        transaction.insert("ducklake_file_variant_stats", ready.variants, constants=of_table, shifts=number)
        self.tokens.append(Token("inserted_into_table", table.table_id))

    def _add_inlined(self, table: TableDef, inlined_table: str | None, snapshot: int) -> None:
        """Insert inlined rows, which the catalog itself stores."""
        inlinable_rows = self.change.few
        if inlinable_rows is None or not self.ready.rows:
            return
        if inlined_table is None:
            raise StalePlanError(
                f"The catalog can no longer inline rows of `{table}`.",
                remedy="Retry the write: planned again, it can succeed.",
            )
        first_row = self._count_rows(table)
        self.transaction.insert(
            inlined_table,
            inlinable_rows.stored,
            constants={"begin_snapshot": snapshot},
            shifts={"row_id": (inlinable_rows.ordinal, first_row)},
        )
        self.tokens.append(Token("inlined_insert", table.table_id))

    def _count_rows(self, table: TableDef) -> int:
        """Add the new rows to the table's statistics, and return the row id of the first new row."""
        transaction, ready, table_id = self.transaction, self.ready, table.table_id
        counts = transaction.metadata.table_sql("ducklake_table_stats")
        rows = transaction.metadata.rows(f"SELECT next_row_id FROM {counts} WHERE table_id = {table_id}")
        if not rows:
            row = {"table_id": table_id, "record_count": ready.rows, "next_row_id": ready.new_rows}
            transaction.insert_row("ducklake_table_stats", row | {"file_size_bytes": ready.size})
            write_table_statistics(transaction, table_id, ready.summary)
            return 0
        transaction.change(
            "ducklake_table_stats",
            f"UPDATE {{}} SET record_count = record_count + {ready.rows}, next_row_id = next_row_id + {ready.new_rows},"
            f" file_size_bytes = file_size_bytes + {ready.size} WHERE table_id = {table_id}",
        )
        widen_table_statistics(transaction, table, ready.summary)
        return int(rows[0][0])

    def _finish(self, table: TableDef, snapshot: int) -> None:
        write, info = self.write, self.write.info
        row = {"snapshot_id": snapshot, "changes_made": format_tokens(self.tokens), "author": info.author}
        row |= {"commit_message": info.message, "commit_extra_info": write.extra}
        self.transaction.insert_row("ducklake_snapshot_changes", row)
        if self.change.key is not None:
            idempotency.record(self.transaction, table.table_id, self.change.key, snapshot, write.write_id)
