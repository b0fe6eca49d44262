"""Find the columns of a table in a file, by field id or mapped name, even if names and types have changed since."""

from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import ColumnDef, MappedName, duckdb_type, path_text, path_value
from ducklake_orch.catalog.parquet.file_schema import FileColumn


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a table, as stored in a file.

    Attributes:
        column: The column as it is defined now.
        name: Its name in the file; None if the file lacks it.
        text: Its value, as text, if the file lacks it.
        type: The DuckDB type in the file; for nested columns only the kind of nesting.
        children: The nested columns.
        fields: The names of all fields that the file has in a struct, in file order; dropped ones are included.
        in_path: Whether its value comes from the path of the file.
    """

    column: ColumnDef
    name: str | None
    text: str | None = None
    type: str = ""
    children: tuple["StoredColumn", ...] = ()
    fields: tuple[str, ...] = ()
    in_path: bool = False

    @property
    def as_it_is(self) -> bool:
        """Whether the value in the file can be read without conversion; the column's own name does not matter."""
        if not self.column.children:
            return self.name is not None and self.type == duckdb_type(self.column)
        if self.column.type == "struct":
            names = tuple(child.column.name for child in self.children)
            if self.fields != names or tuple(child.name for child in self.children) != names:
                return False
        return bool(self.children) and all(child.as_it_is for child in self.children)


def stored_columns(
    columns: Sequence[ColumnDef], footer: Sequence[FileColumn], names: Sequence[MappedName] | None, path: str
) -> tuple[StoredColumn, ...]:
    """Find columns of a table in a file.

    Args:
        columns: The columns to read.
        footer: The columns that the file has.
        names: The name mapping of the file, if it has one; else columns are found by field id.
        path: The path of the file.
    """
    if names is None and not any(column.field_id is not None for column in footer):
        # The file has no field ids. Then the engine, too, matches columns by name.
        names = names_of(columns)
    return tuple(_stored(column, footer, names, path) for column in columns)


def names_of(columns: Sequence[ColumnDef]) -> tuple[MappedName, ...]:
    """Return the mapping of columns to their own names."""
    return tuple(MappedName(column.name, column.column_id, children=names_of(column.children)) for column in columns)


def known_columns(columns: Sequence[ColumnDef]) -> tuple[FileColumn, ...]:
    """Return the columns that a file with these table columns has, for files whose footers are not read."""

    def build(column: ColumnDef) -> FileColumn:
        kind = column.type.upper() if column.children else duckdb_type(column)
        return FileColumn(column.name, kind, column.column_id, children=tuple(map(build, column.children)))

    return tuple(map(build, columns))


def _stored(
    column: ColumnDef, footer: Sequence[FileColumn], names: Sequence[MappedName] | None, path: str
) -> StoredColumn:
    if names is None:
        source = next((file_column for file_column in footer if file_column.field_id == column.column_id), None)
        return _missing(column) if source is None else _read_from(column, source, None)
    name = next((mapped_name for mapped_name in names if mapped_name.column_id == column.column_id), None)
    if name is None:
        return _missing(column)
    if name.is_partition:
        return StoredColumn(column, None, path_value(path_text(path, name.source), column), in_path=True)
    source = next((file_column for file_column in footer if file_column.name.lower() == name.source.lower()), None)
    return _missing(column) if source is None else _read_from(column, source, name.children)


def _read_from(column: ColumnDef, source: FileColumn, names: Sequence[MappedName] | None) -> StoredColumn:
    if column.type == "struct":
        children = tuple(_stored(child, source.children, names, "") for child in column.children)
        fields = tuple(child.name for child in source.children)
    else:
        fields = ()
        # Elements of lists and maps are matched by position, because their names differ between writers.
        deeper = [name.children for name in names] if names else [None if names is None else ()] * len(column.children)
        triples = zip(column.children, source.children, deeper, strict=False)
        children = tuple(_read_from(child, child_source, child_names) for child, child_source, child_names in triples)
    return StoredColumn(column, source.name, None, source.type, children, fields)


def _missing(column: ColumnDef) -> StoredColumn:
    return StoredColumn(column, None, column.initial_default)
