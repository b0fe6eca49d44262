"""The shapes of the test's tables: their columns, and their possible partition specs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ducklake_orch.engine.quoting import identifier
from tests.catalog.differential.model import Column, Table
from tests.catalog.differential.values import SAMPLES, STRUCT, ListOf, MapOf, Scalar, StructOf, Type, is_nested
from tests.support.backends import DUCKDB, CatalogKind


@dataclass(frozen=True)
class Key:
    """A partition key: a transform of a column."""

    transform: str
    column: str

    @property
    def term(self) -> str:
        """The key in the syntax of `SET PARTITIONED BY`."""
        name = identifier(self.column)
        if self.transform == "identity":
            return name
        if self.transform.startswith("bucket("):
            return f"{self.transform[:-1]}, {name})"
        return f"{self.transform}({name})"

    @property
    def sql(self) -> str:
        """The SQL of the key's value, as the DuckLake spec defines it."""
        if self.transform.startswith("bucket("):
            return f"(murmur3_32({identifier(self.column)}) & 2147483647) % {self.transform[7:-1]}"
        return self.term


# Columns of partition keys. Every table has them.
_KEY_COLUMNS: Mapping[str, Type] = {
    "n": Scalar("INTEGER"),
    "big": Scalar("BIGINT"),
    "s": Scalar("VARCHAR"),
    "b": Scalar("BOOLEAN"),
    "dec": Scalar("DECIMAL(9,2)"),
    "f": Scalar("DOUBLE"),
    "u": Scalar("UUID"),
    "d": Scalar("DATE"),
    "ts": Scalar("TIMESTAMP"),
    "tz": Scalar("TIMESTAMP WITH TIME ZONE"),
}
# The number of key columns, which follow the id.
KEY_COLUMNS = len(_KEY_COLUMNS)
_ID = Column("id", Scalar("BIGINT"))
_KEYS = [Column(name, kind) for name, kind in _KEY_COLUMNS.items()]
# Types that the engine can inline on every catalog but MySQL. Types that it cannot inline are written to files.
_FLAT_TYPES = [
    kind
    for kind in SAMPLES
    if not is_nested(kind) and kind not in _KEY_COLUMNS.values() and kind not in (Scalar("GEOMETRY"), Scalar("VARIANT"))
]
_DEEP_TYPES = [kind for kind in SAMPLES if is_nested(kind) or kind == Scalar("GEOMETRY")]
_TEXT = Column("text", Scalar("VARCHAR"))
FLAT = (_ID, *_KEYS, _TEXT, *(Column(f"c{n}", kind) for n, kind in enumerate(_FLAT_TYPES)))
DEEP = (_ID, *_KEYS, *(Column("st" if kind == STRUCT else f"c{n}", kind) for n, kind in enumerate(_DEEP_TYPES)))
VARIANT = Column("va", Scalar("VARIANT"))

SPECS: Mapping[str, tuple[Key, ...]] = {
    "none": (),
    "identity(INTEGER)": (Key("identity", "n"),),
    "identity(VARCHAR)": (Key("identity", "s"),),
    "identity(BOOLEAN)": (Key("identity", "b"),),
    "identity(DECIMAL)": (Key("identity", "dec"),),
    "identity(DOUBLE)": (Key("identity", "f"),),
    "identity(UUID)": (Key("identity", "u"),),
    "identity(DATE)": (Key("identity", "d"),),
    "identity(TIMESTAMP)": (Key("identity", "ts"),),
    "identity(VARCHAR), identity(BOOLEAN)": (Key("identity", "s"), Key("identity", "b")),
    "year(DATE)": (Key("year", "d"),),
    "month(TIMESTAMP)": (Key("month", "ts"),),
    "day(TIMESTAMPTZ)": (Key("day", "tz"),),
    "hour(TIMESTAMP)": (Key("hour", "ts"),),
    "year(TIMESTAMP), month(TIMESTAMP)": (Key("year", "ts"), Key("month", "ts")),
    "year(DATE), year(TIMESTAMP)": (Key("year", "d"), Key("year", "ts")),
    "bucket(BIGINT)": (Key("bucket(3)", "big"),),
    "bucket(VARCHAR)": (Key("bucket(4)", "s"),),
    "bucket(DECIMAL)": (Key("bucket(2)", "dec"),),
    "bucket(DATE), bucket(UUID)": (Key("bucket(2)", "d"), Key("bucket(2)", "u")),
    "identity(DATE), year(DATE)": (Key("identity", "d"), Key("year", "d")),
    "identity(INTEGER), bucket(VARCHAR)": (Key("identity", "n"), Key("bucket(2)", "s")),
    "bucket(BIGINT), year(TIMESTAMPTZ)": (Key("bucket(2)", "big"), Key("year", "tz")),
    "day(TIMESTAMP), identity(BOOLEAN)": (Key("day", "ts"), Key("identity", "b")),
}


def keys(table: Table, spec: str | None = None) -> list[Key]:
    """Return the partition keys of a table, or those of another spec, with the current names of their columns."""
    names = dict(zip(_KEY_COLUMNS, (column.name for column in table.columns[1:]), strict=False))
    return [replace(key, column=names[key.column]) for key in SPECS[table.spec if spec is None else spec]]


def family(spec: str) -> str:
    """Return the family of a partition spec: the kinds of its transforms."""
    kinds = {key.transform.partition("(")[0] for key in SPECS[spec]}
    found = {"identity" if kind == "identity" else "bucket" if kind == "bucket" else "time" for kind in kinds}
    return " + ".join(sorted(found)) or "none"


def type_label(kind: Type) -> str:
    """Return a type without its parameters."""
    match kind:
        case ListOf(element):
            return f"LIST of {type_label(element)}" if is_nested(element) else "LIST"
        case StructOf():
            return "STRUCT"
        case MapOf(_, value):
            return "MAP of STRUCT" if is_nested(value) else "MAP"
        case Scalar(name):
            return name.partition("(")[0]


def labels(table: Table) -> set[str]:
    """Return the types of a table's columns."""
    return {type_label(column.type) for column in table.columns}


@dataclass(frozen=True)
class Shape:
    """A kind of table.

    Attributes:
        name: The name of its tables.
        columns: The columns at creation.
        inlined: Whether small changes are inlined.
        variant: Whether it also gets a VARIANT column.
    """

    name: str
    columns: tuple[Column, ...]
    inlined: bool
    variant: bool = False

    @property
    def has_struct(self) -> bool:
        """Whether there is a struct whose fields can be added and dropped."""
        return any(isinstance(column.type, StructOf) for column in self.columns)

    @property
    def types(self) -> set[str]:
        """The types of its columns."""
        return labels(self.table("none")) | ({"VARIANT"} if self.variant else set())

    def table(self, spec: str) -> Table:
        """Return an empty table of this shape."""
        return Table(self.name, self.columns, spec=spec)


def shapes(catalog: CatalogKind) -> tuple[Shape, ...]:
    """Return the tables of a lake.

    SQLite and Postgres lose apostrophes of inlined structs (T4), so no nested columns are inlined there.
    """
    return Shape("flat", FLAT, catalog.sql_writes), Shape("deep", DEEP, catalog is DUCKDB, variant=True)
