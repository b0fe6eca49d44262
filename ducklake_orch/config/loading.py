"""Load a lake's configuration from arguments, environment variables and a TOML file, in this order of precedence."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ducklake_orch.config.catalogs import MotherDuckCatalog
from ducklake_orch.config.document import Document
from ducklake_orch.config.environment import CONFIG, NAME, PROFILE, read_environment
from ducklake_orch.config.lake import LakeConfig, default_storage, read_catalog, refuse_shared_data_paths
from ducklake_orch.config.model import Model
from ducklake_orch.config.origins import (
    URL_TABLES,
    Sourced,
    Tree,
    expand_url,
    located,
    origins_of,
    overlay_lake,
    plain,
    source,
    source_value,
)
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.errors import ConfigError, IncompatibleConfigError

# The name of a lake that has none in its sources.
DEFAULT_NAME = "lake"


@dataclass(frozen=True)
class Loaded:
    """A lake's configuration and the source of each value.

    Attributes:
        config: The configuration.
        origins: The source of every field, by dotted path: `argument`, `environment DUCKLAKE_…`, `ducklake.toml
            [lakes.…]`, or `default`.
    """

    config: LakeConfig
    origins: dict[str, str]


def load(
    *,
    path: str | Path | None = None,
    profile: str | None = None,
    lake: str | None = None,
    environ: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Loaded:
    """Load the configuration of one lake.

    Each value is taken from the first source that has it: the arguments, `DUCKLAKE_…` variables, the file's profile,
    the file, the defaults. The keys of catalog and storage are merged one by one, unless a source names another URL or
    type: then all values of the sources below it are dropped.

    Args:
        path: The TOML file; default is DUCKLAKE_CONFIG. Without either there is no file.
        profile: The profile of the file; default is DUCKLAKE_PROFILE.
        lake: The lake's name; default is DUCKLAKE_NAME, then the only lake of the file, and without a file `lake`.
            Variables for the lake of DUCKLAKE_NAME are not applied to another lake.
        environ: The environment; default is the process's own.
        **arguments: Fields of `LakeConfig`; None means that the argument is not given.

    Raises:
        ConfigError: When a value is wrong, missing or unknown; it names the place and the remedy.
    """
    environ = os.environ if environ is None else environ
    variables = read_environment(environ)
    given = {key: value for key, value in arguments.items() if value is not None}
    document = _document(path, profile, environ)
    own_name = given.pop("name", None)
    name = _name(lake, own_name, environ.get(NAME), document, is_described=bool(variables or given))
    fields = document.lake(name.value) if document else {}
    if environ.get(NAME, name.value) in {"", name.value}:
        fields = overlay_lake(fields, variables)
    tree = _lay_over(fields, given) | {"name": name}
    config = _build(tree, document)
    if document:
        _refuse_shared_data_paths(document, config)
    return Loaded(config, origins_of(config, tree))


def _document(path: str | Path | None, profile: str | None, environ: Mapping[str, str]) -> Document | None:
    path = path or environ.get(CONFIG)
    profile = profile or environ.get(PROFILE)
    if path:
        return Document(Path(path), profile, environ)
    if profile:
        raise ConfigError(
            f"The profile `{profile}` is given without a configuration file.",
            remedy=f"Give `path=`, `--config` or {CONFIG}.",
        )
    return None


def _name(
    lake: str | None, name: str | None, variable: str | None, document: Document | None, *, is_described: bool
) -> Sourced:
    if lake and name and lake != name:
        raise ConfigError(f"`lake` = `{lake}` and `name` = `{name}` are two names for one lake.", remedy="Give one.")
    if chosen := lake or name:
        return Sourced(chosen, "argument", "argument name")
    if variable:
        return Sourced(variable, f"environment {NAME}", f"environment {NAME}")
    if document:
        return Sourced(only := document.only_lake(), document.section(only), document.section(only))
    if is_described:
        return Sourced(DEFAULT_NAME, "default", "default name")
    raise ConfigError("No lake is given.", remedy=f"Set DUCKLAKE_CATALOG, or name a file in {CONFIG}.")


def _lay_over(fields: Tree, arguments: dict[str, Any]) -> Tree:
    whole: Tree = {}
    for what in URL_TABLES:
        value = arguments.get(what)
        if isinstance(value, Model):
            # A model is complete, so values of other sources are not merged into it.
            whole[what] = source(_given(value), "argument", f"argument {what}")
            del arguments[what]
        elif isinstance(value, str | Path):
            arguments[what] = {"url": str(value)}
    over: Tree = {}
    for key, value in arguments.items():
        values = _given(value) if isinstance(value, Model) else value
        node = source_value(values, "argument", f"argument {key}")
        over[key] = expand_url(key, node) if key in URL_TABLES and isinstance(node, dict) else node
    return overlay_lake(fields, over) | whole


def _given(model: Model) -> dict[str, Any]:
    given = model.model_fields_set | {"type"}
    return {name: getattr(model, name) for name in type(model).model_fields if name in given}


def _build(tree: Tree, document: Document | None) -> LakeConfig:
    values: dict[str, Any] = {}
    name, folder = str(plain(tree)["name"]), document.folder if document else Path()
    for what, read in (("catalog", lambda fields: read_catalog(fields, name, folder)), ("storage", STORAGES.read)):
        table = tree.get(what)
        if isinstance(table, dict):
            # The `url` has been expanded into fields already, each with its own place.
            values[what] = located({key: node for key, node in table.items() if key != "url"}, read)
        elif table is not None:
            values[what] = table.value
    if document:
        values.setdefault("catalog", read_catalog(None, name, folder))
        if not isinstance(values["catalog"], MotherDuckCatalog):
            values.setdefault("storage", default_storage(name, folder))
    return located(tree, lambda fields: LakeConfig(**(fields | values)))


def _refuse_shared_data_paths(document: Document, config: LakeConfig) -> None:
    storages = {config.name: config.storage}
    for name in document.lake_names:
        if name != config.name:
            try:
                storages[name] = document.storage(name)
            except ConfigError:
                # A variable of the other lake may be missing here, which is an error only for users who open that lake.
                continue
    paths: dict[Any, dict[str, str]] = {}
    for name, storage in storages.items():
        if storage:
            # The same bucket name on another server is another bucket.
            server = tuple(getattr(storage, key, None) for key in ("endpoint", "account_id", "account_name"))
            paths.setdefault(server, {})[name] = storage.data_path
    for shared in paths.values():
        try:
            refuse_shared_data_paths(shared)
        except IncompatibleConfigError as error:
            raise IncompatibleConfigError(f"{document.path}: {error.message}", remedy=error.remedy) from None
