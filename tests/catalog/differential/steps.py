"""The definition of a step: an operation on one table, and the conditions under which it is possible."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.catalog.differential.model import Column, Table
from tests.catalog.differential.shapes import keys
from tests.catalog.differential.values import Type
from tests.catalog.differential.world import World


class Refused(Exception):
    """The step was correctly refused and changed nothing."""


@dataclass(frozen=True)
class Step:
    """An operation on a table.

    Attributes:
        name: The name in coverage.
        axis: Whether it changes rows (or their storage), or the table's definition.
        run: Runs it on the lake and on the model.
        possible: Returns whether it can run on a table now.
        weight: The relative frequency of the step.
        on_mysql: Whether it works on a MySQL catalog, where most statements of the extension fail.
    """

    name: str
    axis: Literal["mode", "ddl"]
    run: Callable[[World, Table], None]
    possible: Callable[[World, Table], bool] = lambda world, table: True
    weight: float = 1.0
    on_mysql: bool = False


def key_names(table: Table, spec: str | None = None) -> set[str]:
    """Return the columns of the partition keys."""
    return {key.column for key in keys(table, spec)}


def extra_columns(table: Table) -> list[Column]:
    """Return the columns that were added after the creation."""
    return [column for column in table.columns if column.name.startswith("x")]


def new_column(world: World, kind: Type, default: str | None = None) -> Column:
    """Return a column with a new name."""
    return Column(f"x{world.number()}", kind, default)
