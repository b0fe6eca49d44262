"""Find the snapshots that tables with a longer retention than the lake's need: `needed_by_tables`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from ducklake_orch.catalog.metadata import Metadata, parse_tokens, text
from ducklake_orch.config.maintenance import names

Starts = Sequence[tuple[str, datetime]]


def needed_by_tables(metadata: Metadata, since: Starts, times: Sequence[tuple[int, float]]) -> set[int]:
    """Return the snapshots that changed a table during its retention, and the one before the first of them.

    A table that has not changed since needs none, so that no snapshot is kept for ever.

    Args:
        metadata: The metadata tables.
        since: When the retention of tables begins, by their names or patterns; the last one that matches counts.
        times: The snapshots, oldest first, with their times in seconds since the epoch.
    """
    begins = _begins(metadata, since)
    if not begins:
        return set()
    changed = _changes(metadata, begins)
    needed = set[int]()
    for table, begin in begins.items():
        of_table = [(snapshot, time) for snapshot, time in times if table in changed.get(snapshot, ())]
        needed.update(snapshot for (snapshot, _), (_, ended) in pairwise(of_table) if ended >= begin)
        needed.update(snapshot for snapshot, time in of_table[-1:] if time >= begin)
    return needed


def _begins(metadata: Metadata, since: Starts) -> dict[int, float]:
    """Return when the retention of each table begins, by its id; a renamed table has the longest of its names."""
    tables, schemas = (metadata.table_sql(name) for name in ("ducklake_table", "ducklake_schema"))
    rows = metadata.rows(
        f"SELECT DISTINCT t.table_id, s.schema_name, t.table_name FROM {tables} t JOIN {schemas} s USING (schema_id)"
    )
    begins: dict[int, float] = {}
    for table, schema, name in rows:
        matching = [begin for pattern, begin in since if names(pattern, text(schema) or "", text(name) or "")]
        if matching:
            begin = matching[-1].timestamp()
            begins[int(table)] = min(begin, begins.get(int(table), begin))
    return begins


def _changes(metadata: Metadata, tables: Mapping[int, float]) -> dict[int, set[int]]:
    """Return which of the tables each snapshot changed."""
    changed: dict[int, set[int]] = {}
    for snapshot, changes in metadata.rows(
        f"SELECT snapshot_id, changes_made FROM {metadata.table_sql('ducklake_snapshot_changes')}"
    ):
        found = {token.id for token in parse_tokens(text(changes)) if token.id in tables}
        changed[int(snapshot)] = {table for table in found if table is not None}
    created = f"SELECT table_id, begin_snapshot FROM {metadata.table_sql('ducklake_table')}"
    for table, snapshot in metadata.rows(created):
        if int(table) in tables:
            changed.setdefault(int(snapshot), set()).add(int(table))
    return changed
