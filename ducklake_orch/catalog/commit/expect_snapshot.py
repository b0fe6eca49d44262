"""Check `expect_snapshot`: the rows that a change replaces must be the rows that its author read at that snapshot."""

from collections.abc import Sequence

from ducklake_orch.catalog.commit import conflicts
from ducklake_orch.catalog.commit.retire import files_of_partitions, partitions_condition, with_types_of_keys
from ducklake_orch.catalog.commit.table_change import ExactRows, Matching, Partitions, Rollback, TableChange
from ducklake_orch.catalog.metadata import (
    MetadataTransaction,
    TableDef,
    TableHistory,
    deletions_table,
    inlined_rows,
    parse_tokens,
    text,
)
from ducklake_orch.catalog.parquet import key_name
from ducklake_orch.catalog.scan import classify, parse_predicate
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.missing_snapshots import Retained, missing_snapshot, retained_sql
from ducklake_orch.errors import HistoryExpiredError, SnapshotChangedError, StalePlanError


def check_expected(transaction: MetadataTransaction, change: TableChange, table: TableDef | None) -> None:
    """Refuse a replacement if rows that it replaces have changed since the expected snapshot.

    Compactions and flushes do not conflict with it, because they move rows without changing them.

    Raises:
        SnapshotChangedError: When such rows have changed, or the table was dropped.
        SnapshotNotFoundError: When the expected snapshot does not exist.
        HistoryExpiredError: When it or a later one has expired, so that the catalog does not tell what has changed.
    """
    expected, latest = change.expect_snapshot, transaction.latest.snapshot_id
    if expected is None or expected == latest or change.remove is None:
        return
    _refuse_other_table(transaction, change, table, expected)
    if table is None or not (changed := _changed_since(transaction, table, expected)):
        return
    touched, inlined = _touched_files(transaction, table, changed, expected), None
    where = _condition(change, table)
    if where is not None:
        scope = _files_in_scope(transaction, change, table, where, expected)
        touched = {file: snapshot for file, snapshot in touched.items() if file in scope}
        inlined = _inlined_change(transaction, table, where, expected, changed[0])
        if not touched and inlined is None:
            return
    first = min([*touched.values(), *([] if inlined is None else [inlined])], default=changed[0])
    file = next((file for file, snapshot in touched.items() if snapshot == first), None)
    partition = "" if file is None else _partition(transaction, table, file)
    raise SnapshotChangedError(
        f"The rows to replace in `{table}` have changed since snapshot {expected},"
        f" first in snapshot {first}{partition}.",
        remedy="Read the rows again, and base the write on them.",
    )


def judge_rollback(transaction: MetadataTransaction, back: Rollback, table: TableDef) -> None:
    """Check that no snapshot has changed a table since its rollback was planned, not even by only moving rows.

    Raises:
        StalePlanError: When a snapshot has changed the table, or may have and has expired.
    """
    name = transaction.dialect.table("ducklake_snapshot_changes")
    rows = transaction.ask(f"select snapshot_id, changes_made from {name} where snapshot_id > {back.snapshot}")
    if len(rows) != transaction.latest.snapshot_id - back.snapshot:
        raise StalePlanError(
            f"Snapshots that were created since the rollback of `{table}` was planned have expired.",
            remedy="Retry the rollback: planned again, it can succeed.",
        )
    for row in rows:
        if any(token.id == table.table_id for token in parse_tokens(text(row[1]))):
            raise StalePlanError(
                f"A concurrent write changed `{table}` in snapshot {row[0]}.",
                remedy="Retry the rollback: planned again, it can succeed.",
            )


def _refuse_other_table(
    transaction: MetadataTransaction, change: TableChange, table: TableDef | None, expected: int
) -> None:
    snapshots = transaction.dialect.table("ducklake_snapshot")
    if not transaction.ask(f"select 1 from {snapshots} where snapshot_id = {expected}"):
        first, last, count = transaction.ask(retained_sql(snapshots))[0]
        raise missing_snapshot(expected, Retained(int(first), int(last), int(count)), "`expect_snapshot`")
    past_table = transaction.metadata.find_table(change.table, expected)
    if past_table is not None and (table is None or table.table_id != past_table.table_id):
        raise SnapshotChangedError(
            f"The table `{past_table}` was dropped after snapshot {expected}.",
            remedy="Read the table again, and base the write on it.",
        )


def _changed_since(transaction: MetadataTransaction, table: TableDef, expected: int) -> list[int]:
    config = transaction.config
    name = dialect_of(config).table("ducklake_snapshot_changes")
    latest = transaction.latest.snapshot_id
    rows = transaction.ask(f"select snapshot_id, changes_made from {name} where snapshot_id > {expected}")
    if len(rows) != latest - expected:
        raise HistoryExpiredError(
            f"Snapshots after {expected} have expired, so what they changed in `{table}` is unknown.",
            remedy="Read the table again, and pass the snapshot of that read.",
        )
    return sorted(conflicts.data_changes(((int(row[0]), text(row[1])) for row in rows), table.table_id))


def _condition(change: TableChange, table: TableDef) -> str | None:
    """Return the condition for the rows that are replaced; None if all rows are replaced."""
    match change.remove:
        case Partitions(keys):
            return partitions_condition(with_types_of_keys(table, change), keys)
        case Matching(where):
            return where
        case ExactRows():
            return change.remove.where
    return None


def _touched_files(
    transaction: MetadataTransaction, table: TableDef, changed: Sequence[int], expected: int
) -> dict[int, int]:
    """Return the data files that were added, were retired or lost rows in the snapshots that changed rows.

    Each has the first of these snapshots that is known to have done so.
    """
    metadata = transaction.metadata
    ids = ", ".join(map(str, changed))
    snapshots = metadata.table_sql("ducklake_snapshot")
    of_table = f"WHERE table_id = {table.table_id} AND"
    data, deletes = (f"FROM {metadata.table_sql(f'ducklake_{kind}_file')} {of_table}" for kind in ("data", "delete"))
    parts = [
        f"SELECT data_file_id, begin_snapshot {data} begin_snapshot IN ({ids})",
        *(f"SELECT data_file_id, end_snapshot {files} end_snapshot IN ({ids})" for files in (data, deletes)),
        # A file that was merged from several snapshots may hold rows of these snapshots; its `partial_max` shows that.
        f"SELECT data_file_id, partial_max {data} partial_max > {expected}",
        # A delete file of a flush may begin at an earlier snapshot; only its id shows that it is new.
        f"SELECT data_file_id, CASE WHEN begin_snapshot IN ({ids}) THEN begin_snapshot ELSE {changed[0]} END {deletes}"
        f" (begin_snapshot IN ({ids})"
        f" OR delete_file_id >= (SELECT next_file_id FROM {snapshots} WHERE snapshot_id = {expected}))",
    ]
    if (deletions := deletions_table(metadata, table)) is not None:
        deleted = f"FROM {metadata.table_sql(deletions)} WHERE begin_snapshot > {expected}"
        parts.append(f"SELECT file_id, begin_snapshot {deleted}")
    touched = f"({' UNION ALL '.join(parts)}) touched(file, snapshot)"
    return {int(row[0]): int(row[1]) for row in metadata.rows(f"SELECT file, min(snapshot) FROM {touched} GROUP BY 1")}


def _partition(transaction: MetadataTransaction, table: TableDef, file: int) -> str:
    """Return the words that name the partition of a data file, if it has one of the table's keys."""
    metadata, fields = transaction.metadata, table.key_fields
    values = metadata.table_sql("ducklake_file_partition_value")
    sql = f"SELECT partition_value FROM {values} WHERE data_file_id = {file} ORDER BY partition_key_index"
    found = [text(row[0]) for row in metadata.rows(sql)]
    if not found or len(found) != len(fields):
        return ""
    named = zip(fields, found, strict=True)
    return ", in the partition " + ", ".join(
        f"{key_name(key.transform, table.column(key.column_id).name)}={value}" for key, value in named
    )


def _files_in_scope(
    transaction: MetadataTransaction, change: TableChange, table: TableDef, where: str, expected: int
) -> set[int]:
    """Return the data files that hold rows to replace, now or at the expected snapshot."""
    metadata = transaction.metadata
    file_ids, unclear = set[int](), None  # type: tuple[set[int], set[int] | None]
    if isinstance(change.remove, Partitions):
        # For files with partition keys the catalog tells exactly; only the other files need statistics.
        typed = with_types_of_keys(table, change)
        keyed, unclear = files_of_partitions(transaction, typed, change.remove.keys, ended=True)
        file_ids.update(keyed)
    for at in (expected, transaction.latest.snapshot_id):
        if unclear is None or unclear:
            files = {file.data_file_id for file, _ in classify(metadata, table, at, where)}
            file_ids |= files if unclear is None else files & unclear
    return file_ids


def _inlined_change(
    transaction: MetadataTransaction, table: TableDef, where: str, expected: int, first: int
) -> int | None:
    """Return the first snapshot that added inlined rows, `first` if rows are only missing, None if all are the same."""
    metadata = transaction.metadata
    predicate = parse_predicate(metadata.con, where, table.columns)

    def rows(at: int) -> set[tuple[int, int]]:
        return {
            (int(row[0]), int(row[1]))
            for query in inlined_rows(TableHistory(metadata, table), at, table.columns)
            for row in metadata.rows(
                f"SELECT {query.row_id}, {query.snapshot} FROM ({query.sql}) WHERE {predicate.sql}"
            )
        }

    before, now = rows(expected), rows(transaction.latest.snapshot_id)
    return None if before == now else min((snapshot for _, snapshot in now - before), default=first)
