"""Count the rows of all tables of a lake and tell when they changed, with a nearly constant number of queries."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from ducklake_orch.catalog.metadata import Metadata, changed_tables, live, reading, text
from ducklake_orch.catalog.scan.live_files import next_file_id
from ducklake_orch.catalog.scan.scan_plan import count
from ducklake_orch.catalog.scan.table_summary import snapshot_of
from ducklake_orch.engine.introspection import snapshots_sql, tables
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session
from ducklake_orch.results import Table

# SQLite combines at most 500 SELECTs.
_SELECTS_IN_ONE_QUERY = 400
_DELETIONS = "ducklake_inlined_delete_"


def counted_tables(session: Session) -> list[Table]:
    """List the tables at the session's snapshot with, from the catalog, their rows and when these last changed."""
    counted = []
    entries = tables(session)
    with reading(session, "Counting the rows of the tables") as metadata:
        at = snapshot_of(session, metadata)
        counts, writes = row_counts(metadata, at), last_writes(metadata, at)
        existing = metadata.rows(f"SELECT table_id FROM {metadata.table_sql('ducklake_table')} WHERE {live(at)}")
        ids = {int(row[0]) for row in existing}
        for entry in entries:
            if entry.table_id not in ids:  # dropped since the tables were listed
                continue
            rows = counts.get(entry.table_id, 0)
            if rows is None:
                rows = count(metadata, metadata.table(TableName(entry.schema, entry.table), at), at)
            counted.append(replace(entry, rows=rows, last_write=writes.get(entry.table_id)))
    return counted


def last_writes(metadata: Metadata, at: int) -> dict[int, datetime]:
    """Return when the rows of each table last changed up to a snapshot, by table id."""
    found: dict[int, datetime] = {}
    for _, time, _, changes, *_ in metadata.rows(snapshots_sql(metadata.config, f"<= {at}")):
        for table_id in changed_tables(text(changes)):
            found.setdefault(table_id, time)  # the newest snapshot comes first
    return found


def row_counts(metadata: Metadata, at: int) -> dict[int, int | None]:
    """Return the number of rows by table id, without tables that have none; None where the catalog does not tell it."""
    counts: dict[int, int | None] = {}
    queries = [_counts_in_files(metadata, at), *_counts_in_catalog(metadata, at)]
    for query in queries:
        for table_id, rows, unclear in metadata.rows(metadata.dialect.query(query)):
            known = counts.get(int(table_id), 0)
            counts[int(table_id)] = None if known is None or int(unclear) else known + int(rows)
    return counts


def _counts_in_files(metadata: Metadata, at: int) -> str:
    """Return the query for the rows of files without those that delete files delete; see `LiveFiles.count`."""
    table = metadata.dialect.table
    unclear = f"f.partial_max > {at} or d.last_id >= {next_file_id(metadata, at)} or d.files > 1"
    return (
        "select f.table_id, sum(f.record_count - coalesce(d.deleted, 0)) as n,"
        f" sum(case when {unclear} then 1 else 0 end) as unclear from {table('ducklake_data_file')} f"
        " left join (select data_file_id, sum(delete_count) as deleted, max(delete_file_id) as last_id,"
        f" count(*) as files from {table('ducklake_delete_file')} where {live(at)} group by data_file_id) d"
        f" on d.data_file_id = f.data_file_id where {live(at, 'f')} group by f.table_id"
    )


def _counts_in_catalog(metadata: Metadata, at: int) -> Iterator[str]:
    """Return the queries for the inlined rows, and for the inlined deletions, which count as negative rows."""
    table = metadata.dialect.table
    existing = set(metadata.dialect.names(metadata.con, "ducklake_inlined_"))
    registry = metadata.rows(f"SELECT table_id, table_name FROM {metadata.table_sql('ducklake_inlined_data_tables')}")
    selects = [
        f"select {int(table_id)} as t, count(*) as n, 0 as unclear from {table(name)} where {metadata.live_inlined(at)}"
        for table_id, name in ((number, text(value) or "") for number, value in registry)
        if name in existing
    ]
    selects += [
        f"select {int(name.removeprefix(_DELETIONS))} as t, -count(*) as n, 0 as unclear from"
        f" (select distinct d.file_id, d.row_id from {table(name)} d"
        f" join {table('ducklake_data_file')} f on f.data_file_id = d.file_id"
        f" where d.begin_snapshot <= {at} and {live(at, 'f')}) q"
        for name in sorted(existing)
        if name.startswith(_DELETIONS)
    ]
    for start in range(0, len(selects), _SELECTS_IN_ONE_QUERY):
        yield " union all ".join(selects[start : start + _SELECTS_IN_ONE_QUERY])
