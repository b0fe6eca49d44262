"""Copy the rows of the metadata tables that describe a lake and one of its tables at a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.catalog.metadata import (
    MARK_OPTION,
    DataFile,
    Metadata,
    SnapshotRow,
    TableHistory,
    inlined_rows,
    live,
    position_name,
    stored_types,
)
from ducklake_orch.catalog.search import DuckDBFinder, RowPlan, RowSearch, placed_sql
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import UnsupportedStatementError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = "__ducklake_orch_copied"
# New files of a draft have larger ids than this, so that files that the lake gets meanwhile can be copied with theirs.
FIRST_DRAFT_FILE = 2**48
# Tables whose rows are valid from one snapshot to another; the rows of earlier snapshots are copied, too.
_VERSIONED = ("ducklake_column", "ducklake_column_tag", "ducklake_partition_info", "ducklake_sort_info")
_OF_TABLE = (
    *("ducklake_partition_column", "ducklake_sort_expression", "ducklake_column_mapping"),
    *("ducklake_table_stats", "ducklake_table_column_stats"),
)
_OF_FILES = ("ducklake_file_column_stats", "ducklake_file_partition_value", "ducklake_file_variant_stats")


@dataclass(frozen=True)
class Copies:
    """Rows of metadata tables, by the table's name.

    Attributes:
        inlined: The inlined-data table of the draft, with all inlined rows of the table; None if there are none.
    """

    tables: "dict[str, pa.Table]" = field(default_factory=dict)
    inlined: str | None = None

    def insert(self, con: duckdb.DuckDBPyConnection, draft: LakeConfig) -> None:
        """Insert the rows into the metadata tables of a draft."""
        for name, rows in self.tables.items():
            if len(rows):
                con.register(_ROWS, rows)
                names = ", ".join(map(identifier, rows.column_names))
                con.execute(f"INSERT INTO {dialect_of(draft).attached(name)} ({names}) SELECT {names} FROM {_ROWS}")
                con.unregister(_ROWS)


def lake_rows(metadata: Metadata, base: SnapshotRow) -> Copies:
    """Return a snapshot with its schemas, views, and the options."""
    at = base.snapshot_id
    tables = {
        "ducklake_snapshot": _copied(
            metadata,
            f"SELECT * REPLACE ({FIRST_DRAFT_FILE} AS next_file_id)"
            f" FROM {metadata.table_sql('ducklake_snapshot')} WHERE snapshot_id = {at}",
        ),
        "ducklake_metadata": _rows(metadata, "ducklake_metadata", "key <> 'require_commit_message'"),
    }
    for name in ("ducklake_schema", "ducklake_view"):
        tables[name] = _rows(metadata, name, live(at), end="NULL::BIGINT")
    return Copies(tables)


def replace_lake_rows(con: duckdb.DuckDBPyConnection, draft: LakeConfig, copies: Copies, mark: str) -> None:
    """Replace what the engine put into a new catalog, and give the draft the mark of its lake."""
    options = dialect_of(draft).attached("ducklake_metadata")
    for name in (*copies.tables, "ducklake_snapshot_changes"):
        con.execute(f"DELETE FROM {dialect_of(draft).attached(name)}")
    copies.insert(con, draft)
    con.execute(f"INSERT INTO {options} (key, value) VALUES ({literal(MARK_OPTION)}, {literal(mark)})")


def table_rows(metadata: Metadata, plan: RowPlan, draft: LakeConfig, late: Sequence[DataFile]) -> Copies:
    """Return the rows of one table at the snapshot of a plan.

    Args:
        metadata: The metadata tables of the lake.
        plan: The table and its files.
        draft: The catalog that gets the rows.
        late: The files whose rows at that snapshot are told by inlined deletions.
    """
    table_id, at, needed = plan.table.table_id, plan.latest.snapshot_id, _needed(plan)
    of_table, begun, valid = f"table_id = {table_id}", f"begin_snapshot <= {at}", "NULL::BIGINT"
    tables = {
        "ducklake_table": _rows(metadata, "ducklake_table", f"{of_table} AND {live(at)}", end=valid),
        "ducklake_tag": _rows(metadata, "ducklake_tag", f"object_id = {table_id} AND {live(at)}", end=valid),
        "ducklake_schema_versions": _rows(metadata, "ducklake_schema_versions", f"{of_table} AND {begun}"),
    }
    for name in needed.intersection(_VERSIONED):
        end = f"CASE WHEN end_snapshot <= {at} THEN end_snapshot END"
        tables[name] = _rows(metadata, name, f"{of_table} AND {begun}", end=end)
    for name in needed.intersection(_OF_TABLE):
        tables[name] = _rows(metadata, name, of_table)
    if "ducklake_column_mapping" in needed:
        mappings = f"SELECT mapping_id FROM {metadata.table_sql('ducklake_column_mapping')} WHERE {of_table}"
        tables["ducklake_name_mapping"] = _rows(metadata, "ducklake_name_mapping", f"mapping_id IN ({mappings})")
    ids = ", ".join(str(file.data_file_id) for file in late) or "NULL"
    data, deletes = (metadata.table_sql(f"ducklake_{kind}_file") for kind in ("data", "delete"))
    partial = f"CASE WHEN data_file_id IN ({ids}) THEN NULL ELSE partial_max END AS partial_max"
    tables["ducklake_data_file"] = _copied(
        metadata, f"SELECT * REPLACE ({valid} AS end_snapshot, {partial}) FROM {data} WHERE {of_table} AND {live(at)}"
    )
    tables["ducklake_delete_file"] = _copied(
        metadata,
        f"SELECT * REPLACE ({valid} AS end_snapshot) FROM {deletes} WHERE {of_table} AND {live(at)}"
        f" AND (data_file_id IN ({ids})) IS NOT TRUE",
    )
    files = f"SELECT data_file_id FROM {data} WHERE {of_table} AND {live(at)}"
    for name in needed.intersection(_OF_FILES):
        tables[name] = _rows(metadata, name, f"{of_table} AND data_file_id IN ({files})")
    rows = _inlined_rows(metadata, plan, draft)
    if rows is None:
        return Copies(tables)
    inlined = f"ducklake_inlined_data_{table_id}_{plan.latest.schema_version}"
    return Copies(tables | {inlined: rows}, inlined)


def _needed(plan: RowPlan) -> set[str]:
    """Return the metadata tables that can have rows for a table, of those that most tables have none in."""
    table, files = plan.table, plan.scan.files
    leaves = [leaf for column in table.columns for leaf in column.leaves()]
    rare = {
        "ducklake_sort_info": bool(table.sort),
        "ducklake_sort_expression": bool(table.sort),
        "ducklake_partition_info": bool(table.past_specs),
        "ducklake_partition_column": bool(table.past_specs),
        "ducklake_file_partition_value": bool(table.past_specs and files),
        "ducklake_column_mapping": any(file.mapping_id is not None for file in files),
        "ducklake_file_column_stats": bool(files),
        "ducklake_file_variant_stats": any(leaf.type == "variant" for leaf in leaves),
    }
    return {name for name in (*_VERSIONED, *_OF_TABLE, *_OF_FILES) if rare.get(name, True)}


def create_inlined(
    con: duckdb.DuckDBPyConnection, draft: LakeConfig, plan: RowPlan, copies: Copies, hidden: "pa.Table | None"
) -> None:
    """Create the tables of inlined rows and deletions in a draft, and fill that of the deletions.

    Args:
        con: A connection that has the draft attached.
        draft: The draft.
        plan: The table.
        copies: The rows of the table.
        hidden: Rows that do not exist at the snapshot of the plan.
    """
    attached, table = dialect_of(draft).attached, plan.table
    if copies.inlined is not None:
        types = stored_types(dialect_of(draft), table.columns) or {}
        columns = {"row_id": "BIGINT", "begin_snapshot": "BIGINT", "end_snapshot": "BIGINT"} | types
        parts = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
        con.execute(f"CREATE TABLE {attached(copies.inlined)} ({parts})")
        row = f"{table.table_id}, {literal(copies.inlined)}, {plan.latest.schema_version}"
        registry = attached("ducklake_inlined_data_tables")
        con.execute(f"INSERT INTO {registry} (table_id, table_name, schema_version) VALUES ({row})")
    if plan.inlined_deletes or hidden is not None:
        name = attached(f"ducklake_inlined_delete_{table.table_id}")
        con.execute(f"CREATE TABLE {name} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)")
        rows = ", ".join(
            f"({file}, {position}, {snapshot})"
            for file, positions in plan.inlined_deletes.items()
            for position, snapshot in positions
            if snapshot <= plan.latest.snapshot_id
        )
        if rows:
            con.execute(f"INSERT INTO {name} VALUES {rows}")
        if hidden is not None:
            con.register(_ROWS, hidden)
            con.execute(f"INSERT INTO {name} SELECT file_id, row_id, begin_snapshot FROM {_ROWS}")
            con.unregister(_ROWS)


def late_files(plan: RowPlan) -> tuple[DataFile, ...]:
    """Return the files that also hold rows or deletions of snapshots after the one of the plan."""
    at = plan.latest.snapshot_id

    def is_late(file: DataFile) -> bool:
        newest = [file.partial_max, *(delete.partial_max for delete in file.deletes)]
        return any(delete.later for delete in file.deletes) or any(last is not None and last > at for last in newest)

    return tuple(filter(is_late, plan.scan.files))


def hidden_rows(lake: LakeConfig, plan: RowPlan, files: Sequence[DataFile]) -> "pa.Table | None":
    """Return the rows of files that do not exist at the snapshot of a plan, as inlined deletions."""
    if not files:
        return None
    with working_connection(lake, apart=True) as con:
        search = RowSearch(lake, con, DuckDBFinder())
        position, begin = position_name(plan.scan.needed), plan.latest.snapshot_id
        parts = [
            f"SELECT {file.data_file_id} AS file_id, range AS row_id, {begin} AS begin_snapshot"
            f" FROM range({file.record_count})"
            f" WHERE range NOT IN (SELECT {position} FROM ({placed_sql(plan.scan, file, search.hits)}))"
            for file in files
        ]
        with search.working("Reading rows of an earlier snapshot"):
            return con.execute(" UNION ALL ".join(parts)).to_arrow_table()


def _inlined_rows(metadata: Metadata, plan: RowPlan, draft: LakeConfig) -> "pa.Table | None":
    """Return the inlined rows as the draft stores them; None if there are none."""
    import pyarrow as pa

    if not plan.inlined:
        return None
    dialect, columns = dialect_of(draft), plan.table.columns
    nested = any(column.children or column.type in ("geometry", "variant") for column in columns)
    if nested or stored_types(dialect, columns) is None:
        raise UnsupportedStatementError(
            f"`{plan.table}` has inlined rows of types that a transaction cannot hold.",
            remedy='Flush them to files first: `lake.maintain(operations=["flush"])`.',
        )
    texts = [f"{dialect.inlined_text(c.type, identifier(c.name))} AS {identifier(c.name)}" for c in columns]
    found = []
    for query in inlined_rows(TableHistory(metadata, plan.table), plan.latest.snapshot_id, columns):
        ids = f"{query.row_id} AS row_id, {query.snapshot} AS begin_snapshot"
        found.append(metadata.con.execute(f"SELECT {ids}, {', '.join(texts)} FROM ({query.sql})").to_arrow_table())
    return pa.concat_tables(found)


def _rows(metadata: Metadata, name: str, condition: str, *, end: str | None = None) -> "pa.Table":
    """Return rows of a metadata table; `end` is the SQL for the snapshot that ended them."""
    columns = f"* REPLACE ({end} AS end_snapshot)" if end else "*"
    return _copied(metadata, f"SELECT {columns} FROM {metadata.table_sql(name)} WHERE {condition}")


def _copied(metadata: Metadata, sql: str) -> "pa.Table":
    return metadata.con.execute(sql).to_arrow_table()
