"""Decides whether SQL commands of a task run once over all attempts, and whether they can run again."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ducklake_orch.engine.quoting import folded
from ducklake_orch.engine.scripts import Command, split
from ducklake_orch.errors import StatementError

Target = tuple[str, str]
_PARSED_STATEMENTS = ("INSERT", "WITH", "FROM", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "DROP", "CREATE")


def digest(commands: str | Sequence[str], parameters: Any) -> str:
    """Return a hash that distinguishes these commands and parameters from others."""
    text = json.dumps([commands, parameters], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def is_one_write(commands: str | Sequence[str]) -> bool:
    """Return whether only the last statement writes, so that the commands are one snapshot or nothing."""
    *before, last = _parsed(commands) or [Command("", "utility")]
    return (
        last.kind in ("dml", "ddl") and not last.reaches_outside and all(command.kind == "query" for command in before)
    )


def replace_what_they_wrote(commands: str | Sequence[str]) -> bool:
    """Return whether commands that run again replace what they wrote before, judged by their text.

    They do if they insert only into tables that earlier commands emptied (in part or in whole) or created anew.
    """
    emptied: set[Target] = set()
    parsed = _parsed(commands)
    return bool(parsed) and all(command.kind == "query" or _replaces(command.sql, emptied) for command in parsed)


def _parsed(commands: str | Sequence[str]) -> list[Command]:
    """Return the statements; none if they cannot be parsed, which raises an error when they run."""
    import duckdb

    scripts = [commands] if isinstance(commands, str) else commands
    with duckdb.connect() as con:
        try:
            return [command for script in scripts for command in split(con, script)]
        except (duckdb.Error, StatementError):
            return []


def _replaces(sql: str, emptied: set[Target]) -> bool:
    import sqlglot
    from sqlglot import exp

    if not sql.upper().startswith(_PARSED_STATEMENTS):
        return False
    try:
        parsed = sqlglot.parse_one(sql, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return False
    targets = _targets(parsed)
    covered = bool(targets) and targets <= emptied
    match parsed:
        case exp.Insert():
            return covered
        case exp.Update():
            return all(
                isinstance(expression.expression, exp.Literal | exp.Null | exp.Boolean)
                for expression in parsed.expressions
            )
        case exp.Merge():
            return True
        case exp.Delete() | exp.TruncateTable():
            emptied |= targets
            return True
        case exp.Drop():
            emptied |= targets
            return bool(parsed.args.get("exists"))
        case exp.Create():
            if is_new := covered or bool(parsed.args.get("replace")):
                emptied |= targets
            return is_new or bool(parsed.args.get("exists"))
    return False


def _targets(parsed: Any) -> set[Target]:
    """Return the tables that a statement changes."""
    from sqlglot import exp

    given = parsed.args.get("tables") or ([parsed.this] if parsed.args.get("this") else parsed.expressions)
    tables = [table.this if isinstance(table, exp.Schema) else table for table in given]
    return {
        (folded(table.db or "main"), folded(table.name))
        for table in tables
        if isinstance(table, exp.Table) and table.name
    }
