"""Steps that change a table's definition: by the extension's DDL, and by schema evolution of ducklake-orch's writes."""

from collections.abc import Sequence
from dataclasses import replace

from ducklake_orch.engine.quoting import identifier, literal
from tests.catalog.differential.model import Column, Row, Table
from tests.catalog.differential.native_steps import append
from tests.catalog.differential.shapes import SPECS, keys
from tests.catalog.differential.steps import Step, extra_columns, key_names, new_column
from tests.catalog.differential.values import PROMOTIONS, ListOf, Scalar, StructOf, Type, Value, sql_type
from tests.catalog.differential.world import World

# Types of added columns, each with a default in DuckDB's SQL.
_ADDED: Sequence[tuple[str, str]] = (
    ("TINYINT", "7"),
    ("UTINYINT", "0"),
    ("SMALLINT", "-1"),
    ("INTEGER", "42"),
    ("FLOAT", "1.5"),
    ("DOUBLE", "-0.5"),
    ("VARCHAR", "it's é"),
    ("BOOLEAN", "true"),
    ("DATE", "2024-02-29"),
    ("TIMESTAMP", "2024-02-29 12:30:00.000001"),
    ("DECIMAL(9,2)", "-1.50"),
    ("UUID", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ("BLOB", "abc"),
)
# Names of internal columns of DuckDB, Spark, DuckLake and ducklake-orch. `file_row_number` is left out: the plan reader
# uses DuckDB's option of that name, which refuses such files.
_INTERNAL = (
    *("rowid", "snapshot_id", "filename", "file_index", "_metadata", "pos", "file_path"),
    *("ordinal", "change_type", "t", "q", "f", "d", "source", "target", "stored", "__ducklake_orch_position"),
)
# Names that the engine refuses while it may inline rows of the table. `_ducklake_internal_row_id` and
# `_ducklake_internal_snapshot_id` are left out: the engine itself writes files that no reader reads correctly (F17).
_RESERVED = ("row_id", "begin_snapshot", "end_snapshot")
_AWKWARD = ("it's", 'quo"ted', "größe", "select", "with space", "a.b", "UPPER", "semi;colon", "a/b=c%", "{x}")


def add_column(world: World, table: Table) -> None:
    """ADD COLUMN without a default: NULL in existing rows."""
    column = new_column(world, _some_type(world, table))
    world.run(
        f"{_alter(table)} ADD COLUMN {identifier(column.name)} {sql_type(column.type)}", table=table.with_column(column)
    )


def add_default(world: World, table: Table) -> None:
    """ADD COLUMN with a default, which existing rows also get."""
    name, default = world.rng.choice(_ADDED)
    column = new_column(world, Scalar(name), default)
    sql = f"{_alter(table)} ADD COLUMN {identifier(column.name)} {name} DEFAULT {literal(default)}"
    world.run(sql, table=table.with_column(column))


def set_default(world: World, table: Table) -> None:
    """SET DEFAULT, for future rows."""
    column = world.rng.choice(
        [extra_column for extra_column in extra_columns(table) if _default_of(extra_column.type) is not None]
    )
    value = _default_of(column.type)
    sql = f"{_alter(table)} ALTER COLUMN {identifier(column.name)} SET DEFAULT {literal(value)}"
    world.run(sql, table=table.with_changed(column.name, replace(column, default=value), lambda value: value))


def drop_column(world: World, table: Table) -> None:
    """DROP COLUMN."""
    column = world.rng.choice(extra_columns(table))
    world.run(f"{_alter(table)} DROP COLUMN {identifier(column.name)}", table=table.without_column(column.name))


def rename(world: World, table: Table) -> None:
    """RENAME COLUMN to a name that needs quotes."""
    column = world.rng.choice([column for column in table.columns[1:] if column.name not in key_names(table)])
    _rename(world, table, column)


def rename_key(world: World, table: Table) -> None:
    """RENAME COLUMN of a partition column."""
    _rename(world, table, table.column(world.rng.choice(sorted(key_names(table)))))


def _rename(world: World, table: Table, column: Column) -> None:
    taken = {column.name.lower() for column in table.columns}
    # An added column keeps the prefix that marks it as added.
    prefix = "x" if column in extra_columns(table) else ""
    internal = _INTERNAL if world.inlines(table) else (*_INTERNAL, *_RESERVED)
    names: Sequence[str] = _AWKWARD if prefix or world.chance(0.4) else internal
    wanted = next(
        name
        for n in range(100)
        if (name := f"{prefix}{_any_case(world, world.rng.choice(names))}{n or ''}").lower() not in taken
    )
    sql = f"{_alter(table)} RENAME COLUMN {identifier(column.name)} TO {identifier(wanted)}"
    world.run(sql, table=table.with_changed(column.name, replace(column, name=wanted), lambda value: value))


def _any_case(world: World, name: str) -> str:
    return name.upper() if name.isascii() and world.chance(0.3) else name


def promote(world: World, table: Table) -> None:
    """SET DATA TYPE to a wider type, followed by a native write, so that F10 does not occur."""
    column, kind = _promotion(world, table)
    sql = f"{_alter(table)} ALTER COLUMN {identifier(column.name)} SET DATA TYPE {sql_type(kind)}"
    world.run(sql, table=_promoted(world, table, column, kind))
    world.model.promoted[table.name] = world.model.snapshot
    append(world, world.model.tables[table.name])


def add_field(world: World, table: Table) -> None:
    """ADD COLUMN inside a struct."""
    column, kind = _struct(table)
    name, inner = f"f{world.number()}", _some_type(world)
    after = _with_field(table, column, kind, name, inner)
    world.run(f"{_alter(table)} ADD COLUMN {identifier(column.name)}.{identifier(name)} {sql_type(inner)}", table=after)


def drop_field(world: World, table: Table) -> None:
    """DROP COLUMN inside a struct."""
    column, kind = _struct(table)
    at = world.rng.randrange(3, len(kind.fields))
    fields = StructOf(kind.fields[:at] + kind.fields[at + 1 :])

    def without(value: Value) -> Value:
        return value[:at] + value[at + 1 :] if isinstance(value, tuple) else value

    sql = f"{_alter(table)} DROP COLUMN {identifier(column.name)}.{identifier(kind.fields[at][0])}"
    world.run(sql, table=table.with_changed(column.name, replace(column, type=fields), without))


def rename_field(world: World, table: Table) -> None:
    """RENAME COLUMN inside a struct."""
    column, kind = _struct(table)
    at, name = world.rng.randrange(len(kind.fields)), f"it's {world.number()}"
    fields = StructOf((*kind.fields[:at], (name, kind.fields[at][1]), *kind.fields[at + 1 :]))
    old = f"{identifier(column.name)}.{identifier(kind.fields[at][0])}"
    sql = f"{_alter(table)} RENAME COLUMN {old} TO {identifier(name)}"
    world.run(sql, table=table.with_changed(column.name, replace(column, type=fields), lambda value: value))


def set_partitioned(world: World, table: Table) -> None:
    """SET PARTITIONED BY another spec."""
    partition(world, table, world.rng.choice([spec for spec in SPECS if spec not in ("none", table.spec)]))


def partition(world: World, table: Table, spec: str) -> None:
    """Partition a table by a spec."""
    terms = ", ".join(key.term for key in keys(table, spec))
    how = f"SET PARTITIONED BY ({terms})" if terms else "RESET PARTITIONED BY"
    world.run(f"{_alter(table)} {how}", table=replace(table, spec=spec))
    world.model.laid_out.add(table.name)


def reset_partitioned(world: World, table: Table) -> None:
    """RESET PARTITIONED BY."""
    partition(world, table, "none")


def set_sorted(world: World, table: Table) -> None:
    """SET SORTED BY, which changes no rows."""
    how = world.rng.choice(
        ('SET SORTED BY ("id" DESC)', 'SET SORTED BY ("id" % 3 ASC NULLS LAST, "id")', "RESET SORTED BY")
    )
    world.run(f"{_alter(table)} {how}", table=table)


def evolve_add(world: World, table: Table) -> None:
    """Append rows with a new column."""
    column = new_column(world, _some_type(world, table))
    _append_evolved(world, table.with_column(column), "add")


def evolve_field(world: World, table: Table) -> None:
    """Append rows with a new field of a struct."""
    column, kind = _struct(table)
    after = _with_field(table, column, kind, f"f{world.number()}", _some_type(world))
    _append_evolved(world, after, "add")


def evolve_promote(world: World, table: Table) -> None:
    """Append rows with wider values. A FLOAT is not promoted, because of F2."""
    column, kind = _promotion(world, table, by_data=True)
    _append_evolved(world, _promoted(world, table, column, kind), "promote")
    world.model.promoted[table.name] = world.model.snapshot


def _append_evolved(world: World, after: Table, evolution: str) -> None:
    rows = world.rows(after, world.rng.randint(1, 4))
    data: list[Row] = list(rows.values())
    result = world.write(data, list(after.columns), after.name, mode="append", schema_evolution=evolution)
    world.settle(result.snapshot_id, after.plus(rows))


def _alter(table: Table) -> str:
    return f"ALTER TABLE {identifier(table.name)}"


def _default_of(kind: Type) -> str | None:
    return dict(_ADDED).get(sql_type(kind))


def _some_type(world: World, table: Table | None = None) -> Type:
    if table is not None and table.name not in world.inlining and world.chance(0.2):
        return ListOf(Scalar("INTEGER"))
    return Scalar(world.rng.choice(_ADDED)[0])


def _promotable(table: Table, *, by_data: bool = False) -> list[Column]:
    found = [column for column in table.columns[1:] if sql_type(column.type) in PROMOTIONS]
    return [column for column in found if not (by_data and column.type == Scalar("FLOAT"))]


def _promotion(world: World, table: Table, *, by_data: bool = False) -> tuple[Column, Type]:
    column = world.rng.choice(_promotable(table, by_data=by_data))
    return column, Scalar(world.rng.choice(PROMOTIONS[sql_type(column.type)]))


def _promoted(world: World, table: Table, column: Column, kind: Type) -> Table:
    def cast(value: Value) -> Value:
        return world.oracle.cast(value, column.type, kind)

    default = cast(column.default)
    return table.with_changed(
        column.name, replace(column, type=kind, default=default, was=column.was or column.type), cast
    )


def _struct(table: Table) -> tuple[Column, StructOf]:
    column = next(column for column in table.columns if isinstance(column.type, StructOf))
    assert isinstance(column.type, StructOf)
    return column, column.type


def _with_field(table: Table, column: Column, kind: StructOf, name: str, inner: Type) -> Table:
    def longer(value: Value) -> Value:
        return (*value, None) if isinstance(value, tuple) else value

    return table.with_changed(column.name, replace(column, type=StructOf((*kind.fields, (name, inner)))), longer)


def _has_struct(world: World, table: Table) -> bool:
    return any(isinstance(column.type, StructOf) for column in table.columns)


def _has_extra_field(world: World, table: Table) -> bool:
    return _has_struct(world, table) and len(_struct(table)[1].fields) > 3


def _has_extra(world: World, table: Table) -> bool:
    return bool(extra_columns(table))


def _has_extra_with_default(world: World, table: Table) -> bool:
    return any(_default_of(column.type) is not None for column in extra_columns(table))


def _can_promote(world: World, table: Table) -> bool:
    return bool(_promotable(table))


def _can_promote_by_data(world: World, table: Table) -> bool:
    return bool(_promotable(table, by_data=True))


def _is_partitioned(world: World, table: Table) -> bool:
    return table.spec != "none"


DDL = (
    Step("ADD COLUMN", "ddl", add_column, on_mysql=True),
    Step("ADD COLUMN DEFAULT", "ddl", add_default, on_mysql=True),
    Step("SET DEFAULT", "ddl", set_default, _has_extra_with_default, weight=0.5),
    Step("DROP COLUMN", "ddl", drop_column, _has_extra),
    Step("RENAME COLUMN", "ddl", rename),
    Step("RENAME of a key", "ddl", rename_key, _is_partitioned),
    Step("SET DATA TYPE", "ddl", promote, _can_promote),
    Step("ADD field", "ddl", add_field, _has_struct, on_mysql=True),
    Step("DROP field", "ddl", drop_field, _has_extra_field),
    Step("RENAME field", "ddl", rename_field, _has_struct),
    Step("SET PARTITIONED BY", "ddl", set_partitioned, weight=3, on_mysql=True),
    Step("RESET PARTITIONED BY", "ddl", reset_partitioned, _is_partitioned, weight=0.5, on_mysql=True),
    Step("SORTED BY", "ddl", set_sorted, weight=0.5, on_mysql=True),
    Step("schema_evolution: column", "ddl", evolve_add, on_mysql=True),
    Step("schema_evolution: field", "ddl", evolve_field, _has_struct, on_mysql=True),
    Step("schema_evolution: promote", "ddl", evolve_promote, _can_promote_by_data, on_mysql=True),
)
