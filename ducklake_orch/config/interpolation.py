"""Replace `${VAR}` and `${VAR:-default}` in the values of a configuration file."""

import re
from collections.abc import Mapping
from typing import Any

from ducklake_orch.config.origins import Sourced, Tree
from ducklake_orch.errors import ConfigFileError

_REFERENCE = re.compile(r"\$?\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?!.*\$\{).*))?", re.DOTALL)


def has_reference(value: Any) -> bool:
    """Return whether a value depends on the environment."""
    return isinstance(value, str) and any(not match[0].startswith("$$") for match in _REFERENCE.finditer(value))


def interpolate(tree: Tree, environ: Mapping[str, str]) -> Tree:
    """Replace the references in every text of a tree.

    Args:
        tree: The values of a file.
        environ: The variables; an empty one counts as missing if a default is given.

    Raises:
        ConfigFileError: When a variable is missing, or a reference is not well-formed.
    """
    return {
        key: Sourced(_replaced(node.value, node.place, environ), node.origin, node.place)
        if isinstance(node, Sourced)
        else interpolate(node, environ)
        for key, node in tree.items()
    }


def _replaced(value: Any, place: str, environ: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_replaced(item, place, environ) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        variable = _VARIABLE.fullmatch(match["inside"])
        if not variable or not match["end"]:
            raise ConfigFileError(
                f"{place}: `${{` does not start a valid reference.",
                remedy="Write `${VAR}`, `${VAR:-default}`, or `$${` for `${`.",
            )
        name, default = variable["name"], variable["default"]
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            raise ConfigFileError(
                f"{place}: the environment variable `{name}` is not set.",
                remedy=f"Set it, or write a default: `${{{name}:-default}}`.",
            )
        return environ[name]

    return _REFERENCE.sub(replacement, value)
