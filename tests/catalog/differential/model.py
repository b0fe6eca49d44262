"""The expected content of the lake: Python rows at every snapshot."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from tests.catalog.differential.values import Type, Value

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        default: The value of rows that do not name the column.
        was: The type before its promotion.
    """

    name: str
    type: Type
    default: Value = None
    was: Type | None = None


@dataclass(frozen=True)
class Table:
    """A table at one snapshot.

    Attributes:
        rows: The rows by the number in their first column, `id`.
        spec: The partition spec, by its name in `shapes`.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Mapping[int, Row] = field(default_factory=dict)
    spec: str = "none"

    @property
    def types(self) -> list[tuple[str, Type]]:
        """The name and type of each column."""
        return [(column.name, column.type) for column in self.columns]

    def index(self, name: str) -> int:
        """Return the position of a column."""
        return next(n for n, column in enumerate(self.columns) if column.name == name)

    def column(self, name: str) -> Column:
        """Return a column."""
        return self.columns[self.index(name)]

    def only(self, columns: Collection[str]) -> "Table":
        """Return the table with only some columns."""
        kept = [n for n, column in enumerate(self.columns) if column.name in columns]
        rows = {number: tuple(row[n] for n in kept) for number, row in self.rows.items()}
        return replace(self, columns=tuple(self.columns[n] for n in kept), rows=rows)

    def plus(self, rows: Mapping[int, Row]) -> "Table":
        """Return the table with added or replaced rows."""
        return replace(self, rows={**self.rows, **rows})

    def without(self, ids: Collection[int]) -> "Table":
        """Return the table without some rows."""
        return replace(self, rows={number: row for number, row in self.rows.items() if number not in ids})

    def with_column(self, column: Column) -> "Table":
        """Return the table with another column, whose value in existing rows is its default."""
        rows = {number: (*row, column.default) for number, row in self.rows.items()}
        return replace(self, columns=(*self.columns, column), rows=rows)

    def without_column(self, name: str) -> "Table":
        """Return the table without a column."""
        at = self.index(name)
        rows = {number: row[:at] + row[at + 1 :] for number, row in self.rows.items()}
        return replace(self, columns=self.columns[:at] + self.columns[at + 1 :], rows=rows)

    def with_changed(self, name: str, column: Column, value: Callable[[Value], Value]) -> "Table":
        """Return the table with a replaced column and converted values."""
        at = self.index(name)
        rows = {number: (*row[:at], value(row[at]), *row[at + 1 :]) for number, row in self.rows.items()}
        return replace(self, columns=(*self.columns[:at], column, *self.columns[at + 1 :]), rows=rows)


class Model:
    """The tables of a lake, now and at every retained snapshot.

    Attributes:
        rewritten: The last snapshot in which the engine rewrote files of a table.
        promoted: The last snapshot in which a column of a table was promoted.
        laid_out: The tables that got other partition keys after their creation.
    """

    def __init__(self) -> None:
        self.rewritten: dict[str, int] = {}
        self.promoted: dict[str, int] = {}
        self.laid_out: set[str] = set()
        self.tables: dict[str, Table] = {}
        self.snapshot = 0
        self._history: dict[int, Mapping[str, Table]] = {0: {}}

    def commit(self, snapshot: int) -> None:
        """Record the current tables as those of a snapshot, and of all new snapshots before it."""
        for number in range(self.snapshot + 1, snapshot + 1):
            self._history[number] = dict(self.tables)
        self.snapshot = snapshot

    def at(self, snapshot: int) -> Mapping[str, Table]:
        """Return the tables at a snapshot."""
        return self._history[snapshot]

    @property
    def retained(self) -> list[int]:
        """The retained snapshots, oldest first."""
        return sorted(self._history)

    def expire(self, snapshots: Collection[int]) -> None:
        """Remove expired snapshots."""
        for number in snapshots:
            del self._history[number]
