"""Arguments that nothing knows: refused with the nearest one that is known."""

from collections.abc import Iterable

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse arguments that are not known.

    Args:
        what: What they are given to.
        given: Their names.
        known: All names that it takes.

    Raises:
        ConfigError: Names the first of them, and the nearest known one.
    """
    names = list(known)
    for name in given:
        if name not in names:
            raise ConfigError(f"{what} takes no `{name}`.", remedy=nearest(name, names))
