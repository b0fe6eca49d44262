"""The tokens of `ducklake_snapshot_changes`: what a snapshot did, for whoever has to judge whether it is in the way."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# A change is `kind:id` or `kind:"schema"."name"`; commas inside quotes belong to the name.
_CHANGE = re.compile(r'([a-z_]+):(?:("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?)|(\d+))')
# What changes rows; compactions and flushes only move them.
DATA_CHANGES = {"inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete"}
# What moves rows and changes none.
MOVING_CHANGES = {"merge_adjacent", "rewrite_delete", "compacted_table", "inline_flush"}
DELETING_CHANGES = {"deleted_from_table", "inlined_delete"}


@dataclass(frozen=True, slots=True)
class Token:
    """One change of a snapshot: its kind, and the id or the name of what it changed."""

    kind: str
    id: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name if self.id is None else self.id}"


def parse_tokens(changes: str | None) -> list[Token]:
    """Read the tokens of a snapshot."""
    found = _CHANGE.findall(changes or "")
    return [Token(kind, int(number) if number else None, name or None) for kind, name, number in found]


def changes_rows(changes: Iterable[str], table_id: int) -> bool:
    """Whether tokens of a snapshot say that rows of a table came, went or became others.

    What flushes and compactions move does not count, nor do deletions that a flush of the engine puts into files.
    """
    kinds = {one.kind for one in parse_tokens(",".join(changes)) if one.id == table_id}
    if "inline_flush" in kinds:
        kinds -= DELETING_CHANGES
    return bool(kinds & DATA_CHANGES)


def format_tokens(tokens: Iterable[Token]) -> str:
    """Write the tokens of a snapshot, each once."""
    return ",".join(dict.fromkeys(str(token) for token in tokens))


def quoted_path(*parts: str) -> str:
    """Return a name as tokens carry it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
