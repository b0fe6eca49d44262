"""Steps that write with ducklake-orch, in every mode."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from ducklake_orch import errors
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.results import WriteResult
from tests.catalog.differential.filters import Condition, matching
from tests.catalog.differential.model import Column, Row, Table
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.readers import expected
from tests.catalog.differential.shapes import Key, keys
from tests.catalog.differential.steps import Refused, Step, key_names
from tests.catalog.differential.values import sql_value
from tests.catalog.differential.world import World


def append(world: World, table: Table) -> None:
    """Append rows; sometimes without some columns, sometimes with an idempotency key and a repetition."""
    rows = world.rows(table, world.rng.randint(1, 6))
    left_out = {column.name for column in table.columns[1:] if world.chance(0.1)} if world.chance(0.4) else set()
    rows = {number: _with_defaults(table, row, left_out) for number, row in rows.items()}
    key = f"key {world.number()}" if world.chance(0.4) else None
    result = _write(world, table, rows, left_out, mode="append", idempotency_key=key)
    world.settle(result.snapshot_id, table.plus(rows))
    if key is not None and world.chance(0.6):
        again = _write(world, table, rows, left_out, mode="append", idempotency_key=key)
        assert (again.replayed, again.snapshot_id, again.rows_written) == (True, result.snapshot_id, 0)


def overwrite(world: World, table: Table) -> None:
    """Replace all rows."""
    rows = world.rows(table, world.rng.randint(0, 8))
    _replace(world, table, rows, lambda past: set(past.rows), mode="overwrite")


def overwrite_partitions(world: World, table: Table) -> None:
    """Replace the partitions of the new rows."""
    rows = world.rows(table, world.rng.randint(1, 6))
    if table.rows and world.chance(0.5):  # surely replace existing rows
        rows = {n: _like(table, row, world.rng.choice(list(table.rows.values()))) for n, row in rows.items()}
    wanted = set(_partitions(world.oracle, table, rows).values())

    def scope(past: Table) -> set[int]:
        # By the current partition keys, whatever they were at that snapshot.
        found = _partitions(world.oracle, replace(past, spec=table.spec), past.rows)
        return {number for number, key in found.items() if key in wanted}

    _replace(world, table, rows, scope, mode="overwrite_partitions")


def replace_where(world: World, table: Table) -> None:
    """Replace the rows that match a predicate."""
    where = _predicate(world, table)
    rows = world.rows(table, world.rng.randint(0, 5))
    fresh = Table(table.name, table.columns, rows)
    inside = matching(world.oracle, fresh, where)
    outside = "error" if inside == set(rows) else world.rng.choice(("error", "drop"))
    arguments = {"mode": "replace_where", "where": where.sql, "outside": outside}
    if outside == "error" and inside != set(rows):
        with pytest.raises(errors.RowsOutsideError):
            _write(world, table, rows, set(), **arguments)
        outside = arguments["outside"] = "drop"
    kept = {number: row for number, row in rows.items() if number in inside}
    _replace(world, table, kept, lambda past: matching(world.oracle, past, where), given=rows, **arguments)


def ignore(world: World, table: Table) -> None:
    """Write with mode `ignore`, which leaves an existing table unchanged."""
    rows = world.rows(table, 2)
    result = _write(world, table, rows, set(), mode="ignore")
    assert (result.rows_written, result.snapshot_id) == (0, world.model.snapshot)
    with pytest.raises(errors.ObjectExistsError):
        _write(world, table, rows, set(), mode="error")


def _write(world: World, table: Table, rows: dict[int, Row], left_out: set[str], **arguments: Any) -> WriteResult:
    """Write rows, with their columns in random order."""
    order = [n for n, column in enumerate(table.columns) if column.name not in left_out]
    world.rng.shuffle(order)
    columns = [table.columns[n] for n in order]
    if table.name in world.inlining and world.chance(0.4):
        arguments["inline"] = "auto"
    if world.chance(0.2):  # column names are case-insensitive
        columns = [
            Column(column.name.swapcase(), column.type) if column.name.isascii() else column for column in columns
        ]
    return world.write([tuple(row[n] for n in order) for row in rows.values()], columns, table.name, **arguments)


def _replace(
    world: World,
    table: Table,
    rows: dict[int, Row],
    scope: Callable[[Table], Collection[int]],
    *,
    given: dict[int, Row] | None = None,
    **arguments: Any,
) -> None:
    """Replace rows, and check refusals.

    Args:
        world: The lake.
        table: The table.
        rows: The new rows.
        scope: Returns the replaced rows of the table as it was at a snapshot.
        given: The data, if they are more than the new rows.
    """
    replaced = scope(table)
    if world.chance(0.25):
        arguments["expect_snapshot"] = world.rng.choice(world.model.retained[-6:])
        if not _judge_expectation(
            world, table, scope, arguments["expect_snapshot"], rows if given is None else given, arguments
        ):
            raise Refused
    if world.chance(0.2):
        arguments["idempotency_key"] = f"key {world.number()}"
    try:
        result = _write(world, table, rows if given is None else given, set(), **arguments)
    except errors.SnapshotChangedError:
        # In the catalog, the engine's flush of deletions looks like a deletion of rows.
        if "expect_snapshot" not in arguments or f"concurrently: flush on `{table.name}`" not in world.log[-2]:
            raise
        raise Refused from None
    assert (result.rows_removed, result.rows_written) == (len(replaced), len(rows))
    assert not result.replayed
    world.settle(result.snapshot_id, table.without(replaced).plus(rows))
    if "idempotency_key" in arguments and world.chance(0.5):  # a replacement with another key runs again
        arguments.pop("expect_snapshot", None)
        again = _write(world, table, rows if given is None else given, set(), **arguments)
        assert not again.replayed
        world.settle(again.snapshot_id, world.model.tables[table.name])


def _judge_expectation(
    world: World, table: Table, scope: Callable[[Table], Collection[int]], at: int, rows: dict[int, Row], arguments: Any
) -> bool:
    """Return whether a replacement that expects a snapshot may run; if not, check that it is refused."""
    past = world.model.at(at).get(table.name)
    retained = {snapshot.snapshot_id for snapshot in world.lake.snapshots()}
    if not retained.issuperset(range(at, max(retained))):
        del arguments["expect_snapshot"]  # the catalog no longer tells what the expired snapshots did
        return True
    if world.changed[table.name] <= at:
        return True
    if past is None or past.columns != table.columns:
        del arguments["expect_snapshot"]  # the model cannot compare these snapshots
        return True
    same = expected(world.oracle, past, scope(past)) == expected(world.oracle, table, scope(table))
    if same:  # rows may have been added and deleted in between
        del arguments["expect_snapshot"]
        return True
    with pytest.raises(errors.SnapshotChangedError):
        _write(world, table, rows, set(), **arguments)
    return False


def _partitions(oracle: Oracle, table: Table, rows: Any) -> dict[int, tuple[Any, ...]]:
    found = keys(table)
    names = list(dict.fromkeys(key.column for key in found))
    positions = [table.index(name) for name in names]
    types = [table.types[n] for n in positions]
    return oracle.keys(
        types, {number: [row[n] for n in positions] for number, row in rows.items()}, [k.sql for k in found]
    )


def _like(table: Table, row: Row, other: Row) -> Row:
    """Return a row with the partition of another row."""
    same = {table.index(name) for name in key_names(table)}
    return tuple(other[n] if n in same else value for n, value in enumerate(row))


def _with_defaults(table: Table, row: Row, left_out: set[str]) -> Row:
    return tuple(c.default if c.name in left_out else v for c, v in zip(table.columns, row, strict=True))


def _predicate(world: World, table: Table) -> Condition:
    """Return the condition of the rows to replace: mostly whole partitions, sometimes any rows."""
    found = keys(table)
    identities = [key for key in found if key.transform == "identity"]
    times = [key for key in found if key.transform in ("year", "month", "day", "hour")]
    if identities and world.chance(0.7):
        return _of_identity(world, table, world.rng.choice(identities))
    if times and world.chance(0.7):
        name = identifier(times[0].column)
        return Condition(f"{name} >= '2024-01-01' AND {name} < '2025-01-01'", (times[0].column,))
    numbers = sorted(table.rows)
    if numbers and world.chance(0.6):
        return Condition(f'"id" >= {world.rng.choice(numbers)}', ("id",))
    return Condition('"id" > 0', ("id",))


def _of_identity(world: World, table: Table, key: Key) -> Condition:
    column, name = table.column(key.column), identifier(key.column)
    held = sorted({row[table.index(key.column)] for row in table.rows.values()}, key=repr)
    values = [*held, *world.values(column.type)[:2]]
    first, second = world.rng.choice(values), world.rng.choice(values)
    if first is None:
        return Condition(f"{name} IS NULL", (key.column,))
    if second is None or world.chance(0.6):
        return Condition(f"{name} = {sql_value(first, column.type)}", (key.column,))
    both = f"{sql_value(first, column.type)}, {sql_value(second, column.type)}"
    return Condition(f"{name} IN ({both})", (key.column,))


def _has_partitions(world: World, table: Table) -> bool:
    return any(not key.transform.startswith("bucket") for key in keys(table))


NATIVE = (
    Step("append", "mode", append, weight=3, on_mysql=True),
    Step("overwrite", "mode", overwrite, on_mysql=True),
    Step("overwrite_partitions", "mode", overwrite_partitions, _has_partitions, weight=2, on_mysql=True),
    Step("replace_where", "mode", replace_where, weight=2, on_mysql=True),
    Step("ignore", "mode", ignore, weight=0.3, on_mysql=True),
)
