"""Which cells a run has to fill: everything that can come together on a catalog."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.backends import CatalogKind
from tests.catalog.differential.check import readers
from tests.catalog.differential.coverage import Cell, product
from tests.catalog.differential.ddl_steps import DDL
from tests.catalog.differential.maintenance_steps import MAINTENANCE
from tests.catalog.differential.native_steps import NATIVE
from tests.catalog.differential.row_steps import ROWS
from tests.catalog.differential.shapes import SPECS, Shape, family, shapes
from tests.catalog.differential.sql_steps import SQL
from tests.catalog.differential.tables import TABLES

STEPS = (*NATIVE, *ROWS, *SQL, *MAINTENANCE, *DDL, *TABLES)
_OF_FIELDS = {"ADD field", "DROP field", "RENAME field", "schema_evolution: field"}
_INLINED = {"INSERT, inlined", "DELETE, inlined", "flush"}


@dataclass(frozen=True)
class Scene:
    """What a run has to do with.

    Attributes:
        catalog: The lake's kind.
        shapes: Its tables.
        readers: Who reads them.
        more: Says what else a table of a shape is to fill.
        never: Says of a cell that it may stay empty.
    """

    catalog: CatalogKind
    shapes: Sequence[Shape]
    readers: Sequence[str]
    more: Callable[[Shape], set[Cell]] = lambda shape: set()
    never: Callable[[Cell], bool] = lambda cell: False


def without_spark(catalog: CatalogKind) -> Scene:
    """Return what a run has to do with where there is but the engine, and we."""
    return Scene(catalog, shapes(catalog), readers(catalog))


def wanted(scene: Scene, *, exact: bool) -> frozenset[Cell]:
    """Return the cells that must not stay empty.

    Args:
        scene: The tables and their readers.
        exact: Everything by everything, and every partition spec for itself; else everything by readers.
    """
    return frozenset[Cell]().union(*(goals(scene, shape, exact=exact) for shape in scene.shapes))


def goals(scene: Scene, shape: Shape, *, exact: bool) -> set[Cell]:
    """Return the cells that a table of a shape can fill."""
    catalog = scene.catalog
    steps = [step for step in STEPS if step.on_mysql or catalog.sql_writes]
    modes = {step.name for step in steps if step.axis == "mode"} - (set() if shape.inlined else _INLINED)
    ddl = {step.name for step in steps if step.axis == "ddl"} - (set() if shape.has_struct else _OF_FIELDS)
    families = {family(spec) for spec in SPECS}
    cells = product(transform=SPECS, reader=["engine", "plan"])
    for axis in ({"mode": modes}, {"ddl": ddl}, {"family": families}, {"type": shape.types}):
        cells |= product(reader=scene.readers, **axis)
    if exact:
        cells |= product(transform=SPECS, type=shape.types, mode=modes, ddl=ddl, reader=scene.readers)
    cells |= scene.more(shape)
    return {cell for cell in cells if not (_makes_no_sense(cell) or scene.never(cell))}


def _makes_no_sense(cell: Cell) -> bool:
    """Whether there is no such thing: no partitions, or none that anybody would name, to replace."""
    values = {cell[0]: cell[1], cell[2]: cell[3]}
    if values.get("mode") != "overwrite_partitions":
        return False
    of = family(values["transform"]) if "transform" in values else values.get("family")
    return of in ("none", "bucket")
