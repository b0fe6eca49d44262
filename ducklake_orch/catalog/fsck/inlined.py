"""Copy inlined rows and deletes from the catalog: one query for each of its inlined tables."""

from collections.abc import Mapping

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.formats import NEWER_PREFIX
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.engine.snapshots import metadata

DATA = "ducklake_inlined_data_"
DELETES = "ducklake_inlined_delete_"
# Types whose order the checks know. Values of other types, and nested values, are not checked.
_ORDERED = ("boolean", "date", "time", "uuid", "varchar", "json", "timestamp", "float", "int", "uint", "decimal")


def copy_inlined(con: duckdb.DuckDBPyConnection, config: LakeConfig, tables: Mapping[str, Mapping[str, str]]) -> None:
    """Copy inlined rows without their values, the bounds of their values, and inlined deletes.

    Args:
        con: The connection that holds the copy of the other metadata tables.
        config: The lake.
        tables: The column types of all metadata tables, by table and column.
    """
    for name in sorted(tables):
        data, delete = name.removeprefix(DATA).removesuffix("_own"), name.removeprefix(DELETES)
        source, table = metadata(config, name), literal(name)
        if data != name and (parts := data.split("_"))[0].isdigit() and parts[-1].isdigit() and len(parts) == 2:
            con.execute(f"INSERT INTO inlined_table VALUES ({table}, {parts[0]})")
            prefix = NEWER_PREFIX if f"{NEWER_PREFIX}row_id" in tables[name] else ""
            life = ", ".join(f"{prefix}{column}" for column in ("row_id", "begin_snapshot", "end_snapshot"))
            con.execute(f"INSERT INTO inlined_row SELECT {parts[0]}, {table}, {life} FROM {source}")
            live = f"{source} WHERE {prefix}end_snapshot IS NULL"
            _copy_bounds(con, live, int(parts[0]), int(parts[1]), tables[name])
        elif delete != name and delete.isdigit():
            con.execute(f"INSERT INTO inlined_table VALUES ({table}, {delete})")
            con.execute(f"INSERT INTO inlined_delete SELECT {delete}, file_id, row_id, begin_snapshot FROM {source}")


def _copy_bounds(
    con: duckdb.DuckDBPyConnection, live: str, table_id: int, version: int, types: Mapping[str, str]
) -> None:
    """Copy the bounds of the live rows of one schema version."""
    columns = con.execute(f"""
        SELECT c.column_id, c.column_name, c.column_type
        FROM ducklake_column c JOIN ducklake_schema_versions v USING (table_id)
        WHERE table_id = {table_id} AND v.schema_version = {version} AND c.parent_column IS NULL
              AND c.begin_snapshot <= v.begin_snapshot
              AND (c.end_snapshot IS NULL OR c.end_snapshot > v.begin_snapshot)""").fetchall()
    facts = [
        _facts(int(column_id), str(name), str(kind), types[str(name)])
        for column_id, name, kind in columns
        if str(kind).startswith(_ORDERED) and str(name) in types and str(kind) not in ("int128", "uint128")
    ]
    if facts:
        con.execute(
            f"INSERT INTO inlined_stats SELECT {table_id}, f.id, f.least, f.most, f.vals, f.nulls, f.nan"
            f" FROM (SELECT unnest([{', '.join(facts)}]) AS f FROM {live}"
            " HAVING count(*) > 0)"
        )


def _facts(column_id: int, name: str, kind: str, stored: str) -> str:
    typed = duckdb_type(ColumnDef(column_id, name, kind, True))
    # Each database stores some types as text, and Postgres stores text as bytes.
    text = f"decode({identifier(name)})" if stored == "BLOB" else identifier(name)
    value = f"TRY_CAST({text} AS {typed})"
    number = kind.startswith("float")
    not_nan = f" FILTER (NOT isnan({value}))" if number else ""
    nan = f"coalesce(bool_or(isnan({value})), false)" if number else "NULL::BOOLEAN"
    return (
        f"{{id: {column_id}, least: (min({value}){not_nan})::VARCHAR, most: (max({value}){not_nan})::VARCHAR,"
        f" vals: count({identifier(name)}), nulls: count(*) - count({identifier(name)}), nan: {nan}}}"
    )
