"""Whether the rows that a change was worked out from are all that it would find now."""

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


def judge_scope(transaction: MetadataTransaction, rows: ExactRows, table: TableDef) -> None:
    """Compare where a change looked for rows with where it would have to look now.

    Files that have lost rows meanwhile matter only where the change takes rows of them; that is judged elsewhere.

    Raises:
        StalePlanError: When a file has come that may hold such rows, or inlined rows have come or gone.
    """
    at = transaction.latest.snapshot_id
    if at == rows.snapshot:
        return
    metadata, seen = transaction.metadata, {file.data_file_id for file in rows.seen}
    predicate = parse_predicate(metadata.con, rows.where, table.columns) if rows.where is not None else None
    history = TableHistory(metadata, table)
    files = LiveFiles(history, at, deletions_table(metadata, table), predicate)
    new = next((file.path for file, _ in files.fetch() if file.data_file_id not in seen), None)
    if new is not None or rows.inlined_seen != inlined_versions(metadata, table, at, predicate):
        what = f"the file {new} is new" if new is not None else "there are other rows in the catalog"
        raise StalePlanError(
            f"Somebody else changed `{table}` meanwhile: {what}.", remedy="The same work, planned anew, can pass."
        )


def inlined_versions(
    metadata: Metadata, table: TableDef, at: int, predicate: Predicate | None
) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the inlined rows that match, by their table; tables without any are left out.

    With the snapshots that they came with: a row that the engine updates in the catalog keeps its id.
    """
    found = {}
    columns = predicate.columns if predicate else ()
    condition = f" WHERE {predicate.sql}" if predicate else ""
    for one in inlined_rows(TableHistory(metadata, table), at, columns):
        rows = metadata.rows(f"SELECT {one.row_id}, {one.snapshot} FROM ({one.sql}){condition}")
        if rows:
            found[one.table] = frozenset((int(row[0]), int(row[1])) for row in rows)
    return found
