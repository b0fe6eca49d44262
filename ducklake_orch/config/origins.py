"""Trees of values with their sources, which can be overlaid on each other."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import Model
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.errors import ConfigError


@dataclass(frozen=True)
class Sourced:
    """A value, a readable name of its source, and its exact place for errors."""

    value: Any = field(repr=False)
    origin: str
    place: str


Tree: TypeAlias = dict[str, "Sourced | Tree"]
Node: TypeAlias = Sourced | Tree
Built = TypeVar("Built")

# The fields that hold a catalog or storage: a URL, or a table with `type` or `url`.
URL_TABLES: dict[str, Callable[[str], dict[str, Any]]] = {"catalog": CATALOGS.table, "storage": STORAGES.table}


def key_path(*keys: str) -> str:
    """Write a dotted key in TOML, quoting parts that need it."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_string(key) for key in keys)


def toml_string(value: str) -> str:
    """Write a text as a TOML string."""
    # JSON's escapes are valid in TOML; only DEL must be escaped in addition.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def source(values: Mapping[str, Any], origin: str, place: str | None = None) -> Tree:
    """Attach the origin to every value of a table, and its own place below `place`."""
    return {
        str(key): source_value(item, origin, place and f"{place}.{key_path(str(key))}") for key, item in values.items()
    }


def source_value(value: Any, origin: str, place: str | None = None) -> Node:
    """Attach the origin to a value, or to every value of a table."""
    return source(value, origin, place) if isinstance(value, Mapping) else Sourced(value, origin, place or origin)


def plain(tree: Tree) -> dict[str, Any]:
    """Return the values without their origins."""
    return {key: node.value if isinstance(node, Sourced) else plain(node) for key, node in tree.items()}


def as_table(node: Node) -> Tree:
    """Return the table form of a catalog or storage."""
    return {"url": node} if isinstance(node, Sourced) else node


def overlay(base: Tree, over: Tree) -> Tree:
    """Overlay one tree on another, key by key; keys that differ only in case are the same key."""
    merged, spelling = dict(base), {key.lower(): key for key in base}
    for key, value in over.items():
        key = spelling.get(key.lower(), key)
        under = merged.get(key)
        merged[key] = overlay(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def overlay_table(base: Node | None, over: Node) -> Node:
    """Overlay a catalog or storage on another; one with another `url` or `type` replaces it completely.

    Otherwise the password for one server would be sent to another.
    """
    if base is None or isinstance(over, Sourced):
        return over
    under = as_table(base)
    new, old = plain(over), plain(under)
    if ("url" in old or "type" in old) and any(new.get(key, old.get(key)) != old.get(key) for key in ("url", "type")):
        return over
    return overlay(under, over)


def overlay_lake(base: Tree, over: Tree) -> Tree:
    """Overlay the fields of a lake on others."""
    tables = {key: overlay_table(base.get(key), over[key]) for key in URL_TABLES if key in over}
    return overlay(base, over) | tables


def expand_url(what: str, table: Tree) -> Tree:
    """Add the fields that a table's `url` implies; fields given in the table override them."""
    url = table.get("url")
    if not isinstance(url, Sourced):
        return table
    fields = located({"url": url}, lambda values: URL_TABLES[what](str(values["url"])))
    return overlay({key: source_value(value, url.origin, url.place) for key, value in fields.items()}, table)


def located(tree: Tree, build: Callable[[dict[str, Any]], Built]) -> Built:
    """Build an object from a tree's values; an error names the places of the values that it mentions."""
    try:
        return build(plain(tree))
    except ConfigError as error:
        failure = type(error)(f"{_place_of(error, tree)}: {error.message}", remedy=error.remedy)
    raise failure


def _place_of(error: ConfigError, tree: Tree) -> str:
    leaves = list(_leaves(tree))
    mentioned = [leaf.place for key, leaf in leaves if re.search(rf"[`.]{re.escape(key)}[`. ]", error.message)]
    if len(leaves) == 1:
        return leaves[0][1].place
    return ", ".join(dict.fromkeys(mentioned or [leaf.origin for _, leaf in leaves]))


def _leaves(tree: Tree) -> Iterable[tuple[str, Sourced]]:
    for key, node in tree.items():
        if isinstance(node, Sourced):
            yield key, node
        else:
            yield from _leaves(node)


def origins_of(config: LakeConfig, tree: Tree) -> dict[str, str]:
    """Return the origin of every field of a lake, by dotted path."""
    origins: dict[str, str] = {}
    for name in LakeConfig.model_fields:
        origins |= _origins(name, getattr(config, name), tree.get(name))
    return origins


def _origins(path: str, value: Any, node: Node | None) -> dict[str, str]:
    inside = node if isinstance(node, dict) else {}
    # The origin of a table is that of its type, else that of the first source that sets one of its keys.
    first = (
        node if isinstance(node, Sourced) else inside.get("type") or next((leaf for _, leaf in _leaves(inside)), None)
    )
    origins = {path: first.origin if isinstance(first, Sourced) else "default"}
    for key in type(value).model_fields if isinstance(value, Model) else inside:
        origins |= _origins(f"{path}.{key}", getattr(value, key, None), inside.get(key))
    return origins
