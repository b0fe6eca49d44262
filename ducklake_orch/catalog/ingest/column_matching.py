"""Match the columns of a Parquet file with those of a table: which fit, which do not, and what their names are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import ROW_ID_FIELD, SNAPSHOT_ID_FIELD, ColumnDef, MappedName, duckdb_type
from ducklake_orch.catalog.parquet import FileColumn, advice, holds
from ducklake_orch.engine.quoting import folded

_INTERNAL = (ROW_ID_FIELD, SNAPSHOT_ID_FIELD)


@dataclass
class Match:
    """How the columns of a file fit a table.

    Attributes:
        found: The file's top-level columns, in file order.
        leaves: Columns that hold values, each with its column in the table, by leaf number in the file.
        columns: The file's top-level columns, by column id in the table.
        missing: Columns of the table, including nested ones, that the file does not have.
        from_path: Keys, in the spelling of the path, of columns that are only in the file's path, by column id.
        mapping: The column names in the file; None if its field ids are those of the table.
        problems: What does not fit, one line each.
    """

    found: Sequence[FileColumn] = ()
    leaves: dict[int, tuple[FileColumn, ColumnDef]] = field(default_factory=dict)
    columns: dict[int, FileColumn] = field(default_factory=dict)
    missing: list[ColumnDef] = field(default_factory=list)
    from_path: dict[int, str] = field(default_factory=dict)
    mapping: tuple[MappedName, ...] | None = None
    problems: list[str] = field(default_factory=list)


def match_columns(
    columns: Sequence[FileColumn],
    table: Sequence[ColumnDef],
    path_keys: Mapping[str, str],
    *,
    allow_missing: bool,
    ignore_extra: bool,
) -> Match:
    """Compare the columns of a file with those of a table.

    Args:
        columns: The columns of the file.
        table: The columns of the table.
        path_keys: Keys of the `key=value` folders in the file's path, by lower-case key.
        allow_missing: Whether columns of the table may be absent from the file; they read as their default.
        ignore_extra: Whether the file may have columns that the table does not have; they are never read.
    """
    return _Matching(path_keys, allow_missing, ignore_extra).run(columns, table)


class _Matching:
    def __init__(self, path_keys: Mapping[str, str], allow_missing: bool, ignore_extra: bool) -> None:
        self.path_keys = path_keys
        self.allow_missing = allow_missing
        self.ignore_extra = ignore_extra
        self.result = Match()
        # True until a column contradicts it. An equal id proves nothing if names differ: every table counts from 1.
        self.ids_agree = True

    def run(self, columns: Sequence[FileColumn], table: Sequence[ColumnDef]) -> Match:
        result = self.result
        result.found = columns
        if any(column.field_id in _INTERNAL for column in columns):
            # The engine would use these row ids as this table's, whatever the mapping says.
            result.problems.append("it has row ids of another lake; rewrite its rows without them")
            columns = [column for column in columns if column.field_id not in _INTERNAL]
        names = self._names(columns, table, "")
        names += self._path_names(table)
        if not self.ids_agree:
            result.mapping = tuple(names)
        return result

    def _names(self, columns: Sequence[FileColumn], targets: Sequence[ColumnDef], prefix: str) -> list[MappedName]:
        """Match columns by name as the engine does: in file order, ignoring case."""
        by_name = {folded(target.name): target for target in targets}
        names, seen = [], set()
        for column in columns:
            key = folded(column.name)
            if key in seen:
                self._complain(f"{prefix}{column.name}", "the file has two columns with this name")
                continue
            seen.add(key)
            if key not in by_name:
                self._extra(column, prefix)
                continue
            target = by_name[key]
            if not prefix:
                self.result.columns[target.column_id] = column
            names.append(self._name(column, target, f"{prefix}{target.name}"))
        for key, target in by_name.items():
            if key not in seen:
                self._absent(target, prefix)
        return names

    def _name(self, column: FileColumn, target: ColumnDef, path: str) -> MappedName:
        """Match one column; elements of lists and maps are matched by position, since their names mean nothing."""
        self.ids_agree = self.ids_agree and column.field_id == target.column_id
        children: list[MappedName] = []
        if not holds(target, column):
            self._complain(
                path, f"the table has {duckdb_type(target)}, the file has {column}. {advice(target, column)}"
            )
        elif target.type == "struct":
            children = self._names(column.children, target.children, f"{path}.")
        elif target.type in ("list", "map"):
            inside = zip(column.children, target.children, strict=True)
            children = [self._name(child, inner, f"{path}.{inner.name}") for child, inner in inside]
        elif column.leaf is not None:
            self.result.leaves[column.leaf] = (column, target)
        return MappedName(column.name, target.column_id, children=tuple(children))

    def _path_names(self, table: Sequence[ColumnDef]) -> list[MappedName]:
        wanted = self.result.from_path
        return [
            MappedName(wanted[column.column_id], column.column_id, True)
            for column in table
            if column.column_id in wanted
        ]

    def _extra(self, column: FileColumn, prefix: str) -> None:
        # The engine uses field ids only if every column has one.
        self.ids_agree = False
        if not self.ignore_extra:
            self._complain(f"{prefix}{column.name}", "the table has no such column; `ignore_extra=True` ignores it")

    def _absent(self, target: ColumnDef, prefix: str) -> None:
        key = self.path_keys.get(folded(target.name))
        if not prefix and key is not None and not target.children:
            self.ids_agree = False
            self.result.from_path[target.column_id] = key
            return
        self.result.missing.append(target)
        if not self.allow_missing:
            rest = "the default" if target.initial_default is not None else "NULL"
            why = f"the file has no such column; `allow_missing=True` reads {rest} instead"
            self._complain(f"{prefix}{target.name}", why)
        elif not target.nullable and target.initial_default is None:
            self._complain(f"{prefix}{target.name}", "the file has no such column, and the table's column is NOT NULL")

    def _complain(self, path: str, why: str) -> None:
        self.result.problems.append(f"column `{path}`: {why}")
