"""Differential test of metadata: what our writes put into the catalog is what the extension's SQL puts there.

The same work is done to two lakes, and their metadata tables are compared row by row. What may differ stands in
`DIFFERENT`, each with its reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import identifier, literal
from tests.backends import catalogs
from tests.catalog.adding import copy_out
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import SAMPLES, Scalar, Type, Typed, Value, is_nested, sql_type, sql_value
from tests.conftest import MakeLake

Contents = dict[str, list[tuple[Any, ...]]]

TABLES = (
    *(
        "ducklake_snapshot",
        "ducklake_snapshot_changes",
        "ducklake_schema_versions",
        "ducklake_schema",
        "ducklake_table",
    ),
    *("ducklake_column", "ducklake_column_tag", "ducklake_tag", "ducklake_view", "ducklake_macro"),
    *("ducklake_partition_info", "ducklake_partition_column", "ducklake_sort_info", "ducklake_sort_expression"),
    *("ducklake_data_file", "ducklake_delete_file", "ducklake_file_partition_value", "ducklake_file_column_stats"),
    *("ducklake_file_variant_stats", "ducklake_table_stats", "ducklake_table_column_stats"),
    *("ducklake_column_mapping", "ducklake_name_mapping", "ducklake_inlined_data_tables"),
    "ducklake_files_scheduled_for_deletion",
)
DIFFERENT: Mapping[str, Mapping[str, str]] = {
    "ducklake_snapshot": {"snapshot_time": "two commits are not made at one time"},
    "ducklake_snapshot_changes": {"author": "none", "commit_extra_info": "ours has the write id"},
    "ducklake_schema": {"schema_uuid": "random"},
    "ducklake_table": {"table_uuid": "random"},
}


def contents(lake: DuckLake) -> Contents:
    """Return the rows of all metadata tables, without what may differ."""
    found = {}
    with lake.connect_metadata() as con:
        for table in TABLES:
            cursor = con.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            left_out = DIFFERENT.get(table, {})
            found[table] = [
                {name: same(table, name, value) for name, value in row.items() if name not in left_out} for row in rows
            ]
    return found


def same(table: str, name: str, value: Any) -> Any:
    if name == "path" and table == "ducklake_data_file":
        return str(value).rpartition("/")[0]
    return value
