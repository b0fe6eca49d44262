"""Values of the metadata tables as Python has them: every kind of catalog hands some of them over as something else."""

from typing import Any


def text(value: Any) -> str | None:
    """Return a text; Postgres and MySQL hold some as bytes."""
    if isinstance(value, bytes | bytearray):
        return value.decode()
    return None if value is None else str(value)


def truth(value: Any) -> bool | None:
    """Return a truth value; SQLite and MySQL have numbers for them, options are texts."""
    return None if value is None else text(value) in ("1", "true", "True", "t")


def maybe_int(value: Any) -> int | None:
    """Return a number that may be missing."""
    return None if value is None else int(value)
