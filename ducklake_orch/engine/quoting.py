"""Quote names and values for SQL text; no other module quotes."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple

from ducklake_orch.errors import ConfigError

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Options whose value is a keyword, which all documentation writes without quotes.
_WORDS = {"type", "provider"}
# What neither the engine nor a catalog can store: NUL, and half of a surrogate pair.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_PATTERN_SIGNS = re.compile(r"[\[*?]")
_NAME_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


def is_storable(text: str) -> bool:
    """Whether the engine and each catalog can store a text."""
    return not UNSTORABLE.search(text)


def refuse_unstorable(text: str) -> None:
    """Refuse a value that cannot be stored; the error does not show it, as it may be a secret."""
    if not is_storable(text):
        raise ConfigError("A value with a NUL or half a surrogate pair cannot be written in SQL.")


def identifier(name: str) -> str:
    """Quote a name, always, so that keywords, dashes, dots and spaces need no special case."""
    if not name or not is_storable(name):
        raise ConfigError(f"{name!r} cannot be a name in SQL.")
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def folded(name: str) -> str:
    """Return a name in the form in which equal names are the same; DuckDB ignores the case of ASCII letters only."""
    return name.translate(_LOWER)


def folded_sql(value: str) -> str:
    """Return the SQL that folds a name as `folded` does."""
    return f"translate({value}, '{ascii_uppercase}', '{ascii_lowercase}')"


def literal(value: Any) -> str:
    """Write a value as an SQL literal."""
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value):
        text = repr(value)
        # Without an exponent DuckDB would read a long number as a decimal and round it on conversion to a double.
        return text if "e" in text or len(text) <= 16 else f"{text}e0"
    if isinstance(value, datetime | date):
        value = value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    text = str(value)
    refuse_unstorable(text)
    return "'" + text.replace("'", "''") + "'"


def exactly(path: str) -> str:
    """Return the glob pattern that matches this path and no other."""
    return _PATTERN_SIGNS.sub(r"[\g<0>]", path)


def file_literal(path: str) -> str:
    """Write a path as the SQL literal of a pattern that matches this file and no other."""
    return literal(exactly(path))


def file_literals(paths: Iterable[str]) -> str:
    """Write paths for a list of files, as `read_parquet([…])` takes them."""
    return ", ".join(map(file_literal, paths))


def options(values: Mapping[str, Any]) -> str:
    """Write `(NAME value, …)` for ATTACH and CREATE SECRET; None is left out, a dict becomes a MAP."""
    parts = []
    for name, value in values.items():
        if not _PLAIN.fullmatch(name):
            raise ConfigError(f"`{name}` cannot be the name of an option.")
        if isinstance(value, Mapping):
            pairs = ", ".join(f"{literal(key)}: {literal(str(item))}" for key, item in value.items())
            parts.append(f"{name.upper()} MAP {{{pairs}}}")
        elif name.lower() in _WORDS and isinstance(value, str) and _PLAIN.fullmatch(value):
            parts.append(f"{name.upper()} {value}")
        elif value is not None:
            parts.append(f"{name.upper()} {literal(value)}")
    return f"({', '.join(parts)})" if parts else ""


def conninfo(values: Mapping[str, Any]) -> str:
    """Write a libpq connection string; values are quoted, empty ones are left out."""
    escaped = {key: str(value).replace("\\", "\\\\").replace("'", "\\'") for key, value in values.items() if value}
    return " ".join(f"{key}='{value}'" for key, value in escaped.items())


class TableName(NamedTuple):
    """A table and its schema."""

    schema: str
    table: str

    @property
    def key(self) -> "TableName":
        """The name in the form in which all names of the same table are equal."""
        return TableName(folded(self.schema), folded(self.table))

    def names(self, schema: str, table: str) -> bool:
        """Whether this names a table."""
        return self.key == TableName(schema, table).key

    def sql(self, alias: str) -> str:
        """Return the quoted name with the lake, without which it is ambiguous if a schema has the lake's name."""
        return f"{identifier(alias)}.{identifier(self.schema)}.{identifier(self.table)}"

    def __str__(self) -> str:
        return ".".join(part if re.fullmatch(r"[^.\"]+", part) else identifier(part) for part in self)


def table_name(name: str, schema: str = "main") -> TableName:
    """Parse `table` or `schema.table`, each part optionally in double quotes.

    Args:
        name: The name.
        schema: The schema of a name without a schema.

    Raises:
        ConfigError: When the name has no parts or too many.
    """
    if not isinstance(name, str) or not is_storable(name):
        raise ConfigError(f"{name!r} is not the name of a table.", remedy="Write `table` or `schema.table`.")
    parts, position = [], 0
    while match := _NAME_PART.match(name, position):
        parts.append(match.group(1).replace('""', '"') if match.group(1) is not None else match.group(2))
        position = match.end()
        if position == len(name) or name[position] != ".":
            break
        position += 1
    if position != len(name) or name.endswith(".") or len(parts) not in (1, 2) or not all(parts):
        raise ConfigError(
            f"`{name}` is not the name of a table.",
            remedy='Write `table` or `schema.table`; put a part with a dot or a quote in double quotes: `main."a.b"`.',
        )
    return TableName(*parts) if len(parts) == 2 else TableName(schema, parts[0])
