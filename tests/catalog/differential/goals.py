"""Which cells a run has to fill: everything that can come together on a catalog."""

from tests.backends import CatalogKind
from tests.catalog.differential.check import readers
from tests.catalog.differential.coverage import Cell, product
from tests.catalog.differential.ddl_steps import DDL
from tests.catalog.differential.maintenance_steps import MAINTENANCE
from tests.catalog.differential.native_steps import NATIVE
from tests.catalog.differential.shapes import SPECS, family
from tests.catalog.differential.sql_steps import SQL
from tests.catalog.differential.tables import TABLES, Shape, shapes

STEPS = (*NATIVE, *SQL, *MAINTENANCE, *DDL, *TABLES)
_OF_FIELDS = {"ADD field", "DROP field", "RENAME field", "schema_evolution: field"}
_INLINED = {"INSERT, inlined", "DELETE, inlined", "flush"}


def wanted(catalog: CatalogKind, *, exact: bool) -> frozenset[Cell]:
    """Return the cells that must not stay empty on a catalog.

    Args:
        catalog: The catalog.
        exact: Everything by everything, and every partition spec for itself; else everything by readers.
    """
    return frozenset[Cell]().union(*(goals(catalog, shape, exact=exact) for shape in shapes(catalog)))


def goals(catalog: CatalogKind, shape: Shape, *, exact: bool) -> set[Cell]:
    """Return the cells that a table of a shape can fill."""
    steps = [step for step in STEPS if step.on_mysql or catalog.sql_writes]
    modes = {step.name for step in steps if step.axis == "mode"} - (set() if shape.inlined else _INLINED)
    ddl = {step.name for step in steps if step.axis == "ddl"} - (set() if shape.nested else _OF_FIELDS)
    families = {family(spec) for spec in SPECS}
    cells = product(transform=SPECS, reader=["engine", "plan"])
    for axis in ({"mode": modes}, {"ddl": ddl}, {"family": families}, {"type": shape.types}):
        cells |= product(reader=readers(catalog), **axis)
    if exact:
        cells |= product(transform=SPECS, type=shape.types, mode=modes, ddl=ddl, reader=readers(catalog))
    return {cell for cell in cells if not _makes_no_sense(cell)}


def _makes_no_sense(cell: Cell) -> bool:
    """Whether there is no such thing: no partitions, or none that anybody would name, to replace."""
    values = {cell[0]: cell[1], cell[2]: cell[3]}
    if values.get("mode") != "overwrite_partitions":
        return False
    of = family(values["transform"]) if "transform" in values else values.get("family")
    return of in ("none", "bucket")
