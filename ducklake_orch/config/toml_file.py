"""Read a TOML file and refuse unknown keys in every lake and profile, not only in the one in use: `read_toml`."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ducklake_orch.config.lake import check_attach_option
from ducklake_orch.config.model import Model
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.origins import key_path
from ducklake_orch.config.shape import (
    GROUPS,
    HOOKS,
    KNOWN_KEYS,
    LAKE_KEYS,
    TYPES,
    is_free_table,
    keys_of,
    models_in,
    models_of,
)
from ducklake_orch.errors import ConfigFileError

SECTIONS = ("lakes", "catalogs", "storages", "maintenance")
_INIT = "Run `ducklake-orch init` to create one."


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file and check its keys.

    Raises:
        ConfigFileError: When the file is missing, unreadable, not TOML, or has an unknown key.
    """
    data = _parse(path)
    check = _Check(path)
    check.sections(data, (), {})
    for name, profile in check.table(data.get("profiles", {}), ("profiles",)).items():
        check.sections(check.table(profile, ("profiles", name)), ("profiles", name), data)
    return data


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        problem, remedy = "there is no such file.", _INIT
    except IsADirectoryError:
        problem, remedy = "it is a folder.", f"Name the file in it. {_INIT}"
    except UnicodeDecodeError as error:
        problem, remedy = f"byte {error.start} is not UTF-8.", "Save the file as UTF-8."
    except OSError as error:
        problem, remedy = f"the file cannot be read ({error.strerror}).", "Check the path and its permissions."
    except RecursionError:
        problem, remedy = "its values are nested too deeply.", "No setting needs nesting: correct the file."
    except tomllib.TOMLDecodeError as error:
        problem, remedy = f"invalid TOML: {error}.", "Correct that line."
    except ValueError:  # raised for a number with thousands of digits
        problem, remedy = "a number has too many digits.", "Write numbers with at most 18 digits."
    # Raised here, not in a handler: some of these errors hold the whole text, including secrets.
    raise ConfigFileError(f"{path}: {problem}", remedy=remedy)


class _Check:
    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigFileError(
                f"{self._path}: `{key_path(*keys)}` is not a table.", remedy=f"Write it as [{key_path(*keys, '…')}]."
            )
        return value

    def keys(self, table: Mapping[str, Any], known: Iterable[str], keys: tuple[str, ...]) -> None:
        known = set(known)
        for key in table:
            if key not in known:
                raise ConfigFileError(
                    f"{self._path}: unknown key `{key_path(*keys, key)}`.", remedy=nearest(key, known)
                )

    def sections(self, data: dict[str, Any], keys: tuple[str, ...], base: dict[str, Any]) -> None:
        self.keys(data, SECTIONS if keys else (*SECTIONS, "profiles"), keys)
        shared = self.table(data.get("maintenance", {}), (*keys, "maintenance"))
        self.group(GROUPS["maintenance"], shared, (*keys, "maintenance"))
        for name, lake in self.table(data.get("lakes", {}), (*keys, "lakes")).items():
            place = (*keys, "lakes", name)
            # An overlay for a lake that does not exist would be ignored, and writes would use another database.
            if keys and name not in base.get("lakes", {}):
                raise ConfigFileError(
                    f"{self._path}: `{key_path(*place)}` changes a lake that is not in [lakes].",
                    remedy=nearest(name, base.get("lakes", {})),
                )
            self.lake(self.table(lake, place), place, base.get("lakes", {}).get(name, {}))
        for what in TYPES:
            entries = base.get(f"{what}s", {})
            for name, table in self.table(data.get(f"{what}s", {}), (*keys, f"{what}s")).items():
                place = (*keys, f"{what}s", name)
                if keys and name not in entries and isinstance(table, dict) and not {"type", "url"} & set(table):
                    raise ConfigFileError(
                        f"{self._path}: `{key_path(*place)}` changes a {what} that is not in [{what}s].",
                        remedy=nearest(name, entries),
                    )
                self.location(what, table, place, entries.get(name, {}))

    def lake(self, lake: dict[str, Any], keys: tuple[str, ...], base: Any) -> None:
        if python := (HOOKS | {"name"}) & set(lake):
            key = min(python)
            remedy = "The name of the table is the lake's name." if key == "name" else "Pass hooks as Python arguments."
            raise ConfigFileError(f"{self._path}: `{key_path(*keys, key)}` cannot be set in a file.", remedy=remedy)
        self.keys(lake, LAKE_KEYS, keys)
        for key, value in lake.items():
            if key in TYPES:
                self.location(key, value, (*keys, key), base.get(key, {}) if isinstance(base, dict) else {})
            elif key in GROUPS:
                self.group(GROUPS[key], self.table(value, (*keys, key)), (*keys, key))
            elif key == "attach_options":
                self.attach_options(self.table(value, (*keys, key)), (*keys, key))
            elif key in KNOWN_KEYS:
                self.keys(self.table(value, (*keys, key)), KNOWN_KEYS[key], (*keys, key))

    def group(self, model: type[Model], group: dict[str, Any], keys: tuple[str, ...]) -> None:
        self.keys(group, model.model_fields, keys)
        for key, value in group.items():
            for inner in models_in(model, key):
                table = self.table(value, (*keys, key))
                if not is_free_table([model], key):
                    self.group(inner, table, (*keys, key))
                    continue
                for name, entry in table.items():
                    self.group(inner, self.table(entry, (*keys, key, name)), (*keys, key, name))

    def attach_options(self, table: dict[str, Any], keys: tuple[str, ...]) -> None:
        for key in table:
            try:
                check_attach_option(key)
            except ValueError as error:
                raise ConfigFileError(f"{self._path}: `{key_path(*keys, key)}`: {error}") from None

    def location(self, what: str, value: Any, keys: tuple[str, ...], base: Any) -> None:
        if isinstance(value, str):
            return
        table = self.table(value, keys)
        for key in {"type", "url"} & set(table):
            if not isinstance(table[key], str):
                raise ConfigFileError(f"{self._path}: `{key_path(*keys, key)}` is not a string.", remedy="Quote it.")
        if "type" in table and table["type"] not in TYPES[what] and "${" not in table["type"]:
            raise ConfigFileError(
                f"{self._path}: `{key_path(*keys, 'type')}` = `{table['type']}` is not a type of {what}.",
                remedy=nearest(table["type"], TYPES[what]),
            )
        models = models_of(what, table if {"type", "url"} & set(table) else base)
        self.keys(table, {"url", *keys_of(models)}, keys)
        for key in set(table) & set(KNOWN_KEYS):
            if is_free_table(models, key):
                self.keys(self.table(table[key], (*keys, key)), KNOWN_KEYS[key], (*keys, key))
