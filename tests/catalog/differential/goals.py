"""The coverage cells that a run must fill: all combinations that are possible on a catalog."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.catalog.differential.check import readers
from tests.catalog.differential.coverage import Cell, product
from tests.catalog.differential.ddl_steps import DDL
from tests.catalog.differential.maintenance_steps import MAINTENANCE
from tests.catalog.differential.native_steps import NATIVE
from tests.catalog.differential.row_steps import ROWS
from tests.catalog.differential.shapes import SPECS, Shape, family, shapes
from tests.catalog.differential.sql_steps import SQL
from tests.catalog.differential.tables import TABLES
from tests.support.backends import CatalogKind

STEPS = (*NATIVE, *ROWS, *SQL, *MAINTENANCE, *DDL, *TABLES)
_OF_FIELDS = {"ADD field", "DROP field", "RENAME field", "schema_evolution: field"}
_INLINED = {"INSERT, inlined", "DELETE, inlined", "flush"}


@dataclass(frozen=True)
class Scene:
    """The setting of a run.

    Attributes:
        catalog: The kind of the lake's catalog.
        shapes: The shapes of its tables.
        readers: The readers of the tables.
        more: Returns further cells that a table of a shape must fill.
        never: Returns whether a cell may stay empty.
    """

    catalog: CatalogKind
    shapes: Sequence[Shape]
    readers: Sequence[str]
    more: Callable[[Shape], set[Cell]] = lambda shape: set()
    never: Callable[[Cell], bool] = lambda cell: False


def without_spark(catalog: CatalogKind) -> Scene:
    """Return the setting of a run with the engine and ducklake-orch only."""
    return Scene(catalog, shapes(catalog), readers(catalog))


def wanted(scene: Scene, *, exact: bool) -> frozenset[Cell]:
    """Return the cells that must not stay empty.

    Args:
        scene: The tables and their readers.
        exact: Whether to pair all axes, with separate cells for each spec; else each axis only with readers.
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
    """Return whether a cell makes no sense: it overwrites partitions of a table without them, or buckets."""
    values = {cell[0]: cell[1], cell[2]: cell[3]}
    if values.get("mode") != "overwrite_partitions":
        return False
    of = family(values["transform"]) if "transform" in values else values.get("family")
    return of in ("none", "bucket")
