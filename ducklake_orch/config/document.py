"""The lakes of a TOML file: profile laid over, names and variables resolved, paths made absolute."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ducklake_orch.config.interpolation import has_reference, interpolate
from ducklake_orch.config.lake import default_storage
from ducklake_orch.config.model import nearest
from ducklake_orch.config.origins import (
    URL_TABLES,
    Node,
    Sourced,
    Tree,
    expand_url,
    key_path,
    located,
    overlay_lake,
    overlay_table,
    plain,
    source,
)
from ducklake_orch.config.shape import TYPES
from ducklake_orch.config.storages import read_storage
from ducklake_orch.config.toml_file import SECTIONS, read_toml
from ducklake_orch.config.urls import scheme_of, shown
from ducklake_orch.errors import ConfigFileError


class Document:
    """A configuration file under one profile.

    Args:
        path: The file; relative paths in it count from its folder, so that any working directory opens the same lake.
        profile: Which of its profiles is laid over it.
        environ: Where `${VAR}` is looked up.
    """

    def __init__(self, path: Path, profile: str | None, environ: Mapping[str, str]) -> None:
        self.path = path
        self.folder = Path(os.path.abspath(path)).parent
        self._environ = environ
        data = read_toml(path)
        self._sections = {section: self._read(data, section) for section in SECTIONS}
        if profile:
            self._lay_over(data.get("profiles", {}), profile)

    def _read(self, data: dict[str, Any], section: str, *prefix: str) -> dict[str, Node]:
        found = {}
        for name, value in data.get(section, {}).items():
            keys = key_path(*prefix, section, name)
            found[name] = source(value, f"{self.path.name} [{keys}]", f"{self.path}: {keys}")
        return found

    def _lay_over(self, profiles: dict[str, Any], profile: str) -> None:
        if profile not in profiles:
            remedy = nearest(profile, profiles) if profiles else f"Add a table [profiles.{key_path(profile)}.lakes.…]."
            raise ConfigFileError(f"{self.path}: there is no profile `{profile}`.", remedy=remedy)
        for section in SECTIONS:
            entries = self._sections[section]
            for name, over in self._read(profiles[profile], section, "profiles", profile).items():
                base = entries.get(name)
                if section == "lakes":
                    assert isinstance(base, dict) and isinstance(over, dict)  # noqa: PT018, S101 -- checked on reading
                    entries[name] = overlay_lake(base, over)
                else:
                    entries[name] = overlay_table(base, over)

    @property
    def lake_names(self) -> list[str]:
        """The names of the lakes in the file."""
        return list(self._sections["lakes"])

    def only_lake(self) -> str:
        """Return the name of the file's lake, if it has just one."""
        if len(self.lake_names) == 1:
            return self.lake_names[0]
        if not self.lake_names:
            raise ConfigFileError(f"{self.path}: there is no lake.", remedy="Add a table [lakes.<name>].")
        names = ", ".join(f"`{name}`" for name in self.lake_names)
        raise ConfigFileError(f"{self.path}: there are several lakes: {names}.", remedy="Say which: `lake=`, `--lake` or DUCKLAKE_NAME.")

    def lake(self, name: str) -> Tree:
        """Return the fields of a lake, ready to be laid under the environment's.

        Raises:
            ConfigFileError: When there is no such lake, or a name or variable in it means nothing.
        """
        fields = self._fields(name)
        tables: Tree = {what: self._location(what, fields[what], name) for what in URL_TABLES if what in fields}
        rest = interpolate({key: node for key, node in fields.items() if key not in tables}, self._environ)
        assert isinstance(rest, dict)  # noqa: S101
        return rest | tables

    def storage(self, name: str) -> Any:
        """Return the storage that a lake has by the file alone; None where MotherDuck keeps the data."""
        fields = self._fields(name)
        if "storage" in fields:
            return located(self._location("storage", fields["storage"], name), _build_storage)
        if "catalog" in fields and plain(self._location("catalog", fields["catalog"], name)).get("type") == "motherduck":
            return None
        return default_storage(name, self.folder)

    def _fields(self, name: str) -> Tree:
        if name not in self._sections["lakes"]:
            raise ConfigFileError(f"{self.path}: there is no lake `{name}`.", remedy=nearest(name, self.lake_names))
        fields = self._sections["lakes"][name]
        assert isinstance(fields, dict)  # noqa: S101
        return fields

    def _location(self, what: str, node: Node, lake: str) -> Tree:
        name = self._reference(what, node)
        if name is None:
            return self._resolve(what, node)
        fields = self._resolve(what, self._sections[f"{what}s"][name])
        sharing = [other for other in self.lake_names if self._reference(what, self._fields(other).get(what)) == name]
        if what == "storage" and len(sharing) > 1:
            fields = self._under(fields, lake)
        beside = interpolate({key: item for key, item in node.items() if key != "url"}, self._environ) if isinstance(node, dict) else {}
        ...
