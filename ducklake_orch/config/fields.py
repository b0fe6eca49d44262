"""Field types that accept values as users write them: `7 days`, `512 MiB`, `~/lake`."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from ducklake_orch.config.units import parse_duration, parse_size


def _at_home(value: Any) -> Any:
    return os.path.expanduser(value) if isinstance(value, str | Path) else value


def _milliseconds(value: Any) -> Any:
    """Read a number of milliseconds, or a duration with its unit."""
    if isinstance(value, str) and not value.strip().isdigit():
        return round(parse_duration(value).total_seconds() * 1000)
    return value


def _memory(value: Any) -> Any:
    return None if value is None else f"{parse_size(value)}B"


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(parse_duration, json_schema_input_type=str | int | float)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int)]
Milliseconds = Annotated[int, BeforeValidator(_milliseconds, json_schema_input_type=str | int)]
HomePath = Annotated[Path, BeforeValidator(_at_home, json_schema_input_type=str)]
Memory = Annotated[str | None, BeforeValidator(_memory, json_schema_input_type=str | int | None)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_tuple, json_schema_input_type=str | list[str])]
