"""Changes of single rows by this package."""

from ducklake_orch.errors import UnsupportedStatementError
from tests.catalog.differential.filters import matching
from tests.catalog.differential.model import Table
from tests.catalog.differential.sql_steps import changed_row, some_rows
from tests.catalog.differential.steps import Refused, Step
from tests.catalog.differential.values import sql_value
from tests.catalog.differential.world import World


def delete(world: World, table: Table) -> None:
    """`lake.delete` by whatever condition."""
    where = some_rows(world, table)
    gone = matching(world.oracle, table, where)
    result = world.lake.delete(table.name, where.sql)
    assert (result.rows_removed, result.rows_written) == (len(gone), 0)
    world.settle(result.snapshot_id, table.without(gone))


def update(world: World, table: Table) -> None:
    """`lake.update` of a column or two, to constants; partition keys among them."""
    where = some_rows(world, table)
    ids = matching(world.oracle, table, where)
    columns = world.rng.sample(table.columns[1:], 2)
    row = next(iter(world.rows(table, 1).values()))
    values = {column.name: row[table.index(column.name)] for column in columns}
    settings = {column.name: sql_value(values[column.name], column.type) for column in columns}
    changed = {number: changed_row(table, table.rows[number], values) for number in ids}
    try:
        result = world.lake.update(table.name, settings, where.sql)
    except UnsupportedStatementError:  # a VARIANT in the catalog
        assert table.name in world.inlining
        raise Refused from None
    assert (result.rows_removed, result.rows_written) == (len(ids), len(ids))
    world.settle(result.snapshot_id, table.plus(changed))


def _has_rows(world: World, table: Table) -> bool:
    return bool(table.rows)


ROWS = (
    Step("lake.delete", "mode", delete, _has_rows, weight=2, on_mysql=True),
    Step("lake.update", "mode", update, _has_rows, weight=2, on_mysql=True),
)
