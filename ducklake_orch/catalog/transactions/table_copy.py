"""Copy the rows of the metadata tables that describe a lake and some of its tables at a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from ducklake_orch.engine.connection import LakeConnection
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
    """Rows of metadata tables, by the table's name."""

    tables: "dict[str, pa.Table]"

    def next_row_ids(self) -> dict[int, int]:
        """Return the row id that the next row of each table gets, by the table's id."""
        stats = self.tables["ducklake_table_stats"]
        return dict(zip(stats["table_id"].to_pylist(), stats["next_row_id"].to_pylist(), strict=True))

    def insert(self, con: LakeConnection, draft: LakeConfig) -> None:
        """Insert the rows into the metadata tables of a draft."""
        for name, rows in self.tables.items():
            if len(rows):
                con.register(_ROWS, rows)
                names = ", ".join(map(identifier, rows.column_names))
                con.execute(f"INSERT INTO {dialect_of(draft).attached(name)} ({names}) SELECT {names} FROM {_ROWS}")
                con.unregister(_ROWS)


def lake_rows(metadata: Metadata, base: SnapshotRow) -> Copies:
    """Return a snapshot with its schemas, views, macros, and the options."""
    at = base.snapshot_id
    tables = {
        "ducklake_snapshot": _copied(
            metadata,
            f"SELECT * REPLACE ({FIRST_DRAFT_FILE} AS next_file_id)"
            f" FROM {metadata.table_sql('ducklake_snapshot')} WHERE snapshot_id = {at}",
        ),
        "ducklake_metadata": _rows(metadata, "ducklake_metadata", "key <> 'require_commit_message'"),
    }
    for name in ("ducklake_schema", "ducklake_view", "ducklake_macro"):
        tables[name] = _rows(metadata, name, live(at), end="NULL::BIGINT")
    for name in ("ducklake_macro_impl", "ducklake_macro_parameters"):
        tables[name] = _rows(metadata, name, "true")
    return Copies(tables)


def replace_lake_rows(con: LakeConnection, draft: LakeConfig, copies: Copies, mark: str) -> None:
    """Replace what the engine put into a new catalog, and give the draft the mark of its lake."""
    options = dialect_of(draft).attached("ducklake_metadata")
    for name in (*copies.tables, "ducklake_snapshot_changes"):
        con.execute(f"DELETE FROM {dialect_of(draft).attached(name)}")
    copies.insert(con, draft)
    con.execute(f"INSERT INTO {options} (key, value) VALUES ({literal(MARK_OPTION)}, {literal(mark)})")


def table_rows(
    metadata: Metadata, plans: Sequence[RowPlan], at: int, draft: LakeConfig, late: Sequence[DataFile]
) -> Copies:
    """Return the rows of some tables at a snapshot.

    Args:
        metadata: The metadata tables of the lake.
        plans: The tables and their files at the snapshot.
        at: The snapshot.
        draft: The catalog that gets the rows.
        late: The files whose rows at that snapshot are told by inlined deletions.
    """
    ids = ", ".join(str(plan.table.table_id) for plan in plans) or "NULL"
    of_tables, begun, valid = f"table_id IN ({ids})", f"begin_snapshot <= {at}", "NULL::BIGINT"
    needed = set[str]().union(*map(_needed, plans))
    tables = {
        "ducklake_table": _rows(metadata, "ducklake_table", f"{of_tables} AND {live(at)}", end=valid),
        "ducklake_tag": _rows(metadata, "ducklake_tag", f"object_id IN ({ids}) AND {live(at)}", end=valid),
        "ducklake_schema_versions": _rows(metadata, "ducklake_schema_versions", f"{of_tables} AND {begun}"),
    }
    for name in needed.intersection(_VERSIONED):
        end = f"CASE WHEN end_snapshot <= {at} THEN end_snapshot END"
        tables[name] = _rows(metadata, name, f"{of_tables} AND {begun}", end=end)
    for name in needed.intersection(_OF_TABLE):
        tables[name] = _rows(metadata, name, of_tables)
    if "ducklake_column_mapping" in needed:
        mappings = f"SELECT mapping_id FROM {metadata.table_sql('ducklake_column_mapping')} WHERE {of_tables}"
        tables["ducklake_name_mapping"] = _rows(metadata, "ducklake_name_mapping", f"mapping_id IN ({mappings})")
    of_late = f"data_file_id IN ({', '.join(str(file.data_file_id) for file in late) or 'NULL'})"
    data, deletes = (metadata.table_sql(f"ducklake_{kind}_file") for kind in ("data", "delete"))
    partial = f"CASE WHEN {of_late} THEN NULL ELSE partial_max END AS partial_max"
    tables["ducklake_data_file"] = _copied(
        metadata, f"SELECT * REPLACE ({valid} AS end_snapshot, {partial}) FROM {data} WHERE {of_tables} AND {live(at)}"
    )
    tables["ducklake_delete_file"] = _copied(
        metadata,
        f"SELECT * REPLACE ({valid} AS end_snapshot) FROM {deletes} WHERE {of_tables} AND {live(at)}"
        f" AND ({of_late}) IS NOT TRUE",
    )
    files = f"SELECT data_file_id FROM {data} WHERE {of_tables} AND {live(at)}"
    for name in needed.intersection(_OF_FILES):
        tables[name] = _rows(metadata, name, f"{of_tables} AND data_file_id IN ({files})")
    inlined = {_inlined_name(plan): _inlined_rows(metadata, plan, draft) for plan in plans if plan.inlined}
    return Copies(tables | inlined)


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


def _inlined_name(plan: RowPlan) -> str:
    """Return the name of the inlined-data table of a draft that has all inlined rows of a table."""
    return f"ducklake_inlined_data_{plan.table.table_id}_{plan.latest.schema_version}"


def create_inlined(
    con: LakeConnection, draft: LakeConfig, plan: RowPlan, copies: Copies, hidden: "pa.Table | None"
) -> None:
    """Create the tables of inlined rows and deletions in a draft, and fill that of the deletions.

    Args:
        con: A connection that has the draft attached.
        draft: The draft.
        plan: The table.
        copies: The rows that the draft gets.
        hidden: Rows that do not exist at the snapshot of the plan.
    """
    attached, table = dialect_of(draft).attached, plan.table
    name = _inlined_name(plan)
    if name in copies.tables:
        types = stored_types(dialect_of(draft), table.columns) or {}
        columns = {"row_id": "BIGINT", "begin_snapshot": "BIGINT", "end_snapshot": "BIGINT"} | types
        parts = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
        con.execute(f"CREATE TABLE {attached(name)} ({parts})")
        row = f"{table.table_id}, {literal(name)}, {plan.latest.schema_version}"
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


def _inlined_rows(metadata: Metadata, plan: RowPlan, draft: LakeConfig) -> "pa.Table":
    """Return the inlined rows as the draft stores them."""
    import pyarrow as pa

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
