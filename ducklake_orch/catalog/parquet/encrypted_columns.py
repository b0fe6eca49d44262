"""Find the columns of encrypted files, of which DuckDB shows the names and types but not the field ids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
from duckdb.sqltypes import DuckDBPyType

from ducklake_orch.catalog.metadata import (
    ROW_ID_FIELD,
    SNAPSHOT_ID_FIELD,
    ColumnDef,
    DataFile,
    origin,
    row_id_name,
    snapshot_id_name,
)
from ducklake_orch.catalog.parquet.column_mapping import known_columns
from ducklake_orch.catalog.parquet.file_schema import FileColumn
from ducklake_orch.catalog.parquet.live_rows_sql import parquet_sql, read_columns
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import UnsupportedStatementError

Layout = Sequence[ColumnDef]


def footers_of(
    con: duckdb.DuckDBPyConnection, files: Sequence[DataFile], layouts: Mapping[int, Layout]
) -> dict[str, tuple[FileColumn, ...]]:
    """Return the columns of data files, by path.

    Args:
        con: A DuckDB connection that can reach the storage.
        files: The files.
        layouts: The columns that the table has had, by the first snapshot that has them. Only encrypted files need
            them; without any, only the names of a file's columns are returned.
    """
    plain = read_columns(con, list(dict.fromkeys(file.path for file in files if not file.encryption_key)))
    encrypted = {file.path: file for file in files if file.encryption_key}
    return plain | {path: _encrypted_columns(con, file, layouts) for path, file in encrypted.items()}


def _encrypted_columns(
    con: duckdb.DuckDBPyConnection, file: DataFile, layouts: Mapping[int, Layout]
) -> tuple[FileColumn, ...]:
    """Return the columns of an encrypted file.

    Raises:
        UnsupportedStatementError: When the table has never had columns of these names and values, because they were
            altered in the transaction that wrote the file.
    """
    source = parquet_sql(file.path, file.encryption_key)
    types = {str(name): str(kind) for name, kind, *_ in con.execute(f"DESCRIBE FROM {source}").fetchall()}
    every_column = [column for layout in layouts.values() for column in layout]
    own = {row_id_name(every_column): ROW_ID_FIELD, snapshot_id_name(every_column): SNAPSHOT_ID_FIELD}
    found = {name: FileColumn(name, "", own.get(name)) for name in types}
    names = types.keys() - own.keys()
    if layouts:
        chosen = _fitting(con, file, source, names, layouts)
        ids = {column.name: column.column_id for column in chosen if column.name in names}
        for name, number in ids.items():
            versions = [column for column in (*chosen, *every_column) if column.column_id == number]
            found[name] = _typed(file, types[name], [column for column in versions if column.name == name])
    return tuple(found.values())


def _fitting(
    con: duckdb.DuckDBPyConnection, file: DataFile, source: str, names: set[str], layouts: Mapping[int, Layout]
) -> Layout:
    """Return the columns that the table had when the file was written.

    These are not always those at the file's snapshot: a file that the engine rewrites has the columns of the old file,
    and a transaction can alter columns of a file that it has written before.
    """
    first = max((begin for begin in layouts if begin <= file.begin_snapshot), default=min(layouts))
    ordered = [layouts[first], *layouts.values()]
    fitting = [layout for layout in ordered if {column.name for column in layout} == names]
    fitting = fitting or [layout for layout in ordered if {column.name for column in layout} >= names]
    candidates = [{column.name: column.column_id for column in layout if column.name in names} for layout in fitting]
    if any(ids != candidates[0] for ids in candidates):
        doubtful = {name for name in names if len({ids[name] for ids in candidates}) > 1}
    else:
        # No transaction of ducklake-orch alters columns of a file that it has written.
        is_certain = file.begin_snapshot not in layouts or origin(file.path)[0] is not None
        doubtful = set() if is_certain else names
    right = _ids_by_values(con, source, doubtful, candidates) if doubtful and candidates else {}
    for layout, ids in zip(fitting, candidates, strict=True):
        if all(ids[name] in right[name] for name in doubtful):
            return layout
    unknown = names - {column.name for layout in layouts.values() for column in layout}
    raise _unknown(file, min(unknown or names))


def _ids_by_values(
    con: duckdb.DuckDBPyConnection, source: str, names: set[str], candidates: Sequence[Mapping[str, int]]
) -> dict[str, set[int]]:
    """Return by name the field ids under which a file has the same values as under the name."""
    ids = sorted({ids[name] for ids in candidates for name in names})
    fields = ", ".join(f"{number}: {{name: 'c{number}', type: 'VARCHAR', default_value: NULL}}" for number in ids)
    by_id = f"{source.removesuffix(')')}, schema = MAP {{{fields}}})"
    ordered = sorted(names)
    # One text for each row: the hashes of two values are combined so that equal values can cancel each other out.
    hashed = "bit_xor(hash(concat(file_row_number, coalesce(':' || CAST({} AS VARCHAR), ''))))"
    of_names = ", ".join(hashed.format(f"n{position}") for position in range(len(ordered)))
    renamed = ", ".join(f"{identifier(name)} AS n{position}" for position, name in enumerate(ordered))
    of_ids = ", ".join(hashed.format(f"c{number}") for number in ids)
    [values] = con.execute(f"SELECT {of_names} FROM (SELECT {renamed}, file_row_number FROM {source})").fetchall()
    [known] = con.execute(f"SELECT {of_ids} FROM {by_id}").fetchall()
    return {
        name: {number for number, value in zip(ids, known, strict=True) if value == own}
        for name, own in zip(ordered, values, strict=True)
    }


def _typed(file: DataFile, described: str, versions: Sequence[ColumnDef]) -> FileColumn:
    """Return a column of a file as the version of a table's column that it was written with.

    Args:
        file: The file.
        described: The type in the file.
        versions: The versions of the column that may be the one.
    """
    kind = duckdb.sqltype(described)
    column = next((version for version in versions if _has_fields(version, kind)), None)
    if column is None:
        raise _unknown(file, versions[0].name)
    return _of_unknown_type(known_columns([column])[0])


def _unknown(file: DataFile, name: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"Column `{name}` of the encrypted file {file.path} cannot be matched to a column of the table.",
        remedy="Read the table with SQL, `lake.execute`, and write its rows again.",
    )


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
