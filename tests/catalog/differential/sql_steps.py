"""Steps that change rows with the extension's SQL."""

from typing import Any

from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import UnsupportedStatementError
from tests.catalog.differential.faults import fault_of
from tests.catalog.differential.filters import Condition, condition, matching
from tests.catalog.differential.model import Row, Table
from tests.catalog.differential.steps import Refused, Step
from tests.catalog.differential.values import sql_value
from tests.catalog.differential.world import World
from tests.support.backends import MYSQL

# The inlining limit of tables whose small changes are inlined.
LIMIT = 10


def insert_inlined(world: World, table: Table) -> None:
    """INSERT of so few rows that they are inlined."""
    rows = world.rows(table, world.rng.randint(1, 5))
    world.run(_insert(table, rows), table=table.plus(rows))


def insert_files(world: World, table: Table) -> None:
    """INSERT that writes files."""
    rows = world.rows(table, world.rng.randint(1, 6))
    _in_files(world, table, _insert(table, rows), table.plus(rows))


def delete_inlined(world: World, table: Table) -> None:
    """DELETE of so few rows that the deletions are inlined."""
    ids = _some(world, table)
    world.run(f"DELETE FROM {identifier(table.name)} WHERE {_are(ids)}", table=table.without(ids))


def delete_files(world: World, table: Table) -> None:
    """DELETE that writes delete files or ends whole files; on MySQL it cannot change several at once."""
    where = some_rows(world, table)
    sql = f"DELETE FROM {identifier(table.name)} WHERE (\n{where.sql}\n)"
    try:
        _in_files(world, table, sql, table.without(matching(world.oracle, table, where)))
    except UnsupportedStatementError:
        if world.catalog is not MYSQL:
            raise
        raise Refused from None


def delete_by_vectors(world: World, table: Table) -> None:
    """DELETE that writes deletion vectors; the snapshots before it expire, as a vector replaces the one before it."""
    where = some_rows(world, table)
    option = f"CALL {world.alias}.set_option('write_deletion_vectors', {{}}, table_name => '{table.name}')"
    delete = f"DELETE FROM {identifier(table.name)} WHERE (\n{where.sql}\n)"
    statements = [option.format("true"), delete, option.format("false")]
    if table.name in world.inlining:
        statements = [limit_sql(world, table.name, 0), *statements, limit_sql(world, table.name, LIMIT)]
    world.run(*statements, table=table.without(matching(world.oracle, table, where)))
    expired = world.model.retained[:-1]
    world.run(f"CALL ducklake_expire_snapshots({literal(world.alias)}, versions => [{', '.join(map(str, expired))}])")
    world.model.expire(expired)


def update(world: World, table: Table) -> None:
    """UPDATE of one or two columns, including partition keys."""
    where = some_rows(world, table)
    ids = matching(world.oracle, table, where)
    columns = world.rng.sample(table.columns[1:], 2)
    row = next(iter(world.rows(table, 1).values()))
    values = {column.name: row[table.index(column.name)] for column in columns}
    settings = ", ".join(f"{identifier(c.name)} = {sql_value(values[c.name], c.type)}" for c in columns)
    changed = {number: changed_row(table, table.rows[number], values) for number in ids}
    sql = f"UPDATE {identifier(table.name)} SET {settings} WHERE (\n{where.sql}\n)"
    run = world.run if world.chance(0.5) else None
    if run:
        run(sql, table=table.plus(changed))
    else:
        _in_files(world, table, sql, table.plus(changed))


def merge(world: World, table: Table) -> None:
    """MERGE on the id: some rows match, others do not."""
    new = world.rows(table, world.rng.randint(1, 3))
    there = world.rng.sample(sorted(table.rows), min(3, len(table.rows)))
    values = world.rows(table, max(len(there), 1)).values()
    matched = {number: (str(number), *row[1:]) for number, row in zip(there, values, strict=False)}
    names = ", ".join(identifier(column.name) for column in table.columns)
    source = ", ".join(_tuple(table, row) for row in [*matched.values(), *new.values()])
    if delete := world.chance(0.3):
        action, after = "DELETE", table.without(matched)
    else:
        sets = ", ".join(f"{identifier(c.name)} = source.{identifier(c.name)}" for c in table.columns[1:])
        action, after = f"UPDATE SET {sets}", table.plus(matched)
    inserted = ", ".join(f"source.{identifier(column.name)}" for column in table.columns)
    sql = (
        f"MERGE INTO {identifier(table.name)} AS target USING (VALUES {source}) AS source({names})"
        f' ON target."id" = source."id" WHEN MATCHED THEN {action}'
        f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({inserted})"
    )
    del delete
    _in_files(world, table, sql, after.plus(new))


def transaction(world: World, table: Table) -> None:
    """DELETE and INSERT in one transaction."""
    ids = _some(world, table)
    rows = world.rows(table, world.rng.randint(1, 4))
    delete = f"DELETE FROM {identifier(table.name)} WHERE {_are(ids)}"
    with_limit(world, table, 0)
    world.run(delete, _insert(table, rows), table=table.without(ids).plus(rows), atomic=True)
    with_limit(world, table, LIMIT)


def with_limit(world: World, table: Table, limit: int) -> None:
    """Set the inlining limit of a table, if it inlines."""
    if table.name in world.inlining:
        world.run(limit_sql(world, table.name, limit))


def _in_files(world: World, table: Table, sql: str, after: Table) -> None:
    if table.name in world.inlining:
        world.run(limit_sql(world, table.name, 0), sql, limit_sql(world, table.name, LIMIT), table=after)
    else:
        world.run(sql, table=after)


def limit_sql(world: World, table: str, limit: int) -> str:
    """Return the statement that sets the inlining limit of a table."""
    return f"CALL {world.alias}.set_option('data_inlining_row_limit', {limit}, table_name => '{table}')"


def _insert(table: Table, rows: dict[int, Row]) -> str:
    names = ", ".join(identifier(column.name) for column in table.columns)
    values = ", ".join(_tuple(table, row) for row in rows.values())
    return f"INSERT INTO {identifier(table.name)} ({names}) VALUES {values}"


def _tuple(table: Table, row: Row) -> str:
    return f"({', '.join(sql_value(v, c.type) for v, c in zip(row, table.columns, strict=True))})"


def changed_row(table: Table, row: Row, values: dict[str, Any]) -> Row:
    return tuple(values.get(column.name, value) for column, value in zip(table.columns, row, strict=True))


def _some(world: World, table: Table) -> list[int]:
    return world.rng.sample(sorted(table.rows), min(world.rng.randint(1, 4), len(table.rows)))


def _are(ids: list[int]) -> str:
    return f'"id" IN ({", ".join(map(str, ids))})'


def some_rows(world: World, table: Table) -> Condition:
    """Return a condition for a statement: by ids, or one that some but not most rows meet."""
    for _ in range(3):
        where = condition(world.rng, table)
        if fault_of(world.model, table, world.model.snapshot, where):
            continue
        if 0 < len(matching(world.oracle, table, where)) <= max(len(table.rows) // 2, 2):
            return where
    return Condition(_are(_some(world, table)), ("id",))


def _has_rows(world: World, table: Table) -> bool:
    return bool(table.rows)


def _inlines(world: World, table: Table) -> bool:
    return table.name in world.inlining


def _inlines_rows(world: World, table: Table) -> bool:
    return table.name in world.inlining and bool(table.rows)


SQL = (
    Step("INSERT, inlined", "mode", insert_inlined, _inlines),
    Step("INSERT", "mode", insert_files),
    Step("DELETE, inlined", "mode", delete_inlined, _inlines_rows),
    Step("DELETE", "mode", delete_files, _has_rows, on_mysql=True),
    Step("DELETE by vectors", "mode", delete_by_vectors, _has_rows, weight=0.5),
    Step("UPDATE", "mode", update, _has_rows),
    Step("MERGE", "mode", merge, _has_rows),
    Step("transaction", "mode", transaction, _has_rows),
)
