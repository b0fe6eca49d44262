"""Check that no concurrent commit has added rows that a planned change would also have to find."""

from ducklake_orch.catalog.commit.table_change import ExactRows
from ducklake_orch.catalog.metadata import (
    Metadata,
    MetadataTransaction,
    TableDef,
    TableHistory,
    deletions_table,
    inlined_rows,
)
from ducklake_orch.catalog.scan import LiveFiles, Predicate, parse_predicate
from ducklake_orch.errors import StalePlanError


def check_late_rows(transaction: MetadataTransaction, rows: ExactRows, table: TableDef) -> None:
    """Compare the data files and inlined rows that a change has searched with those that it would search now.

    Concurrent deletions in a data file conflict only if the change retires rows of that file; `conflicts.judge_files`
    checks that.

    Raises:
        StalePlanError: When a new file may hold such rows, or when inlined rows were added or deleted.
    """
    at = transaction.latest.snapshot_id
    if at == rows.snapshot:
        return
    metadata, seen = transaction.metadata, {file.data_file_id for file in rows.seen}
    predicate = parse_predicate(metadata.con, rows.where, table.columns) if rows.where is not None else None
    history = TableHistory(metadata, table)
    files = LiveFiles(history, at, deletions_table(metadata, table), predicate)
    new = next((file.path for file, _ in files.fetch() if file.data_file_id not in seen), None)
    if new is not None or rows.inlined_seen != _inlined_versions(metadata, table, at, predicate):
        event = f"it added the file {new}" if new is not None else "it changed inlined rows"
        raise StalePlanError(
            f"A concurrent write changed `{table}`: {event}.", remedy="Retry the change: planned again, it can succeed."
        )


def inlined_versions_of(
    metadata: Metadata, table: TableDef, at: int, where: str | None
) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the inlined rows that match a condition at a snapshot, as `ExactRows.inlined_seen` has them."""
    predicate = parse_predicate(metadata.con, where, table.columns) if where is not None else None
    return _inlined_versions(metadata, table, at, predicate)


def _inlined_versions(
    metadata: Metadata, table: TableDef, at: int, predicate: Predicate | None
) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the inlined rows that match, by the name of their inlined-data table; tables without a match are left out.

    Each row is its row id and the snapshot that added it: the row id alone does not show an update, because a row that
    the engine updates in the catalog keeps its id.
    """
    versions = {}
    columns = predicate.columns if predicate else ()
    condition = f" WHERE {predicate.sql}" if predicate else ""
    for query in inlined_rows(TableHistory(metadata, table), at, columns):
        rows = metadata.rows(f"SELECT {query.row_id}, {query.snapshot} FROM ({query.sql}){condition}")
        if rows:
            versions[query.table] = frozenset((int(row[0]), int(row[1])) for row in rows)
    return versions
