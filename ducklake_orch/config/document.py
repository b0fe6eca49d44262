"""Read the lakes of a TOML file: apply the profile, resolve names and variables, and make paths absolute."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ducklake_orch.config.catalogs import CATALOGS, SSL_FILES
from ducklake_orch.config.interpolation import has_reference, interpolate
from ducklake_orch.config.lake import default_storage
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.origins import (
    URL_TABLES,
    Node,
    Sourced,
    Tree,
    as_table,
    expand_url,
    key_path,
    located,
    overlay,
    overlay_lake,
    overlay_table,
    plain,
    source,
    source_value,
)
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.toml_file import read_toml
from ducklake_orch.config.urls import scheme_of, shown
from ducklake_orch.errors import ConfigFileError


class Document:
    """A configuration file under one profile.

    Args:
        path: The file. Relative paths in it are relative to its folder, so that every working directory opens the same
            lake.
        profile: The profile that overrides the rest of the file.
        environ: The variables for `${VAR}`.
    """

    def __init__(self, path: Path, profile: str | None, environ: Mapping[str, str]) -> None:
        self.path = path
        self.folder = Path(os.path.abspath(path)).parent
        self._environ = environ
        data = read_toml(path)
        self._lakes: dict[str, Tree] = {}
        self._shared: Tree = {}
        self._named: dict[str, dict[str, Node]] = {what: {} for what in URL_TABLES}
        self._lay_over(data)
        profiles = data.get("profiles", {})
        if profile and profile not in profiles:
            remedy = nearest(profile, profiles) if profiles else f"Add a table [profiles.{key_path(profile)}.lakes.…]."
            raise ConfigFileError(f"{path}: there is no profile `{profile}`.", remedy=remedy)
        if profile:
            self._lay_over(profiles[profile], "profiles", profile)

    def _lay_over(self, data: Mapping[str, Any], *prefix: str) -> None:
        def origin(*keys: str) -> tuple[str, str]:
            path = key_path(*prefix, *keys)
            return f"{self.path.name} [{path}]", f"{self.path}: {path}"

        shared = source(data.get("maintenance", {}), *origin("maintenance"))
        self._shared = overlay(self._shared, {"maintenance": shared} if shared else {})
        for name, fields in data.get("lakes", {}).items():
            self._lakes[name] = overlay_lake(self._lakes.get(name, {}), source(fields, *origin("lakes", name)))
        for what, named in self._named.items():
            for name, value in data.get(f"{what}s", {}).items():
                named[name] = overlay_table(named.get(name), source_value(value, *origin(f"{what}s", name)))

    @property
    def lake_names(self) -> list[str]:
        """The names of the lakes in the file."""
        return list(self._lakes)

    def section(self, lake: str) -> str:
        """Return a readable name for a lake's section."""
        return f"{self.path.name} [{key_path('lakes', lake)}]"

    def only_lake(self) -> str:
        """Return the name of the only lake in the file."""
        if len(self._lakes) == 1:
            return self.lake_names[0]
        if not self._lakes:
            raise ConfigFileError(f"{self.path}: there is no lake.", remedy="Add a table [lakes.<name>].")
        names = ", ".join(f"`{name}`" for name in self._lakes)
        raise ConfigFileError(
            f"{self.path}: there are several lakes: {names}.",
            remedy="Name one with `lake=`, `--lake` or DUCKLAKE_NAME.",
        )

    def lake(self, name: str) -> Tree:
        """Return the fields of a lake, which other sources can then override.

        Raises:
            ConfigFileError: When there is no such lake, or a name or variable in it is unknown.
        """
        if name not in self._lakes:
            raise ConfigFileError(f"{self.path}: there is no lake `{name}`.", remedy=nearest(name, self._lakes))
        fields = overlay(self._shared, self._lakes[name])
        tables: Tree = {what: self._table(what, fields[what], name) for what in URL_TABLES if what in fields}
        return interpolate({key: node for key, node in fields.items() if key not in tables}, self._environ) | tables

    def storage(self, name: str) -> Any:
        """Return the storage of a lake according to this file alone; None if MotherDuck keeps the data."""
        fields = self._lakes[name]
        if "storage" in fields:
            return located(self._table("storage", fields["storage"], name), STORAGES.read)
        catalog = self._table("catalog", fields["catalog"], name) if "catalog" in fields else {}
        kind = catalog.get("type")
        managed = isinstance(kind, Sourced) and kind.value == "motherduck"
        return None if managed else default_storage(name, self.folder)

    def _table(self, what: str, node: Node, lake: str) -> Tree:
        name = self._reference(what, node)
        if name is None:
            return self._resolve(what, as_table(node), self._named[what])
        table = self._resolve(what, as_table(self._named[what][name]), {})
        users = [other for other, fields in self._lakes.items() if self._reference(what, fields.get(what)) == name]
        if what == "storage" and len(users) > 1:
            table = _under(table, lake)
        overrides = {key: value for key, value in as_table(node).items() if key != "url"}
        return overlay(table, self._resolve(what, overrides, {}))

    def _reference(self, what: str, node: Node | None) -> str | None:
        # Names are compared as written, before variables: which lakes share a folder must not depend on the
        # environment.
        url = as_table(node).get("url") if node is not None else None
        return url.value if isinstance(url, Sourced) and url.value in self._named[what] else None

    def _resolve(self, what: str, table: Tree, names: Mapping[str, Node]) -> Tree:
        resolved = interpolate(table, self._environ)
        written, url = table.get("url"), resolved.get("url")
        if isinstance(written, Sourced) and isinstance(url, Sourced):
            _refuse_bare_word(what, written, str(url.value), names)
        expanded = expand_url(what, resolved)
        paths: Tree = {
            key: Sourced(str(self.folder / os.path.expanduser(path.value)), path.origin, path.place)
            for key, path in expanded.items()
            if key in ("path", *SSL_FILES) and isinstance(path, Sourced) and isinstance(path.value, str)
        }
        return expanded | paths


def _refuse_bare_word(what: str, written: Sourced, url: str, names: Mapping[str, Node]) -> None:
    if scheme_of(url) or (what == "storage" and re.search(r"[/.~]", url)):
        return
    if what == "catalog" and url in CATALOGS.types and url not in names:
        return
    if url in names:
        raise ConfigFileError(
            f"{written.place}: `{url}` in [{what}s] is chosen by a variable.",
            remedy="Write the name itself, and choose another one in a profile.",
        )
    word = written.value if has_reference(written.value) else shown(url)
    example = (
        f"Write a folder as `./{word}`." if what == "storage" else "Write a URL with its scheme, such as `sqlite:///…`."
    )
    raise ConfigFileError(
        f"{written.place}: `{word}` is neither a name in [{what}s] nor a URL.",
        remedy=f"{nearest(word, names)} {example}" if names else example,
    )


def _under(storage: Tree, lake: str) -> Tree:
    key, folder = "path" if plain(storage).get("type") == "local" else "prefix", lake.replace("/", "_")
    base = storage.get(key) or storage.get("type")
    if not isinstance(base, Sourced):
        return storage  # a storage without a type is refused when it is built
    path = f"{base.value}/{folder}" if key in storage else folder
    return storage | {key: Sourced(path, base.origin, base.place)}
