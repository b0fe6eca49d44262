"""SQL commands as one piece of work: what it is known by, whether it is done once, whether it can be done anew."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ducklake_orch.engine.quoting import folded
from ducklake_orch.engine.scripts import Command, split

Target = tuple[str, str]
_UNDERSTOOD = ("INSERT", "WITH", "FROM", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "DROP", "CREATE")


def digest(commands: str | Sequence[str], parameters: Any) -> str:
    """Return what tells these commands from others."""
    text = json.dumps([commands, parameters], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def is_one_write(commands: str | Sequence[str]) -> bool:
    """Whether all that these commands change is one statement, the last: then they are one snapshot, or nothing."""
    *before, last = _parsed(commands) or [Command("", "utility")]
    return last.kind in ("dml", "ddl") and not last.reaches_outside and all(one.kind == "query" for one in before)


def replace_what_they_wrote(commands: str | Sequence[str]) -> bool:
    """Whether commands that are run again take the place of what they did, as far as their text tells.

    So it is where rows go into tables only that the commands before have emptied, in part or in whole, or made anew.
    """
    emptied: set[Target] = set()
    found = _parsed(commands)
    return bool(found) and all(one.kind == "query" or _replaces(one.sql, emptied) for one in found)


def _parsed(commands: str | Sequence[str]) -> list[Command]:
    """Return the statements; none where they cannot be parsed, which is said where they run."""
    import duckdb

    scripts = [commands] if isinstance(commands, str) else commands
    with duckdb.connect() as con:
        try:
            return [command for script in scripts for command in split(con, script)]
        except duckdb.Error:
            return []


def _replaces(sql: str, emptied: set[Target]) -> bool:
    import sqlglot
    from sqlglot import exp

    if not sql.upper().startswith(_UNDERSTOOD):
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
            return all(isinstance(one.expression, exp.Literal | exp.Null | exp.Boolean) for one in parsed.expressions)
        case exp.Merge():
            return True
        case exp.Delete() | exp.TruncateTable():
            emptied |= targets
            return True
        case exp.Drop():
            emptied |= targets
            return bool(parsed.args.get("exists"))
        case exp.Create():
            if anew := covered or bool(parsed.args.get("replace")):
                emptied |= targets
            return anew or bool(parsed.args.get("exists"))
    return False


def _targets(parsed: Any) -> set[Target]:
    """Return the tables that a statement changes."""
    from sqlglot import exp

    given = parsed.args.get("tables") or ([parsed.this] if parsed.args.get("this") else parsed.expressions)
    tables = [one.this if isinstance(one, exp.Schema) else one for one in given]
    return {(folded(one.db or "main"), folded(one.name)) for one in tables if isinstance(one, exp.Table) and one.name}
