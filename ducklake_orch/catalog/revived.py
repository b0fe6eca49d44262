"""Rows that a flush by the extension would bring back from the dead, on PostgreSQL.

There the catalog keeps texts as bytes. A flush notes which of the rows in a new file are deleted by their partition,
whose value it takes from these bytes; where a text does not look like its bytes (`São Paulo`, `it's`), it looks for the
wrong partition, and the deleted rows are live again. So such a table is flushed only when it has no such rows: they go
when the snapshots that see them expire.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ducklake_orch.catalog.cells import text
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.engine import server_sql
from ducklake_orch.engine.quoting import identifier, literal

# As bytes, DuckDB writes these in another way. What is not ASCII has a backslash already, after `encode`.
_UNLIKE = r"""[\\'"[:cntrl:]]"""
_REGISTRY = "ducklake_inlined_data_tables"


@dataclass(frozen=True, slots=True)
class Revived:
    """Dead rows that a flush would bring back.

    Attributes:
        table_id: Whose rows they are.
        place: The table of the catalog that holds them.
    """

    table_id: int
    place: str
    rows: int


def revived_rows(metadata: Metadata) -> list[Revived]:
    """Look for them in the whole lake, with a constant number of questions."""
    config = metadata.config
    if config.catalog.type != "postgres":
        return []
    places = list(_places(metadata))
    counts = [
        f"select {number} as place, count(*) as n from {server_sql.table(config, name)}"
        f" where end_snapshot is not null and ({' or '.join(map(_is_unlike, columns))})"
        for number, (_, name, columns) in enumerate(places)
    ]
    if not counts:
        return []
    found = metadata.rows(server_sql.query(config, " union all ".join(counts)))
    return [Revived(*places[int(number)][:2], int(rows)) for number, rows in found if int(rows)]


def _places(metadata: Metadata) -> Iterator[tuple[int, str, list[str]]]:
    """Return the tables that hold inlined rows, and their columns of texts that are partition keys."""
    name, config = metadata.table_sql, metadata.config
    # By whatever name a column had: a table of inlined rows has the one of its time.
    keys: dict[int, set[str]] = defaultdict(set)
    for table_id, column in metadata.rows(
        f"SELECT DISTINCT table_id, c.column_name FROM {name('ducklake_partition_column')} k"
        f" JOIN {name('ducklake_column')} c USING (table_id, column_id) WHERE lower(c.column_type) = 'varchar'"
    ):
        keys[int(table_id)].add(text(column) or "")
    if not keys:
        return
    registry = metadata.rows(f"SELECT table_id, table_name FROM {name(_REGISTRY)}")
    known = {text(row[1]) or "": int(row[0]) for row in registry}
    schema = literal(config.metadata_schema or "public")
    asked = (
        f"select {server_sql.texts(config, ['table_name', 'column_name'])} from information_schema.columns"
        f" where table_schema = {schema} and data_type = 'bytea' and table_name like 'ducklake!_inlined!_data!_%'"
        " escape '!'"
    )
    columns: dict[str, list[str]] = defaultdict(list)
    for table, column in metadata.rows(server_sql.query(config, asked)):
        if str(column) in keys.get(known.get(str(table), -1), ()):
            columns[str(table)].append(str(column))
    for table in sorted(columns):
        yield known[table], table, columns[table]


def _is_unlike(column: str) -> str:
    return f"encode({identifier(column)}, 'escape') ~ {literal(_UNLIKE)}"
