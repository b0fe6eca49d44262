"""Converts Python values to SQL literals: missing values become NULL, and unsupported types are refused."""

import math
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import DataError

_MICROSECOND = timedelta(microseconds=1)


def sql_value(value: Any) -> str:
    """Return a value as a SQL literal.

    None and the missing values of pandas and numpy (NA, NaT, NaN) become NULL.

    Raises:
        DataError: If no column can hold a value of this type.
    """
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        value = _from_numpy(value)
    elif type(value).__module__.startswith("pyarrow") and hasattr(value, "as_py"):
        value = value.as_py()
    match value:
        case None:
            return "NULL"
        case list() | tuple():
            return f"[{', '.join(map(sql_value, value))}]"
        case Mapping():
            return _mapping(value)
        case bytes() | bytearray() | memoryview():
            return f"from_hex('{bytes(value).hex()}')"
        case str() | bool() | int():
            return literal(value)
    if type(value).__name__ == "NAType" or _is_nan(value):
        return "NULL"
    match value:
        case float():
            return literal(value) if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
        case timedelta():
            return _interval(value)
        case Decimal() | UUID() | date() | time():
            return literal(value)
    raise DataError(
        f"A value of type {type(value).__qualname__} cannot be stored: {str(value)[:80]!r}.",
        remedy="Give text, numbers, truth values, dates, times, bytes, UUIDs, and lists or mappings of them.",
    )


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN or NaT, the only values that differ from themselves."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def _from_numpy(value: Any) -> Any:
    """Return a numpy scalar or array as Python values."""
    if value.dtype.kind not in "mM":
        return value.tolist()
    if value.ndim:
        return [_from_numpy(item) for item in value]
    if _is_nan(value):
        return None
    if value.dtype.kind == "M":
        return str(value).replace("T", " ")  # Python's datetime has no nanoseconds
    whole = value.astype("timedelta64[us]")
    if whole != value:
        raise DataError(f"{value!r} is finer than a microsecond, which a lake cannot store.", remedy="Round it.")
    return whole.item()


def _interval(value: timedelta) -> str:
    if getattr(value, "nanoseconds", 0):  # pandas' Timedelta
        raise DataError(f"{value!r} is finer than a microsecond, which a lake cannot store.", remedy="Round it.")
    return f"to_microseconds({value // _MICROSECOND})"


def _mapping(value: Mapping[Any, Any]) -> str:
    if not value:
        return "'{}'"
    pairs = ", ".join(f"{sql_value(key)}: {sql_value(item)}" for key, item in value.items())
    return f"{{{pairs}}}" if all(isinstance(key, str) for key in value) else f"MAP {{{pairs}}}"
