"""List the tables of a lake with their columns and row counts, with a nearly constant number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import Metadata, lake_columns, lake_partition_keys, live, text
from ducklake_orch.catalog.parquet import key_name
from ducklake_orch.catalog.scan.table_counts import row_counts
from ducklake_orch.catalog.scan.table_summary import column_results, printed_types
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.results import Column


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
    counts = row_counts(metadata, at)
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
