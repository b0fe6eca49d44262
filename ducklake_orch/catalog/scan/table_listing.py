"""List the tables of a lake with their columns and row counts, with a nearly constant number of queries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import (
    Metadata,
    lake_columns,
    lake_partition_keys,
    live,
    text,
)
from ducklake_orch.catalog.parquet import key_name
from ducklake_orch.catalog.scan.live_files import next_file_id
from ducklake_orch.catalog.scan.table_summary import column_results, printed_types
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.results import Column

# SQLite combines at most 500 SELECTs.
_SELECTS_IN_ONE_QUERY = 400
_DELETIONS = "ducklake_inlined_delete_"


@dataclass(frozen=True)
class ListedTable:
    """A table at a snapshot.

    Attributes:
        comment: The comment of the table.
        columns: Its columns, in order.
        partition_by: Its partition keys in the form that users write: `region`, `year(ts)`.
        rows: The number of its rows; None if only its files tell, which happens for past snapshots.
    """

    name: TableName
    comment: str | None
    columns: Sequence[Column]
    partition_by: Sequence[str]
    rows: int | None


def list_tables(metadata: Metadata, at: int) -> list[ListedTable]:
    """Return the tables at a snapshot, ordered by schema and name."""
    name = metadata.table_sql
    rows = metadata.rows(f"""
        SELECT t.table_id, s.schema_name, t.table_name, c.value
        FROM (FROM {name("ducklake_table")} WHERE {live(at)}) t
        JOIN (FROM {name("ducklake_schema")} WHERE {live(at)}) s USING (schema_id)
        LEFT JOIN (FROM {name("ducklake_tag")} WHERE {live(at)} AND key = 'comment') c ON c.object_id = t.table_id
        ORDER BY 2, 3""")
    columns, keys = lake_columns(metadata, at), lake_partition_keys(metadata, at)
    types = printed_types(metadata, [column for found in columns.values() for column in found])
    counts = _row_counts(metadata, at)
    tables = []
    for number, schema, table, comment in rows:
        table_id = int(number)
        found, fields = columns.get(table_id, ()), keys.get(table_id, ())
        names = {column.column_id: column.name for column in found}
        tables.append(
            ListedTable(
                name=TableName(text(schema) or "", text(table) or ""),
                comment=text(comment),
                columns=column_results(found, fields, types),
                partition_by=[key_name(field.transform, names[field.column_id]) for field in fields],
                rows=counts.get(table_id, 0),
            )
        )
    return tables


def _row_counts(metadata: Metadata, at: int) -> dict[int, int | None]:
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
        f"select {int(table_id)} as t, count(*) as n, 0 as unclear from {table(name)} where {live(at)}"
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
