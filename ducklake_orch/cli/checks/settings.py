"""Lists the values of the configuration and their origins."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from ducklake_orch.cli.checks.check import Check
from ducklake_orch.config.loading import Loaded
from ducklake_orch.config.redaction import MASK

# Free-form tables can hold secrets under names that the user chose.
_SECRETIVE = re.compile(r"pass|secret|token|key|credential|meta_|parameters", re.IGNORECASE)


def setting_checks(loaded: Loaded, *, every: bool) -> Iterator[Check]:
    """List the values of the configuration and their origins.

    Args:
        loaded: The configuration and its origins.
        every: Whether to list defaults, too.
    """
    paths = sorted(loaded.origins)
    for path in paths:
        if any(other.startswith(f"{path}.") for other in paths):
            continue
        origin = loaded.origins[path]
        if every or origin != "default":
            yield Check(f"setting {path}", "ok", f"{_shown(loaded, path)} ({origin})")


def _shown(loaded: Loaded, path: str) -> str:
    value: Any = loaded.config
    keys = path.split(".")
    free = False
    for number, key in enumerate(keys):
        if isinstance(value, BaseModel):
            value = getattr(value, key, None)
        elif isinstance(value, Mapping):
            free = True
            rest = ".".join(keys[number:])
            value = value.get(rest, value.get(key))
        if not isinstance(value, BaseModel | Mapping):
            break
    if isinstance(value, SecretStr) or (free and _SECRETIVE.search(path)) or isinstance(value, Mapping):
        return MASK if value else str(value)
    return loaded.config.scrubber(str(value))
