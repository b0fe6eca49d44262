"""Compare a table of a draft with its base, and fold everything that a transaction did to it into one change."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import (
    DeleteFiles,
    Everything,
    ExactRows,
    Matching,
    Partitions,
    Removal,
    TableChange,
    inlined_versions_of,
    partitions_condition,
)
from ducklake_orch.catalog.metadata import DataFile, DeleteFile, Metadata, NewDeleteFile, NewFile, TableDef, row_id_name
from ducklake_orch.catalog.parquet import parquet_sql
from ducklake_orch.catalog.search import (
    DuckDBFinder,
    RowPlan,
    RowSearch,
    placed_sql,
    plan_rows,
    union_sql,
)
from ducklake_orch.catalog.transactions.draft import AdoptedTable, Draft
from ducklake_orch.catalog.transactions.inexact_values import refuse_inexact
from ducklake_orch.catalog.transactions.table_copy import FIRST_DRAFT_FILE
from ducklake_orch.catalog.writing import Loss, write_delete_files, write_files, write_known_rows
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.errors import StalePlanError

# What a change can retire without having read it.
BLIND = (Everything, Partitions, Matching)


@dataclass(frozen=True)
class DraftedTable:
    """What a transaction did to a table.

    Attributes:
        name: The table's name.
        adopted: The table at the base snapshot; None if the transaction created it.
        changes: The changes that its verbs committed to the draft, in order.
    """

    name: TableName
    adopted: AdoptedTable | None
    changes: tuple[TableChange, ...]

    def is_blind(self, target: TableDef) -> bool:
        """Whether it only added and replaced rows without reading any, so that it also replaces concurrent rows.

        If the transaction changes columns or partition keys, its conditions and partitions may not apply to the rows
        of the lake. Such replacements are not blind.
        """
        removals = [change.remove for change in self.changes if change.remove is not None]
        base = self.adopted.table if self.adopted else target
        kinds: list[type] = [Everything]
        kinds += [Matching] if self.keeps_columns(base) else []
        kinds += [Partitions] if self.keeps_keys(base) else []
        return all(isinstance(removal, tuple(kinds)) for removal in removals)

    def keeps_columns(self, base: TableDef) -> bool:
        """Whether the table had the columns of the base at each verb."""
        return all(change.target.columns == base.columns for change in self.changes)

    def keeps_keys(self, base: TableDef) -> bool:
        """Whether the table had the partition keys of the base at each verb."""
        return all(change.target.key_fields == base.key_fields for change in self.changes)

    @property
    def files(self) -> dict[str, NewFile]:
        """All files that were added, by path."""
        return {file.path: file for change in self.changes for file in change.files}

    @property
    def foreign(self) -> frozenset[str]:
        """Paths of the files of other programs that were added."""
        return frozenset(path for change in self.changes for path in change.adopted)


def drafted_tables(draft: Draft) -> list[DraftedTable]:
    """Return what the verbs of a transaction did, by table, in the order of their first changes."""
    changes = defaultdict(list)
    for change in draft.recording.changes:
        changes[change.table.key].append(change)
    return [DraftedTable(found[0].table, draft.tables[key], tuple(found)) for key, found in changes.items()]


def net_change(draft: Draft, drafted: Metadata, staged: DraftedTable, write_id: str) -> TableChange | None:
    """Return the change that takes a table of the lake from its base to its state in the draft; None if there is none.

    Args:
        draft: The draft.
        drafted: The metadata tables of the draft.
        staged: The table.
        write_id: Part of the names of files that are written anew.
    """
    latest = drafted.latest()
    table = drafted.find_table(staged.name, latest.snapshot_id)
    if table is None:
        known = staged.adopted.table if staged.adopted else None
        return TableChange(staged.name, known, known, drops=True) if known else None
    now = plan_rows(drafted, table, latest, None, values=False)
    base = staged.adopted.plan if staged.adopted else None
    # A new table of the extension can have another folder in a draft than the commit gives it.
    target = replace(table, folder=staged.changes[-1].target.folder)
    if base is not None:
        target = replace(base.table, columns=table.columns, partition=table.partition, sort=table.sort)
    files = _staged_files(draft, staged, now, target, write_id)
    if base is None:
        # If another commit has created the table meanwhile, the verbs would have seen its rows.
        comment, options = drafted.comment(table.table_id), drafted.own_options(table.table_id)
        change = TableChange(staged.name, None, target, files, only_new=True, comment=comment, options=options)
        return _with_sources(staged, change)
    removal, deletes = _removal(draft, staged, base, now, write_id)
    comment = next((made.comment for made in reversed(staged.changes) if made.comment is not None), None)
    change = TableChange(staged.name, base.table, target, files, removal, deletes=deletes, comment=comment)
    return _with_sources(staged, change)


def _with_sources(staged: DraftedTable, change: TableChange) -> TableChange:
    """Return a change that names the files of other programs whose rows it adds."""
    adopted = tuple(file.path for file in change.files if file.path in staged.foreign)
    anew = staged.foreign.difference(adopted) if change.files else ()
    return replace(change, adopted=adopted, copied=(*anew, *(path for one in staged.changes for path in one.copied)))


def _staged_files(
    draft: Draft, staged: DraftedTable, now: RowPlan, target: TableDef, write_id: str
) -> tuple[NewFile, ...]:
    """Return the files to add.

    A file is written anew without the rows that later verbs deleted, and where row ids of the draft are stored in it:
    another commit may have taken these ids. So are the files that the extension wrote.
    """
    known = staged.files
    live = [file for file in now.scan.files if file.data_file_id >= FIRST_DRAFT_FILE]
    if len(staged.changes) == 1 and all(file.path in known for file in live):
        return tuple(known[file.path] for file in live)
    with working_connection(draft.config, apart=True) as con:
        search = RowSearch(draft.config, con, DuckDBFinder())
        with search.working("Reading changed rows"):
            refuse_inexact(search.con, now.table, [file for file in live if file.path not in known])
            anew = [
                file
                for file in live
                if file.path not in known
                or file.deletes
                or file.inlined_deletes
                or _is_outdated(staged, file.path, target)
                or (known[file.path].has_row_ids and _has_new_ids(search, staged, now, file))
            ]
            written = _written_anew(search, staged, replace(now, target=target), anew, write_id)
    return (*(known[file.path] for file in live if file not in anew), *written)


def _has_new_ids(search: RowSearch, staged: DraftedTable, now: RowPlan, file: DataFile) -> bool:
    """Return whether a file stores row ids that the draft assigned."""
    rows = f"SELECT max({row_id_name(now.scan.needed)}) FROM ({placed_sql(now.scan, file, search.hits)})"
    newest = search.con.execute(rows).fetchall()[0][0]
    return newest is not None and int(newest) >= _first_new_id(staged)


def _first_new_id(staged: DraftedTable) -> int:
    return staged.adopted.next_row_id if staged.adopted else 0


def _is_outdated(staged: DraftedTable, path: str, target: TableDef) -> bool:
    """Return whether a later verb of the transaction changed partition keys, or dropped or changed a file's columns.

    The columns of an encrypted file are known only by the names that the table has when the file is committed.
    """
    written = next(change.target for change in staged.changes if any(file.path == path for file in change.files))
    now = {number: leaf.type for number, leaf in target.leaves().items()}
    is_renamed = target.encrypted and written.columns != target.columns
    return (
        is_renamed
        or written.key_fields != target.key_fields
        or any(now.get(number) != leaf.type for number, leaf in written.leaves().items())
    )


def _written_anew(
    search: RowSearch, staged: DraftedTable, now: RowPlan, files: Sequence[DataFile], write_id: str
) -> list[NewFile]:
    if not files:
        return []
    columns = ", ".join(identifier(column.name) for column in now.target.columns)
    row_id, first = row_id_name(now.scan.needed), _first_new_id(staged)
    rows = union_sql([placed_sql(now.scan, file, search.hits) for file in files])
    old = f"(SELECT {columns}, {row_id} AS {row_id_name(now.target.columns)} FROM {rows} WHERE {row_id} < {first})"
    new = f"(SELECT {columns} FROM {rows} WHERE {row_id} >= {first})"
    written = write_known_rows(search.con, now.target, old, write_id) if first else []
    return written + write_files(search.con, now.target, new, write_id, known=True)


def _removal(
    draft: Draft, staged: DraftedTable, base: RowPlan, now: RowPlan, write_id: str
) -> tuple[Removal | None, DeleteFiles | None]:
    """Return what the commit retires, and the delete files to add."""
    if staged.is_blind(now.table):
        return _blind(staged, base.table), None
    is_same = staged.keeps_columns(base.table) and staged.keeps_keys(base.table)
    where = _condition(staged, base.table) if is_same else None
    live = {file.data_file_id: file for file in now.scan.files}
    whole = tuple(file for file in base.scan.files if file.data_file_id not in live)
    marked = [
        file
        for file in base.scan.files
        if file.data_file_id in live and _state(file) != _state(live[file.data_file_id])
    ]
    late = staged.adopted.late if staged.adopted else frozenset()
    if changed := next((file for file in (*whole, *marked) if file.data_file_id in late), None):
        raise StalePlanError(f"A concurrent write changed `{base.table}`: the file {changed.path} has other deletions.")
    kept_ids = {row_id for row_ids in now.inlined_ids().values() for row_id in row_ids}
    inlined = {
        name: tuple(row_id for row_id in row_ids if row_id not in kept_ids)
        for name, row_ids in base.inlined_ids().items()
    }
    with draft.reading_lake(f"Reading `{base.table}`") as metadata:
        inlined_now = inlined_versions_of(metadata, base.table, draft.base.snapshot_id, None)
        if inlined_now != base.inlined_versions():
            raise StalePlanError(f"A concurrent flush moved inlined rows of `{base.table}`.")
        seen = (
            inlined_now if where is None else inlined_versions_of(metadata, base.table, draft.base.snapshot_id, where)
        )
    rows = sum(_live_rows(file) for file in whole) + sum(map(len, inlined.values()))
    rows += sum(_live_rows(file) - _live_rows(live[file.data_file_id]) for file in marked)
    removal = ExactRows(draft.base.snapshot_id, where, base.scan.files, whole, seen, inlined, rows)
    deletes = {file.data_file_id: live[file.data_file_id].deletes for file in marked}
    return removal, delete_files_of(draft, base, deletes, write_id) if marked else None


def delete_files_of(
    draft: Draft, base: RowPlan, others: Mapping[int, Sequence[DeleteFile]], write_id: str
) -> DeleteFiles:
    """Return delete files for files of the base, with the positions that other delete files have.

    Args:
        draft: The draft.
        base: The table at the base snapshot.
        others: The other delete files, by the data file's id.
        write_id: Part of the names of the delete files.
    """

    def write(losses: Sequence[Loss]) -> list[NewDeleteFile]:
        with working_connection(draft.lake, apart=True) as con:
            return write_delete_files(con, base.table, write_id, losses)

    def positions(file: DataFile) -> str:
        deletes = others[file.data_file_id]
        return " UNION ALL ".join(f"SELECT pos FROM {parquet_sql(each.path, each.encryption_key)}" for each in deletes)

    marked = [file for file in base.scan.files if file.data_file_id in others]
    staged = DeleteFiles(write, positions, marked, base.inlined_deletes)
    staged.numbered(draft.base.snapshot_id + 1)
    return staged


def _blind(staged: DraftedTable, table: TableDef) -> Removal | None:
    removals = [change.remove for change in staged.changes if change.remove is not None]
    if not removals or any(isinstance(removal, Everything) for removal in removals):
        return removals[0] if len(removals) == 1 else Everything() if removals else None
    if all(isinstance(removal, Partitions) for removal in removals):
        return Partitions(frozenset().union(*(r.keys for r in removals if isinstance(r, Partitions))))
    return removals[0] if len(removals) == 1 else Matching(_condition(staged, table) or "true")


def _condition(staged: DraftedTable, table: TableDef) -> str | None:
    """Return the condition for all rows that the changes depend on; None for every row."""
    parts = []
    for change in staged.changes:
        match change.remove:
            case None:
                continue
            case Partitions(keys):
                parts.append(partitions_condition(table, keys))
            case Matching(where):
                parts.append(where)
            case ExactRows() as exact if exact.where is not None:
                parts.append(exact.where)
            case _:
                return None
    return " OR ".join(f"(\n{part}\n)" for part in parts)  # a part may end in a comment


def _state(file: DataFile) -> object:
    return tuple(delete.delete_file_id for delete in file.deletes), file.inlined_deletes


def _live_rows(file: DataFile) -> int:
    return file.record_count - sum(delete.delete_count for delete in file.deletes) - file.inlined_deletes
