"""Refuse unknown arguments and suggest the nearest known one."""

from collections.abc import Iterable

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown arguments.

    Args:
        what: What receives the arguments, for the message.
        given: The names of the arguments.
        known: All valid names.

    Raises:
        ConfigError: When an argument is unknown; names the first one and the nearest known name.
    """
    names = list(known)
    for name in given:
        if name not in names:
            raise ConfigError(f"{what} takes no `{name}`.", remedy=nearest(name, names))
