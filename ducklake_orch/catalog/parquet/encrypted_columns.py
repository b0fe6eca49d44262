"""Find the columns of encrypted files, of which DuckDB shows the names and types but not the field ids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import duckdb
from duckdb.sqltypes import DuckDBPyType

from ducklake_orch.catalog.metadata import ROW_ID, ROW_ID_FIELD, SNAPSHOT_ID, SNAPSHOT_ID_FIELD, ColumnDef, DataFile
from ducklake_orch.catalog.parquet.column_mapping import known_columns
from ducklake_orch.catalog.parquet.file_schema import FileColumn
from ducklake_orch.catalog.parquet.live_rows_sql import parquet_sql, read_columns
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import UnsupportedStatementError

_OWN = {ROW_ID: ROW_ID_FIELD, SNAPSHOT_ID: SNAPSHOT_ID_FIELD}
Layout = Sequence[ColumnDef]


def footers_of(
    con: duckdb.DuckDBPyConnection, files: Sequence[DataFile], schemas: Mapping[int, Layout]
) -> dict[str, tuple[FileColumn, ...]]:
    """Return the columns of data files, by path.

    Args:
        con: A DuckDB connection that can reach the storage.
        files: The files.
        schemas: The table's columns by schema version: all versions, if some files are encrypted.
    """
    plain = read_columns(con, list(dict.fromkeys(file.path for file in files if not file.encryption_key)))
    encrypted = {file.path: file for file in files if file.encryption_key}
    return plain | {path: encrypted_columns(con, file, schemas) for path, file in encrypted.items()}


def encrypted_columns(
    con: duckdb.DuckDBPyConnection, file: DataFile, schemas: Mapping[int, Layout]
) -> tuple[FileColumn, ...]:
    """Return the columns of an encrypted file.

    A file that the engine rewrites has the columns of an old file, which may have been renamed before the snapshot that
    adds the new file. So the names are looked up in all versions of the table's schema.

    Args:
        con: A DuckDB connection that can reach the storage.
        file: The file.
        schemas: The table's columns by schema version. Without any, only the names of the file's columns are returned.

    Raises:
        UnsupportedStatementError: When no version of the schema has the file's columns, because they were renamed in
            the transaction that wrote the file.
    """
    source = parquet_sql(file.path, file.encryption_key)
    types = {str(name): str(kind) for name, kind, *_ in con.execute(f"DESCRIBE FROM {source}").fetchall()}
    names = types.keys() - _OWN.keys()
    found = {name: FileColumn(name, "", _OWN.get(name)) for name in types}
    if schemas:
        layouts = sorted(schemas, key=lambda version: version != file.schema_version)
        for column in _columns(con, file, source, names, [schemas[version] for version in layouts], types):
            found[column.name] = column
    return tuple(found.values())


def _columns(
    con: duckdb.DuckDBPyConnection,
    file: DataFile,
    source: str,
    names: set[str],
    layouts: Sequence[Layout],
    types: Mapping[str, str],
) -> list[FileColumn]:
    fitting = [layout for layout in layouts if {column.name for column in layout} == names]
    fitting = fitting or [layout for layout in layouts if {column.name for column in layout} >= names]
    if not fitting:
        unknown = sorted(names - {column.name for layout in layouts for column in layout}) or sorted(names)
        raise UnsupportedStatementError(
            f"Column `{unknown[0]}` of the encrypted file {file.path} cannot be matched to a column of the table.",
            remedy="Read the table with SQL: `lake.execute`.",
        )
    candidates = {tuple(sorted((column.name, column.column_id) for column in layout)) for layout in fitting}
    if len(candidates) > 1:
        fitting = [layout for layout in fitting if _has_values(con, file, source, names, layout)]
    by_name: dict[str, list[ColumnDef]] = {}
    for column in chain.from_iterable(fitting):
        if column.column_id == next(known.column_id for known in fitting[0] if known.name == column.name):
            by_name.setdefault(column.name, []).append(column)
    return [_typed(types[name], by_name[name]) for name in names]


def _has_values(con: duckdb.DuckDBPyConnection, file: DataFile, source: str, names: set[str], layout: Layout) -> bool:
    """Return whether the columns of a file have the same values by the names as by the field ids of a layout."""
    columns = {column.column_id: column.name for column in layout if column.name in names}
    fields = ", ".join(f"{number}: {{name: 'c{number}', type: 'VARCHAR', default_value: NULL}}" for number in columns)
    by_name = ", ".join(f"CAST({identifier(name)} AS VARCHAR)" for name in columns.values())
    by_id = source.removesuffix(")") + f", schema = MAP {{{fields}}})"
    ids = ", ".join(f"c{number}" for number in columns)
    query = f"SELECT {by_name}, file_row_number FROM {source} EXCEPT ALL SELECT {ids}, file_row_number FROM {by_id}"
    return not con.execute(f"{query} LIMIT 1").fetchall()


def _typed(described: str, versions: Sequence[ColumnDef]) -> FileColumn:
    """Return a column of a file as the version of a table's column that it was written with.

    Args:
        described: The type in the file.
        versions: The versions of the column that may be the one.
    """
    kind = duckdb.sqltype(described)
    column = next((version for version in versions if _has_fields(version, kind)), versions[0])
    return _of_unknown_type(known_columns([column])[0])


def _has_fields(column: ColumnDef, kind: DuckDBPyType) -> bool:
    """Return whether a type has the struct fields of a column."""
    if not column.children:
        return True
    if kind.id != column.type:
        return False
    names, kinds = zip(*kind.children, strict=True)
    if column.type == "struct" and [*names] != [child.name for child in column.children]:
        return False
    inner = zip(column.children, kinds, strict=True)
    return all(isinstance(of_child, DuckDBPyType) and _has_fields(child, of_child) for child, of_child in inner)


def _of_unknown_type(column: FileColumn) -> FileColumn:
    """Return a column whose values are cast to the table's types: Parquet has no HUGEINT, for example."""
    children = tuple(map(_of_unknown_type, column.children))
    return replace(column, type=column.type if children else "", children=children)
