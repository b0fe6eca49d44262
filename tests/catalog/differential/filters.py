"""Random conditions on rows, of all kinds that pruning distinguishes."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from ducklake_orch.engine.quoting import identifier, literal
from tests.catalog.differential.model import Table
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import SAMPLES, ListOf, Scalar, StructOf, Type, Value, sql_value

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True)
class Condition:
    """A condition in SQL, and its columns."""

    sql: str
    columns: tuple[str, ...]


def condition(rng: Random, table: Table) -> Condition:
    """Return a condition on one or two columns."""
    comparable = [column for column in table.columns if column.type not in (Scalar("GEOMETRY"), Scalar("VARIANT"))]
    first, second = (rng.choice(comparable) for _ in range(2))
    parts = []
    for column in (first, second):
        held = [row[table.index(column.name)] for row in table.rows.values()]
        parts.append(_simple(rng, identifier(column.name), column.type, held))
    both = (first.name, second.name)
    match rng.randrange(6):
        case 0:
            return Condition(f"({parts[0]}) AND ({parts[1]})", both)
        case 1:
            return Condition(f"({parts[0]}) OR ({parts[1]})", both)
        case 2:
            return Condition(f"NOT ({parts[0]})", (first.name,))
    return Condition(parts[0], (first.name,))


def matching(oracle: Oracle, table: Table, where: Condition) -> set[int]:
    """Return the ids of the rows that meet a condition."""
    positions = [table.index(name) for name in dict.fromkeys(where.columns)]
    types = [table.types[n] for n in positions]
    return oracle.matching(
        types, {number: [row[n] for n in positions] for number, row in table.rows.items()}, where.sql
    )


def _simple(rng: Random, name: str, kind: Type, held: list[Value]) -> str:
    if rng.random() < 0.2:
        return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
    if isinstance(kind, StructOf):
        n = rng.randrange(len(kind.fields))
        field, inner = kind.fields[n]
        values = [value[n] for value in held if isinstance(value, tuple)]
        return _simple(rng, f"{name}.{identifier(field)}", inner, values)
    if isinstance(kind, ListOf):
        return f"len({name}) {rng.choice(('=', '>'))} {rng.randrange(3)}"
    if not isinstance(kind, Scalar):
        return f"cardinality({name}) > 0"
    # Values that rows have, and values that no row has.
    values = [value for value in held if value is not None]
    if not values or rng.random() < 0.2:
        values = [value for value in SAMPLES[kind] if value is not None]
    value, other = (sql_value(rng.choice(values), kind) for _ in range(2))
    found = [f"{name} {sign} {value}" for sign in ("=", "=", "<", "<=", ">", ">=", "<>")]
    found += [f"{name} IN ({value}, {other})", f"{name} BETWEEN {value} AND {other}", f"{value} = {name}"]
    found += list(_special(rng, name, kind, value))
    return rng.choice(found)


def _special(rng: Random, name: str, kind: Scalar, one: str) -> Iterator[str]:
    if kind.name == "VARCHAR":
        yield f"{name} LIKE {literal(rng.choice(('x%', 'a%', 'é%', '%', '_')))}"
        yield f"starts_with({name}, left({one}, 1))"
    if kind.name in _TIMES:
        yield f"year({name}) = {rng.choice((1969, 2023, 2024))}"
        yield f"CAST({name} AS DATE) >= DATE '2024-01-01'"
    if kind.name in ("FLOAT", "DOUBLE"):
        yield f"isnan({name})"
        for zero in ("0", "0.0", "CAST('-0' AS DOUBLE)"):
            yield f"{name} {rng.choice(('=', '<', '<=', '>', '>=', '<>'))} {zero}"
            yield f"{name} IN ({zero}, 7)"
            yield f"{name} BETWEEN {zero} AND 1"
