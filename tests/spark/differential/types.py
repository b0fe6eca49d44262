"""The types that Spark can write and read, and a table that Spark's own writer supports."""

from tests.catalog.differential.coverage import Cell, product
from tests.catalog.differential.model import Column
from tests.catalog.differential.shapes import FLAT, KEY_COLUMNS, SPECS, Shape, family, type_label
from tests.catalog.differential.values import ListOf, MapOf, Scalar, StructOf, Type

ZONES = ("UTC", "Asia/Tokyo", "America/New_York")
_READ_VARIANTS = ("", " with WHERE", " in the past")
READERS = [f"spark {engine}{variant}" for engine in ("native", "duckdb") for variant in _READ_VARIANTS]

_TEXTS = {"JSON", "UUID"}
_ALIKE = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE", "VARCHAR", "BLOB"}
_ALIKE |= {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
_DUCKDB_READS = {"HUGEINT", "UHUGEINT", "UUID", "TIME", "TIME WITH TIME ZONE", "INTERVAL", "VARIANT"}
_DUCKDB_READS |= {"TIMESTAMP_MS"}  # Spark's own reader fails on infinite values
_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


def leaves(kind: Type) -> set[str]:
    """Return the leaf types of a nested type, without their parameters."""
    match kind:
        case ListOf(element):
            return leaves(element)
        case MapOf(key, value):
            return leaves(key) | leaves(value)
        case StructOf(fields):
            return set().union(*(leaves(inner) for _, inner in fields))
    return {type_label(kind)}


def as_written(kind: Type) -> Type | None:
    """Return the type as which Spark writes a type, or None if Spark cannot write it."""
    if leaves(kind) <= _ALIKE or kind in (Scalar("TIME"), Scalar("GEOMETRY"), Scalar("VARIANT")):
        return kind
    return Scalar("VARCHAR") if isinstance(kind, Scalar) and kind.name in _TEXTS else None


def is_read(kind: Type, engine: str) -> bool:
    """Return whether an engine reads a type into Spark."""
    without = {"TIMESTAMP_NS"} if engine == "duckdb" else {"TIMESTAMP_NS", *_DUCKDB_READS}
    return not leaves(kind) & without


_STRUCT = StructOf((("a", Scalar("INTEGER")), ("b", Scalar("VARCHAR")), ("in", StructOf((("x", Scalar("DATE")),)))))
_TYPES = ("TINYINT", "SMALLINT", "DECIMAL(38,10)", "FLOAT", "BLOB")
_FIRST = FLAT[: KEY_COLUMNS + 1]
# An unpartitioned table of every type that Spark's own writer supports.
PLAIN = Shape(
    "plain",
    (
        *(
            Column(column.name, Scalar("VARCHAR") if column.type == Scalar("UUID") else column.type)
            for column in _FIRST
        ),
        Column("st", _STRUCT),
        *(Column(f"c{n}", Scalar(name)) for n, name in enumerate(_TYPES)),
    ),
    inlined=False,
)


def goals(shape: Shape) -> set[Cell]:
    """Return the cells to cover because of Spark: writers and time zones."""
    types = {type_label(column.type) for column in shape.columns if as_written(column.type) is not None}
    modes = ("append", "overwrite", "overwrite_partitions", "replace_where")
    cells = product(writer=["spark duckdb"], reader=READERS, mode=modes, family={family(spec) for spec in SPECS})
    cells |= product(writer=["spark duckdb"], type=types)
    if shape is PLAIN:
        cells |= product(writer=["spark native"], reader=READERS, type=types, mode=modes[:2])
    zones = [f"spark {engine}, {zone}" for engine in ("native", "duckdb") for zone in ZONES]
    return cells | product(type=_MOMENTS, reader=zones)


def never(cell: Cell) -> bool:
    """Return whether a cell may stay empty: its engine does not read its type, or it would take too long."""
    values = {cell[0]: cell[1], cell[2]: cell[3]}
    kind, reader = values.get("type", ""), values.get("reader", "")
    if reader.startswith("spark ") and reader.endswith(_READ_VARIANTS[1:]) and not {"type", "mode"} & values.keys():
        return True  # each check costs a Spark job: these cells are covered by chance only
    if kind and reader.startswith("spark "):
        return not is_read(Scalar(kind), reader.split()[1].rstrip(","))
    return False
