"""Steps that create tables (by the extension or by a first write), drop them, and create them again."""

from ducklake_orch.engine.quoting import identifier
from tests.catalog.differential.model import Table
from tests.catalog.differential.shapes import SPECS, VARIANT, Shape, keys
from tests.catalog.differential.sql_steps import LIMIT, limit_sql, with_limit
from tests.catalog.differential.steps import Step
from tests.catalog.differential.values import sql_type
from tests.catalog.differential.world import World


def create(world: World, shape: Shape, spec: str, *, by_sql: bool) -> None:
    """Create a table."""
    table = shape.table(spec)
    terms = [key.term for key in keys(table)]
    if by_sql:
        columns = ", ".join(f"{identifier(column.name)} {sql_type(column.type)}" for column in table.columns)
        partitioned = [f"ALTER TABLE {shape.name} SET PARTITIONED BY ({', '.join(terms)})"] if terms else []
        world.run(f"CREATE TABLE {shape.name} ({columns})", *partitioned, table=table)
    else:
        rows = world.rows(table, world.rng.randint(1, 6))
        mode = world.rng.choice(("append", "overwrite", "error", "ignore"))
        result = world.write(
            list(rows.values()), list(table.columns), shape.name, mode=mode, partition_by=terms or None
        )
        world.settle(result.snapshot_id, table.plus(rows))
    world.ddl[shape.name] = {"CREATE" if by_sql else "created by a write"}
    if shape.variant:  # Arrow has no VARIANT type for a first write
        table = world.model.tables[shape.name]
        world.run(f"ALTER TABLE {shape.name} ADD COLUMN va VARIANT", table=table.with_column(VARIANT))
    if world.other is not None:
        return  # no option sets the limit: each program has its own
    if shape.inlined:
        world.inlining.add(shape.name)
        with_limit(world, world.model.tables[shape.name], LIMIT)
    elif world.lake.config.data_inlining_row_limit is None:
        world.run(limit_sql(world, shape.name, 0))


def recreate(world: World, table: Table) -> None:
    """DROP a table, and create another one of the same name."""
    shape = next(shape for shape in world.shapes if shape.name == table.name)
    drop(world, table)
    create(world, shape, world.rng.choice(list(SPECS)), by_sql=world.chance(0.5))


def drop(world: World, table: Table) -> None:
    """DROP a table."""
    del world.model.tables[table.name]
    world.model.laid_out.discard(table.name)
    world.inlining.discard(table.name)
    world.run(f"DROP TABLE {identifier(table.name)}")


TABLES = (Step("DROP, CREATE", "ddl", recreate, weight=0.3, on_mysql=True),)
