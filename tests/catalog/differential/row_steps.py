"""Changes of single rows by this package."""

from tests.catalog.differential.filters import matching
from tests.catalog.differential.model import Table
from tests.catalog.differential.sql_steps import some_rows
from tests.catalog.differential.steps import Step
from tests.catalog.differential.world import World


def delete(world: World, table: Table) -> None:
    """`lake.delete` by whatever condition."""
    where = some_rows(world, table)
    gone = matching(world.oracle, table, where)
    result = world.lake.delete(table.name, where.sql)
    assert (result.rows_removed, result.rows_written) == (len(gone), 0)
    world.settle(result.snapshot_id, table.without(gone))


def _has_rows(world: World, table: Table) -> bool:
    return bool(table.rows)


ROWS = (Step("lake.delete", "mode", delete, _has_rows, weight=2, on_mysql=True),)
