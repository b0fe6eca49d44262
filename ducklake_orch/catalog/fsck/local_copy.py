"""Copy the metadata tables into memory: one state of the catalog, in types that are the same for every database.

The checks are SQL over this copy. The catalog therefore serves one query per table, however many checks there are;
concurrent commits cannot confuse the checks; and the checks need no dialects.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.fsck import change_checks
from ducklake_orch.catalog.fsck.inlined import DATA, DELETES, copy_inlined
from ducklake_orch.catalog.fsck.views import MACROS, VIEWS
from ducklake_orch.catalog.metadata import join_path, text
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import TablePattern, names, refuse_unmatched
from ducklake_orch.engine.quoting import TableName, identifier, literal
from ducklake_orch.engine.snapshots import metadata
from ducklake_orch.errors import LakeNotFoundError

_LIFE = "begin_snapshot BIGINT, end_snapshot BIGINT"
_PATH = "path VARCHAR, path_is_relative BOOLEAN"
_BOUNDS = "min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN"
# The columns of each metadata table of the format that the checks read.
TABLES = {
    "metadata": "key VARCHAR, value VARCHAR, scope VARCHAR, scope_id BIGINT",
    "snapshot": "snapshot_id BIGINT, schema_version BIGINT, next_catalog_id BIGINT, next_file_id BIGINT",
    "snapshot_changes": "snapshot_id BIGINT, changes_made VARCHAR, commit_extra_info VARCHAR",
    "schema": f"schema_id BIGINT, {_LIFE}, schema_name VARCHAR, {_PATH}",
    "table": f"table_id BIGINT, {_LIFE}, schema_id BIGINT, table_name VARCHAR, {_PATH}",
    "view": f"view_id BIGINT, {_LIFE}, schema_id BIGINT, view_name VARCHAR",
    "macro": f"macro_id BIGINT, {_LIFE}, schema_id BIGINT, macro_name VARCHAR",
    "macro_impl": "macro_id BIGINT",
    "tag": f"object_id BIGINT, {_LIFE}, key VARCHAR",
    "column": f"column_id BIGINT, {_LIFE}, table_id BIGINT, column_order BIGINT, column_name VARCHAR,"
    " column_type VARCHAR, parent_column BIGINT",
    "column_tag": f"table_id BIGINT, column_id BIGINT, {_LIFE}, key VARCHAR",
    "data_file": f"data_file_id BIGINT, table_id BIGINT, {_LIFE}, {_PATH}, record_count BIGINT,"
    " file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR,"
    " mapping_id BIGINT, partial_max BIGINT",
    "delete_file": f"delete_file_id BIGINT, table_id BIGINT, {_LIFE}, data_file_id BIGINT, {_PATH}, format VARCHAR,"
    " delete_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT",
    "file_column_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, value_count BIGINT,"
    f" null_count BIGINT, {_BOUNDS}",
    "file_variant_stats": "data_file_id BIGINT, table_id BIGINT",
    "table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT",
    "table_column_stats": f"table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, {_BOUNDS}",
    "partition_info": f"partition_id BIGINT, table_id BIGINT, {_LIFE}",
    "partition_column": "partition_id BIGINT, partition_key_index BIGINT, column_id BIGINT, transform VARCHAR",
    "file_partition_value": "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR",
    "sort_info": f"sort_id BIGINT, table_id BIGINT, {_LIFE}",
    "files_scheduled_for_deletion": f"data_file_id BIGINT, {_PATH}",
    "inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
    "column_mapping": "mapping_id BIGINT, table_id BIGINT",
    "name_mapping": "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT,"
    " parent_column BIGINT, is_partition BOOLEAN",
    "schema_versions": "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT",
}
# Tables of ducklake-orch, which most lakes do not have.
_OWN_TABLES = {"ducklake_orch_tags": "name VARCHAR, snapshot_id BIGINT"}
# All inlined tables as one: the catalog's own columns of each row, without values, and the deletes of rows in files.
_WORK_TABLES = {
    "missing_table": "table_name VARCHAR",
    "inlined_table": "table_name VARCHAR, table_id BIGINT",
    "inlined_row": f"table_id BIGINT, table_name VARCHAR, row_id BIGINT, {_LIFE}",
    "inlined_stats": "table_id BIGINT, column_id BIGINT, min_value VARCHAR, max_value VARCHAR, value_count BIGINT,"
    " null_count BIGINT, contains_nan BOOLEAN",
    "inlined_delete": "table_id BIGINT, file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT",
    # Filled by the other modes: from footers, from the contents of files, from a listing of the storage.
    "footer": "path VARCHAR, record_count BIGINT, file_size BIGINT, footer_size BIGINT, columns STRUCT(name VARCHAR,"
    " type VARCHAR, repetition_type VARCHAR, num_children BIGINT, converted_type VARCHAR, logical_type VARCHAR,"
    " field_id BIGINT, duckdb_type VARCHAR)[]",
    "unreadable": "path VARCHAR, absent BOOLEAN, reason VARCHAR",
    "nesting": "path VARCHAR, detail VARCHAR",
    "narrowed": "path VARCHAR, detail VARCHAR",
    "surely_numbered": "data_file_id BIGINT",
    "real_stats": "data_file_id BIGINT, column_id BIGINT, min_value VARCHAR, max_value VARCHAR, value_count BIGINT,"
    " null_count BIGINT, contains_nan BOOLEAN",
    "real_partition": "data_file_id BIGINT, partition_key_index BIGINT, low VARCHAR, high VARCHAR, nulls BIGINT",
    "real_delete": "delete_file_id BIGINT, positions BIGINT, low BIGINT, high BIGINT, unsorted BIGINT, other VARCHAR,"
    " also_inlined BIGINT",
    "undated": "what VARCHAR, id BIGINT, rows BIGINT",
    "listed": "path VARCHAR",
    "alias": "full_path VARCHAR, listed_path VARCHAR",
}


@dataclass(frozen=True)
class LocalCopy:
    """The metadata tables in memory, named `ducklake_…` as in the catalog, and the views of `views.py`.

    Attributes:
        con: The connection that holds them as temporary tables; closing it drops them.
        config: The lake.
        data_path: Root of the lake's files, with a trailing slash.
        chosen: The ids of the tables that are checked; None for all. The copy has no files or columns of others.
    """

    con: duckdb.DuckDBPyConnection
    config: LakeConfig
    data_path: str
    chosen: Sequence[int] | None = None

    def number(self, sql: str) -> int:
        """Return the single number that a query returns."""
        return int(self.con.execute(sql).fetchall()[0][0] or 0)

    def count(self, table: str) -> int:
        """Return the number of rows of a table; a condition may follow its name."""
        return self.number(f"SELECT count(*) FROM {table}")


def copy_metadata(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, chosen: Sequence[TablePattern] | None = None
) -> LocalCopy:
    """Copy the metadata tables.

    Args:
        con: A connection in a transaction, outside the lake, to which the metadata database is attached.
        config: The lake.
        chosen: Only tables with these names or patterns.

    Raises:
        LakeNotFoundError: When the metadata database contains no lake.
        ObjectNotFoundError: When a name or pattern matches no table.
    """
    tables = _columns(con, config)
    if "ducklake_metadata" not in tables:
        raise LakeNotFoundError(
            f"The catalog `{config.catalog.to_url()}` holds no lake.",
            remedy="Check the path or database, and `metadata_schema`.",
        )
    created = _WORK_TABLES | _OWN_TABLES | {f"ducklake_{table}": columns for table, columns in TABLES.items()}
    for name, columns in created.items():
        con.execute(f"CREATE TEMP TABLE {name} ({columns})")
    ids: Sequence[int] | None = None
    for table, columns in TABLES.items():
        of_a_table = "table_id BIGINT" in columns
        _copy_table(
            con, config, f"ducklake_{table}", columns, tables.get(f"ducklake_{table}"), ids if of_a_table else None
        )
        if table == "table" and chosen is not None:
            ids = _ids_of(con, config, chosen)
    for name in _OWN_TABLES.keys() & tables.keys():
        _copy_table(con, config, name, _OWN_TABLES[name], tables[name], None)
    copy_inlined(con, config, tables if ids is None else _without_other_tables(tables, ids))
    path = _data_path(con, config)
    for statement in [*MACROS, *VIEWS, *change_checks.VIEWS]:
        con.execute(statement.replace("{data_path}", literal(path)))
    return LocalCopy(con, config, path, ids)


def _ids_of(con: duckdb.DuckDBPyConnection, config: LakeConfig, chosen: Sequence[TablePattern]) -> list[int]:
    """Return the ids of the live tables with these names or patterns."""
    rows = con.execute("""
        SELECT t.table_id, s.schema_name, t.table_name FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
        WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL""").fetchall()
    refuse_unmatched(chosen, [TableName(*row[1:]) for row in rows], config.name)
    return [int(row[0]) for row in rows if any(names(pattern, *row[1:]) for pattern in chosen)]


def _without_other_tables(tables: Mapping[str, dict[str, str]], ids: Sequence[int]) -> dict[str, dict[str, str]]:
    """Leave out the tables of inlined rows and deletes that belong to other tables of the lake."""
    kept = tuple(f"{DATA}{table_id}_" for table_id in ids), {f"{DELETES}{table_id}" for table_id in ids}
    return {
        name: types
        for name, types in tables.items()
        if not name.startswith((DATA, DELETES)) or name.startswith(kept[0]) or name in kept[1]
    }


def _data_path(con: duckdb.DuckDBPyConnection, config: LakeConfig) -> str:
    if config.override_data_path and config.data_path:
        return config.data_path
    row = con.execute("SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL").fetchone()
    return join_path("", row[0] if row else "", relative=False)


def _columns(con: duckdb.DuckDBPyConnection, config: LakeConfig) -> dict[str, dict[str, str]]:
    """Return the column types of all metadata tables, by table and column."""
    alias = literal(config.metadata_alias)
    if not con.execute(f"SELECT 1 FROM duckdb_databases() WHERE database_name = {alias}").fetchall():
        return _described(con, config)
    with closing(con.cursor()) as cursor:
        # A server shows the tables of its other databases as well.
        cursor.execute(f"USE {identifier(config.metadata_alias)}")
        schema = config.metadata_schema or cursor.execute("SELECT current_schema()").fetchall()[0][0]
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns()"
        f" WHERE database_name = {alias} AND schema_name = {literal(schema)} AND starts_with(table_name, 'ducklake_')"
    ).fetchall()
    types: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        types.setdefault(str(table), {})[str(column)] = str(kind)
    return types


def _described(con: duckdb.DuckDBPyConnection, config: LakeConfig) -> dict[str, dict[str, str]]:
    """Describe each table by its name: a database that the extension has attached is listed nowhere."""
    types: dict[str, dict[str, str]] = {}
    # Outside the transaction: if the table does not exist, the engine searches the lake for similar names.
    with closing(con.cursor()) as cursor:
        for name in [*(f"ducklake_{table}" for table in TABLES), *_OWN_TABLES]:
            _describe(cursor, config, name, types)
        for table in ("ducklake_inlined_data_tables", "ducklake_table"):
            if table in types:
                wanted = "table_name" if "inlined" in table else f"'{DELETES}' || table_id"
                rows = cursor.execute(f"SELECT DISTINCT {wanted} FROM {metadata(config, table)}").fetchall()
                for row in rows:
                    _describe(cursor, config, str(text(row[0])), types)
    return types


def _describe(con: duckdb.DuckDBPyConnection, config: LakeConfig, name: str, types: dict[str, dict[str, str]]) -> None:
    with suppress(duckdb.CatalogException):  # the table does not exist
        rows = con.execute(f"DESCRIBE {metadata(config, name)}").fetchall()
        types[name] = {str(row[0]): str(row[1]) for row in rows}


def _copy_table(
    con: duckdb.DuckDBPyConnection,
    config: LakeConfig,
    name: str,
    columns: str,
    types: Mapping[str, str] | None,
    ids: Sequence[int] | None,
) -> None:
    if types is None:
        con.execute(f"INSERT INTO missing_table VALUES ({literal(name)})")
        return
    pairs = [column.split() for column in columns.split(",")]
    values = ", ".join(_read(column, kind, types.get(column)) for column, kind in pairs)
    only = "" if ids is None else f" WHERE table_id IN ({', '.join(map(str, ids))})"
    con.execute(f"INSERT INTO {name} SELECT {values} FROM {metadata(config, name)}{only}")


def _read(column: str, wanted: str, actual: str | None) -> str:
    if actual is None:  # the catalog has an older format
        return "NULL"
    if actual == "BLOB" and wanted == "VARCHAR":
        return f"decode({identifier(column)})"
    return f"CAST({identifier(column)} AS {wanted})"
