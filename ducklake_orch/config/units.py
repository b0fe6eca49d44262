"""Parse and print durations and sizes as users write them: `7 days`, `36h`, `PT36H`, `512 MiB`."""

import re
from collections.abc import Callable
from datetime import timedelta
from math import isinf
from typing import Any, TypeVar

from ducklake_orch.errors import ConfigError

Read = TypeVar("Read")

_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600}
_SECONDS |= {"hour": 3600, "d": 86400, "day": 86400, "w": 604800, "week": 604800, "millisecond": 0.001}
_BYTES = {"": 1, "b": 1, "byte": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BYTES |= {f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)} | {f"{p}ib": 1024**i for i, p in enumerate("kmgt", 1)}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_duration(value: Any) -> timedelta:
    """Parse a duration: a number of seconds, `90s`, `1h 30m`, `7 days`, or ISO 8601.

    Raises:
        ValueError: When it is none of these, or negative.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str) and value.strip().upper().startswith("P"):
        from pydantic import TypeAdapter, ValidationError  # imported here because Spark tasks need not have pydantic

        try:
            duration = TypeAdapter(timedelta).validate_python(value.strip().upper())
        except ValidationError:
            raise ValueError(f"`{value}` is not an ISO 8601 duration such as `PT36H`") from None
    else:
        try:
            duration = timedelta(seconds=_seconds(value))
        except (KeyError, ValueError, OverflowError):
            raise ValueError(f"`{value}` is not a duration; write it like `7 days`, `36h` or `PT36H`") from None
    if duration < timedelta(0):
        raise ValueError(f"`{value}` is negative")
    return duration


def in_words(duration: timedelta) -> str:
    """Write a duration in the largest unit that gives a whole number."""
    seconds = duration.total_seconds()
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {'day' if (unit, count) == ('days', 1) else unit}"
    return f"{seconds:g} s"


def parse_size(value: Any) -> int:
    """Parse a size in bytes: a number, `512 MiB`, `1.5GB`.

    Raises:
        ValueError: When it is none of these, or negative.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and len(parts := _parts(value)) == 1 and _singular(parts[0][1]) in _BYTES:
        bytes_ = float(parts[0][0]) * _BYTES[_singular(parts[0][1])]
        if isinf(bytes_):
            raise ValueError(f"`{value[:20]}…` is too large")
        size = int(bytes_)
    else:
        raise ValueError(f"`{value}` is not a size; write it like `512 MiB` or `2GB`")
    if size < 0:
        raise ValueError(f"`{value}` is negative")
    return size


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (parts := _parts(value)):
        return sum(float(number) * _SECONDS[_singular(unit) or "s"] for number, unit in parts)
    raise ValueError(value)


def read_argument(name: str, read: Callable[[Any], Read], value: Any) -> Read:
    """Parse an argument of a call.

    Raises:
        ConfigError: When `read` refuses the value; names the argument.
    """
    try:
        return read(value)
    except ValueError as error:
        failure = ConfigError(f"`{name}` = {value!r}: {error}.")
    raise failure


def _parts(text: str) -> list[tuple[str, str]]:
    stripped = text.strip()
    parts = _PART.findall(stripped)
    return parts if stripped and "".join(m.group(0) for m in _PART.finditer(stripped)) == stripped else []


def _singular(unit: str) -> str:
    unit = unit.lower()
    return unit[:-1] if len(unit) > 2 and unit.endswith("s") and unit != "ms" else unit


def in_bytes(size: int) -> str:
    """Return a size in a readable unit."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
