"""The part of a commit that changes one table: check it for conflicts, then write its rows of the metadata tables."""

from dataclasses import dataclass, field, replace

from ducklake_orch.catalog.commit import conflicts, ddl, idempotency
from ducklake_orch.catalog.commit.delete_file_rows import delete_files_of_retired, insert_delete_files
from ducklake_orch.catalog.commit.duplicate_files import refuse_known
from ducklake_orch.catalog.commit.expect_snapshot import check_expected, judge_rollback
from ducklake_orch.catalog.commit.late_rows import check_late_rows
from ducklake_orch.catalog.commit.retire import Retired, file_states, find_retired
from ducklake_orch.catalog.commit.staged_files import PreparedFiles
from ducklake_orch.catalog.commit.table_change import Committed, ExactRows, Rollback, TableChange
from ducklake_orch.catalog.commit.table_statistics import (
    TableStatistics,
    read_table_statistics,
    widen_table_statistics,
    write_table_statistics,
)
from ducklake_orch.catalog.metadata import MetadataTransaction, NewDeleteFile, Relation, TableDef, Token
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.errors import CommitConflictError, StalePlanError


@dataclass
class Numbers:
    """The next free ids of a commit.

    Attributes:
        schemas: Ids of the schemas that the commit creates, by their folded names.
    """

    catalog_id: int
    file_id: int
    schemas: dict[str, int] = field(default_factory=dict)


def refuse_own_key(write_id: str, write: Write) -> None:
    """Refuse to replay a write's own commit: an earlier attempt has committed it, and its answer was lost.

    The next attempt finds the snapshot by its write id, and knows what it contains.

    Raises:
        CommitConflictError: When the key was committed by this write.
    """
    if write_id == write.write_id:
        raise CommitConflictError(f"{write.purpose} was committed while its snapshot was searched for.")


@dataclass
class TableCommit:
    """The part of a commit that changes one table.

    Attributes:
        written: Paths of the delete files that the attempts write; all attempts append to the same list.
        done: The outcome, once there is one.
        current: The table as it is in the catalog; None if it does not exist.
        defines: Whether the commit creates or alters the table.
        numbered: The table to create, or the altered table, with its catalog ids.
        new_version: Whether the commit takes a new schema version.
        statistics: The table's statistics before the commit, if it adds rows to a table that has had rows.
    """

    transaction: MetadataTransaction
    write: Write
    change: TableChange
    ready: PreparedFiles
    written: list[str]
    tokens: list[Token] = field(default_factory=list)
    done: Committed | None = None
    current: TableDef | None = None
    defines: bool = False
    retired: Retired = field(default_factory=Retired)
    inlined_table: str | None = None
    new_version: bool = False
    numbered: ddl.NumberedTable | None = None
    deletes: list[NewDeleteFile] = field(default_factory=list)
    first_id: int = 0
    statistics: TableStatistics | None = None

    @property
    def outcome(self) -> Committed:
        """The outcome of a part that is done."""
        assert self.done is not None  # noqa: S101 - `run` has ended
        return self.done

    def check(self) -> None:
        """Check the change for conflicts, and find what it retires; a change that does nothing is done."""
        transaction, change, latest = self.transaction, self.change, self.transaction.latest
        if change.settings is not None and transaction.metadata.settings() != change.settings:
            raise StalePlanError(
                f"The options of the lake have changed since a write to `{change.table}` was planned.",
                remedy="Retry the write: planned again, it can succeed.",
            )
        current = self.current = self._current()
        self.done = self._replayed(current)
        if self.done is not None:
            return
        if current is not None:
            self._refuse_committed_keys(current)
        self.defines = conflicts.judge_table(change, current) or change.drops
        if current is not None:
            conflicts.judge_new_columns(transaction.metadata, current, change.target)
            conflicts.judge_new_buckets(transaction.metadata, current, change.target)
        if change.adopted:
            refuse_known(transaction.metadata, change.adopted)
        if change.copied and current is not None:  # copies are only refused beside rows of the same table
            refuse_known(transaction.metadata, change.copied, copied_to=current)
        check_expected(transaction, change, current)
        self.retired = Retired() if current is None else self._retired(current)
        if not (self.ready.rows or change.deletes or self.retired or self.defines):
            self.done = Committed(latest.snapshot_id, latest.snapshot_id)
            return
        if current is not None and self.ready.rows:
            self.statistics = read_table_statistics(transaction, current.table_id)
        if change.few is not None and current is not None:
            self.inlined_table = ddl.inlined_table(transaction, current)
        # The table that holds inlined rows is part of the schema. An engine that has cached this schema version does
        # not search for a new one, so creating one takes a new version.
        self.new_version = self.defines or (change.few is not None and self.inlined_table is None)

    def number(self, numbers: Numbers) -> None:
        """Assign catalog ids to a new table, or to the new keys of a table."""
        change, transaction = self.change, self.transaction
        if self.current is None:
            numbered = ddl.number_table(transaction, change.target, numbers.catalog_id, numbers.schemas)
            conflicts.judge_new_table(transaction.metadata, numbered.table, transaction.latest.snapshot_id)
        elif self.defines and not change.drops:
            numbered = ddl.number_keys(change.target, numbers.catalog_id, change.known)
        else:
            return
        self.numbered, numbers.catalog_id = numbered, numbered.next_id

    def retire_inlined(self, snapshot: int) -> None:
        """End the inlined rows that the change retires."""
        for inlined, row_ids in self.retired.inlined.items():
            end = f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE end_snapshot IS NULL"
            if row_ids is None:
                self.transaction.change(inlined, end)
            else:
                self.transaction.change_each(inlined, f"{end} AND", "row_id", row_ids)

    def write_deletes(self, snapshot: int, numbers: Numbers) -> None:
        """Write the delete files of this snapshot, and assign the ids of all new files.

        Delete files are for data files that lose some rows, and for retired data files with inlined deletions.
        """
        if self.current is not None:
            deletes = delete_files_of_retired(
                self.transaction, self.current, self.retired, snapshot, self.write.write_id
            )
            self.written += [file.path for file in deletes]
            self.deletes = [*deletes, *(self.change.deletes.numbered(snapshot) if self.change.deletes else ())]
        self.first_id = numbers.file_id
        numbers.file_id += self.ready.mappings + self.ready.count + len(self.deletes)

    def insert(self, snapshot: int, version: int) -> None:
        """Write the table, and retire and add its files and rows."""
        transaction, change = self.transaction, self.change
        if change.drops and self.current is not None:
            self.tokens.append(ddl.drop_table(transaction, self.current, snapshot))
            self.done = Committed(snapshot, transaction.latest.snapshot_id)
            return
        table = self._define(snapshot)
        if self.new_version:
            row = {"begin_snapshot": snapshot, "schema_version": version, "table_id": table.table_id}
            transaction.insert_row("ducklake_schema_versions", row)
            self.inlined_table = ddl.add_inlined_table(transaction, table, version)
        self._retire_files(table, snapshot)
        self._add_files(table, snapshot)
        self._add_inlined(table, snapshot)
        insert_delete_files(transaction, table, self.deletes, self.first_id + self.ready.mappings + self.ready.count)
        for key in change.keys:
            idempotency.record(transaction, table.table_id, key, snapshot, self.write.write_id)
        self.done = Committed(
            snapshot,
            transaction.latest.snapshot_id,
            rows_removed=self.retired.rows,
            rows_added=self.ready.rows,
            files_added=self.ready.count,
            files_removed=self.retired.file_count,
            delete_files=tuple(delete.path for delete in self.deletes),
        )

    def _define(self, snapshot: int) -> TableDef:
        """Create or alter the table, if the change does, and return the table that results."""
        transaction, change, numbered, current = self.transaction, self.change, self.numbered, self.current
        if numbered is None:
            assert current is not None  # noqa: S101 - else there is a table to create
            return current
        if current is None or change.known is None:  # here, both are None or neither is
            self.tokens += ddl.create_table(transaction, numbered, snapshot)
            table = numbered.table
        else:
            self.tokens.append(ddl.alter_table(transaction, change.known, numbered, snapshot))
            made = numbered.table
            table = replace(current, columns=made.columns, partition=made.partition, sort=made.sort)
        ddl.describe_table(transaction, table.table_id, snapshot, change.comment, change.options)
        return table

    def _current(self) -> TableDef | None:
        """Return the current table, or None if it does not exist; reuse the planned one if the schema is the same."""
        latest, change = self.transaction.latest, self.change
        if latest.schema_version == change.planned_version:
            return change.known
        return self.transaction.metadata.find_table(change.table, latest.snapshot_id)

    def _replayed(self, current: TableDef | None) -> Committed | None:
        change, latest = self.change, self.transaction.latest.snapshot_id
        if change.key is None or current is None or not change.replays:
            return None
        if (committed := idempotency.find_in(self.transaction, current.table_id, change.key)) is None:
            return None
        snapshot, write_id = committed
        refuse_own_key(write_id, self.write)
        undone = idempotency.undone_by(self.transaction.metadata, current.table_id, snapshot)
        return Committed(snapshot, latest, replayed=True, undone_by=undone)

    def _refuse_committed_keys(self, current: TableDef) -> None:
        """Refuse staged work whose key other work has committed meanwhile: its rows would be there twice."""
        for key, is_once in self.change.staged_keys.items():
            if is_once and (found := idempotency.find_in(self.transaction, current.table_id, key)) is not None:
                raise StalePlanError(f"Work with the key {key!r} is committed to `{current}` as snapshot {found[0]}.")

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

    def _retire_files(self, table: TableDef, snapshot: int) -> None:
        transaction, retired = self.transaction, self.retired
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
        first_mapping = self.first_id
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
        files, part = ready.files, None
        if self.change.parts:
            part, rows = "part", [(*row, n) for row, n in zip(files.rows, self.change.parts, strict=True)]
            files = Relation.of({**files.columns, part: "BIGINT"}, rows)
        begin, begins = _begin(snapshot, part)
        transaction.insert(
            "ducklake_data_file",
            files,
            constants=of_table
            | begin
            | {"file_format": "parquet"}
            | {"partition_id": table.partition.partition_id if table.partition else None},
            shifts=number
            | begins
            | {"row_id_start": ("first_row", first_row), "mapping_id": ("mapping", first_mapping)},
        )
        transaction.insert("ducklake_file_partition_value", ready.values, constants=of_table, shifts=number)
        transaction.insert("ducklake_file_column_stats", ready.stats, constants=of_table, shifts=number)
        transaction.insert("ducklake_file_variant_stats", ready.variants, constants=of_table, shifts=number)
        self.tokens.append(Token("inserted_into_table", table.table_id))

    def _add_inlined(self, table: TableDef, snapshot: int) -> None:
        """Insert inlined rows, which the catalog itself stores."""
        inlinable_rows = self.change.few
        if inlinable_rows is None:
            return
        if self.inlined_table is None:
            raise StalePlanError(
                f"The catalog can no longer inline rows of `{table}`.",
                remedy="Retry the write: planned again, it can succeed.",
            )
        first_row = self._count_rows(table)
        begin, begins = _begin(snapshot, inlinable_rows.part)
        shifts = begins | {"row_id": (inlinable_rows.ordinal, first_row)}
        self.transaction.insert(self.inlined_table, inlinable_rows.stored, constants=begin, shifts=shifts)
        self.tokens.append(Token("inlined_insert", table.table_id))

    def _count_rows(self, table: TableDef) -> int:
        """Add the new rows to the table's statistics, and return the row id of the first new row."""
        transaction, ready, table_id, known = self.transaction, self.ready, table.table_id, self.statistics
        if known is None:
            row = {"table_id": table_id, "record_count": ready.rows, "next_row_id": ready.new_rows}
            transaction.insert_row("ducklake_table_stats", row | {"file_size_bytes": ready.size})
            write_table_statistics(transaction, table_id, ready.summary)
            return 0
        transaction.change(
            "ducklake_table_stats",
            f"UPDATE {{}} SET record_count = record_count + {ready.rows}, next_row_id = next_row_id + {ready.new_rows},"
            f" file_size_bytes = file_size_bytes + {ready.size} WHERE table_id = {table_id}",
        )
        widen_table_statistics(transaction, table, known, ready.summary)
        return known.next_row_id


def _begin(snapshot: int, part: str | None) -> tuple[dict[str, int], dict[str, tuple[str, int]]]:
    """Return `begin_snapshot` as a constant; or as a shift, if a column tells which of several snapshots adds a row."""
    return ({"begin_snapshot": snapshot}, {}) if part is None else ({}, {"begin_snapshot": (part, snapshot)})
