"""Convert values of the metadata tables to Python types; some values have different types on each kind of catalog."""

from typing import Any


def text(value: Any) -> str | None:
    """Return a value as text; PostgreSQL and MySQL store some texts as bytes."""
    if isinstance(value, bytes | bytearray):
        return value.decode()
    return None if value is None else str(value)


def truth(value: Any) -> bool | None:
    """Return a value as a boolean; SQLite and MySQL store booleans as numbers, and options are texts."""
    return None if value is None else text(value) in ("1", "true", "True", "t")


def maybe_int(value: Any) -> int | None:
    """Return a value as an integer, or None for NULL."""
    return None if value is None else int(value)
