"""Name the values of the metadata tables that cannot be right, once reading them has failed: `naming_damage`.

The code that reads metadata tables relies on their types. A row that another program, a person or a broken disk has
damaged then fails anywhere, with any error of Python. Whoever sees that error learns which value to mend.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.formats import NEWER_FORMAT, NEWER_PREFIX
from ducklake_orch.errors import CatalogDamagedError, DuckLakeOrchError

Connection = duckdb.DuckDBPyConnection | LakeConnection
Cursor = Callable[[], AbstractContextManager[Connection]]
# What code may raise that gets a value of another type, a NULL or an unknown id; UnicodeDecodeError is a ValueError.
_RAISED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_MOST_NAMED = 5
_REMEDY = "Restore the catalog from a backup, or correct the value there. Then run `ducklake-orch fsck --deep`."
_OBJECT = "begin_snapshot path path_is_relative"
# The columns that have a value in every row.
_REQUIRED = {
    "ducklake_column": "column_id begin_snapshot table_id column_order column_name column_type",
    "ducklake_column_mapping": "mapping_id table_id",
    "ducklake_column_tag": "table_id column_id begin_snapshot key",
    "ducklake_data_file": f"data_file_id table_id record_count file_size_bytes {_OBJECT}",
    "ducklake_delete_file": f"delete_file_id table_id data_file_id delete_count file_size_bytes {_OBJECT}",
    "ducklake_file_column_stats": "data_file_id table_id column_id",
    "ducklake_file_partition_value": "data_file_id table_id partition_key_index",
    "ducklake_files_scheduled_for_deletion": "data_file_id path path_is_relative schedule_start",
    "ducklake_inlined_data_tables": "table_id table_name schema_version",
    "ducklake_macro": "schema_id macro_id macro_name begin_snapshot",
    "ducklake_name_mapping": "mapping_id column_id source_name target_field_id",
    "ducklake_partition_column": "partition_id table_id partition_key_index column_id transform",
    "ducklake_partition_info": "partition_id table_id begin_snapshot",
    "ducklake_schema": f"schema_id schema_uuid schema_name {_OBJECT}",
    "ducklake_schema_versions": "begin_snapshot schema_version table_id",
    "ducklake_snapshot": "snapshot_id snapshot_time schema_version next_catalog_id next_file_id",
    "ducklake_snapshot_changes": "snapshot_id",
    "ducklake_sort_expression": "sort_id table_id sort_key_index expression",
    "ducklake_sort_info": "sort_id table_id begin_snapshot",
    "ducklake_table": f"table_id table_uuid schema_id table_name {_OBJECT}",
    "ducklake_table_column_stats": "table_id column_id",
    "ducklake_table_stats": "table_id record_count next_row_id file_size_bytes",
    "ducklake_tag": "object_id begin_snapshot key",
    "ducklake_view": "view_id begin_snapshot schema_id view_name sql",
}
# The same for the tables of inlined rows and deletes, by how their names begin.
_REQUIRED_INLINED = {"data": "row_id begin_snapshot", "delete": "file_id row_id begin_snapshot"}
# Columns that hold the id of a row in another table: the columns, that table, and its columns.
_REFERENCES = [
    ("ducklake_column", "table_id", "ducklake_table", "table_id"),
    ("ducklake_data_file", "table_id", "ducklake_table", "table_id"),
    ("ducklake_data_file", "mapping_id", "ducklake_column_mapping", "mapping_id"),
    ("ducklake_data_file", "partition_id", "ducklake_partition_info", "partition_id"),
    ("ducklake_delete_file", "table_id", "ducklake_table", "table_id"),
    ("ducklake_delete_file", "data_file_id", "ducklake_data_file", "data_file_id"),
    ("ducklake_name_mapping", "mapping_id", "ducklake_column_mapping", "mapping_id"),
    ("ducklake_partition_column", "partition_id", "ducklake_partition_info", "partition_id"),
    ("ducklake_partition_column", "table_id column_id", "ducklake_column", "table_id column_id"),
    ("ducklake_sort_expression", "sort_id", "ducklake_sort_info", "sort_id"),
    ("ducklake_table", "schema_id", "ducklake_schema", "schema_id"),
]


@contextmanager
def naming_damage(config: LakeConfig, doing: str, cursor: Cursor) -> Iterator[None]:
    """Name the damaged values of the catalog if a block that reads them fails.

    Args:
        config: The lake.
        doing: What the block does, for the message.
        cursor: Opens a connection to which the metadata database is attached.

    Raises:
        CatalogDamagedError: When the block fails because of a damaged value. Other errors of Python pass unchanged.
    """
    failure: DuckLakeOrchError
    try:
        yield
        return
    except DuckLakeOrchError as error:
        if type(error) is not CatalogDamagedError or error.remedy == _REMEDY:
            raise
        failure = _named(config, doing, cursor) or error
    except duckdb.Error as error:
        failure = _named(config, doing, cursor) or classify(error, config, f"{doing} failed")
    except _RAISED as error:
        if (named := _named(config, doing, cursor)) is None:
            raise
        named.add_note(f"It was noticed by {type(error).__name__}: {error}")
        failure = named
    raise failure


def _named(config: LakeConfig, doing: str, cursor: Cursor) -> CatalogDamagedError | None:
    cells: list[str] = []
    # What was found before the damage hinders the search itself is named.
    with suppress(duckdb.Error, *_RAISED), cursor() as con:
        cells.extend(damaged_cells(con, config))
    if not cells:
        return None
    more = f", and {len(cells) - _MOST_NAMED} more" if len(cells) > _MOST_NAMED else ""
    text = f"{doing} failed: the catalog is damaged: {', '.join(cells[:_MOST_NAMED])}{more}."
    return CatalogDamagedError(text, remedy=_REMEDY)


def _inlined(con: Connection, config: LakeConfig) -> Iterator[tuple[str, str]]:
    dialect = dialect_of(config)
    version = f"select m.value from {dialect.table('ducklake_metadata')} m where m.key = 'version'"
    newer = con.execute(dialect.query(version)).fetchall() == [(NEWER_FORMAT,)]
    for kind, columns in _REQUIRED_INLINED.items():
        for name in dialect.names(con, f"ducklake_inlined_{kind}_"):
            if name != "ducklake_inlined_data_tables":
                prefix = NEWER_PREFIX if newer and kind == "data" else ""
                yield name, " ".join(f"{prefix}{column}" for column in columns.split())


def damaged_cells(con: Connection, config: LakeConfig) -> Iterator[str]:
    """Yield the values that cannot be right: of another type than their column, missing, or unknown ids."""
    dialect = dialect_of(config)
    yield from dialect.mistyped_cells(con)
    option = f"select 1 as n from {dialect.table('ducklake_metadata')} m where m.key = 'data_path' and m.scope is null"
    if not con.execute(dialect.query(f"{option} and m.scope_id is null")).fetchall():
        yield "`ducklake_metadata` has no `data_path` of the lake"
    for table, required in [*_REQUIRED.items(), *_inlined(con, config)]:
        columns = required.split()
        nulls = ", ".join(f"sum(case when t.{column} is null then 1 else 0 end)" for column in columns)
        rows = con.execute(dialect.query(f"select {nulls} from {dialect.table(table)} t")).fetchall()
        counts = zip(columns, rows[0], strict=True)
        yield from (f"`{table}.{column}` is NULL" for column, count in counts if int(count or 0))
    for table, names, other, keys in _REFERENCES:
        columns = names.split()
        same = " and ".join(f"o.{key} = t.{column}" for column, key in zip(columns, keys.split(), strict=True))
        unknown = f"not exists (select 1 from {dialect.table(other)} o where {same})"
        value = f"t.{columns[-1]}"
        sql = f"select {value} as v0 from {dialect.table(table)} t where {value} is not null and {unknown}"
        ids = sorted({str(row[0]) for row in con.execute(dialect.query(sql)).fetchall()})
        yield from (f"`{table}.{columns[-1]}` = {number} is in no row of `{other}`" for number in ids[:_MOST_NAMED])
