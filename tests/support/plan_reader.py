"""A reader that uses only the scan plan, Parquet and SQL, as any other engine could."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import duckdb

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import ColumnDef, DataFile, DeleteFile, MappedName, Metadata, duckdb_type
from ducklake_orch.catalog.scan import ScanPlan, plan_scan
from ducklake_orch.engine.quoting import identifier, literal, table_name
from tests.support.deletion_vectors import positions_in

SNAPSHOT = "_ducklake_internal_snapshot_id"


def read_plan(
    lake: DuckLake, table: str, *, snapshot: int | None = None, where: str | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows of a table that meet `where`, sorted by their `repr`."""
    with lake.reading() as session:
        con = session.instance.root.cursor()
        metadata = Metadata(con, lake.config)
        at = metadata.latest().snapshot_id if snapshot is None else snapshot
        plan = plan_scan(metadata, metadata.table(table_name(table), at), at, where=where)
        return sorted(rows_of(con, plan), key=repr)


def rows_of(con: duckdb.DuckDBPyConnection, plan: ScanPlan) -> list[tuple[Any, ...]]:
    """Return the rows of a plan."""
    wanted = ", ".join(identifier(column.name) for column in plan.columns)
    condition = f" WHERE {plan.where.sql}" if plan.where else ""
    sources = [*(file_sql(con, plan, file) for file in plan.files), *(rows.sql for rows in plan.inlined)]
    return [row for sql in sources for row in con.execute(f"SELECT {wanted} FROM ({sql}){condition}").fetchall()]


def file_sql(con: duckdb.DuckDBPyConnection, plan: ScanPlan, file: DataFile) -> str:
    """Return the SQL of a file's live rows, with the columns that the plan needs."""
    names = None if file.mapping_id is None else plan.mappings[file.mapping_id]
    nodes = encrypted_nodes(con, plan, file) if file.encryption_key else parquet_nodes(con, file.path)
    values = [
        f"{unpushed(column, top_value(column, nodes, names, file))} AS {identifier(column.name)}"
        for column in plan.needed
    ]
    gone = [positions_sql(delete, plan.snapshot) for delete in file.deletes]
    gone += [f"SELECT {position}" for position in plan.inlined_deletes.get(file.data_file_id, ())]
    conditions = [f"file_row_number NOT IN ({' UNION '.join(gone)})"] if gone else []
    if file.partial_max is not None and file.partial_max > plan.snapshot:
        conditions.append(f"{SNAPSHOT} <= {plan.snapshot}")
    return f"SELECT {', '.join(values)} FROM {source(file)} WHERE {' AND '.join(conditions) or 'true'}"


def encrypted_nodes(con: duckdb.DuckDBPyConnection, plan: ScanPlan, file: DataFile) -> Any:
    """Return the columns of a file of which DuckDB shows only the names: those of a version of the table's schema."""
    own = {"_ducklake_internal_row_id", SNAPSHOT, "file_row_number"}
    names = {name for name, *_ in con.execute(f"DESCRIBE FROM {source(file)}").fetchall()} - own
    first = max((begin for begin in plan.layouts if begin <= file.begin_snapshot), default=min(plan.layouts))
    versions = [plan.layouts[first], *plan.layouts.values()]
    exact = [columns for columns in versions if {column.name for column in columns} == names]
    # A transaction may have added columns to the file's table after it wrote the file.
    return known_nodes([*exact, *(columns for columns in versions if {column.name for column in columns} > names)][0])


def positions_sql(deletes: DeleteFile, at: int) -> str:
    if deletes.format == "puffin":
        return f"SELECT unnest({positions_in(deletes.path) if deletes.begin_snapshot <= at else '[]::BIGINT[]'})"
    if not deletes.later:
        return f"SELECT pos FROM {source(deletes)}"
    # Each deletion has its snapshot if the file has this column; otherwise the union fills it with NULL.
    with_ids = f"SELECT NULL::BIGINT AS {SNAPSHOT} WHERE false UNION ALL BY NAME FROM {source(deletes)}"
    return f"SELECT pos FROM ({with_ids}) WHERE coalesce({SNAPSHOT}, {deletes.begin_snapshot}) <= {at}"


def source(file: DataFile | DeleteFile) -> str:
    key = file.encryption_key
    more = f", encryption_config = {{footer_key_value: from_base64({literal(key)})}}" if key else ""
    return f"read_parquet({literal(file.path)}, file_row_number = true, hive_partitioning = false{more})"


@dataclass
class Node:
    """A column of a Parquet file."""

    name: str
    field_id: int | None
    children: list["Node"] = field(default_factory=list)


def known_nodes(columns: Sequence[ColumnDef]) -> list[Node]:
    """Return columns as they are stored in a file, where lists and maps have an extra level."""

    def build(column: ColumnDef) -> Node:
        inside = [build(child) for child in column.children]
        wrapped = [Node("", None, inside)] if column.type in ("list", "map") else inside
        return Node(column.name, column.column_id, wrapped)

    return [build(column_def) for column_def in columns]


def parquet_nodes(con: duckdb.DuckDBPyConnection, path: str) -> list[Node]:
    rows = iter(con.execute(f"SELECT name, field_id, num_children FROM parquet_schema({literal(path)})").fetchall())

    def build(rows: Iterator[Any]) -> Node:
        name, field_id, children = next(rows)
        return Node(name, field_id, [build(rows) for _ in range(children or 0)])

    return build(rows).children


def top_value(column: ColumnDef, nodes: list[Node], names: Sequence[MappedName] | None, file: DataFile) -> str:
    if names is None:
        return child_value("", column, nodes, None)
    name = next((mapped_name for mapped_name in names if mapped_name.column_id == column.column_id), None)
    if name is not None and name.is_partition:
        folder = next(part for part in file.path.split("/") if unquote(part).startswith(f"{name.source}="))
        text = unquote(folder.partition("=")[2])
        value = None if text == "__HIVE_DEFAULT_PARTITION__" else text
        return f"CAST({literal(value)} AS {duckdb_type(column)})"
    return child_value("", column, nodes, names)


def unpushed(column: ColumnDef, sql: str) -> str:
    """Keep conditions on blobs away from Bloom filters, which DuckDB probes with the printed form of bytes."""
    return f"TRY({sql})" if column.type == "blob" else sql


def child_value(inside: str, column: ColumnDef, nodes: list[Node], names: Sequence[MappedName] | None) -> str:
    """Return the value of a column, or of a field of a struct, found by its id or by its mapped name."""
    if names is None:
        node, deeper = next((candidate for candidate in nodes if candidate.field_id == column.column_id), None), None
    else:
        name = next((mapped_name for mapped_name in names if mapped_name.column_id == column.column_id), None)
        node = next((candidate for candidate in nodes if name and candidate.name.lower() == name.source.lower()), None)
        deeper = name.children if name else ()
    if node is None:
        return f"CAST({literal(column.initial_default)} AS {duckdb_type(column)})"
    sql = f"struct_extract({inside}, {literal(node.name)})" if inside else identifier(node.name)
    return value(sql, column, node, deeper)


def value(sql: str, column: ColumnDef, node: Node, names: Sequence[MappedName] | None) -> str:
    """Return the SQL that converts a value of the file to the column's current type."""
    if column.type == "struct":
        fields = [
            f"{identifier(child.name)} := {child_value(sql, child, node.children, names)}" for child in column.children
        ]
        return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
    each = f"e{column.column_id}"
    if column.type == "list":
        repeated = node.children[0]
        inner, name = (repeated.children or [repeated])[0], (names[0].children if names else names)
        return f"list_transform({sql}, lambda {each}: {value(each, column.children[0], inner, name)})"
    if column.type == "map":
        parts = zip(("key", "value"), column.children, node.children[0].children, strict=True)
        entry = ", ".join(
            f"{part}: {value(f'{each}.{part}', child, inner, names[n].children if names else names)}"
            for n, (part, child, inner) in enumerate(parts)
        )
        return f"map_from_entries(list_transform(map_entries({sql}), lambda {each}: {{{entry}}}))"
    return f"CAST({sql} AS {duckdb_type(column)})"
