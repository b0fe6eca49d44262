"""What a step is: something that happens to one table, and where it can happen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.catalog.differential.model import Column, Table
from tests.catalog.differential.shapes import keys
from tests.catalog.differential.values import Type
from tests.catalog.differential.world import World


class Refused(Exception):
    """The step was rightly refused, and has changed nothing."""


@dataclass(frozen=True)
class Step:
    """Something that happens to a table.

    Attributes:
        name: What coverage calls it.
        axis: Whether it changes rows (or how they are stored), or the table's definition.
        run: Do it, to the lake and to the model.
        possible: Whether it can happen to a table now.
        weight: How often it is chosen.
        on_mysql: Whether it works on a MySQL catalog, where the extension's own statements mostly fail.
    """

    name: str
    axis: Literal["mode", "ddl"]
    run: Callable[[World, Table], None]
    possible: Callable[[World, Table], bool] = lambda world, table: True
    weight: float = 1.0
    on_mysql: bool = False


def key_names(table: Table, spec: str | None = None) -> set[str]:
    """Return the columns that partition keys are made of."""
    return {key.column for key in keys(table, spec)}


def extra_columns(table: Table) -> list[Column]:
    """Return the columns that were added on the way."""
    return [column for column in table.columns if column.name.startswith("x")]


def new_column(world: World, kind: Type, default: str | None = None) -> Column:
    """Return a column that no table had before."""
    return Column(f"x{world.number()}", kind, default)
