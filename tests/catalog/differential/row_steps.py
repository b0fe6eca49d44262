"""Steps that change single rows with ducklake-orch."""

from typing import Any

from ducklake_orch.errors import UnsupportedStatementError
from tests.catalog.differential.filters import matching
from tests.catalog.differential.model import Table
from tests.catalog.differential.sql_steps import changed_row, some_rows
from tests.catalog.differential.steps import Refused, Step
from tests.catalog.differential.values import sql_value
from tests.catalog.differential.world import World


def delete(world: World, table: Table) -> None:
    """`lake.delete` with any condition."""
    where = some_rows(world, table)
    matches = matching(world.oracle, table, where)
    result = world.lake.delete(table.name, where.sql)
    assert (result.rows_removed, result.rows_written) == (len(matches), 0)
    world.settle(result.snapshot_id, table.without(matches))


def update(world: World, table: Table) -> None:
    """`lake.update` of one or two columns to constants, including partition keys."""
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


def merge(world: World, table: Table) -> None:
    """`lake.write` with mode `merge` on the id: some rows match, others do not."""
    there = world.rng.sample(sorted(table.rows), min(4, len(table.rows)))
    drawn = list(world.rows(table, len(there) + world.rng.randint(0, 3)).items())
    matched = {number: (str(number), *row[1:]) for number, (_, row) in zip(there, drawn, strict=False)}
    new = dict(drawn[len(there) :])
    how = world.rng.choice(("update", "update", "delete", "keep"))
    insert, by_source = world.chance(0.7), world.chance(0.15)
    kept = matched if by_source else table.rows
    after = table.without(set(table.rows) - set(kept))
    after = {"update": after.plus(matched), "delete": after.without(matched), "keep": after}[how]
    after = after.plus(new) if insert else after
    data = world.oracle.arrow(
        [(column.name, column.type) for column in table.columns], [*matched.values(), *new.values()]
    )
    arguments: dict[str, Any] = {"when_matched": how, "when_not_matched": "insert" if insert else "ignore"}
    arguments["when_not_matched_by_source"] = "delete" if by_source else "keep"
    world.log.append(f"merge {table.name} {arguments}: {sorted(matched)} {sorted(new)}")
    try:
        result = world.lake.write(data, table.name, mode="merge", keys=["ID"], **arguments)
    except UnsupportedStatementError:  # a VARIANT in the catalog
        assert table.name in world.inlining
        raise Refused from None
    written = (len(matched) if how == "update" else 0) + (len(new) if insert else 0)
    removed = len(table.rows) - len(kept) + (len(matched) if how != "keep" else 0)
    assert (result.rows_removed, result.rows_written) == (removed, written)
    world.settle(result.snapshot_id, after)


def _has_rows(world: World, table: Table) -> bool:
    return bool(table.rows)


ROWS = (
    Step("lake.delete", "mode", delete, _has_rows, weight=2, on_mysql=True),
    Step("lake.update", "mode", update, _has_rows, weight=2, on_mysql=True),
    Step("lake.write: merge", "mode", merge, weight=2, on_mysql=True),
)
