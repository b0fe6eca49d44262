"""Parse and format the tokens of `ducklake_snapshot_changes`: what a snapshot did, for the conflict checks."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# A token is `kind:id` or `kind:"schema"."name"`; commas inside quotes belong to the name.
_CHANGE = re.compile(r'([a-z_]+):(?:("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?)|(\d+))')
# Kinds of changes that change rows.
DATA_CHANGES = {"inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete"}
# Kinds of changes that only move rows: compactions and flushes.
MOVING_CHANGES = {"merge_adjacent", "rewrite_delete", "compacted_table", "inline_flush"}
DELETING_CHANGES = {"deleted_from_table", "inlined_delete"}


@dataclass(frozen=True, slots=True)
class Token:
    """One change of a snapshot: its kind, and the id or the name of the changed object."""

    kind: str
    id: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name if self.id is None else self.id}"


def parse_tokens(changes: str | None) -> list[Token]:
    """Parse the tokens of a snapshot."""
    matches = _CHANGE.findall(changes or "")
    return [Token(kind, int(number) if number else None, name or None) for kind, name, number in matches]


def changes_rows(changes: Iterable[str], table_id: int) -> bool:
    """Return whether the tokens of a snapshot say that rows of a table were added, deleted or updated.

    Rows that flushes and compactions move do not count. Deletions that an engine flush moves into files do not either.
    """
    return table_id in changed_tables(",".join(changes))


def changed_tables(changes: str | None) -> set[int]:
    """Return the ids of the tables whose rows a snapshot changed, as `changes_rows` says."""
    kinds: dict[int, set[str]] = {}
    for token in parse_tokens(changes):
        if token.id is not None:
            kinds.setdefault(token.id, set()).add(token.kind)
    return {
        table_id
        for table_id, found in kinds.items()
        if (found - DELETING_CHANGES if "inline_flush" in found else found) & DATA_CHANGES
    }


def format_tokens(tokens: Iterable[Token]) -> str:
    """Format the tokens of a snapshot, each once."""
    return ",".join(dict.fromkeys(str(token) for token in tokens))


def quoted_path(*parts: str) -> str:
    """Return a name in the quoted form that tokens use."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
