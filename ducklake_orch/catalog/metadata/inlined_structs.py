"""Read the texts that the engine stores for inlined structs on SQLite and PostgreSQL, which it cannot read itself.

It writes a struct as an SQL expression, such as `{'day': CAST('2024-01-01' AS DATE), 'name': 'it''s'}`, and reads it as
DuckDB casts a text to a struct: that fails for the day, and loses the quote of the name. Lists and maps are in the form
of the cast, also inside a struct.
"""

import re
from collections.abc import Sequence

from ducklake_orch.catalog.metadata.table_model import ColumnDef

# A text in SQL: a quote is doubled, and a backslash stands for itself.
_TEXT = "'((?:[^']|'')*)'"
_CAST = re.compile(rf"CAST\({_TEXT} AS [^']*?\)(?=, '|\}})")
_LITERAL = re.compile(_TEXT)
_NUMBER = re.compile(r"[^\s,{}'\[\]]+")
_NAME = re.compile(rf"{_TEXT}: ")
# A text in a list or map: a quote or backslash follows a backslash.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


class _UnknownFormError(Exception):
    pass


def castable(value: str | None, column: ColumnDef) -> str | None:
    """Return the text of an inlined struct in the form that DuckDB casts to the struct.

    A text that the engine has not written stays as it is.
    """
    if value is None:
        return None
    try:
        struct, end = _struct(value, 0, column.children)
    except _UnknownFormError:
        return value
    return struct if end == len(value) else value


def _struct(value: str, at: int, fields: Sequence[ColumnDef]) -> tuple[str, int]:
    """Return the struct that begins at a position, and where it ends."""
    parts = []
    for number, field in enumerate(fields):
        at = _after(value, at, ", " if number else "{")
        name = _NAME.match(value, at)
        if name is None or name[1].replace("''", "'") != field.name:
            raise _UnknownFormError
        part, at = _field(value, name.end(), field)
        parts.append(f"{_quoted(field.name)}: {part}")
    return f"{{{', '.join(parts)}}}", _after(value, at, "}")


def _field(value: str, at: int, field: ColumnDef) -> tuple[str, int]:
    if value.startswith("NULL", at):
        return "NULL", at + len("NULL")
    if field.type == "struct":
        return _struct(value, at, field.children)
    if field.children:
        end = _end_of_nested(value, at)
        return value[at:end], end
    if (found := _CAST.match(value, at) or _LITERAL.match(value, at)) is not None:
        return _quoted(found[1].replace("''", "'")), found.end()
    if (found := _NUMBER.match(value, at)) is not None:
        return found[0], found.end()
    raise _UnknownFormError


def _end_of_nested(value: str, at: int) -> int:
    """Return where the list or map ends that begins at a position."""
    depth = 0
    while at < len(value):
        if (quoted := _QUOTED.match(value, at)) is not None:
            at = quoted.end()
            continue
        depth += (value[at] in "[{") - (value[at] in "]}")
        at += 1
        if not depth:
            return at
    raise _UnknownFormError


def _after(value: str, at: int, expected: str) -> int:
    if not value.startswith(expected, at):
        raise _UnknownFormError
    return at + len(expected)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
