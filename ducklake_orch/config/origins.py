"""Values that know where they came from, in trees that can be laid over each other."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ducklake_orch.config.catalogs import catalog_table
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import Model
from ducklake_orch.config.storages import storage_table
from ducklake_orch.errors import ConfigError


@dataclass(frozen=True)
class Sourced:
    """A value, the source a person would name for it, and its exact place for errors."""

    value: Any = field(repr=False)
    origin: str
    place: str


Tree: TypeAlias = dict[str, "Sourced | Tree"]
Node: TypeAlias = Sourced | Tree
Built = TypeVar("Built")

URL_TABLES = {"catalog": catalog_table, "storage": storage_table}


def key_path(*keys: str) -> str:
    """Write keys as TOML does, quoted where they need it."""
    quoted = (key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else '"' + key.replace('"', '\\"') + '"' for key in keys)
    return ".".join(quoted)


def source(value: Any, origin: str, place: str) -> Node:
    """Give every value of a table its origin."""
    if isinstance(value, Mapping):
        return {str(key): source(item, origin, f"{place}.{key_path(str(key))}") for key, item in value.items()}
    return Sourced(value, origin, place)


def plain(node: Node) -> Any:
    """Return the values without their origins."""
    return node.value if isinstance(node, Sourced) else {key: plain(item) for key, item in node.items()}


def overlay(base: Node | None, over: Node) -> Node:
    """Lay one tree over another, key by key; keys that differ only in case are one key."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    merged, spelling = dict(base), {key.lower(): key for key in base}
    for key, value in over.items():
        key = spelling.get(key.lower(), key)
        merged[key] = overlay(merged.get(key), value)
    return merged


def overlay_table(base: Node | None, over: Node) -> Node:
    """Lay a catalog or storage over another: one that names another `url` or `type` replaces it whole.

    Otherwise a password would follow its user to another server.
    """
    if base is None or isinstance(over, Sourced):
        return over
    base = {"url": base} if isinstance(base, Sourced) else base
    defined = "url" in base or "type" in base
    if defined and any(key in over and _value(over, key) != _value(base, key) for key in ("url", "type")):
        return over
    return overlay(base, over)


def _value(tree: Tree, key: str) -> Any:
    return plain(tree[key]) if key in tree else None


def overlay_lake(base: Tree, over: Tree) -> Tree:
    """Lay the fields of a lake over others."""
    merged = dict(base)
    for key, value in over.items():
        merged[key] = (overlay_table if key in URL_TABLES else overlay)(merged.get(key), value)
    return merged


def expand_url(what: str, tree: Tree) -> Tree:
    """Add the fields that a table's `url` stands for, under those that stand beside it."""
    url = tree.get("url")
    if not isinstance(url, Sourced):
        return tree
    fields = located(tree, lambda values: URL_TABLES[what](str(values["url"])))
    expanded = overlay({key: source(value, url.origin, url.place) for key, value in fields.items()}, tree)
    assert isinstance(expanded, dict)  # noqa: S101 -- two tables make a table
    return expanded


def located(tree: Tree, build: Callable[[dict[str, Any]], Built]) -> Built:
    """Build something from a tree's values; an error names the place of the values that it mentions."""
    try:
        return build(plain(tree))
    except ConfigError as error:
        failure = type(error)(f"{_place_of(error, tree)}: {error.message}", remedy=error.remedy)
    raise failure


def _place_of(error: ConfigError, tree: Tree) -> str:
    leaves = list(_leaves(tree))
    mentioned = [
        leaf.place for key, leaf in leaves if re.search(rf"[`.]{re.escape(key)}[`. ]", error.message, re.IGNORECASE)
    ]
    return ", ".join(dict.fromkeys(mentioned or [leaf.origin for _, leaf in leaves]))


def _leaves(tree: Tree) -> list[tuple[str, Sourced]]:
    found = []
    for key, node in tree.items():
        found += [(key, node)] if isinstance(node, Sourced) else _leaves(node)
    return found


def origins_of(config: LakeConfig, tree: Tree) -> dict[str, str]:
    """Return the origin of every field, by dotted path."""
    found: dict[str, str] = {}
    for name in LakeConfig.model_fields:
        found |= _origins(name, getattr(config, name), tree.get(name))
    return found


def _origins(path: str, value: Any, node: Node | None) -> dict[str, str]:
    inside = node if isinstance(node, dict) else {}
    # A table comes from where its type was said, else from the first who said something about it.
    leaves = dict(_leaves({"type": inside["type"]} if "type" in inside else inside))
    first = node if isinstance(node, Sourced) else next(iter(leaves.values()), None)
    found = {path: first.origin if first else "default"}
    keys = type(value).model_fields if isinstance(value, Model) else inside
    for key in keys:
        found |= _origins(f"{path}.{key}", getattr(value, key, None), inside.get(key))
    return found
