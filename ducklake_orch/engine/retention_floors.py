"""Retention floors: a typo in a raw maintenance call must not delete the lake's history or a writer's files."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from ducklake_orch.config import maintenance
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.scripts import Command
from ducklake_orch.errors import MaintenanceFloorError

if TYPE_CHECKING:
    from sqlglot import exp

# The floors of `lake.maintain`, by the engine's function.
FLOORS = {
    "expire_snapshots": maintenance.FLOORS["expire"],
    "cleanup_old_files": maintenance.FLOORS["cleanup"],
    "delete_orphaned_files": maintenance.FLOORS["orphans"],
}
# The persisted option that sets the age for a call without `older_than`.
_OPTION_OF = {
    "expire_snapshots": "expire_older_than",
    "cleanup_old_files": "delete_older_than",
    "delete_orphaned_files": "delete_older_than",
}


def refuse_below_floor(con: duckdb.DuckDBPyConnection, alias: str, command: Command) -> None:
    """Refuse a maintenance call that would delete anything younger than its floor.

    Args:
        con: A connection to the lake, to evaluate arguments and read options.
        alias: The lake.
        command: The maintenance call.

    Raises:
        MaintenanceFloorError: When it would, or when its arguments cannot be evaluated.
    """
    if command.checkpoints:
        for operation in FLOORS:
            _check_option(con, alias, operation)
        return
    for operation in FLOORS:
        if command.calls & {operation, f"ducklake_{operation}"}:
            _check_call(con, alias, operation, command.sql)


def _check_call(con: duckdb.DuckDBPyConnection, alias: str, operation: str, sql: str) -> None:
    arguments = _named_arguments(sql, operation)
    if arguments is None:
        raise _below(operation, "its arguments cannot be read")
    if _value(con, arguments.get("dry_run")) is True:
        return
    if _value(con, arguments.get("cleanup_all")) is True:
        raise _below(operation, "`cleanup_all` keeps nothing")
    if (versions := arguments.get("versions")) is not None:
        _check_versions(con, alias, operation, _value(con, versions))
    elif (older_than := arguments.get("older_than")) is not None:
        row = con.execute(f"SELECT ({older_than.sql(dialect='duckdb')})::TIMESTAMPTZ").fetchone()
        limit = row[0] if row else None
        if limit is None or limit > datetime.now(UTC) - FLOORS[operation]:
            raise _below(operation, f"`older_than` is {limit}")
    else:
        _check_option(con, alias, operation)


def _named_arguments(sql: str, operation: str) -> "dict[str, exp.Expression] | None":
    """Return the named arguments of the call, or None if the statement cannot be parsed."""
    import sqlglot
    from sqlglot import exp

    text = sql.strip()
    if text[:4].upper() == "CALL":
        text = "SELECT * FROM " + text[4:]
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return None
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower().removeprefix("ducklake_") == operation:
            named = (exp.Kwarg, exp.PropertyEQ, exp.EQ)
            return {arg.this.name.lower(): arg.expression for arg in call.expressions if isinstance(arg, named)}
    return None


def _value(con: duckdb.DuckDBPyConnection, expression: "exp.Expression | None") -> Any:
    if expression is None:
        return None
    row = con.execute(f"SELECT {expression.sql(dialect='duckdb')}").fetchone()
    return row[0] if row else None


def _check_versions(con: duckdb.DuckDBPyConnection, alias: str, operation: str, versions: Any) -> None:
    wanted = ", ".join(str(int(version)) for version in versions or [])
    sql = f"SELECT max(snapshot_time) FROM ducklake_snapshots({literal(alias)})"
    row = con.execute(f"{sql} WHERE list_contains([{wanted}]::BIGINT[], snapshot_id)").fetchone()
    newest = row[0] if row else None
    if newest is not None and newest > datetime.now(UTC) - FLOORS[operation]:
        raise _below(operation, f"one of the `versions` was committed at {newest}")


def _check_option(con: duckdb.DuckDBPyConnection, alias: str, operation: str) -> None:
    option = _OPTION_OF[operation]
    sql = f"SELECT value FROM ducklake_options({literal(alias)}) WHERE option_name = '{option}' AND scope = 'GLOBAL'"
    row = con.execute(sql).fetchone()
    if row is None:
        return  # the engine's default applies: two days, or no expiry at all
    age = con.execute(f"SELECT now() - CAST({literal(row[0])} AS INTERVAL)").fetchone()
    if age is None or age[0] > datetime.now(UTC) - FLOORS[operation]:
        raise _below(operation, f"the lake's option `{option}` is {row[0]!r}")


def _below(operation: str, reason: str) -> MaintenanceFloorError:
    floor = FLOORS[operation] / timedelta(hours=1)
    return MaintenanceFloorError(
        f"`{operation}` must keep everything younger than {floor:g} h, but {reason}.",
        remedy="Choose a longer retention, or pass `force=True` if nothing else uses this lake.",
    )
