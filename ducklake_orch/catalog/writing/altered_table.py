"""Build the definition of a table with other columns, partition keys or sort keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, Metadata, TableDef, duckdb_type, inlines, refuse_reserved
from ducklake_orch.catalog.writing.target_table import PROMOTIONS, columns_of, partition_spec, sort_keys
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.layout import column_comments, column_types, default_text, used_columns
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError


@dataclass(frozen=True)
class Alteration:
    """What to change about a table.

    `drop` and `rename` name columns as they are; all others name them as they will be.

    Attributes:
        add: The new columns, as a schema.
        drop: The columns to drop.
        rename: New names of columns.
        types: New types of columns.
        defaults: The values that new rows get if they do not name a column; None for no value.
        allow_nulls: NOT NULL columns that may contain NULL from now on.
        comments: Comments of columns; an empty one removes the comment.
        partition_by: The partition keys; empty for none.
        sort_by: The sort keys; empty for none.
    """

    add: Any = field(default_factory=dict)
    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    allow_nulls: Sequence[str] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, given in (("drop_columns", self.drop), ("allow_nulls", self.allow_nulls)):
            if isinstance(given, str):  # Python would take each letter for the name of a column
                raise ConfigError(f"`{name}` = {given!r} is not a list.", remedy=f'Write `{name}=["{given}"]`.')
        texts = [*self.drop, *self.defaults, *self.allow_nulls]
        for pairs in (self.rename, self.types, self.comments):
            texts += [*pairs, *pairs.values()]
        if (other := next((text for text in texts if not isinstance(text, str)), None)) is not None:
            raise ConfigError(f"{other!r} is not a text.", remedy="Give names, types and comments as texts.")

    def applied(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Return the table as it will be.

        Raises:
            ConfigError: When the table cannot be changed in this way.
        """
        columns = _Columns(metadata.con, table)
        columns.drop(self.drop)
        columns.rename(self.rename)
        columns.add(self.add, metadata.first_free_column(table.table_id))
        columns.change_types(self.types)
        columns.set_defaults(self.defaults)
        for name in self.allow_nulls:
            columns.replace(name, nullable=True)
        for name, text in self.comments.items():
            columns.replace(name, comment=text or None)
        partition, sort, now = table.partition, table.sort, columns.now
        if self.partition_by is not None:
            partition = partition_spec(now, self.partition_by)
        elif used := [key.column_id for key in table.key_fields if columns.lacks(key.column_id)]:
            raise ConfigError(
                f"`{table.column(used[0]).name}` is a partition key of `{table}`.",
                remedy="Give the other keys as `partition_by`.",
            )
        if self.sort_by is not None:
            sort = sort_keys(metadata.con, now, self.sort_by)
        elif used_names := {*map(folded, (*self.drop, *self.rename))} & {
            name for key in sort for name in used_columns(key.expression)
        }:
            raise ConfigError(
                f"`{table}` is sorted by `{min(used_names)}`.", remedy="Give the sort keys as `sort_by`, too."
            )
        refuse_reserved(
            [column for column in now if column not in table.columns], inlines=inlines(metadata.config, table)
        )
        return replace(table, columns=now, partition=partition, sort=sort)


class _Columns:
    """The columns of a table, changed step by step."""

    def __init__(self, con: duckdb.DuckDBPyConnection, table: TableDef) -> None:
        self._con, self._table = con, table
        self._by_name = {folded(column.name): column for column in table.columns}

    @property
    def now(self) -> tuple[ColumnDef, ...]:
        return tuple(self._by_name.values())

    def lacks(self, column_id: int) -> bool:
        return all(column.column_id != column_id for column in self.now)

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._by_name.pop(folded(self._find(name).name))
        if not self._by_name:
            raise ConfigError(f"`{self._table}` would have no column.", remedy="Use `drop_table` to drop the table.")

    def rename(self, names: Mapping[str, str]) -> None:
        found = {self._find(old).column_id: new for old, new in names.items()}
        renamed = [replace(column, name=found.get(column.column_id, column.name)) for column in self.now]
        self._by_name = {}
        for column in renamed:
            self._put_new(column)

    def add(self, schema: Any, first_id: int) -> None:
        kinds = column_types(schema, self._con)
        if required := [name for name, kind in kinds.items() if kind.endswith(" NOT NULL")]:
            raise ConfigError(
                f"The new column `{required[0]}` is NOT NULL.", remedy="Existing rows have no value for it: allow NULL."
            )
        if not kinds:
            return
        nulls = ", ".join(f"NULL::{kind} AS {identifier(name)}" for name, kind in kinds.items())
        types = self._con.sql(f"SELECT {nulls}").types
        comments = column_comments(schema)
        for column in columns_of(list(zip(kinds, types, strict=True)), count(first_id)):
            self._put_new(replace(column, comment=comments.get(column.name)))

    def change_types(self, types: Mapping[str, str]) -> None:
        for name, wanted in types.items():
            column = self._find(name)
            kinds = {duckdb_type(replace(column, type=kind)): kind for kind in PROMOTIONS.get(column.type, ())}
            kind = column_types({name: wanted}, self._con)[name]
            if kind != duckdb_type(column):
                if kind not in kinds:
                    known = f"It can become {', '.join(kinds)}." if kinds else "Add a column, and copy the values."
                    raise ConfigError(
                        f"`{column.name}` is {duckdb_type(column)} and cannot become {kind}.", remedy=known
                    )
                self.replace(name, type=kinds[kind])

    def set_defaults(self, values: Mapping[str, Any]) -> None:
        existing = {column.column_id for column in self._table.columns}
        for name, value in values.items():
            column = self._find(name)
            text = default_text(column.name, duckdb_type(column), value, self._con)
            self.replace(name, default=text, default_type="literal")
            if column.column_id not in existing:  # rows that exist already get the value, too
                self.replace(name, initial_default=text)

    def replace(self, name: str, **changes: Any) -> None:
        column = self._find(name)
        self._by_name[folded(column.name)] = replace(column, **changes)

    def _find(self, name: str) -> ColumnDef:
        if (column := self._by_name.get(folded(name))) is None:
            names = [column.name for column in self.now]
            raise ConfigError(f"`{self._table}` has no column `{name}`.", remedy=nearest(name, names))
        return column

    def _put_new(self, column: ColumnDef) -> None:
        if folded(column.name) in self._by_name:
            raise ConfigError(f"`{self._table}` has a column `{column.name}` already.")
        self._by_name[folded(column.name)] = column
