"""Helpers for tests of `add_files`: write files with plain DuckDB, and query the catalog about added files."""

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.snapshots import metadata

Rows = list[tuple[Any, ...]]


def local_lake(folder: Path) -> DuckLake:
    """Return a lake that inlines nothing."""
    return DuckLake.local(folder / "lake", data_inlining_row_limit=0)


def write(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(dict(columns)), path, **options)
    return str(path)


def copy_out(lake: DuckLake, sql: str, path: Path, options: str = "") -> str:
    """Write a file with plain DuckDB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lake.connect() as con:
        con.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet{options})")
    return str(path)


def rows(lake: DuckLake, sql: str) -> Rows:
    with lake.connect() as con:
        return con.execute(sql).fetchall()


def catalog(lake: DuckLake, sql: str) -> Rows:
    """Query the metadata tables on a connection that never entered the lake."""
    sql = re.sub(r"\bducklake_\w+", lambda name: metadata(lake.config, name[0]), sql)
    with open_session(lake.config, entering=False) as session, closing(session.instance.root.cursor()) as con:
        return con.execute(sql).fetchall()


def make(lake: DuckLake, columns: str, *, partition_by: str | None = None, name: str = "t") -> None:
    statements = [f"CREATE TABLE {name} ({columns})"]
    statements += [f"ALTER TABLE {name} SET PARTITIONED BY ({partition_by})"] if partition_by else []
    lake.execute(statements).raise_for_error()


def mapped(lake: DuckLake, name: str = "t") -> Rows | None:
    """Return the name mapping of a table's last file, with parents as field ids in place of the mapping's own ids."""
    mine = f"WHERE table_id = {table_id(lake, name)} ORDER BY data_file_id DESC LIMIT 1"
    (mapping,) = catalog(lake, f"SELECT mapping_id FROM ducklake_data_file {mine}")[0]
    if mapping is None:
        return None
    joined = "n LEFT JOIN ducklake_name_mapping p ON p.mapping_id = n.mapping_id AND p.column_id = n.parent_column"
    columns = "n.source_name, n.target_field_id, p.target_field_id, n.is_partition::BOOLEAN"
    where = f"n.mapping_id = {mapping} ORDER BY n.target_field_id"
    return catalog(lake, f"SELECT {columns} FROM ducklake_name_mapping {joined} WHERE {where}")


def table_id(lake: DuckLake, name: str = "t") -> int:
    return int(catalog(lake, f"SELECT max(table_id) FROM ducklake_table WHERE table_name = {literal(name)}")[0][0])


def stats(lake: DuckLake, name: str = "t") -> Rows:
    return catalog(
        lake,
        "SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value"
        f" FROM ducklake_file_column_stats WHERE table_id = {table_id(lake, name)} ORDER BY data_file_id, column_id",
    )


def partitions(lake: DuckLake, name: str = "t") -> Rows:
    """Return the partition values of each file in the catalog."""
    return catalog(
        lake,
        "SELECT list(partition_value ORDER BY partition_key_index) FROM ducklake_file_partition_value"
        f" WHERE table_id = {table_id(lake, name)} GROUP BY data_file_id ORDER BY data_file_id",
    )


NESTED = pa.table(
    {
        "i": [1, 2],
        "l": [[1], [2, None]],
        "s": [{"x": 1, "y": [{"z": 1}]}, None],
        "m": pa.array([[("a", {"q": 1})], None], pa.map_(pa.string(), pa.struct([("q", pa.int32())]))),
        "ll": [[["a"], None], []],
    }
)
NESTED_TYPES = (
    "i BIGINT, l BIGINT[], s STRUCT(x BIGINT, y STRUCT(z BIGINT)[]), m MAP(VARCHAR, STRUCT(q INTEGER)), ll VARCHAR[][]"
)
